//! Random queries over random documents, here and in SQLite: equal answers.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod sql_generator;
mod sql_memory;
mod sql_oracle;

use sql_generator::{Random, query, world};

/// Queries asked of one pair of collections.
const QUERIES_OF_A_WORLD: u64 = 25;
/// What a campaign asks if not told otherwise.
const CAMPAIGN_QUERIES: u64 = 1_000_000;
const SHOWN_MAX: usize = 20;

/// Asks so many queries, with seeds from the first on.
#[track_caller]
fn check(first: u64, queries: u64) {
    let (mut rows, mut both_failed, mut differences) = (0usize, 0usize, Vec::new());
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
        }
    }
    let shown = differences[..differences.len().min(SHOWN_MAX)].join("\n");
    assert!(differences.is_empty(), "{} differences, such as\n{shown}", differences.len());
    println!("{queries} queries, {rows} rows, {both_failed} failed in both");
    assert!(rows as u64 > queries && (both_failed as u64) < queries / 10, "{rows} rows, {both_failed} failed in both");
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
