//! Several statements as one transaction, each with what it expects of its rows.
//!
//! Each step is a query or a statement that writes. It sees what the steps before it wrote, and the columns of the first
//! row that each of them gave are parameters of those behind it, where nothing from outside has that name. The first step
//! that fails, or whose expectation does not hold, ends the transaction: nothing of it stays.
//!
//! An expectation is an expression over `rows` (documents changed, or rows of a query) and the step's parameters; NULL
//! does not hold. A view is read before anything is written: what a write does to it is known at the commit only.

use std::fmt::Write as _;

use bumpalo::Bump;

use super::budget::{Budget, Meter};
use super::column_types::{ColumnType, JsonTypes};
use super::compared::Compared;
use super::error::{QueryError, SqlError, SqlErrorKind};
use super::modify::{Applied, KeptRows, Modification, ModifyError};
use super::query::Query;
use super::run::Scratch;
use super::sink::RowSink;
use super::sort;
use super::value::{Field, OwnedValue, Value, of_json};
use super::workspace::Workspace;
use crate::catalog::Catalog;
use crate::database::{CollectionId, Database};
use crate::engine::{Change, Within};
use crate::views::table::WithViews;

/// Most steps of one transaction.
pub const STEPS_MAX: usize = 16;

/// What an expectation stands in, so that its text begins a line. Nobody's parameter has such a name.
const BEFORE: &str = "SELECT (\n";
const BEHIND: &str = "\n) AS holds FROM (SELECT :rows_of_this_step AS rows)";
const ROWS: &str = "rows_of_this_step";

/// A step as it is written.
#[derive(Clone, Copy, Debug)]
pub struct StepText<'t> {
    /// The statement.
    pub sql: &'t str,
    /// What must hold behind it.
    pub expect: Option<&'t str>,
}

/// Which text of which step is wrong.
#[derive(Clone, Debug)]
pub struct StepMistake {
    /// The step, from 0.
    pub step: usize,
    /// It is the expectation, not the statement.
    pub in_expect: bool,
    /// What is wrong.
    pub error: SqlError,
}

/// Prepared steps.
#[derive(Debug)]
pub struct Steps {
    parameters: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    work: Work,
    /// What fills the slots of the statement, and those of the expectation.
    slots: Vec<Slot>,
    expect: Option<(Query, Vec<Slot>)>,
    /// Columns that later steps use.
    handed_on: Vec<usize>,
}

#[derive(Debug)]
enum Work {
    Write(Box<Modification>),
    Read(Box<Query>),
}

/// Where a parameter of a statement comes from.
#[derive(Clone, Copy, Debug)]
enum Slot {
    /// From outside, by its place among the parameters.
    Given(usize),
    /// A column of the first row that an earlier step gave.
    Handed { step: usize, column: usize },
    /// The rows of the step itself.
    Rows,
}

/// Why nothing was done.
#[derive(Debug)]
#[non_exhaustive]
pub enum StepsError {
    /// A step failed.
    Failed {
        /** Which, from 0. */
        step: usize,
        /** Why. */
        error: ModifyError,
    },
    /// What a step expects does not hold.
    Unmet {
        /** Which, from 0. */
        step: usize,
        /** Its rows. */
        rows: u64,
    },
    /// The document that is required is not there.
    Missing,
    /// One row is wanted of the last step, which gave none.
    NoRow,
    /// The transaction failed.
    Store(store::Error),
}

impl From<store::Error> for StepsError {
    fn from(error: store::Error) -> Self {
        StepsError::Store(error)
    }
}

/// What the last step gave.
#[derive(Default)]
pub(crate) struct Given {
    rows: KeptRows,
    /// Documents changed, or rows.
    pub(crate) count: u64,
    pub(crate) did: StepsDid,
}

