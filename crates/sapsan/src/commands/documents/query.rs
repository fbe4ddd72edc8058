//! `sapsan query CONFIG --data DIR SQL`: one statement, its rows printed as a table, JSON, NDJSON or CSV.

use crate::cli::{Format, QueryArguments};
use crate::console::{Outcome, output};
use crate::target::folder;
use docs::sql::{Budget, FieldValue, RowSink, SpillSpace, Value, Workers, write_field};
use docs::{DocumentDatabase, ReaderSession};
use server::config::ServiceConfig;
use server::modify::ModifyingStatement;
use server::statement::{ParameterValues, RowFormat, Statement};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Rows that a table is laid out for; more are refused, with a hint.
const TABLE_ROWS_MAX: usize = 10_000;
/// Widest cell of a table with several columns, in characters; longer ones are cut.
const CELL_CHARACTERS_MAX: usize = 60;

pub(crate) fn run(arguments: &QueryArguments) -> Outcome {
    let mut config = ServiceConfig::load(&arguments.config, &[]).map_err(|error| error.to_string())?;
    config.docs.may_drop = arguments.allow_drop;
    let documents = server::complete(&config).map_err(|mistakes| mistakes.to_string())?;
    if !docs::engine::Store::is_in(&arguments.data) {
        return Err(format!("{} is no data folder", arguments.data.display()));
    }
    let data = &arguments.data;
    let given = given(&arguments.params)?;
    let spill_bytes = config.server.query_spill_bytes;
    let spill = (spill_bytes > 0).then(|| Arc::new(SpillSpace::new(data, spill_bytes)));
    let budget = budget(spill.as_ref());
    if ModifyingStatement::is_one(&arguments.sql) {
        let database = folder::open_to_write(&config, &documents, data)?;
        // A changed file may have views that are not built yet.
        database.wait_for_views();
        return change(&database, arguments, &given, &budget);
    }
    let database = folder::open_to_look(&documents, &arguments.config, data, server::store_options(&config))?;
    // A build that was stopped begins again.
    database.wait_for_views();
    let query = Statement::prepare(&arguments.sql, database.catalog()).map_err(|error| error.to_string())?;
    let helpers = std::thread::available_parallelism().map_or(0, |threads| threads.get() - 1);
    let query = query.with_workers(Arc::new(Workers::new(helpers)));
    let values = query.bind(&given).map_err(not_given)?;
    let session = database.session().map_err(|error| error.to_string())?;
    output::bytes(&execute(&query, &values, &session, arguments.format, &budget)?)
}

fn not_given(name: String) -> String {
    format!("the statement's :{name} is not given: --param {name}=VALUE")
}

/// Runs a statement that writes; how many documents it was about goes to standard error.
fn change(
    database: &DocumentDatabase,
    arguments: &QueryArguments,
    given: &ParameterValues,
    budget: &Budget<'_>,
) -> Outcome {
    let change = ModifyingStatement::prepare(&arguments.sql, database.catalog()).map_err(|error| error.to_string())?;
    let values = change.bind(given).map_err(not_given)?;
    let mut out = Vec::new();
    let changed = match arguments.format {
        Format::Json => change.write(database, &values, RowFormat::Json, budget, &mut out).inspect(|_| out.push(b'\n')),
        Format::Ndjson => change.write(database, &values, RowFormat::Lines, budget, &mut out),
        Format::Csv => change.write(database, &values, RowFormat::Csv, budget, &mut out),
        Format::Table => {
            let mut table = Table::new(change.columns());
            let changed = change.execute(database, &values, budget, &mut table);
            if changed.is_ok() && table.rows.first().is_some_and(|head| !head.is_empty()) {
                if table.is_full() {
                    table.rows.truncate(TABLE_ROWS_MAX + 1);
                    output::notice(format_args!("only the first {TABLE_ROWS_MAX} rows are shown"));
                }
                table.print(&mut out);
            }
            changed
        }
    };
    let changed = changed.map_err(|error| error.to_string())?;
    output::notice(format_args!("{} documents", changed.rows));
    output::bytes(&out)
}

/// Rows are unlimited, the output has at most 1 GiB; data beyond the memory of a query goes to disk if it may.
fn budget(spill: Option<&Arc<SpillSpace>>) -> Budget<'_> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    Budget { now_ms, rows_max: u64::MAX, output_bytes_max: 1 << 30, spill, ..Budget::default() }
}

