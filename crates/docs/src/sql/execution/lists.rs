//! A parallel scan whose rows are delivered in the order of one thread: plain lists, and DISTINCT, which keeps the first of
//! equal rows.
//!
//! The range is cut into parts (`cut.rs`). A thread that scans a part stores its rows (`ordered.rs`). The query's own thread is
//! the consumer: it takes the rows in the order of the parts and passes them to its sink while other threads scan on. If no
//! rows are ready, it scans a part itself. So the output is identical to that of one thread, to the last byte: rows before an
//! error are delivered before it, and rows after the last one of LIMIT have no effect.
//!
//! - With LIMIT the consumer reads the first part alone, because that is usually enough. Then only a few parts are read ahead.
//! - With DISTINCT a part drops rows that it has seen already, as far as its memory allows. The consumer drops the other
//!   duplicates.
//!
//! ```text
//! row: length (u32) | rows of the part read so far (u64) | fields (values/sort.rs)
//!  row of DISTINCT: length (u32) | rows read (u64) | its values as a key | length (u32), sort key, fields; or the number of a fault
//! ```

use std::cell::RefCell;

use super::cut::{Common, Cuts};
use super::ordered::{self, Next, Ordered, Own};
use super::part::Shared;
use super::run::{End, Flow, GROUP_OVERHEAD_BYTES, LevelKeys, Run, Scratch};
use super::spilling::{late_row, share, take_sized};
use super::workers::{Taken, Workers};
use crate::engine::View;
use crate::sql::expressions::{Fixed, Frame};
use crate::sql::limits::{Budget, Fault, Meter, QueryError, ROWS_READ, Tally};
use crate::sql::planning::Plan;
use crate::sql::rows::{Distinct, RowSink};
use crate::sql::values::{Field, Value, sort};

/// The share of the memory for rows that wait for earlier ones.
const WAITING: (usize, usize) = (1, 4);
/// The share of the memory for the rows that parts have seen.
const SEEN: (usize, usize) = (1, 8);
/// Rows are handed to the consumer in batches of about this size.
const BATCH_BYTES: usize = 16 << 10;
/// Parts that each thread may be ahead of the consumer if LIMIT may end the scan.
const AHEAD_PER_THREAD: usize = 2;
/// Faults, by number. A row of DISTINCT reports its fault only if no equal row precedes it.
fn faults(meter: &Meter<'_>) -> [Fault; 10] {
    [
        Fault::IntegerOverflow,
        Fault::TextTooLong,
        Fault::PatternTooLong,
        Fault::PatternTooCostly,
        Fault::Json,
        Fault::JsonPath,
        Fault::JsonLabel,
        Fault::Conversion,
        meter.exceeded(),
        Fault::Row(meter.row_bytes_max()),
    ]
}

const LENGTH_BYTES: usize = size_of::<u32>();
/// The bytes before a row's fields.
const HEAD_BYTES: usize = LENGTH_BYTES + size_of::<u64>();
const DAMAGED: Fault = Fault::Damaged("a row of a part");

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

/// What the threads of one execution share.
struct List<'j> {
    plan: &'j Plan,
    fixed: Common<'j>,
    view: &'j (dyn View + Sync),
    budget: &'j Budget<'j>,
    cuts: &'j Cuts,
    /// Rows that are wanted, including those that OFFSET skips.
    keep: Option<usize>,
    takes_infinite: bool,
    shared: Shared,
    ordered: Ordered,
}

/// Stops the other threads when the consumer ends in any way, or when a helper panics.
struct Stops<'o> {
    ordered: &'o Ordered,
    is_helper: bool,
}

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        if !self.is_helper || std::thread::panicking() {
            self.ordered.stop();
        }
    }
}

