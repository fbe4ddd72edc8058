//! Properties that must hold for any text as a query; run by the tests here and by a target of `fuzz/`.

use docs::catalog::Catalog;
use docs::sql::{Budget, PreparedQuery, Scratch, Value};

use crate::sql_memory::{Memory, travels};

/// The budget of one execution: small, so that the limits are reached.
fn budget() -> Budget<'static> {
    Budget { rows_max: 5_000, output_bytes_max: 64 << 10, memory_bytes_max: 64 << 10, ..Budget::default() }
}

/// How far the output may exceed the budget: one row is written before it is counted.
const ROW_BYTES_MAX: usize = 1 << 20;

/// A small data set with edge cases for dates, ages, sums and texts.
pub(crate) fn little() -> Memory {
    let mut memory = travels();
    for id in 0..4 {
        let birth = [0, -2_147_483_648, 253_402_300_799i64, i64::MAX][id];
        memory.insert(
            "users",
            &format!(
                r#"{{"id":{id},"email":"u{id}","first_name":"Жан","last_name":"","gender":"m","birth_date":{birth}}}"#
            ),
        );
        memory.insert(
            "locations",
            &format!(r#"{{"id":{id},"place":"p\"\\","country":"c","city":"","distance":{}}}"#, id * 1000),
        );
    }
    for id in 0..12 {
        let visited = [0, i64::MIN, i64::MAX, 1_500_000_000][id % 4];
        memory.insert(
            "visits",
            &format!(
                r#"{{"id":{id},"location":{},"user":{},"visited_at":{visited},"mark":{}}}"#,
                id % 5,
                id % 3,
                id % 6
            ),
        );
    }
    memory
}

/// The same collections without declared indexes: queries must return the same rows through other access paths.
pub(crate) fn without_indexes(catalog: &Catalog) -> Catalog {
    let mut plain = catalog.clone();
    for collection in &mut plain.collections {
        let collection = std::sync::Arc::make_mut(collection);
        collection.indexes.clear();
        collection.references.clear();
    }
    plain
}

/// Runs a query: rows as sorted lines, if it stayed within its budget. The output must be JSON.
fn rows(memory: &Memory, query: &PreparedQuery, parameters: &[Value<'_>]) -> Option<Vec<String>> {
    let mut out = Vec::new();
    let outcome = query.write_lines(memory, parameters, &mut Scratch::new(), &budget(), &mut out);
    assert!(out.len() <= budget().output_bytes_max + ROW_BYTES_MAX, "{} bytes", out.len());
    let outcome = outcome.ok()?;
    assert!(outcome.rows_read <= budget().rows_max);
    let text = String::from_utf8(out).expect("UTF-8");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(lines.len() as u64, outcome.rows);
    for line in &lines {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    lines.sort_unstable();
    Some(lines)
}

/// Prepares a text, and runs it with parameters absent and with each extreme value. Returns whether it was accepted.
pub(crate) fn check_sql(memory: &Memory, plain: &Catalog, sql: &str) -> bool {
    let (query, unindexed) = match (PreparedQuery::prepare(sql, &memory.catalog), PreparedQuery::prepare(sql, plain)) {
        (Ok(query), Ok(unindexed)) => (query, unindexed),
        (Err(error), Err(_)) => {
            assert!(!error.message.is_empty());
            assert!(error.line as usize <= sql.split('\n').count(), "outside the text: {error}");
            return false;
        }
        (one, other) => panic!("indexes decide whether it is a query: {one:?} {other:?}"),
    };
    let text = "ж%_".repeat(40);
    for value in
        [Value::Null, Value::Integer(1), Value::Integer(i64::MIN), Value::Real(f64::MAX), Value::Text(text.as_bytes())]
    {
        let parameters = vec![value; query.parameters().len()];
        let found = rows(memory, &query, &parameters);
        let searched = rows(memory, &unindexed, &parameters);
        // Without a total order LIMIT may cut elsewhere, and sums of doubles may differ in the last digits.
        if let (Some(found), Some(searched)) = (&found, &searched) {
            assert_eq!(found.len(), searched.len(), "{sql}\n{parameters:?}");
            if !sql.to_ascii_uppercase().contains("LIMIT") {
                assert_eq!(found, searched, "{sql}\n{parameters:?}");
            }
        }
    }
    let _ = (query.explain(&[]), query.explain_json(&[]), query.wanted_included(), query.scans(&[]));
    true
}
