//! `POST /_/query`: `{"sql": …, "params": {…}}`; rows as JSON or, by Accept, NDJSON or CSV.
//!
//! It runs on the pool, never on a loop, with a limit on rows, bytes and time.

use super::fail;
use crate::endpoint::JSON;
use crate::failure::{ErrorRules, Failure, Kind};
use crate::querying::of_query;
use crate::rows::{Csv, NDJSON};
use crate::service::Service;
use crate::writing;
use docs::Database;
use docs::sql::{Budget, Query, Scratch, Value};
use http::{LateReply, Reply, Request, Status};
use std::time::{Duration, Instant};

/// How long one query may run.
const TIME_MAX: Duration = Duration::from_secs(30);

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Json,
    Lines,
    Csv,
}

pub(super) fn run(service: &Service, request: &Request<'_>, reply: Reply<'_>) {
    let shape = shape(request.header("accept").unwrap_or_default());
    let (statement, parameters) = match read(request.body()) {
        Ok(read) => read,
        Err(failure) => return fail(&failure, reply),
    };
    let (database, asked) = (service.database.clone(), Asked(Some(reply.later())));
    let (rows_max, bytes_max) = (service.scan_rows_max, service.query_bytes);
    let job = move || asked.answer(execute(&database, &statement, &parameters, shape, (rows_max, bytes_max)));
    // A refused job is dropped, and with it what was asked: see `Asked`.
    drop(service.pool.try_submit(Box::new(job)));
}

/// A query's reply until it is given. A job that never ran, since the queue is full or the server ends, is told as
/// such; one that a panic ends is left to the handle, which answers 500.
struct Asked(Option<LateReply>);

impl Asked {
    fn answer(mut self, outcome: Result<(&'static str, Vec<u8>), Failure>) {
        let Some(late) = self.0.take() else { return };
        match outcome {
            Ok((media, body)) => late.send(Status(200), media, body),
            Err(failure) => writing::refuse(&ErrorRules::default(), late, &failure),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(late) = self.0.take()
            && !std::thread::panicking()
        {
            let failure = Failure::new(Kind::Busy, "too many queries run or wait");
            writing::refuse(&ErrorRules::default(), late, &failure);
        }
    }
}

fn shape(accept: &[u8]) -> Shape {
    let accept = String::from_utf8_lossy(accept).to_ascii_lowercase();
    if accept.contains("ndjson") {
        Shape::Lines
    } else if accept.contains("text/csv") {
        Shape::Csv
    } else {
        Shape::Json
    }
}

/// The statement and its parameters.
fn read(body: &[u8]) -> Result<(String, serde_json::Map<String, serde_json::Value>), Failure> {
    let invalid = |detail: String| Failure::new(Kind::Invalid, detail);
    let body: serde_json::Value =
        serde_json::from_slice(body).map_err(|error| invalid(format!("the body: {error}")))?;
    let serde_json::Value::Object(mut body) = body else {
        return Err(invalid("the body is no object; allowed: {\"sql\": …, \"params\": {…}}".to_owned()));
    };
    let Some(serde_json::Value::String(sql)) = body.remove("sql") else {
        return Err(invalid("`sql` is missing or no text".to_owned()));
    };
    let parameters = match body.remove("params") {
        None => serde_json::Map::new(),
        Some(serde_json::Value::Object(parameters)) => parameters,
        Some(_) => return Err(invalid("`params` is no object".to_owned())),
    };
    match body.keys().next() {
        Some(unknown) => Err(invalid(format!("unknown field `{unknown}`; allowed: sql, params"))),
        None => Ok((sql, parameters)),
    }
}

fn execute(
    database: &Database,
    statement: &str,
    parameters: &serde_json::Map<String, serde_json::Value>,
    shape: Shape,
    (rows_max, bytes_max): (u64, usize),
) -> Result<(&'static str, Vec<u8>), Failure> {
    let query = Query::prepare(statement, database.catalog())
        .map_err(|error| Failure::new(Kind::Invalid, error.to_string()))?;
    let texts: Vec<Option<String>> =
        query.parameters().iter().map(|name| Some(parameters.get(name)?.to_string())).collect();
    let mut values = Vec::new();
    for (name, text) in query.parameters().iter().zip(&texts) {
        let given = parameters.get(name).zip(text.as_deref());
        let (given, text) =
            given.ok_or_else(|| Failure::new(Kind::Invalid, format!("the parameter :{name} is not given")))?;
        values.push(value(given, text));
    }
    let ends = Instant::now() + TIME_MAX;
    let over = || Instant::now() > ends;
    let budget = Budget {
        rows_max,
        output_bytes_max: bytes_max,
        memory_bytes_max: bytes_max,
        deadline: Some(&over),
        now_ms: now_ms(),
    };
    let busy = |_| Failure::new(Kind::Busy, "no reader is free");
    let session = database.session().map_err(busy)?;
    let (now, mut scratch, mut out) = (session.now(), Scratch::new(), Vec::new());
    let (media, outcome) = match shape {
        Shape::Json => (JSON, query.write_array(now.view(), &values, &mut scratch, &budget, &mut out)),
        Shape::Lines => (NDJSON, query.write_lines(now.view(), &values, &mut scratch, &budget, &mut out)),
        Shape::Csv => {
            let mut csv = Csv::new(query.columns(), &mut out);
            ("text/csv; charset=utf-8", query.execute(now.view(), &values, &mut scratch, &budget, &mut csv))
        }
    };
    outcome.map_err(|error| of_query(&error))?;
    Ok((media, out))
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A JSON value as SQL sees it (rule 3: a boolean is 1 or 0, an object or array its minified text).
fn value<'v>(given: &'v serde_json::Value, text: &'v str) -> Value<'v> {
    match given {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(flag) => Value::Integer(i64::from(*flag)),
        serde_json::Value::Number(number) => {
            number.as_i64().map_or_else(|| number.as_f64().map_or(Value::Null, Value::Real), Value::Integer)
        }
        serde_json::Value::String(text) => Value::text(text),
        serde_json::Value::Array(_) | serde_json::Value::Object(_) => Value::text(text),
    }
}
