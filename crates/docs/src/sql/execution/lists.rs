//! A parallel scan whose rows are delivered in the order of one thread: plain lists, and DISTINCT, which keeps the first of
//! equal rows.
//!
//! A thread that scans a part stores its rows in batches. The consumer passes them to its sink while other threads scan on
//! (`morsels.rs`). So one thread would give the same output, byte for byte: rows before an error are delivered before
//! it, and rows after the last one of LIMIT have no effect.
//!
//! - With LIMIT the consumer reads the first part alone, because that is usually enough. Then only a few parts are read ahead.
//! - With DISTINCT a part drops rows that it has seen already, as far as its memory allows. The consumer drops the other
//!   duplicates.
//!
//! ```text
//! row: length (u32) | rows of the part read so far (u64) | fields (values/sort.rs)
//!  row of DISTINCT: length (u32) | rows read (u64) | its values as a key | length (u32), sort key, fields; or the number of a fault
//! ```

use super::cut::{Common, Cuts};
use super::morsels::{AHEAD_PER_THREAD, Morsels, PartScan, Turn};
use super::ordered::{Next, Ordered, PATIENCE, Waits};
use super::part::Shared;
use super::run::{End, Flow, GROUP_OVERHEAD_BYTES, Run};
use super::spilling::{Distinct, late_row, share, take_sized};
use super::workers::{Taken, Workers};
use crate::engine::ReadView;
use crate::sql::expressions::Frame;
use crate::sql::limits::{Fault, Meter, QueryError, ROWS_READ, Tally};
use crate::sql::planning::Plan;
use crate::sql::rows::RowSink;
use crate::sql::values::{FieldValue, Value, sort};

/// The share of the memory for rows that wait for earlier ones.
const WAITING: (usize, usize) = (1, 4);
/// The share of the memory for the rows that parts have seen.
const SEEN: (usize, usize) = (1, 8);
/// Rows are handed to the consumer in batches of about this size.
const BATCH_BYTES: usize = 16 << 10;
/// Faults of values, by number. A row of DISTINCT reports its fault only if no equal row precedes it.
fn faults(meter: &Meter<'_>) -> [Fault; 11] {
    [
        Fault::IntegerOverflow,
        Fault::TextTooLong,
        Fault::PatternTooLong,
        Fault::PatternTooCostly,
        Fault::Json,
        Fault::LoneSurrogate,
        Fault::NotUtf8,
        Fault::JsonLabel,
        Fault::Conversion,
        meter.exceeded(),
        Fault::Row(meter.row_bytes_max()),
    ]
}

/// The number of a fault. The place in a malformed path is a negative one.
fn number_of(fault: Fault, meter: &Meter<'_>) -> Option<i64> {
    match fault {
        Fault::JsonPath(at) => Some(-i64::from(at)),
        fault => faults(meter).iter().position(|known| *known == fault).map(|number| number as i64),
    }
}

/// The fault of a number. `None`: there is none.
fn of_number(number: i64, meter: &Meter<'_>) -> Option<Fault> {
    match u32::try_from(number.checked_neg()?) {
        Ok(at) if at > 0 => Some(Fault::JsonPath(at)),
        _ => faults(meter).get(usize::try_from(number).ok()?).copied(),
    }
}

const LENGTH_BYTES: usize = size_of::<u32>();
/// The bytes before a row's fields.
const HEAD_BYTES: usize = LENGTH_BYTES + size_of::<u64>();

/// Whether a plan's rows, of which `keep` are wanted, are scanned in parts and delivered one by one, and whether that pays.
pub(super) fn is_listed(plan: &Plan, keep: Option<usize>, workers: &Workers) -> bool {
    let is_list = !plan.grouped && (plan.distinct || plan.order.is_empty());
    // If each entry is a result row, the scan reads only the wanted number of entries.
    let is_each = matches!(&plan.levels[..], [level] if level.before.is_empty() && level.after.is_empty());
    let is_short = keep.is_some_and(|keep| {
        let few = (keep as u64) < workers.entries_min();
        few && (is_each || plan.reads_for(keep).is_some_and(|read| read < workers.entries_min() as f64))
    });
    is_list && !is_short
}

