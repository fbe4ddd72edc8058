//! A statement that somebody typed, through the general API or the command line: a query, or `EXPLAIN` of one.

use crate::flowing;
use crate::rows::Csv;
use docs::catalog::Catalog;
use docs::sql::{Budget, Field, Outcome, Query, QueryError, RowSink, Scratch, SqlError, Value, Workers};
use docs::{Moment, Session};
use serde_json::{Map, Value as Json};
use std::sync::Arc;

/// The one column of a plan's rows.
const PLAN: &str = "plan";

/// A prepared statement.
#[derive(Debug)]
pub struct Statement {
    query: Query,
    /// Its plan is asked for, not its rows.
    explain: bool,
    /// Threads that may help.
    workers: Option<Arc<Workers>>,
}

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An array of objects.
    Json,
    /// One object on each line.
    Lines,
    /// RFC 4180, with a head line.
    Csv,
}

/// Values given to a statement by name, and the JSON text of each: what SQL sees of arrays and objects (rule 3).
#[derive(Debug, Default)]
pub struct Arguments {
    given: Map<String, Json>,
    texts: Map<String, Json>,
}

impl Arguments {
    /// From the members of an object.
    pub fn new(given: Map<String, Json>) -> Arguments {
        let nested = given.iter().filter(|(_, value)| value.is_array() || value.is_object());
        let texts = nested.map(|(name, value)| (name.clone(), Json::String(value.to_string()))).collect();
        Arguments { given, texts }
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
    /// Prepares a text: a query, or `EXPLAIN [QUERY PLAN]` and a query.
    pub fn prepare(sql: &str, catalog: &Catalog) -> Result<Statement, SqlError> {
        let Some(rest) = after_explain(sql) else {
            return Ok(Statement { query: Query::prepare(sql, catalog)?, explain: false, workers: None });
        };
        // Line ends stay, the rest becomes blanks, so that messages tell the place in the text as it was typed.
        let prefix = &sql[..sql.len() - rest.len()];
        let blanks: String = prefix.chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        Ok(Statement { query: Query::prepare(&(blanks + rest), catalog)?, explain: true, workers: None })
    }

    /// The same with threads that help where much is read.
    pub fn with_workers(self, workers: Arc<Workers>) -> Statement {
        Statement { workers: Some(workers), ..self }
    }

    /// How it finds its rows, in one line, and whether it reads a collection whole.
    pub fn plan_line(&self, values: &[Value<'_>]) -> (&str, bool) {
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
        if self.explain { vec![PLAN] } else { self.query.columns().collect() }
    }

    /// The values of the query's parameters, by slot; or the name of one that is not given. A plan needs none.
    pub fn bind<'a>(&self, arguments: &'a Arguments) -> Result<Vec<Value<'a>>, String> {
        let names = self.query.parameters().iter();
        names
            .map(|name| match arguments.value(name) {
                Some(value) => Ok(value),
                None if self.explain => Ok(Value::Null),
                None => Err(name.clone()),
            })
            .collect()
    }

