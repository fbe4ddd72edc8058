//! Several statements as one transaction, each with an optional expectation.
//!
//! Each step is a query or a statement that writes. It sees the writes of the steps before it. The columns of a step's first
//! row are parameters of later steps, unless a parameter from outside has that name. The first step that fails, or whose
//! expectation is not true, ends the transaction, which then has no effect.
//!
//! An expectation is an expression over `rows` (documents changed, or rows of a query) and the step's parameters; NULL is not
//! true. A view can be read only before the first write: the effect of a write on views is known only at the commit.

use std::fmt::Write as _;

use super::applied::{ModifyError, StatementCounts};
use super::modification::Modification;
use crate::catalog::Catalog;
use crate::database::{CollectionId, DocumentDatabase};
use crate::engine::{self, Within, WriteTransaction};
use crate::error::there_are;
use crate::sql::{
    Budget, ColumnType, JsonTypes, OwnedValue, ParameterUses, PreparedQuery, QueryError, RowList, Scratch, SqlError,
    SqlErrorKind, Value,
};
use crate::views::table::WithViews;

/// Most steps of one transaction.
pub const STEPS_MAX: usize = 16;

/// The query around an expectation; the expectation begins on a line of its own. A parameter with the name in [`ROWS`] is
/// always the step's number of rows.
const BEFORE: &str = "SELECT (\n";
const BEHIND: &str = "\n) AS holds FROM (SELECT :rows_of_this_step AS rows)";
const ROWS: &str = "rows_of_this_step";

/// The text of a step.
#[derive(Clone, Copy, Debug)]
pub struct StepText<'t> {
    /// The statement.
    pub sql: &'t str,
    /// The expectation, evaluated after the statement.
    pub expect: Option<&'t str>,
}

/// An error in the text of a step.
#[derive(Clone, Debug)]
pub struct StepMistake {
    /// The step, from 0.
    pub step: usize,
    /// The error is in the expectation, not in the statement.
    pub in_expect: bool,
    /// The error.
    pub error: SqlError,
}

/// The prepared steps of a transaction.
#[derive(Debug)]
pub struct Steps {
    parameters: Vec<String>,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    work: Work,
    /// The sources of the statement's parameters, and those of the expectation's.
    slots: Vec<Slot>,
    expect: Option<(PreparedQuery, Vec<Slot>)>,
    /// Columns of its first row that later steps use.
    handed_on: Vec<usize>,
}

#[derive(Debug)]
enum Work {
    Write(Box<Modification>),
    Read(Box<PreparedQuery>),
}

/// The source of a parameter.
#[derive(Clone, Copy, Debug)]
enum Slot {
    /// A parameter from outside, by its place.
    Given(usize),
    /// A column of an earlier step's first row.
    Handed { step: usize, column: usize },
    /// The number of rows of the step itself.
    Rows,
}

/// Why the steps had no effect.
#[derive(Debug)]
#[non_exhaustive]
pub enum StepsError {
    /// A step failed.
    Failed {
        /** The step, from 0. */
        step: usize,
        /** The error. */
        error: ModifyError,
    },
    /// A step's expectation is not true.
    Unmet {
        /** The step, from 0. */
        step: usize,
        /** Its rows. */
        rows: u64,
    },
    /// The required document does not exist.
    Missing,
    /// The last step must return a row, and returned none.
    NoRow,
    /// The transaction failed.
    Store(engine::StoreError),
}

impl From<engine::StoreError> for StepsError {
    fn from(error: engine::StoreError) -> Self {
        StepsError::Store(error)
    }
}

/// The result of the last step.
#[derive(Default)]
pub(crate) struct StepsOutcome {
    rows: RowList,
    /// Documents changed, or rows returned.
    pub(crate) count: u64,
    pub(crate) did: StepsDid,
}

/// What the steps did, for the log of expensive queries. After a failure, the counts may be incomplete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepsDid {
    /// Index entries and documents scanned, also for expectations.
    pub rows_read: u64,
    /// A step scans a whole collection.
    pub scans: bool,
    /// The plans of steps that scan a collection or many rows: `step 2: SCAN goods; step 3: …`.
    pub plan: String,
}

/// The plan of a step that scans at least so many rows is reported.
const PLAN_REPORT_ROWS: u64 = 1_000;