/// What steps did, for who tells of queries that scan or read much. Of those that failed what is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepsDid {
    /// Index entries and documents looked at, by what they expect, too.
    pub rows_read: u64,
    /// A step reads a collection whole.
    pub scans: bool,
    /// How steps that scan, or that look at many rows, find theirs: `step 2: SCAN goods; step 3: …`.
    pub plan: String,
}

/// A step that looks at so many rows has its plan told.
const PLAN_TOLD_ROWS: u64 = 1_000;

impl StepsDid {
    fn add(&mut self, number: usize, looked_at: u64, (line, scans): (&str, bool)) {
        self.rows_read += looked_at;
        self.scans |= scans;
        if scans || looked_at >= PLAN_TOLD_ROWS {
            let separator = if self.plan.is_empty() { "" } else { "; " };
            let _ = write!(self.plan, "{separator}step {}: {line}", number + 1);
        }
    }
}

impl Steps {
    /// About how many bytes they have in memory, but for their plans.
    pub fn bytes(&self) -> usize {
        let of_step = |step: &Step| {
            let work = match &step.work {
                Work::Write(write) => write.bytes(),
                Work::Read(query) => query.bytes(),
            };
            let expect = step.expect.iter().map(|(query, slots)| query.bytes() + slots.len() * size_of::<Slot>());
            let lists = step.slots.len() * size_of::<Slot>() + step.handed_on.len() * size_of::<usize>();
            size_of::<Step>() + work + expect.sum::<usize>() + lists
        };
        let names = self.parameters.iter().map(|name| size_of::<String>() + name.len());
        self.steps.iter().map(of_step).sum::<usize>() + names.sum::<usize>()
    }