impl Waits for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// The sink of a part.
struct PartRows<'p> {
    ordered: &'p Ordered<Vec<u8>>,
    number: usize,
    rows: Vec<u8>,
    /// The bytes of complete rows: an error may occur within one.
    whole: usize,
    /// Rows after which a batch is handed over, whatever its size.
    wanted: usize,
    takes_infinite: bool,
    /// The part no longer belongs to this thread.
    is_stopped: bool,
    turn: Option<Turn<'p>>,
}

impl PartRows<'_> {
    fn hand_on(&mut self) {
        if self.whole == 0 || self.is_stopped {
            return;
        }
        let mut rows = std::mem::take(&mut self.rows);
        rows.truncate(std::mem::take(&mut self.whole));
        self.is_stopped = match self.turn {
            None => !self.ordered.put(self.number, rows),
            Some(turn) => {
                self.ordered.put_own(self.number, rows);
                loop {
                    if !turn() {
                        break true;
                    }
                    if let Some(goes_on) = self.ordered.goes_on(self.number) {
                        break !goes_on;
                    }
                }
            }
        };
    }
}

impl RowSink for PartRows<'_> {
    fn begin_row(&mut self) {
        self.rows.extend_from_slice(&[0; HEAD_BYTES]);
    }

    #[inline(always)]
    fn field(&mut self, _column: usize, field: FieldValue<'_>) {
        sort::push_field(field, &mut self.rows);
    }

    fn end_row(&mut self) {
        self.end_row_at(0);
    }

    fn end_row_at(&mut self, rows_read: u64) {
        let length = (self.rows.len() - self.whole - LENGTH_BYTES) as u32;
        let head = &mut self.rows[self.whole..self.whole + HEAD_BYTES];
        head[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        head[LENGTH_BYTES..].copy_from_slice(&rows_read.to_le_bytes());
        self.whole = self.rows.len();
        self.wanted = self.wanted.saturating_sub(1);
        if self.rows.len() >= BATCH_BYTES || self.wanted == 0 {
            self.hand_on();
        }
    }

    fn bytes(&self) -> usize {
        0
    }

    fn is_wanted(&self) -> bool {
        !self.is_stopped
    }

    fn takes_infinite(&self) -> bool {
        self.takes_infinite
    }
}

