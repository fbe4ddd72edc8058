//! A writing statement from a client or the command line: INSERT, UPDATE or DELETE, each one transaction.

use super::statement::{ParameterValues, RowFormat};
use crate::replies::rows::Csv;
use docs::DocumentDatabase;
use docs::catalog::Catalog;
use docs::sql::{Budget, ExecutionCounts, NoRows, RowSink, SqlError, Value};
use docs::statements::{Modification, ModifyError};

/// A prepared INSERT, UPDATE or DELETE.
#[derive(Debug)]
pub struct ModifyingStatement {
    statement: Modification,
}

impl ModifyingStatement {
    /// Whether a text is such a statement. `false` for invalid SQL: preparing it as a query reports the error.
    pub fn is_one(sql: &str) -> bool {
        Modification::is_one(sql).unwrap_or(false)
    }

    /// Prepares a statement.
    pub fn prepare(sql: &str, catalog: &Catalog) -> Result<ModifyingStatement, SqlError> {
        Ok(ModifyingStatement { statement: Modification::prepare(sql, catalog)? })
    }

    /// The names of the columns of RETURNING; none without it.
    pub fn columns(&self) -> Vec<&str> {
        self.statement.columns().collect()
    }

    /// The values of the statement's parameters, by slot; or the name of a missing one.
    pub fn bind<'a>(&self, arguments: &'a ParameterValues) -> Result<Vec<Value<'a>>, String> {
        let names = self.statement.parameters().iter();
        names.map(|name| arguments.value(name).ok_or_else(|| name.clone())).collect()
    }

    /// How its documents are found, in one line, and whether a whole collection is read for that.
    pub(crate) fn plan_line(&self, values: &[Value<'_>]) -> (String, bool) {
        self.statement.plan_line(values)
    }

    /// Runs it, waits until it is durable, and passes its rows to a sink. [`ExecutionCounts::rows`] is the number of affected
    /// documents.
    pub fn execute(
        &self,
        database: &DocumentDatabase,
        values: &[Value<'_>],
        budget: &Budget<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<ExecutionCounts, ModifyError> {
        database.modify(&self.statement, values, budget, sink)
    }

    /// The same with the rows written: as JSON inside `{"changed": N, "rows": […]}`; `rows` only with RETURNING.
    pub fn write(
        &self,
        database: &DocumentDatabase,
        values: &[Value<'_>],
        shape: RowFormat,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ExecutionCounts, ModifyError> {
        match shape {
            RowFormat::Csv if self.statement.columns().next().is_some() => {
                let mut csv = Csv::new(self.statement.columns(), out);
                self.execute(database, values, budget, &mut csv)
            }
            RowFormat::Csv => self.execute(database, values, budget, &mut NoRows),
            RowFormat::Lines => {
                let outcome = self.write_rows(database, values, b'\n', budget, out)?;
                if !out.is_empty() {
                    out.push(b'\n');
                }
                Ok(outcome)
            }
            RowFormat::Json => {
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
        database: &DocumentDatabase,
        values: &[Value<'_>],
        separator: u8,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ExecutionCounts, ModifyError> {
        match self.statement.json_rows(out, separator) {
            Some(mut rows) => self.execute(database, values, budget, &mut rows),
            None => self.execute(database, values, budget, &mut NoRows),
        }
    }
}
