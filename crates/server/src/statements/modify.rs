//! A writing statement from a client or the command line: INSERT, UPDATE or DELETE, each one transaction.

use super::statement::{Arguments, Shape};
use crate::replies::rows::Csv;
use docs::Database;
use docs::catalog::Catalog;
use docs::sql::{Budget, NoRows, Outcome, RowSink, SqlError, Value};
use docs::statements::{Modification, ModifyError};

/// A prepared INSERT, UPDATE or DELETE.
#[derive(Debug)]
pub struct Change {
    statement: Modification,
}

impl Change {
    /// Whether a text is such a statement. `false` for invalid SQL: preparing it as a query reports the error.
    pub fn is_one(sql: &str) -> bool {
        Modification::is_one(sql).unwrap_or(false)
    }

    /// Prepares a statement.
    pub fn prepare(sql: &str, catalog: &Catalog) -> Result<Change, SqlError> {
        Ok(Change { statement: Modification::prepare(sql, catalog)? })
    }

    /// The names of the columns of RETURNING; none without it.
    pub fn columns(&self) -> Vec<&str> {
        self.statement.columns().collect()
    }

    /// The values of the statement's parameters, by slot; or the name of a missing one.
    pub fn bind<'a>(&self, arguments: &'a Arguments) -> Result<Vec<Value<'a>>, String> {
        let names = self.statement.parameters().iter();
        names.map(|name| arguments.value(name).ok_or_else(|| name.clone())).collect()
    }

    /// How its documents are found, in one line, and whether a whole collection is read for that.
    pub(crate) fn plan_line(&self, values: &[Value<'_>]) -> (String, bool) {
        self.statement.plan_line(values)
    }

    /// Runs it, waits until it is durable, and passes its rows to a sink. [`Outcome::rows`] is the number of affected documents.
    pub fn execute(
        &self,
        database: &Database,
        values: &[Value<'_>],
        budget: &Budget<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<Outcome, ModifyError> {
        database.modify(&self.statement, values, budget, sink)
    }

    /// The same with the rows written: as JSON inside `{"changed": N, "rows": […]}`; `rows` only with RETURNING.
    pub fn write(
        &self,
        database: &Database,
        values: &[Value<'_>],
        shape: Shape,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, ModifyError> {
        match shape {
            Shape::Csv if self.statement.columns().next().is_some() => {
                let mut csv = Csv::new(self.statement.columns(), out);
                self.execute(database, values, budget, &mut csv)
            }
            Shape::Csv => self.execute(database, values, budget, &mut NoRows),
            Shape::Lines => {
                let outcome = self.write_rows(database, values, b'\n', budget, out)?;
                if !out.is_empty() {
                    out.push(b'\n');
                }
                Ok(outcome)
            }
            Shape::Json => {
                let mut rows = Vec::new();
                let outcome = self.write_rows(database, values, b',', budget, &mut rows)?;
                out.extend_from_slice(format!("{{\"changed\":{}", outcome.rows).as_bytes());
                if self.statement.columns().next().is_some() {
                    out.extend_from_slice(b",\"rows\":[");
                    out.extend_from_slice(&rows);
                    out.push(b']');
                }
                out.push(b'}');
                Ok(outcome)
            }
        }
    }

    fn write_rows(
        &self,
        database: &Database,
        values: &[Value<'_>],
        separator: u8,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, ModifyError> {
        match self.statement.json_rows(out, separator) {
            Some(mut rows) => self.execute(database, values, budget, &mut rows),
            None => self.execute(database, values, budget, &mut NoRows),
        }
    }
}