impl<S: RowSink + ?Sized> Run<'_, S> {
    /// Scans with several threads and delivers the rows. Returns false if it did nothing.
    pub(super) fn list(&mut self, cuts: &Cuts, taken: &Taken<'_>, view: &(dyn ReadView + Sync)) -> Result<bool, End> {
        let (plan, budget, keep) = (self.plan, self.budget, self.keep());
        let Some(fixed) = Common::of(plan, self.fixed) else { return Ok(false) };
        let before = self.tally.map_or(0, Tally::rows);
        let ahead_max = if keep.is_some() { (taken.count() + 1) * AHEAD_PER_THREAD } else { cuts.parts() };
        let shared = Shared::given_in_order(before, keep.is_some() || plan.rows_may_fail());
        let ordered = Ordered::new(cuts.parts(), ahead_max, share(budget, WAITING), PATIENCE);
        let morsels = Morsels {
            plan,
            fixed,
            view,
            budget,
            cuts,
            keep: keep.filter(|_| !plan.distinct),
            takes_infinite: self.sink.takes_infinite(),
            shared,
            ordered,
            scan: scan_rows,
            takes_meanwhile: true,
        };
        let flow = morsels.run(taken, keep.is_some(), &mut |next| self.give_found(next, &morsels.shared));
        // The count includes rows that were read ahead, but must not exceed the limit.
        let left = budget.rows_max.saturating_sub(before);
        self.outcome.rows_read = (self.outcome.rows_read + morsels.shared.rows()).min(left);
        flow.map(|()| true)
    }

    /// Delivers what the parts have found. Checks the row limit for a delivered row by the rows read in its part before.
    fn give_found(&mut self, next: Next<Vec<u8>>, shared: &Shared) -> Flow {
        let rows_max = self.budget.rows_max;
        let check = |is_late: bool| match is_late {
            true => Err(QueryError::Limit { what: ROWS_READ, limit: rows_max }),
            false => Ok(()),
        };
        match next {
            Next::Found(rows) => {
                let mut rows = &rows[..];
                while !rows.is_empty() {
                    let row = take_sized(&mut rows)?;
                    let (read, row) = row.split_first_chunk().ok_or(Fault::Plan)?;
                    check(shared.is_late(u64::from_le_bytes(*read), rows_max))?;
                    self.give_row(row)?;
                }
            }
            Next::Ended(read) => check(shared.add_given(read) > rows_max)?,
            Next::Failed(read, error) => {
                check(shared.is_late(read, rows_max))?;
                return Err(error.into());
            }
            Next::Nothing => {}
        }
        Ok(())
    }

    /// Delivers a row of a part.
    fn give_row(&mut self, mut row: &[u8]) -> Flow {
        if !self.plan.distinct {
            return self.give_kept(row);
        }
        let (FieldValue::Json(key), found) = (sort::take_field(&mut row), sort::take_field(&mut row)) else {
            return Err(Fault::Plan.into());
        };
        let new = self.note_distinct(key)?;
        let mut row = match found {
            _ if new == Distinct::Known => return Ok(()),
            FieldValue::Json(row) => row,
            FieldValue::Value(Value::Integer(fault)) => {
                return Err(of_number(fault, self.fixed.meter).unwrap_or(Fault::Plan).into());
            }
            FieldValue::Value(_) => return Err(Fault::Plan.into()),
        };
        if new == Distinct::Late {
            return Ok(self.keep_late(key, row)?);
        }
        let order = take_sized(&mut row)?;
        if self.plan.order.is_empty() {
            return self.give_kept(row);
        }
        let keep = self.keep();
        self.sort.buffer().push(&[order], &[row], keep, self.fixed.meter)?;
        Ok(self.check_sort()?)
    }

    /// Hands a row of DISTINCT to the consumer, unless this part has seen an equal one.
    pub(super) fn hand_over(&mut self, frame: Option<&Frame<'_>>) -> Flow {
        let mut key = std::mem::take(self.key);
        key.clear();
        let mut room = self.fixed.meter.row_room();
        for expr in &self.plan.outputs {
            let value = expr.evaluate(&self.scope(frame))?;
            room.take(FieldValue::Value(value))?;
            sort::push_key(value, false, &mut key)?;
        }
        if self.distinct.contains(&key[..]) {
            *self.key = key;
            return Ok(());
        }
        let bytes = self.distinct_bytes + key.len() + GROUP_OVERHEAD_BYTES;
        if self.count_bytes(bytes) <= share(self.budget, SEEN) {
            self.distinct.insert(key.as_slice().into());
            self.distinct_bytes = bytes;
        } else {
            self.count_bytes(self.distinct_bytes);
        }
        let outputs = self.plan.outputs.iter();
        let row = late_row(&self.plan.order, outputs.map(|expr| expr.field(&self.scope(frame))), &self.scope(frame));
        self.sink.begin_row();
        self.sink.field(0, FieldValue::Json(&key));
        match row {
            Ok(row) => self.sink.field(1, FieldValue::Json(&row)),
            Err(fault) => match number_of(fault, self.fixed.meter) {
                Some(number) => self.sink.field(1, FieldValue::Value(Value::Integer(number))),
                None => return Err(fault.into()),
            },
        }
        *self.key = key;
        self.end_row()
    }
}

/// Scans a part and hands on its rows in batches.
fn scan_rows(morsels: &Morsels<'_, Vec<u8>>, part: PartScan<'_>) {
    let PartScan { number, fixed, memory, turn } = part;
    let mut sink = PartRows {
        ordered: &morsels.ordered,
        number,
        rows: Vec::new(),
        whole: 0,
        wanted: morsels.keep.unwrap_or(usize::MAX),
        takes_infinite: morsels.takes_infinite,
        is_stopped: false,
        turn,
    };
    let mut run = morsels.run_of((number, turn), fixed, memory, &mut sink);
    let found = run.gather_part();
    let (read, counted) = (run.outcome.rows_read, run.counted.0);
    run.count_bytes(0);
    sink.hand_on();
    if sink.is_stopped {
        morsels.shared.uncount(counted);
        return;
    }
    morsels.end(number, read, found);
}
