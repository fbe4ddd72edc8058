//! SQLite as the oracle: collections `t` and `u` with the fields `id`, `a`, `b`, `c`, `d`, here and as untyped tables.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its part, and fails by panicking")]

use std::sync::Arc;

use docs::catalog::FieldKind;
use docs::sql::{Budget, JsonTypes, OwnedValue, PreparedQuery, Scratch, Value};
use rusqlite::types::ValueRef;
use serde_json::Value as Json;

use crate::sql_generator::bound;
use crate::sql_memory::{Memory, Shape};

/// A column's cell: JSON for us, a parameter for SQLite.
fn sqlite_value(value: &Json) -> rusqlite::types::Value {
    use rusqlite::types::Value as V;
    match value {
        Json::Null => V::Null,
        Json::Bool(truth) => V::Integer(i64::from(*truth)),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => V::Integer(integer),
            None => V::Real(number.as_f64().unwrap()),
        },
        Json::String(text) => V::Text(text.clone()),
        nested => V::Text(nested.to_string()),
    }
}

const FIELDS: [&str; 5] = ["id", "a", "b", "c", "d"];

fn create(connection: &rusqlite::Connection, table: &str, columns: &[&str], documents: &[Json]) {
    connection.execute_batch(&format!("CREATE TABLE {table} ({})", columns.join(", "))).unwrap();
    let marks = vec!["?"; columns.len()].join(", ");
    let mut insert = connection.prepare(&format!("INSERT INTO {table} VALUES ({marks})")).unwrap();
    for document in documents {
        let row = columns.iter().map(|field| sqlite_value(document.get(field).unwrap_or(&Json::Null)));
        insert.execute(rusqlite::params_from_iter(row)).unwrap();
    }
}

/// A collection and a table of the same content, whose columns need not be declared.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<&'static str>,
    /// The fields in the schema; none if there is no schema.
    pub(crate) declared: Vec<&'static str>,
    pub(crate) closed: bool,
    pub(crate) documents: Vec<Json>,
}

/// Whether a query adds numbers up, which SQLite does with rounding errors and we do exactly.
fn adds(sql: &str) -> bool {
    ["SUM(", "AVG(", "TOTAL("].iter().any(|name| sql.contains(name))
}

/// Equal except for the last digits of reals, and for SQLite's error when large numbers cancel out: it uses Neumaier's
/// summation ("Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", 1974), with an error of some ε² of the
/// sum of magnitudes.
fn alike(ours: &[Json], theirs: &[Json], lost: f64) -> bool {
    let cell = |ours: &Json, theirs: &Json| match (ours, theirs) {
        (Json::Number(a), Json::Number(b)) if a.is_f64() && b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= 1e-14 * a.abs().max(b.abs()) + lost
        }
        (ours, theirs) => ours == theirs,
    };
    let row = |ours: &Json, theirs: &Json| match (ours, theirs) {
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| cell(a, b)),
        _ => false,
    };
    ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| row(a, b))
}

/// The kind that a schema would promise for a field: 5.0 is an integer too. An index entry of integers needs no document.
fn kind(field: &str, documents: &[Json]) -> FieldKind {
    let is_whole = |value: &Json| value.as_f64().is_some_and(|real| real.fract() == 0.0 && real.abs() < 1e15);
    let is_integer =
        |document: &Json| document.get(field).is_none_or(|value| value.is_null() || value.is_i64() || is_whole(value));
    if documents.iter().all(is_integer) { FieldKind::Integer } else { FieldKind::Any }
}

/// The type of a value in JSON Schema's terms: a number without a fraction is an integer.
fn types_of(value: &Json) -> JsonTypes {
    match value {
        Json::Null => JsonTypes::NULL,
        Json::Bool(_) => JsonTypes::BOOLEAN,
        Json::Number(number) if number.as_f64().is_some_and(|real| real.fract() == 0.0) => JsonTypes::INTEGER,
        Json::Number(_) => JsonTypes::NUMBER,
        Json::String(_) => JsonTypes::STRING,
        Json::Array(_) => JsonTypes::ARRAY,
        Json::Object(_) => JsonTypes::OBJECT,
    }
}

