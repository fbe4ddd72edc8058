//! Charges an execution's [`Meter`] for values: the work of comparing two, and the work and memory of copying a row's.

use super::value::{FieldValue, Value};
use crate::sql::limits::{Budget, COMPUTED_BYTES_LEAST, Fault, Meter};

/// Texts up to this length are not searched for characters to escape.
const SHORT_BYTES: usize = 64;
/// Additional bytes of a control character's escape.
const CONTROL_BYTES: usize = 5;

impl Meter<'_> {
    /// Counts the comparison of a value: a text by its length.
    #[inline]
    pub(crate) fn weigh(&self, value: Value<'_>) -> Result<(), Fault> {
        match value {
            Value::Text(text) => self.tick_bytes(text.len()),
            _ => Ok(()),
        }
    }

    /// Room for assembling one row: the memory limit of the budget, at least [`COMPUTED_BYTES_LEAST`].
    pub(crate) fn row_room(&self) -> RowRoom<'_> {
        RowRoom { left: self.row_bytes_max(), fault: Fault::Row(self.row_bytes_max()), is_written: false, meter: self }
    }
}

/// Room for assembling a row. Exceeding it is an error before the field is copied, because a row can hold hundreds of copies of
/// one computed text.
pub(crate) struct RowRoom<'m> {
    left: usize,
    /// The error of exceeding the room.
    fault: Fault,
    /// The row is written as JSON.
    is_written: bool,
    meter: &'m Meter<'m>,
}

impl<'m> RowRoom<'m> {
    /// Room in a result that already has `bytes` bytes. `is_kept`: the rows are for the query itself, not for a client.
    pub(crate) fn of_result(budget: &Budget<'_>, (bytes, is_kept): (usize, bool), meter: &'m Meter<'m>) -> RowRoom<'m> {
        let limit = budget.output_bytes_max;
        // A slightly larger result is refused when the row is complete.
        let left = limit.saturating_sub(bytes).max(COMPUTED_BYTES_LEAST);
        RowRoom { left, fault: Fault::Result(limit), is_written: !is_kept, meter }
    }

    /// Counts a field that is about to be copied.
    #[inline]
    pub(crate) fn take(&mut self, field: FieldValue<'_>) -> Result<(), Fault> {
        match field {
            FieldValue::Json(bytes) | FieldValue::Value(Value::Text(bytes)) => self.take_bytes(bytes.len()),
            FieldValue::Value(_) => Ok(()),
        }
    }

    /// The same for a field that is written as JSON: escapes make a text up to six times as long.
    #[inline]
    pub(crate) fn take_written(&mut self, field: FieldValue<'_>) -> Result<(), Fault> {
        match field {
            FieldValue::Value(Value::Text(text)) if self.is_written && text.len() > SHORT_BYTES => {
                let controls = text.iter().filter(|&&byte| byte < 0x20).count();
                let escaped = text.iter().filter(|&&byte| matches!(byte, b'"' | b'\\')).count();
                self.take_bytes(text.len() + CONTROL_BYTES * controls + escaped)
            }
            field => self.take(field),
        }
    }

    #[inline]
    fn take_bytes(&mut self, bytes: usize) -> Result<(), Fault> {
        self.left = self.left.checked_sub(bytes).ok_or(self.fault)?;
        self.meter.tick_bytes(bytes)
    }
}
