//! Random queries over random documents, compared with SQLite: equal answers.

use crate::sql_generator::{Asked, Random, query, world};
use crate::sql_oracle::Both;
use docs::sql::{Budget, OwnedValue, PageAt, Paged, Scratch, Value};
use serde_json::Value as Json;

/// Queries run on one pair of collections.
const QUERIES_OF_A_WORLD: u64 = 25;
/// Default number of queries of a campaign.
const CAMPAIGN_QUERIES: u64 = 1_000_000;
const SHOWN_MAX: usize = 20;

/// Runs `queries` queries, with seeds from `first` on.
#[track_caller]
fn check(first: u64, queries: u64) {
    let (mut rows, mut both_failed, mut paged, mut differences) = (0usize, 0usize, 0usize, Vec::new());
    for seed in first..first + queries / QUERIES_OF_A_WORLD {
        let mut random = Random::new(seed);
        let both = world(&mut random);
        for _ in 0..QUERIES_OF_A_WORLD {
            let asked = query(&mut random);
            match both.compare(&asked.sql, asked.ordered) {
                Ok(Some(found)) => rows += found,
                Ok(None) => both_failed += 1,
                Err(difference) => differences.push(format!("seed {seed}: {difference}")),
            }
            match compare_pages(&both, &asked) {
                Ok(has_pages) => paged += usize::from(has_pages),
                Err(difference) => differences.push(format!("seed {seed}: {difference}")),
            }
        }
    }
    let shown = differences[..differences.len().min(SHOWN_MAX)].join("\n");
    assert!(differences.is_empty(), "{} differences, such as\n{shown}", differences.len());
    println!("{queries} queries, {rows} rows, {both_failed} failed in both, {paged} had pages");
    assert!(rows as u64 > queries && (both_failed as u64) < queries / 10, "{rows} rows, {both_failed} failed in both");
    assert!(paged as u64 > queries / 4, "{paged} had pages");
}

/// Whether a query can be paged; if so, its pages must add up to the whole result.
fn compare_pages(both: &Both, asked: &Asked) -> Result<bool, String> {
    let sql = match asked.sql.contains(" ORDER BY ") {
        true => asked.sql.clone(),
        // By the first column, an aggregate or a key.
        false => format!("{} ORDER BY 1 DESC", asked.sql),
    };
    let (Ok(paged), Ok(mut whole)) = (Paged::prepare(&sql, &both.memory.catalog), both.ours(&sql)) else {
        return Ok(false);
    };
    let names: Vec<&str> = paged.columns().collect();
    let given = both.given(paged.parameters());
    let values: Vec<Value<'_>> = given.iter().map(OwnedValue::value).collect();
    let (rows_max, mut found, mut after) = (1 + whole.len() as u64 / 3, Vec::new(), None);
    loop {
        let (mut out, at) = (b"[".to_vec(), PageAt { rows_max, after: after.as_deref() });
        match paged.write((&both.memory, at), &values, &mut Scratch::new(), &Budget::default(), &mut out) {
            Err(error) => return Err(format!("{sql}\n pages: {error}")),
            Ok((_, end)) => after = end,
        }
        out.push(b']');
        let rows: Vec<Json> = serde_json::from_slice(&out).map_err(|error| format!("{sql}\n pages: {error}"))?;
        found.extend(rows.iter().map(|row| Json::Array(names.iter().map(|name| row[*name].clone()).collect())));
        if after.is_none() {
            break;
        }
        if found.len() > whole.len() {
            return Err(format!("{sql}\n pages: {found:?}\n whole: {whole:?}"));
        }
    }
    // Which of 1 and 1.0 is returned for both depends on the plan.
    for cell in whole.iter_mut().chain(&mut found).filter_map(Json::as_array_mut).flatten() {
        if let Some(real) = cell.as_f64() {
            *cell = Json::from(real);
        }
    }
    if !asked.ordered {
        whole.sort_by_key(Json::to_string);
        found.sort_by_key(Json::to_string);
    }
    if whole == found { Ok(true) } else { Err(format!("{sql}\n pages: {found:?}\n whole: {whole:?}")) }
}

#[test]
fn ten_thousand_random_queries_have_sqlites_answers() {
    check(0, 10_000);
}

#[test]
#[ignore = "a campaign: cargo xtask campaign sql"]
fn a_million_random_queries_have_sqlites_answers() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    check(number("SAPSAN_SQL_SEED", 1_000), number("SAPSAN_SQL_QUERIES", CAMPAIGN_QUERIES));
}

