//! External sort: rows in memory, and beyond its limit sorted runs on disk (`runs.rs`). Rows with equal keys keep their order.

use super::runs::Runs;
use crate::sql::limits::{Budget, Fault, Meter, QueryError};
use crate::sql::values::SortBuffer;

/// See the module documentation.
#[derive(Debug, Default)]
pub(in crate::sql) struct Sorter {
    /// The newest rows: all rows of the runs arrived before them.
    buffer: SortBuffer,
    runs: Runs,
}

impl Sorter {
    /// The rows in memory.
    #[inline]
    pub(in crate::sql) fn buffer(&mut self) -> &mut SortBuffer {
        &mut self.buffer
    }

    /// Bytes in memory.
    pub(in crate::sql) fn size(&self) -> usize {
        self.buffer.size()
    }

    /// Bytes of the keys and fields of the rows in memory.
    pub(in crate::sql) fn row_bytes(&self) -> usize {
        self.buffer.row_bytes()
    }

    pub(in crate::sql) fn is_spilled(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Removes all rows, and keeps the memory.
    pub(in crate::sql) fn clear(&mut self) {
        self.buffer.clear();
        self.release();
    }

    /// Releases the rows on disk, if an error has left some.
    pub(in crate::sql) fn release(&mut self) {
        if self.is_spilled() {
            self.runs = Runs::default();
        }
    }

    /// Takes all rows; later runs are written to the same file.
    pub(in crate::sql) fn take(&mut self) -> Sorter {
        Sorter { buffer: std::mem::take(&mut self.buffer), runs: self.runs.take() }
    }

    /// Writes the rows in memory as a run. With `keep`, only the first `keep` rows in sort order are wanted.
    pub(in crate::sql) fn spill(&mut self, keep: Option<usize>, budget: &Budget<'_>) -> Result<(), QueryError> {
        self.runs.write(&mut self.buffer, keep, budget)
    }

    /// The same if the rows in memory have more than `bytes_max` bytes.
    pub(in crate::sql) fn make_room(&mut self, bytes_max: usize, budget: &Budget<'_>) -> Result<(), QueryError> {
        if self.size() > bytes_max { self.spill(None, budget) } else { Ok(()) }
    }

    /// Appends another's rows, which arrived later. If these were spilled, the own rows in memory were spilled before.
    pub(in crate::sql) fn append(
        &mut self,
        other: Sorter,
        keep: Option<usize>,
        meter: &Meter<'_>,
    ) -> Result<(), Fault> {
        self.runs.append(other.runs);
        self.buffer.append(other.buffer, keep, meter)
    }

    /// Visits the keys and fields of all rows in sort order. With `keep`, only the first `keep` rows are wanted, and a few more
    /// may be visited. The rows in memory stay there if none was spilled.
    pub(in crate::sql) fn each<E: From<QueryError>>(
        &mut self,
        keep: Option<usize>,
        budget: &Budget<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.is_spilled() {
            self.buffer.sort(&Meter::new(budget)).map_err(QueryError::from)?;
            return self.buffer.entries().try_for_each(|(key, fields)| visit(key, fields));
        }
        self.spill(keep, budget)?;
        let mut merge = std::mem::take(&mut self.runs).merge(keep, budget)?;
        while merge.advance()? {
            visit(merge.key(), merge.payload())?;
        }
        Ok(())
    }
}