impl StepsDid {
    fn add(&mut self, number: usize, looked_at: u64, line: &str, scans: bool) {
        self.rows_read += looked_at;
        self.scans |= scans;
        if scans || looked_at >= PLAN_REPORT_ROWS {
            let separator = if self.plan.is_empty() { "" } else { "; " };
            let _ = write!(self.plan, "{separator}step {}: {line}", number + 1);
        }
    }
}

impl Steps {
    /// Estimate of their bytes in memory, without their plans.
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

    /// Prepares steps; `outside` are the names of the parameters from outside. The first mistake of each step is reported.
    /// After a step with a mistake, parameters are not checked: the columns of that step are unknown.
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

    /// The next step, with the sources of its parameters. The flag of an error is true if it is in the expectation, false if it
    /// is in the statement.
    fn step(&mut self, work: Work, expect: Option<PreparedQuery>, catalog: &Catalog) -> Result<Step, (bool, SqlError)> {
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

    /// Whether a step writes.
    pub fn writes(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.work, Work::Write(_)))
    }

    /// The names of the last step's columns; none if it writes without RETURNING.
    pub fn columns(&self) -> Vec<&str> {
        self.steps.last().map_or_else(Vec::new, |step| step.work.columns())
    }

    /// The types of the last step's columns; `outside` returns those of a parameter from outside.
    pub fn column_types(&self, outside: &dyn Fn(&str) -> JsonTypes) -> Vec<ColumnType> {
        let mut known: Vec<Vec<ColumnType>> = Vec::new();
        for step in &self.steps {
            let of_slot = |slot: usize| match step.slots.get(slot) {
                Some(Slot::Given(place)) => outside(&self.parameters[*place]),
                // An earlier step may have returned no row.
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

    /// Which fields a parameter is compared with or assigned to, in all steps and expectations.
    pub fn compared(&self, name: &str) -> ParameterUses {
        let all = self.steps.iter().map(|step| {
            let expected = step.expect.iter().map(|(query, _)| query.compared(name));
            expected.fold(step.work.compared(name), ParameterUses::and)
        });
        all.fold(ParameterUses::default(), ParameterUses::and)
    }

    /// The sources of the next step's parameters.
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
            message: format!("no value for :{name}; {}", there_are(&self.known())),
            line: 0,
            column: 0,
        })
    }

    fn known(&self) -> Vec<&str> {
        let handed = self.steps.iter().flat_map(|step| step.work.columns());
        self.parameters.iter().map(String::as_str).chain(handed).collect()
    }

    /// Runs the steps in a transaction; the result of the last one is in `given`.
    pub(crate) fn apply<C: WriteTransaction>(
        &self,
        database: &DocumentDatabase,
        change: &mut C,
        parameters: &[OwnedValue],
        budget: &Budget<'_>,
        given: &mut StepsOutcome,
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
            step.report_plan(&values, number, looked_at, &mut given.did);
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

    /// Appends the rows of the last step: all as an array, or only the first.
    pub(crate) fn write(&self, given: &StepsOutcome, one_row: bool, out: &mut Vec<u8>) -> Result<(), StepsError> {
        let Some(last) = self.steps.last() else { return Ok(()) };
        if one_row && given.rows.len() == 0 {
            return Err(StepsError::NoRow);
        }
        if !one_row {
            out.push(b'[');
        }
        if let Some(query) = last.work.query() {
            let rows = if one_row { 1 } else { usize::MAX };
            given.rows.give(rows, query.columns().count(), &mut query.json_rows(out, b','));
        }
        if !one_row {
            out.push(b']');
        }
        Ok(())
    }
}