/// Queries for which a campaign once found a difference.
#[test]
fn what_campaigns_found_stays_mended() {
    let t = [
        serde_json::json!({ "id": 0, "a": 9_223_372_036_854_775_807_i64, "b": 1, "c": 7, "d": { "k": [1] } }),
        serde_json::json!({ "id": 1, "a": "1", "b": 1, "c": "7", "d": "{\"k\":[1]}" }),
        serde_json::json!({ "id": 2, "a": 9.3e18, "b": 9_223_372_036_854_775_807_i64, "c": 9.223372036854776e18 }),
    ];
    let both = crate::sql_oracle::Both::new(&t, &t);
    for value in [
        // The value of a subquery has the affinity of its selected column.
        "CAST(x.c AS TEXT) = (SELECT q.c FROM u q WHERE q.id = 0)",
        "CAST(x.c AS TEXT) = (SELECT q.c + 0 FROM u q WHERE q.id = 0)",
        "CAST(x.c AS TEXT) = (SELECT MAX(q.c) FROM u q WHERE q.id = 0)",
        "x.c = (SELECT CAST(q.c AS TEXT) FROM u q WHERE q.id = 0)",
        "(SELECT q.c FROM u q WHERE q.id = 0) BETWEEN 1 AND CAST(x.c AS TEXT)",
        "(CAST(x.c AS TEXT), 1) >= ((SELECT q.c FROM u q WHERE q.id = 0), 0)",
        "((SELECT q.c FROM u q WHERE q.id = 0), 1) IN (SELECT CAST(q.c AS TEXT), q.b FROM u q)",
        "CASE CAST(x.c AS TEXT) WHEN (SELECT q.c FROM u q WHERE q.id = 0) THEN 1 END",
        // The result of unary plus has no affinity, whether its operand is a CAST or a field.
        "CAST(x.c AS TEXT) = +x.c",
        "x.c = +CAST(x.c AS TEXT)",
        "+CAST(x.c AS INTEGER) = '1'",
        "+x.b IN (CAST(x.c AS TEXT))",
        // IN with a subquery converts both sides to reals if one is a CAST to a real and the other has no affinity.
        "CAST(x.a AS REAL) IN (SELECT COALESCE(q.b, 9223372036854775807) FROM u q)",
        "CAST(x.c AS REAL) IN (SELECT COALESCE(q.b, 1) FROM u q)",
        "CAST(x.c AS REAL) IN (SELECT q.b FROM u q)",
        "CAST(x.c AS REAL) IN (SELECT CAST(q.b AS TEXT) FROM u q)",
        "CAST(x.c AS REAL) IN (1, COALESCE(x.b, 9223372036854775807), 9223372036854775807)",
        "COALESCE(x.b, 1) IN (SELECT CAST(q.c AS REAL) FROM u q)",
        "x.b IN (SELECT CAST(q.c AS REAL) FROM u q)",
        "CAST(x.c AS REAL) = COALESCE(x.b, 1)",
        // The divisor overflows into a real, so the quotient has a fraction and its column is no integer.
        "-2 / (-3 - 9223372036854775807)",
        "x.id / (x.id - 3 - 9223372036854775807)",
    ] {
        both.check(&format!("SELECT x.id, ({value}) AS v FROM t x"), false);
    }
    // 5 and 5.0 are separate in an index, each with its own order of keys.
    let values = ["5.0", "5", "5.0", "5"].into_iter().enumerate();
    let number = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let t: Vec<_> = values.map(|(id, a)| serde_json::json!({ "id": id, "a": number(a), "b": number(a) })).collect();
    let apart = crate::sql_oracle::Both::new(&t, &[]);
    for (column, falling) in [("a", ""), ("a", " DESC"), ("b", ""), ("b", " DESC")] {
        apart.check(&format!("SELECT x.id FROM t x WHERE x.{column} = 5 ORDER BY x.id{falling}"), true);
    }
    // Values of json_each are embedded as JSON; text that looks like JSON stays text.
    let chosen = [
        "json_array(CASE WHEN y.atom THEN 3 ELSE y.value END)",
        "json_array(CASE y.key WHEN 3 THEN y.value ELSE json_array(y.value) END, COALESCE(NULL, y.value))",
        "json_object('k', CASE y.key WHEN 3 THEN json('[1]') END)",
    ];
    let plain = ["json_array(y.value)", "json_object('k', y.value, 'a', y.atom)", "json_quote(y.value)"];
    for value in plain.into_iter().chain(chosen) {
        let array = "'[1, \"{}\", null, {\"k\": [2]}, [3, 4]]'";
        both.check(&format!("SELECT {value} AS v FROM json_each({array}) AS y"), false);
        both.check(&format!("SELECT x.id, {value} AS v FROM t x JOIN json_each({array}) AS y WHERE y.key > 0"), false);
        both.check(&format!("SELECT MAX({value}) AS v FROM json_each({array}) AS y"), false);
    }
    both.check("SELECT COUNT(*) AS n FROM json_each('[1, [2]]') GROUP BY json_array(value)", false);
    both.check("SELECT json_array(value) AS v FROM json_each('[1, [2]]') GROUP BY value", false);
}