fn execute(
    query: &Statement,
    values: &[Value<'_>],
    session: &ReaderSession,
    format: Format,
    budget: &Budget<'_>,
) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let outcome = match format {
        Format::Json => {
            let outcome = query.write(session, values, RowFormat::Json, budget, &mut out);
            out.push(b'\n');
            outcome
        }
        Format::Ndjson => query.write(session, values, RowFormat::Lines, budget, &mut out),
        Format::Csv => query.write(session, values, RowFormat::Csv, budget, &mut out),
        Format::Table => {
            let mut table = Table::new(query.columns());
            let outcome = query.execute(&session.now(), values, budget, &mut table);
            if outcome.is_ok() && table.is_full() {
                return Err(format!("over {TABLE_ROWS_MAX} rows: add LIMIT, or take --format ndjson"));
            }
            table.print(&mut out);
            outcome
        }
    };
    outcome.map_err(|error| error.to_string())?;
    Ok(out)
}

/// Parameters as given: JSON where it is JSON, else text.
fn given(params: &[String]) -> Result<ParameterValues, String> {
    let pairs = params.iter().map(|param| {
        let (name, text) = param.split_once('=').ok_or_else(|| format!("--param {param}: NAME=VALUE is expected"))?;
        Ok((name.to_owned(), serde_json::from_str(text).unwrap_or_else(|_| text.into())))
    });
    pairs.collect::<Result<_, String>>().map(ParameterValues::new)
}

/// Rows as text, the head first. It holds one row more than are shown.
struct Table {
    rows: Vec<Vec<String>>,
    /// A row was left out.
    is_cut: bool,
    bytes: usize,
}

impl RowSink for Table {
    fn begin_row(&mut self) {
        match self.is_full() {
            true => self.is_cut = true,
            false => self.rows.push(Vec::new()),
        }
    }

    fn field(&mut self, _column: usize, field: FieldValue<'_>) {
        if self.is_cut {
            return;
        }
        let mut json = Vec::new();
        write_field(field, &mut json);
        let text = match serde_json::from_slice(&json) {
            Ok(serde_json::Value::String(text)) => text,
            Ok(serde_json::Value::Null) => String::new(),
            _ => String::from_utf8_lossy(&json).into_owned(),
        };
        self.bytes += text.len();
        if let Some(row) = self.rows.last_mut() {
            row.push(text.replace(['\n', '\r', '\t'], " "));
        }
    }

    fn end_row(&mut self) {}

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Table {
    fn new(columns: Vec<&str>) -> Table {
        Table { rows: vec![columns.into_iter().map(str::to_owned).collect()], is_cut: false, bytes: 0 }
    }

    /// Whether it has more rows than are shown.
    fn is_full(&self) -> bool {
        self.rows.len() > TABLE_ROWS_MAX + 1
    }

    fn print(&mut self, out: &mut Vec<u8>) {
        let columns = self.rows.first().map_or(0, Vec::len);
        // Nothing stands beside a single one, which may be a plan.
        let widest = if columns == 1 { usize::MAX } else { CELL_CHARACTERS_MAX };
        let mut widths = vec![0; columns];
        for row in &mut self.rows {
            for (cell, width) in row.iter_mut().zip(&mut widths) {
                let characters = cell.chars().count();
                if characters > widest {
                    *cell = cell.chars().take(widest - 1).chain(['…']).collect();
                }
                *width = characters.min(widest).max(*width);
            }
        }
        for (number, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
            out.extend_from_slice(cells.join("  ").trim_end().as_bytes());
            out.push(b'\n');
            if number == 0 {
                let lines: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                out.extend_from_slice(lines.join("  ").as_bytes());
                out.push(b'\n');
            }
        }
    }
}

#[cfg(test)]
mod tables {
    use super::*;

    #[test]
    fn rows_beyond_those_that_are_shown_are_left_out() {
        for (rows, is_full, shown) in
            [(TABLE_ROWS_MAX, false, TABLE_ROWS_MAX), (TABLE_ROWS_MAX + 5, true, TABLE_ROWS_MAX + 1)]
        {
            let mut table = Table::new(vec!["id"]);
            for row in 0..rows {
                table.begin_row();
                table.field(0, FieldValue::Value(Value::Integer(row as i64)));
                table.end_row();
            }
            assert_eq!((table.is_full(), table.rows.len() - 1), (is_full, shown));
            assert!(table.rows.iter().all(|row| row.len() == 1));
        }
    }
}