/// The sink of a part.
struct PartRows<'p> {
    ordered: &'p Ordered,
    number: usize,
    rows: Vec<u8>,
    /// The bytes of complete rows: an error may occur within one.
    whole: usize,
    /// Rows after which a batch is handed over, whatever its size.
    wanted: usize,
    takes_infinite: bool,
    /// The part no longer belongs to this thread.
    is_stopped: bool,
    turn: Option<&'p dyn Fn() -> bool>,
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
    fn field(&mut self, _column: usize, field: Field<'_>) {
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

/// The consumer: the query's thread while it delivers rows.
struct Giver<'g, 'e, S: RowSink + ?Sized> {
    run: &'g mut Run<'e, S>,
    end: Option<End>,
}

impl<'e, S: RowSink + ?Sized> Run<'e, S> {
    /// Scans with several threads and delivers the rows. Returns false if it did nothing.
    pub(super) fn list(&mut self, cuts: &Cuts, taken: &Taken<'_>, view: &(dyn View + Sync)) -> Result<bool, End> {
        let Some(fixed) = Common::of(self.plan, self.fixed) else { return Ok(false) };
        let (keep, before) = (self.keep(), self.tally.map_or(0, Tally::rows));
        let ahead_max = if keep.is_some() { (taken.count() + 1) * AHEAD_PER_THREAD } else { cuts.parts() };
        let list = List {
            plan: self.plan,
            fixed,
            view,
            budget: self.budget,
            cuts,
            keep: keep.filter(|_| !self.plan.distinct),
            takes_infinite: self.sink.takes_infinite(),
            shared: Shared::given_in_order(before, keep.is_some() || self.plan.rows_may_fail()),
            ordered: Ordered::new(cuts.parts(), ahead_max, share(self.budget, WAITING)),
        };
        let flow = std::thread::scope(|scope| {
            let list = &list;
            let _stops = Stops { ordered: &list.ordered, is_helper: false };
            self.give_parts(list, keep.is_some(), || taken.spawn(scope, cuts.parts() - 1, move || list.help()))
        });
        // The count includes rows that were read ahead, but must not exceed the limit.
        let left = self.budget.rows_max.saturating_sub(before);
        self.outcome.rows_read = (self.outcome.rows_read + list.shared.rows()).min(left);
        flow.map(|()| true)
    }

    /// Delivers the rows of all parts. `help` starts the other threads.
    fn give_parts(&mut self, list: &List<'_>, is_limited: bool, help: impl FnOnce()) -> Flow {
        let budget = self.budget;
        let giver = RefCell::new(Giver { run: self, end: None });
        let turn = || giver.borrow_mut().turn(list);
        let mut scratch = Scratch::default();
        let mut help = Some(help);
        loop {
            if !turn() {
                return giver.into_inner().end.map_or(Ok(()), Err);
            }
            if !is_limited || list.ordered.given() > 0 {
                help.take().into_iter().for_each(|help| help());
            }
            match list.ordered.own() {
                Own::Read(number) => list.with_fixed(|fixed| list.find(number, fixed, &mut scratch, Some(&turn))),
                Own::Look if budget.deadline.is_some_and(|over| over()) => return Err(QueryError::Deadline.into()),
                Own::Look => {}
                Own::Done => return Ok(()),
            }
        }
    }

    /// Delivers a row of a part.
    fn give_found(&mut self, mut row: &[u8]) -> Flow {
        if !self.plan.distinct {
            return self.give_kept(row);
        }
        let (Field::Json(key), found) = (sort::take_field(&mut row), sort::take_field(&mut row)) else {
            return Err(DAMAGED.into());
        };
        let new = self.note_distinct(key)?;
        let mut row = match found {
            _ if new == Distinct::Known => return Ok(()),
            Field::Json(row) => row,
            Field::Value(Value::Integer(fault)) => {
                return Err(faults(self.fixed.meter).get(fault as usize).copied().unwrap_or(DAMAGED).into());
            }
            Field::Value(_) => return Err(DAMAGED.into()),
        };
        if new == Distinct::Late {
            return Ok(self.keep_late(key, row)?);
        }
        let order = take_sized(&mut row)?;
        if self.plan.order.is_empty() {
            return self.give_kept(row);
        }
        self.sort.begin();
        self.sort.bytes().extend_from_slice(order);
        self.sort.end_key();
        self.sort.bytes().extend_from_slice(row);
        self.sort.end(self.keep(), self.fixed.meter)?;
        Ok(self.check_sort()?)
    }

    /// Hands a row of DISTINCT to the consumer, unless this part has seen an equal one.
    pub(super) fn hand_over(&mut self, frame: Option<&Frame<'_>>) -> Flow {
        let mut key = std::mem::take(self.key);
        key.clear();
        let mut room = self.fixed.meter.row_room();
        for expr in &self.plan.outputs {
            let value = expr.evaluate(&self.scope(frame))?;
            room.take(Field::Value(value))?;
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
        self.sink.field(0, Field::Json(&key));
        match row {
            Ok(row) => self.sink.field(1, Field::Json(&row)),
            Err(fault) => match faults(self.fixed.meter).iter().position(|known| *known == fault) {
                Some(number) => self.sink.field(1, Field::Value(Value::Integer(number as i64))),
                None => return Err(fault.into()),
            },
        }
        *self.key = key;
        self.end_row()
    }
}

impl<S: RowSink + ?Sized> Giver<'_, '_, S> {
    /// Delivers the rows that are ready. Returns false at the end.
    fn turn(&mut self, list: &List<'_>) -> bool {
        if self.end.is_none() {
            self.end = self.give_all(list).err();
        }
        self.end.is_none()
    }

    fn give_all(&mut self, list: &List<'_>) -> Flow {
        loop {
            match list.ordered.next() {
                Next::Rows(rows) => {
                    let mut rows = &rows[..];
                    while !rows.is_empty() {
                        let row = take_sized(&mut rows)?;
                        let (read, row) = row.split_first_chunk().ok_or(DAMAGED)?;
                        list.check_read(u64::from_le_bytes(*read))?;
                        self.run.give_found(row)?;
                    }
                }
                Next::Ended(read) => list.count_given(read)?,
                Next::Failed(read, error) => {
                    list.check_read(read)?;
                    return Err(error.into());
                }
                Next::Nothing => return Ok(()),
            }
        }
    }
}

impl List<'_> {
    /// Scans parts until none is left.
    fn help(&self) {
        let _stops = Stops { ordered: &self.ordered, is_helper: true };
        let mut scratch = Scratch::default();
        self.with_fixed(|fixed| {
            while let Some(number) = self.ordered.claim() {
                self.find(number, fixed, &mut scratch, None);
            }
        });
    }

    fn with_fixed(&self, work: impl FnOnce(&Fixed<'_>)) {
        let (caches, meter) = (self.fixed.caches(), Meter::new(self.budget));
        work(&self.fixed.fixed(&caches, &meter));
    }

    /// Scans one part. Meanwhile the consumer's thread calls `turn` to deliver rows.
    fn find(&self, number: usize, fixed: &Fixed<'_>, scratch: &mut Scratch, turn: Option<&dyn Fn() -> bool>) {
        scratch.levels.resize_with(self.plan.levels.len(), LevelKeys::default);
        let mut sink = PartRows {
            ordered: &self.ordered,
            number,
            rows: Vec::new(),
            whole: 0,
            wanted: self.keep.unwrap_or(usize::MAX),
            takes_infinite: self.takes_infinite,
            is_stopped: false,
            turn,
        };
        let mut part = self.cuts.part(number, &self.shared);
        part.turn = turn;
        let mut run = Run::of_part(self.plan, fixed, self.view, self.budget, scratch, &mut sink, (part, self.keep));
        let found = run.gather_part();
        let (read, counted) = (run.outcome.rows_read, run.counted.0);
        run.count_bytes(0);
        sink.hand_on();
        if sink.is_stopped {
            self.shared.uncount(counted);
            return;
        }
        match found {
            Ok(()) => self.ordered.end(number, ordered::End::Complete(read)),
            Err(error) => {
                self.shared.want_only_before(number);
                self.ordered.end(number, ordered::End::Failed(read, error));
            }
        }
    }

    /// Checks the row limit for a delivered row, `read` rows into its part.
    fn check_read(&self, read: u64) -> Result<(), QueryError> {
        if self.shared.is_late(read, self.budget.rows_max) { Err(self.too_many()) } else { Ok(()) }
    }

    /// Counts the rows of a delivered part.
    fn count_given(&self, read: u64) -> Result<(), QueryError> {
        if self.shared.add_given(read) > self.budget.rows_max { Err(self.too_many()) } else { Ok(()) }
    }

    fn too_many(&self) -> QueryError {
        QueryError::Limit { what: ROWS_READ, limit: self.budget.rows_max }
    }
}
