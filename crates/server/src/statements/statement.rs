//! A statement from the general API or the command line: a query, or `EXPLAIN` of one.

use super::explain::{Explained, PLAN};
pub use crate::replies::media::RowFormat;
use crate::replies::pipe;
use crate::replies::row_stream;
use crate::replies::rows::Csv;
use docs::catalog::Catalog;
use docs::sql::{
    Budget, ExecutionCounts, Explain, PreparedQuery, QueryError, RowSink, Scratch, SqlError, Statements, Value, Workers,
};
use docs::{Moment, ReaderSession};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// A prepared statement.
#[derive(Debug)]
pub struct Statement {
    query: Arc<PreparedQuery>,
    /// The kind of plan, if a plan is requested instead of rows.
    explain: Option<Explain>,
    /// Threads that may help.
    workers: Option<Arc<Workers>>,
}

/// Values of a statement's parameters by name, and the JSON text of each array and object, as SQL sees them (rule 3).
#[derive(Debug, Default)]
pub struct ParameterValues {
    given: Map<String, Json>,
    texts: Map<String, Json>,
}

impl ParameterValues {
    /// From the members of an object.
    pub fn new(given: Map<String, Json>) -> ParameterValues {
        let nested = given.iter().filter(|(_, value)| value.is_array() || value.is_object());
        let texts = nested.map(|(name, value)| (name.clone(), Json::String(value.to_string()))).collect();
        ParameterValues { given, texts }
    }

    /// A value as SQL sees it: a boolean is 1 or 0, an array or object its minified text.
    pub(crate) fn value(&self, name: &str) -> Option<Value<'_>> {
        Some(match self.given.get(name)? {
            Json::Null => Value::Null,
            Json::Bool(flag) => Value::Integer(i64::from(*flag)),
            Json::Number(number) => {
                number.as_i64().map_or_else(|| number.as_f64().map_or(Value::Null, Value::Real), Value::Integer)
            }
            Json::String(text) => Value::text(text),
            Json::Array(_) | Json::Object(_) => Value::text(self.texts.get(name)?.as_str()?),
        })
    }
}

impl Statement {
    /// Prepares a text: a query, or `EXPLAIN` of one ([`Explain`]).
    pub fn prepare(sql: &str, catalog: &Catalog) -> Result<Statement, SqlError> {
        Statement::prepare_by(sql, |sql| PreparedQuery::prepare(sql, catalog).map(Arc::new))
    }

    /// The same for a text whose prepared form may be cached from an earlier request.
    pub(crate) fn kept(sql: &str, catalog: &Catalog, statements: &Statements) -> Result<Statement, SqlError> {
        Statement::prepare_by(sql, |sql| statements.query(sql, catalog))
    }

    fn prepare_by(
        sql: &str,
        prepare: impl FnOnce(&str) -> Result<Arc<PreparedQuery>, SqlError>,
    ) -> Result<Statement, SqlError> {
        let Some((explain, start)) = Explain::of(sql)? else {
            return Ok(Statement { query: prepare(sql)?, explain: None, workers: None });
        };
        // Line ends stay, the rest becomes blanks, so that messages show the place in the original text.
        let (prefix, rest) = sql.split_at(start);
        let blanks: String = prefix.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        Ok(Statement { query: prepare(&(blanks + rest))?, explain: Some(explain), workers: None })
    }

    /// The same with threads that help with large scans.
    pub fn with_workers(self, workers: Arc<Workers>) -> Statement {
        Statement { workers: Some(workers), ..self }
    }

    /// How it finds its rows, in one line, and whether it reads a whole collection.
    pub fn plan_line(&self, values: &[Value<'_>]) -> (Arc<str>, bool) {
        self.query.plan_line(values)
    }

    fn scratch(&self) -> Scratch {
        match &self.workers {
            Some(workers) => Scratch::new().with_workers(Arc::clone(workers)),
            None => Scratch::new(),
        }
    }

    /// The names of the result columns.
    pub fn columns(&self) -> Vec<&str> {
        if self.explain.is_some() { vec![PLAN] } else { self.query.columns().collect() }
    }

    /// The values of the query's parameters, by slot; or the name of a missing one. A plan alone needs none.
    pub fn bind<'a>(&self, arguments: &'a ParameterValues) -> Result<Vec<Value<'a>>, String> {
        let names = self.query.parameters().iter();
        names
            .map(|name| match arguments.value(name) {
                Some(value) => Ok(value),
                None if self.explain.is_some_and(|explain| !explain.analyze) => Ok(Value::Null),
                None => Err(name.clone()),
            })
            .collect()
    }

    /// Runs it and passes its rows to a sink.
    pub fn execute(
        &self,
        now: &Moment<'_>,
        values: &[Value<'_>],
        budget: &Budget<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<ExecutionCounts, QueryError> {
        if let Some(explain) = self.explain {
            let explained = Explained::of(&self.query, explain, now, values, (budget, self.workers.as_deref()))?;
            explained.give(sink);
            return Ok(explained.outcome());
        }
        self.query.execute(now.view(), values, &mut self.scratch(), budget, sink)
    }

    /// Runs it; its rows are sent while they are made. Unsent bytes are left in `rest`.
    pub(crate) fn flow(
        &self,
        now: &Moment<'_>,
        values: &[Value<'_>],
        shape: RowFormat,
        budget: &Budget<'_>,
        (reply, rest): (&mut pipe::Reply<'_>, &mut Vec<u8>),
    ) -> Result<ExecutionCounts, QueryError> {
        if self.explain.is_some() {
            let outcome = self.write_rows(now, values, shape, budget, rest)?;
            now.check_indexes().map_err(QueryError::Store)?;
            return Ok(outcome);
        }
        row_stream::stream(&self.query, (now, values, shape), (b"", b""), &mut self.scratch(), budget, (reply, rest))
    }

    /// Runs it on the newest state and appends its rows.
    pub fn write(
        &self,
        session: &ReaderSession,
        values: &[Value<'_>],
        shape: RowFormat,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ExecutionCounts, QueryError> {
        let now = session.now();
        let outcome = self.write_rows(&now, values, shape, budget, out)?;
        now.check_indexes().map_err(QueryError::Store)?;
        Ok(outcome)
    }

    fn write_rows(
        &self,
        now: &Moment<'_>,
        values: &[Value<'_>],
        shape: RowFormat,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ExecutionCounts, QueryError> {
        if let Some(explain) = self.explain.filter(|_| shape != RowFormat::Csv) {
            let explained = Explained::of(&self.query, explain, now, values, (budget, self.workers.as_deref()))?;
            match shape {
                RowFormat::Lines => {
                    explained.objects().for_each(|row| out.extend_from_slice(format!("{row}\n").as_bytes()))
                }
                _ => out.extend_from_slice(explained.objects().collect::<Json>().to_string().as_bytes()),
            }
            return Ok(explained.outcome());
        }
        match shape {
            RowFormat::Csv => {
                let mut csv = Csv::new(self.columns().into_iter(), out);
                self.execute(now, values, budget, &mut csv)
            }
            RowFormat::Json => self.query.write_array(now.view(), values, &mut self.scratch(), budget, out),
            RowFormat::Lines => self.query.write_lines(now.view(), values, &mut self.scratch(), budget, out),
        }
    }
}