/// The context in which a step runs.
struct Of<'o> {
    database: &'o DocumentDatabase,
    parameters: &'o [OwnedValue],
    /// By step: the first row's columns, NULL for unused ones.
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
    /// Runs the step; its rows are in `rows`.
    fn work<C: WriteTransaction>(
        &self,
        of: &Of<'_>,
        change: &mut C,
        values: &[Value<'_>],
        rows: &mut RowList,
    ) -> Result<StatementCounts, ModifyError> {
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
                Ok(StatementCounts { documents: outcome.rows, rows_read, looked_at })
            }
        }
    }

    /// Adds the step's counts and plan to `did`.
    fn report_plan(&self, values: &[Value<'_>], number: usize, looked_at: u64, did: &mut StepsDid) {
        match &self.work {
            Work::Write(statement) if statement.scans(values) || looked_at >= PLAN_REPORT_ROWS => {
                let (line, scans) = statement.plan_line(values);
                did.add(number, looked_at, &line, scans);
            }
            Work::Write(_) => did.add(number, looked_at, "", false),
            Work::Read(query) => {
                let (line, scans) = query.plan_line(values);
                did.add(number, looked_at, &line, scans);
            }
        }
    }

    /// Whether its expectation is true, and the rows read for that.
    fn holds<C: WriteTransaction>(&self, of: &Of<'_>, change: &mut C, rows: u64) -> Result<(bool, u64), ModifyError> {
        let Some((query, slots)) = &self.expect else { return Ok((true, 0)) };
        let mut found = RowList::default();
        let view = Within::new(change);
        let outcome = query.execute(&view, &of.values(slots, rows), &mut Scratch::new(), of.budget, &mut found)?;
        let first = found.first(1, |_| true).map_err(QueryError::from)?.unwrap_or_default();
        let holds = first.first().is_some_and(|holds| holds.value().truth() == Some(true));
        Ok((holds, outcome.rows_read))
    }

    /// The columns of the first row that later steps use.
    fn handed_on(&self, rows: &RowList) -> Result<Vec<OwnedValue>, QueryError> {
        let Some(last) = self.handed_on.iter().max() else { return Ok(Vec::new()) };
        let first = rows.first(*last + 1, |column| self.handed_on.contains(&column))?;
        Ok(first.unwrap_or_default())
    }
}

impl Work {
    /// Prepares a step's statement and its expectation. The flag of an error is true if it is in the expectation.
    fn prepare_both(text: &StepText<'_>, catalog: &Catalog) -> Result<(Work, Option<PreparedQuery>), (bool, SqlError)> {
        let work = Work::prepare(text.sql, catalog).map_err(|error| (false, error))?;
        let Some(written) = text.expect else { return Ok((work, None)) };
        let expect = PreparedQuery::prepare(&format!("{BEFORE}{written}{BEHIND}"), catalog);
        match expect.map_err(|error| (true, moved_up(error, written)))? {
            query if query.reads_views(catalog) => Err((true, late_view())),
            query => Ok((work, Some(query))),
        }
    }

    fn prepare(sql: &str, catalog: &Catalog) -> Result<Work, SqlError> {
        match Modification::is_one(sql)? {
            true => Modification::prepare(sql, catalog).map(Box::new).map(Work::Write),
            false => PreparedQuery::prepare(sql, catalog).map(Box::new).map(Work::Read),
        }
    }

    fn parameters(&self) -> &[String] {
        match self {
            Work::Write(statement) => statement.parameters(),
            Work::Read(query) => query.parameters(),
        }
    }

    fn compared(&self, name: &str) -> ParameterUses {
        match self {
            Work::Write(statement) => statement.compared(name),
            Work::Read(query) => query.compared(name),
        }
    }

    /// The query that returns its rows.
    fn query(&self) -> Option<&PreparedQuery> {
        match self {
            Work::Write(statement) => statement.returned(),
            Work::Read(query) => Some(query),
        }
    }

    /// The names of its rows' columns.
    fn columns(&self) -> Vec<&str> {
        self.query().into_iter().flat_map(PreparedQuery::columns).collect()
    }
}

/// Moves an error to its position in the expectation's own text. An error in [`BEHIND`] means that the end of the expectation
/// is incomplete.
fn moved_up(mut error: SqlError, expectation: &str) -> SqlError {
    if error.line > 1 {
        error.line -= 1;
    }
    let lines = expectation.split('\n').count() as u64;
    if error.line > lines {
        let last = expectation.rsplit('\n').next().unwrap_or_default().trim_end();
        (error.line, error.column) = (lines, last.chars().count() as u64 + 1);
        error.message = "the expectation is incomplete here, or has a parenthesis too many; a complete one is \
                         `rows = 1`"
            .to_owned();
    }
    error
}

fn late_view() -> SqlError {
    let message = "a view cannot be read after a step that writes, nor in an expectation: its content is known only at the \
                   commit";
    SqlError { kind: SqlErrorKind::NotYet, message: message.to_owned(), line: 0, column: 0 }
}