    /// Prepares steps; `outside` are the names of the parameters that they are given. Of each step its first mistake is told. Behind
    /// one with a mistake nobody knows what it would have given: there parameters may have any name.
    pub fn prepare(texts: &[StepText<'_>], outside: &[&str], catalog: &Catalog) -> Result<Steps, Vec<StepMistake>> {
        let parameters = outside.iter().map(|name| (*name).to_owned()).collect();
        let mut steps = Steps { parameters, steps: Vec::new() };
        let mut mistakes = Vec::new();
        for (place, text) in texts.iter().enumerate() {
            let (work, expect) = match Work::prepare_both(text, catalog) {
                Ok(prepared) => prepared,
                Err((in_expect, error)) => {
                    mistakes.push(StepMistake { step: place, in_expect, error });
                    continue;
                }
            };
            if !mistakes.is_empty() {
                continue;
            }
            match steps.step(work, expect, catalog) {
                Ok(step) => steps.steps.push(step),
                Err((in_expect, error)) => mistakes.push(StepMistake { step: place, in_expect, error }),
            }
        }
        if mistakes.is_empty() { Ok(steps) } else { Err(mistakes) }
    }

    /// The next step: finds what fills its parameters. An error is of its expectation, or of its statement.
    fn step(&mut self, work: Work, expect: Option<Query>, catalog: &Catalog) -> Result<Step, (bool, SqlError)> {
        if let Work::Read(query) = &work
            && self.writes()
            && query.reads_views(catalog)
        {
            return Err((false, late_view()));
        }
        let slots = self.slots(work.parameters()).map_err(|error| (false, error))?;
        let expect = expect.map(|query| Ok((self.slots(query.parameters())?, query))).transpose();
        let expect = expect.map_err(|error| (true, error))?.map(|(slots, query)| (query, slots));
        Ok(Step { work, slots, expect, handed_on: Vec::new() })
    }

    /// Whether a step may change something.
    pub fn writes(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.work, Work::Write(_)))
    }

    /// The names of the columns that the last step gives; none where it writes without RETURNING.
    pub fn columns(&self) -> Vec<&str> {
        self.steps.last().map_or_else(Vec::new, |step| step.work.columns())
    }

    /// The types of the columns that the last step gives; `outside` tells those of a parameter that steps are given.
    pub fn column_types(&self, outside: &dyn Fn(&str) -> JsonTypes) -> Vec<ColumnType> {
        let mut known: Vec<Vec<ColumnType>> = Vec::new();
        for step in &self.steps {
            let of_slot = |slot: usize| match step.slots.get(slot) {
                Some(Slot::Given(place)) => outside(&self.parameters[*place]),
                // An earlier step may have given no row.
                Some(Slot::Handed { step, column }) => {
                    known[*step].get(*column).map_or(JsonTypes::VALUE, |column| column.types.or(JsonTypes::NULL))
                }
                Some(Slot::Rows) => JsonTypes::INTEGER,
                None => JsonTypes::VALUE,
            };
            let columns = step.work.query().map(|query| query.column_types_with(&of_slot));
            known.push(columns.unwrap_or_default());
        }
        known.pop().unwrap_or_default()
    }

    /// What a parameter is compared with in all steps and what they expect, or the value of.
    pub fn compared(&self, name: &str) -> Compared {
        let all = self.steps.iter().map(|step| {
            let expected = step.expect.iter().map(|(query, _)| query.compared(name));
            expected.fold(step.work.compared(name), Compared::and)
        });
        all.fold(Compared::default(), Compared::and)
    }

    /// What fills the parameters of the next step.
    fn slots(&mut self, names: &[String]) -> Result<Vec<Slot>, SqlError> {
        names.iter().map(|name| self.slot(name)).collect()
    }

    fn slot(&mut self, name: &str) -> Result<Slot, SqlError> {
        if name == ROWS {
            return Ok(Slot::Rows);
        }
        if let Some(place) = self.parameters.iter().position(|known| known == name) {
            return Ok(Slot::Given(place));
        }
        for (step, earlier) in self.steps.iter_mut().enumerate().rev() {
            if let Some(column) = earlier.work.columns().iter().position(|known| *known == name) {
                if !earlier.handed_on.contains(&column) {
                    earlier.handed_on.push(column);
                }
                return Ok(Slot::Handed { step, column });
            }
        }
        Err(SqlError {
            kind: SqlErrorKind::UnknownName,
            message: format!("nothing gives :{name}; there are: {}", self.known().join(", ")),
            line: 0,
            column: 0,
        })
    }

    fn known(&self) -> Vec<&str> {
        let handed = self.steps.iter().flat_map(|step| step.work.columns());
        self.parameters.iter().map(String::as_str).chain(handed).collect()
    }

    /// Runs the steps inside a transaction; what the last one gives is in `given`.
    pub(crate) fn apply<C: Change>(
        &self,
        database: &Database,
        change: &mut C,
        parameters: &[OwnedValue],
        budget: &Budget<'_>,
        given: &mut Given,
    ) -> Result<(), StepsError> {
        let mut handed: Vec<Vec<OwnedValue>> = Vec::new();
        let mut rows_read = 0;
        for (number, step) in self.steps.iter().enumerate() {
            let failed = |error: ModifyError| StepsError::Failed { step: number, error };
            let rows_max = budget.rows_max.saturating_sub(rows_read);
            let of = Of { database, parameters, handed: &handed, budget: &Budget { rows_max, ..*budget } };
            let values = of.values(&step.slots, 0);
            let worked = step.work(&of, change, &values, &mut given.rows).map_err(failed);
            let looked_at = worked.as_ref().map_or(0, |applied| applied.looked_at);
            step.tell(&values, (number, looked_at), &mut given.did);
            let applied = worked?;
            rows_read += applied.rows_read;
            given.count = applied.documents;
            let rows_max = budget.rows_max.saturating_sub(rows_read);
            let of = Of { budget: &Budget { rows_max, ..*budget }, ..of };
            let (holds, read) = step.holds(&of, change, given.count).map_err(failed)?;
            rows_read += read;
            given.did.rows_read += read;
            if !holds {
                return Err(StepsError::Unmet { step: number, rows: given.count });
            }
            let first = step.handed_on(&given.rows).map_err(|error| failed(error.into()))?;
            handed.push(first);
        }
        Ok(())
    }

    /// Appends the rows of the last step: all as an array, or the first.
    pub(crate) fn write(&self, given: &Given, one_row: bool, out: &mut Vec<u8>) -> Result<(), StepsError> {
        let Some(last) = self.steps.last() else { return Ok(()) };
        let columns = last.work.width();
        if one_row {
            let mut first = given.rows.rows().take(1).peekable();
            if first.peek().is_none() {
                return Err(StepsError::NoRow);
            }
            if let Some(mut sink) = last.work.json_rows(out) {
                KeptRows::give_of(first, columns, &mut sink);
            }
            return Ok(());
        }
        out.push(b'[');
        if let Some(mut sink) = last.work.json_rows(out) {
            given.rows.give(columns, &mut sink);
        }
        out.push(b']');
        Ok(())
    }
}