/// Checks that the values of each column have the inferred types.
fn check_types(sql: &str, query: &PreparedQuery, parameters: &[Value<'_>], rows: &[Json]) -> Result<(), String> {
    let of_parameter = |name: &str| match query.slot(name).and_then(|slot| parameters.get(slot)) {
        Some(Value::Null) | None => JsonTypes::NULL,
        Some(Value::Integer(_)) => JsonTypes::INTEGER,
        Some(Value::Real(_)) => JsonTypes::NUMBER,
        Some(Value::Text(_)) => JsonTypes::STRING,
    };
    for column in query.column_types(&of_parameter) {
        let outside = rows.iter().map(|row| &row[&column.name]).find(|value| !types_of(value).within(column.types));
        if let Some(value) = outside {
            return Err(format!("{sql}\n column {}: {value} is none of {:?}", column.name, column.types.names()));
        }
    }
    Ok(())
}

/// The same documents here and in SQLite.
pub(crate) struct Both {
    pub(crate) memory: Memory,
    pub(crate) sqlite: rusqlite::Connection,
    /// Bound of SQLite's error in a sum over all pairs of documents.
    lost: f64,
}

impl Both {
    pub(crate) fn new(t: &[Json], u: &[Json]) -> Both {
        Both::with_indexes(t, u, &[(&["a"], &[]), (&["b", "c"], &["a"])])
    }

    /// The same with these indexes on both collections, and their carried fields.
    pub(crate) fn with_indexes(t: &[Json], u: &[Json], indexes: &[(&[&str], &[&str])]) -> Both {
        let mut memory = Memory::default();
        for (name, documents) in [("t", t), ("u", u)] {
            memory.add(&Shape {
                name,
                key: "id",
                fields: &FIELDS.map(|field| (field, kind(field, documents))),
                closed: false,
                indexes,
                references: &[],
            });
            documents.iter().for_each(|document| memory.insert(name, &document.to_string()));
        }
        // SQLite's tables have no other columns.
        memory.catalog.collections.iter_mut().for_each(|info| Arc::make_mut(info).closed = true);
        let sqlite = rusqlite::Connection::open_in_memory().unwrap();
        create(&sqlite, "t", &FIELDS, t);
        create(&sqlite, "u", &FIELDS, u);
        // If reals beyond the integers cancel out in a sum, it is compared without this tolerance.
        let numbers = t.iter().chain(u).filter_map(Json::as_object).flat_map(|document| document.values());
        let largest = numbers.filter_map(Json::as_f64).map(f64::abs).filter(|n| *n <= 1e19).fold(0.0, f64::max);
        let pairs = (t.len().max(1) * u.len().max(1)) as f64;
        let lost = 4.0 * f64::EPSILON * f64::EPSILON * pairs * largest;
        Both { memory, sqlite, lost }
    }

    /// Collections of any shape, without indexes.
    pub(crate) fn of(tables: &[Table]) -> Both {
        let mut memory = Memory::default();
        let sqlite = rusqlite::Connection::open_in_memory().unwrap();
        for table in tables {
            let fields: Vec<(&str, FieldKind)> = table.declared.iter().map(|field| (*field, FieldKind::Any)).collect();
            let (fields, indexes, references) = (&fields[..], &[][..], &[][..]);
            memory.add(&Shape { name: table.name, key: "id", fields, closed: false, indexes, references });
            table.documents.iter().for_each(|document| memory.insert(table.name, &document.to_string()));
            create(&sqlite, table.name, &table.columns, &table.documents);
        }
        for (info, table) in memory.catalog.collections.iter_mut().zip(tables) {
            Arc::make_mut(info).closed = table.closed;
        }
        Both { memory, sqlite, lost: 0.0 }
    }

    pub(crate) fn ours(&self, sql: &str) -> Result<Vec<Json>, String> {
        let query = PreparedQuery::prepare(sql, &self.memory.catalog).map_err(|error| format!("prepare: {error}"))?;
        let mut out = Vec::new();
        let given = self.given(query.parameters());
        let parameters: Vec<Value<'_>> = given.iter().map(OwnedValue::value).collect();
        // Explaining the plan must work for every query.
        let present: Vec<&str> = query.parameters().iter().map(String::as_str).collect();
        let _ = (query.plan_line(&parameters), query.explain(&present), query.explain_json(&[]), query.scans(&present));
        query
            .write_array(&self.memory, &parameters, &mut Scratch::new(), &Budget::default(), &mut out)
            .map_err(|error| format!("execute: {error}"))?;
        let rows: Vec<Json> =
            serde_json::from_slice(&out).map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&out)))?;
        check_types(sql, &query, &parameters, &rows)?;
        let names: Vec<&str> = query.columns().collect();
        Ok(rows.iter().map(|row| Json::Array(names.iter().map(|name| row[*name].clone()).collect())).collect())
    }

    /// The values of the generator's parameters; NULL for others.
    pub(crate) fn given(&self, names: &[String]) -> Vec<OwnedValue> {
        use rusqlite::types::Value as V;
        let values = names.iter().map(|name| bound(name).map_or(V::Null, |literal| self.value(&literal)));
        values
            .map(|value| match value {
                V::Integer(integer) => OwnedValue::Integer(integer),
                V::Real(real) => OwnedValue::Real(real),
                V::Text(text) => OwnedValue::Text(text.into_bytes().into()),
                V::Null | V::Blob(_) => OwnedValue::Null,
            })
            .collect()
    }

    /// SQLite's value of a literal.
    fn value(&self, literal: &str) -> rusqlite::types::Value {
        self.sqlite.query_row(&format!("SELECT {literal}"), [], |row| row.get(0)).unwrap()
    }

    pub(crate) fn theirs(&self, sql: &str) -> Result<Vec<Json>, String> {
        let mut statement = self.sqlite.prepare(sql).map_err(|error| format!("prepare: {error}"))?;
        let columns = statement.column_count();
        for number in 1..=statement.parameter_count() {
            let value = bound(statement.parameter_name(number).unwrap().trim_start_matches(':'));
            statement.raw_bind_parameter(number, value.map(|literal| self.value(&literal))).unwrap();
        }
        let mut rows = statement.raw_query();
        let mut result = Vec::new();
        while let Some(row) = rows.next().map_err(|error| format!("execute: {error}"))? {
            let cells = (0..columns).map(|column| match row.get_ref(column).unwrap() {
                ValueRef::Null => Json::Null,
                ValueRef::Integer(integer) => integer.into(),
                ValueRef::Real(real) if real.is_infinite() => Json::String("infinite".into()),
                ValueRef::Real(real) => real.into(),
                ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned().into(),
                ValueRef::Blob(_) => Json::String("blob".into()),
            });
            result.push(Json::Array(cells.collect()));
        }
        Ok(result)
    }

    /// Runs a query in both; if ORDER BY does not make the order total, rows are compared as a set.
    #[track_caller]
    pub(crate) fn check(&self, sql: &str, ordered: bool) {
        if let Err(difference) = self.compare(sql, ordered) {
            panic!("{difference}");
        }
    }

    /// The same with a difference as an error; otherwise the number of rows, or `None` if both fail.
    pub(crate) fn compare(&self, sql: &str, ordered: bool) -> Result<Option<usize>, String> {
        let difference = match self.compare_once(sql, ordered) {
            Err(difference) => difference,
            same => return same,
        };
        // Which of 0 and 0.0 an operator keeps depends on the order of the rows. If that is the only difference, SQLite gives
        // our answer with its rows in reverse order.
        for table in ["t", "u"] {
            let turn = format!("CREATE TEMP TABLE {table} AS SELECT * FROM main.{table} ORDER BY rowid DESC");
            self.sqlite.execute_batch(&turn).unwrap();
        }
        let turned = self.compare_once(sql, ordered);
        self.sqlite.execute_batch("DROP TABLE temp.t; DROP TABLE temp.u").unwrap();
        turned
            .inspect(|_| println!("equal where SQLite finds the rows the other way round: {sql}"))
            .map_err(|_| difference)
    }

    fn compare_once(&self, sql: &str, ordered: bool) -> Result<Option<usize>, String> {
        match (self.ours(sql), self.theirs(sql)) {
            (Ok(mut ours), Ok(mut theirs)) => {
                // A selected nested value is returned as stored (rule 3); SQLite has only its text.
                for cell in ours.iter_mut().filter_map(Json::as_array_mut).flatten() {
                    if cell.is_object() || cell.is_array() {
                        *cell = Json::String(cell.to_string());
                    }
                }
                if !ordered {
                    ours.sort_by_key(Json::to_string);
                    theirs.sort_by_key(Json::to_string);
                }
                let rows = ours.len();
                if ours == theirs || adds(sql) && alike(&ours, &theirs, self.lost) {
                    Ok(Some(rows))
                } else {
                    Err(format!("{sql}\n ours: {ours:?}\n theirs: {theirs:?}"))
                }
            }
            // An infinite result is an error only here (rule 4).
            (Err(error), Ok(theirs)) if error.contains("infinite") && format!("{theirs:?}").contains("infinite") => {
                Ok(None)
            }
            // A sum of integers that exceeds 64 bits temporarily is an error in SQLite; our result does not depend on the
            // order.
            (Ok(_), Err(theirs)) if adds(sql) && theirs.contains("integer overflow") => Ok(None),
            (Err(ours), Err(theirs)) if ours.starts_with("execute") && theirs.starts_with("execute") => Ok(None),
            // A constant path is checked when the query is prepared, with its position.
            (Err(ours), Err(theirs)) if ours.contains("the JSON path '") && theirs.contains("JSON path") => Ok(None),
            (ours, theirs) => Err(format!("{sql}\n ours: {ours:?}\n theirs: {theirs:?}")),
        }
    }
}