    /// Runs it and gives its rows to a sink.
    pub fn execute<S: RowSink>(
        &self,
        now: &Moment<'_>,
        values: &[Value<'_>],
        budget: &Budget<'_>,
        sink: &mut S,
    ) -> Result<Outcome, QueryError> {
        if self.explain {
            self.plan(values).lines().for_each(|line| {
                sink.begin_row();
                sink.field(0, Field::Value(Value::text(line)));
                sink.end_row();
            });
            return Ok(Outcome::default());
        }
        self.query.execute(now.view(), values, &mut self.scratch(), budget, sink)
    }

    /// Runs it on the newest state; its rows leave while they are made. What has not left when it ends is in `rest`.
    pub(crate) fn flow(
        &self,
        session: &Session,
        values: &[Value<'_>],
        shape: Shape,
        budget: &Budget<'_>,
        (reply, rest): (&mut flowing::Reply<'_>, &mut Vec<u8>),
    ) -> Result<Outcome, QueryError> {
        let now = session.now();
        let outcome = match shape {
            _ if self.explain => self.write_rows(&now, values, shape, budget, rest)?,
            Shape::Csv => {
                let csv = Csv::new(self.columns().into_iter(), rest);
                self.execute(&now, values, budget, &mut reply.sink(csv, &now, budget))?
            }
            Shape::Json => {
                rest.push(b'[');
                let rows = self.query.json_rows(rest, b',');
                let outcome = self.execute(&now, values, budget, &mut reply.sink(rows, &now, budget))?;
                rest.push(b']');
                outcome
            }
            Shape::Lines => {
                let rows = self.query.json_rows(rest, b'\n');
                let outcome = self.execute(&now, values, budget, &mut reply.sink(rows, &now, budget))?;
                rest.extend((outcome.rows > 0).then_some(b'\n'));
                outcome
            }
        };
        now.check_store().map_err(QueryError::Store)?;
        Ok(outcome)
    }

    /// Runs it on the newest state and appends its rows.
    pub fn write(
        &self,
        session: &Session,
        values: &[Value<'_>],
        shape: Shape,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, QueryError> {
        let now = session.now();
        let outcome = self.write_rows(&now, values, shape, budget, out)?;
        now.check_store().map_err(QueryError::Store)?;
        Ok(outcome)
    }

    fn write_rows(
        &self,
        now: &Moment<'_>,
        values: &[Value<'_>],
        shape: Shape,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, QueryError> {
        match shape {
            Shape::Csv => {
                let mut csv = Csv::new(self.columns().into_iter(), out);
                self.execute(now, values, budget, &mut csv)
            }
            Shape::Json if self.explain => {
                let rows: Vec<Json> = self.plan(values).lines().map(plan_row).collect();
                out.extend_from_slice(Json::Array(rows).to_string().as_bytes());
                Ok(Outcome::default())
            }
            Shape::Lines if self.explain => {
                let plan = self.plan(values);
                plan.lines().for_each(|line| out.extend_from_slice(format!("{}\n", plan_row(line)).as_bytes()));
                Ok(Outcome::default())
            }
            Shape::Json => self.query.write_array(now.view(), values, &mut self.scratch(), budget, out),
            Shape::Lines => self.query.write_lines(now.view(), values, &mut self.scratch(), budget, out),
        }
    }

    /// The plan that is taken when just these values are not NULL, one step on each line.
    fn plan(&self, values: &[Value<'_>]) -> String {
        let named = self.query.parameters().iter().zip(values);
        let present: Vec<&str> = named.filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str()).collect();
        self.query.explain(&present)
    }
}

fn plan_row(line: &str) -> Json {
    serde_json::json!({ PLAN: line })
}

/// What stands behind `EXPLAIN` or `EXPLAIN QUERY PLAN`.
fn after_explain(sql: &str) -> Option<&str> {
    let rest = after_word(sql, "EXPLAIN")?;
    Some(after_word(rest, "QUERY").and_then(|rest| after_word(rest, "PLAN")).unwrap_or(rest))
}

/// What stands behind a word, whatever its case.
fn after_word<'s>(sql: &'s str, word: &str) -> Option<&'s str> {
    let text = sql.trim_start();
    let (head, rest) = text.split_at_checked(word.len())?;
    (head.eq_ignore_ascii_case(word) && rest.starts_with(char::is_whitespace)).then_some(rest)
}

#[cfg(test)]
mod explaining {
    use super::after_explain;

    #[test]
    fn explain_is_a_word_before_a_query() {
        assert_eq!(after_explain(" explain\nquery PLAN SELECT 1"), Some(" SELECT 1"));
        assert_eq!(after_explain("EXPLAIN SELECT query FROM t"), Some(" SELECT query FROM t"));
        assert_eq!(after_explain("EXPLAINED SELECT 1"), None);
        assert_eq!(after_explain("SELECT 1"), None);
        assert_eq!(after_explain("EXPLAIN"), None);
    }
}