/// What a step is run with.
struct Of<'o> {
    database: &'o Database,
    parameters: &'o [OwnedValue],
    /// By step: the first row's columns, NULL for those that nobody uses.
    handed: &'o [Vec<OwnedValue>],
    budget: &'o Budget<'o>,
}

impl Of<'_> {
    fn values(&self, slots: &[Slot], rows: u64) -> Vec<Value<'_>> {
        let value = |slot: &Slot| match slot {
            Slot::Given(place) => self.parameters.get(*place).map_or(Value::Null, OwnedValue::value),
            Slot::Handed { step, column } => {
                let column = self.handed.get(*step).and_then(|columns| columns.get(*column));
                column.map_or(Value::Null, OwnedValue::value)
            }
            Slot::Rows => Value::Integer(i64::try_from(rows).unwrap_or(i64::MAX)),
        };
        slots.iter().map(value).collect()
    }
}

impl Step {
    /// Does what the step is; its rows are in `rows`.
    fn work<C: Change>(
        &self,
        of: &Of<'_>,
        change: &mut C,
        values: &[Value<'_>],
        rows: &mut KeptRows,
    ) -> Result<Applied, ModifyError> {
        match &self.work {
            Work::Write(statement) => {
                let collection = of.database.collection_at(CollectionId(statement.collection()));
                statement.apply(collection, change, values, of.budget, rows)
            }
            Work::Read(query) => {
                rows.clear();
                let view =
                    WithViews { inner: Within::new(change), views: of.database.views_at_work(), ready_by: u64::MAX };
                let outcome = query.execute(&view, values, &mut Scratch::new(), of.budget, rows)?;
                let (rows_read, looked_at) = (outcome.rows_read, outcome.rows_read);
                Ok(Applied { documents: outcome.rows, rows_read, looked_at })
            }
        }
    }

    /// Notes what it did.
    fn tell(&self, values: &[Value<'_>], (number, looked_at): (usize, u64), did: &mut StepsDid) {
        match &self.work {
            Work::Write(statement) if statement.scans(values) || looked_at >= PLAN_TOLD_ROWS => {
                let (line, scans) = statement.plan_line(values);
                did.add(number, looked_at, (&line, scans));
            }
            Work::Write(_) => did.add(number, looked_at, ("", false)),
            Work::Read(query) => {
                let (line, scans) = query.plan_line(values);
                did.add(number, looked_at, (&line, scans));
            }
        }
    }

    /// Whether what it expects holds, and the rows that were looked at for that.
    fn holds<C: Change>(&self, of: &Of<'_>, change: &mut C, rows: u64) -> Result<(bool, u64), ModifyError> {
        let Some((query, slots)) = &self.expect else { return Ok((true, 0)) };
        let mut found = KeptRows::default();
        let view = Within::new(change);
        let outcome = query.execute(&view, &of.values(slots, rows), &mut Scratch::new(), of.budget, &mut found)?;
        let mut first = found.rows().next().unwrap_or_default();
        // A row that was kept.
        let (arena, meter) = (Bump::new(), Meter::unbounded());
        let holds = match sort::take_field(&mut first) {
            Field::Value(value) => value,
            Field::Json(json) => of_json(json, Workspace::new(&arena, &meter)).map_err(QueryError::from)?,
        };
        Ok((holds.truth() == Some(true), outcome.rows_read))
    }

    /// The columns of the first row that later steps use.
    fn handed_on(&self, rows: &KeptRows) -> Result<Vec<OwnedValue>, QueryError> {
        let Some(last) = self.handed_on.iter().max() else { return Ok(Vec::new()) };
        let (arena, meter) = (Bump::new(), Meter::unbounded());
        let first = rows.first(*last + 1, |column| self.handed_on.contains(&column), Workspace::new(&arena, &meter));
        first.map(Option::unwrap_or_default)
    }
}

impl Work {
    /// A step's statement and what it expects. An error is of the second, or of the first.
    fn prepare_both(text: &StepText<'_>, catalog: &Catalog) -> Result<(Work, Option<Query>), (bool, SqlError)> {
        let work = Work::prepare(text.sql, catalog).map_err(|error| (false, error))?;
        let Some(written) = text.expect else { return Ok((work, None)) };
        let expect = Query::prepare(&format!("{BEFORE}{written}{BEHIND}"), catalog);
        match expect.map_err(|error| (true, moved_up(error, written)))? {
            query if query.reads_views(catalog) => Err((true, late_view())),
            query => Ok((work, Some(query))),
        }
    }

    fn prepare(sql: &str, catalog: &Catalog) -> Result<Work, SqlError> {
        match Modification::is_one(sql)? {
            true => Modification::prepare(sql, catalog).map(Box::new).map(Work::Write),
            false => Query::prepare(sql, catalog).map(Box::new).map(Work::Read),
        }
    }

    fn parameters(&self) -> &[String] {
        match self {
            Work::Write(statement) => statement.parameters(),
            Work::Read(query) => query.parameters(),
        }
    }

    fn compared(&self, name: &str) -> Compared {
        match self {
            Work::Write(statement) => statement.compared(name),
            Work::Read(query) => query.compared(name),
        }
    }

    /// The query that gives its rows.
    fn query(&self) -> Option<&Query> {
        match self {
            Work::Write(statement) => statement.returned(),
            Work::Read(query) => Some(query),
        }
    }

    fn columns(&self) -> Vec<&str> {
        match self {
            Work::Write(statement) => statement.columns().collect(),
            Work::Read(query) => query.columns().collect(),
        }
    }

    fn width(&self) -> usize {
        match self {
            Work::Write(statement) => statement.columns().count(),
            Work::Read(query) => query.columns().count(),
        }
    }

    fn json_rows<'o>(&'o self, out: &'o mut Vec<u8>) -> Option<impl RowSink + 'o> {
        match self {
            Work::Write(statement) => statement.json_rows(out, b','),
            Work::Read(query) => Some(query.json_rows(out, b',')),
        }
    }
}

/// The place of an expectation's mistake in its own text. What the parser stumbles over in the words behind it is what the
/// expectation lacks at its end.
fn moved_up(mut error: SqlError, expectation: &str) -> SqlError {
    if error.line > 1 {
        error.line -= 1;
    }
    let lines = expectation.split('\n').count() as u64;
    if error.line > lines {
        let last = expectation.rsplit('\n').next().unwrap_or_default().trim_end();
        (error.line, error.column) = (lines, last.chars().count() as u64 + 1);
        error.message = "the text ends here, but not as an expression does: something is missing, or a parenthesis is \
                         too many; as in `rows = 1`"
            .to_owned();
    }
    error
}

fn late_view() -> SqlError {
    let message = "a view cannot be read behind a step that writes, nor in an expectation: what it has then is known at the \
                   commit only";
    SqlError { kind: SqlErrorKind::NotYet, message: message.to_owned(), line: 0, column: 0 }
}
