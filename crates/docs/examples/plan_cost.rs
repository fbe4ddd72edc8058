//! The cost of planning a join: microseconds to prepare a text and to make its plan, compared with SQLite's prepare of the same
//! text.
//!
//! Joins of 2 to 64 collections in four forms: a chain (each collection joins the previous one), a star (each joins the first),
//! keys (each joins an earlier one by its key) and a clique (each joins all earlier ones, as far as the limit of tokens
//! permits). Each collection has a key, indexes on the two join fields, one field without an index, and counts of its own;
//! SQLite has the same tables, indexes and counts.
//!
//! `cargo run --release --example plan_cost -p docs`

#![allow(clippy::unwrap_used, reason = "the data is made here")]

#[path = "../tests/sql_memory/mod.rs"]
mod sql_memory;

use std::time::Instant;

use docs::catalog::FieldKind;
use docs::counts::{Counts, TreeCount};
use docs::sql::{PreparedQuery, TABLES_MAX};
use rusqlite::Connection;
use sql_memory::{Memory, Shape};

const TABLES: [usize; 8] = [2, 3, 5, 7, 8, 16, 32, 64];
/// The limit of tokens limits the conditions of a clique.
const CONDITIONS_MAX: usize = 400;

fn load() -> (Memory, Connection) {
    let mut memory = Memory::default();
    memory.catalog.counts = Counts::new(|_, _| Some(40));
    let sqlite = Connection::open_in_memory().unwrap();
    sqlite.execute_batch("CREATE TABLE x (id INTEGER PRIMARY KEY); ANALYZE").unwrap();
    for number in 0..64 {
        let name = format!("t{number:02}");
        let fields = [("id", FieldKind::Integer), ("a", FieldKind::Integer), ("b", FieldKind::Integer)];
        let shape = Shape {
            name: &name,
            key: "id",
            fields: &[&fields[..], &[("c", FieldKind::Integer)]].concat(),
            closed: true,
            indexes: &[(&["a"], &[]), (&["b", "a"], &[])],
            references: &[],
        };
        memory.add(&shape);
        let info = memory.catalog.collection(&name).unwrap();
        let entries = 1_000.0 * (1 + number * 7 % 13) as f64;
        let set = |tree, alike: &[f64]| memory.catalog.counts.set(tree, TreeCount { entries, alike: alike.to_vec() });
        set(info.tree, &[]);
        set(info.indexes[0].tree, &[10.0 + number as f64]);
        set(info.indexes[1].tree, &[100.0, 2.0]);
        let stat = format!(
            "CREATE TABLE {name} (id INTEGER PRIMARY KEY, a, b, c);
             CREATE INDEX {name}_a ON {name} (a); CREATE INDEX {name}_ba ON {name} (b, a);
             INSERT INTO sqlite_stat1 VALUES ('{name}', '{name}_a', '{entries} {}'), ('{name}', '{name}_ba', '{entries} 100 2');",
            10 + number
        );
        sqlite.execute_batch(&stat).unwrap();
    }
    sqlite.execute_batch("ANALYZE sqlite_schema").unwrap();
    (memory, sqlite)
}

fn text(form: &str, tables: usize) -> Option<String> {
    let mut sql = "SELECT t00.id, t00.c FROM t00".to_owned();
    let mut conditions = 0;
    for table in 1..tables {
        let on: Vec<String> = match form {
            "chain" => vec![format!("t{table:02}.a = t{:02}.b", table - 1)],
            "star" => vec![format!("t{table:02}.a = t00.b")],
            "keys" => vec![format!("t{table:02}.id = t{:02}.a", table / 2)],
            _ => (0..table).map(|before| format!("t{table:02}.a = t{before:02}.a")).collect(),
        };
        conditions += on.len();
        sql += &format!(" JOIN t{table:02} ON {}", on.join(" AND "));
    }
    sql += &format!(" WHERE t{:02}.c = 5 AND t00.b = 7", tables - 1);
    (conditions <= CONDITIONS_MAX).then_some(sql)
}

/// The median of some runs, in microseconds.
fn median(mut run: impl FnMut() -> f64) -> f64 {
    let mut times: Vec<f64> = (0..31).map(|_| run()).collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn time<R>(run: impl FnOnce() -> R) -> (f64, R) {
    let began = Instant::now();
    let result = run();
    (began.elapsed().as_secs_f64() * 1e6, result)
}

fn main() {
    let (memory, sqlite) = load();
    let shows = std::env::args().nth(1).is_some_and(|argument| argument == "--plans");
    println!("{:>6} {:>6} {:>10} {:>10} {:>10}", "form", "tables", "prepare", "plan", "SQLite");
    for form in ["chain", "star", "keys", "clique"] {
        for tables in TABLES.into_iter().filter(|tables| *tables <= TABLES_MAX) {
            let Some(sql) = text(form, tables) else { continue };
            let prepare = median(|| time(|| PreparedQuery::prepare(&sql, &memory.catalog).unwrap()).0);
            let plan = median(|| {
                let query = PreparedQuery::prepare(&sql, &memory.catalog).unwrap();
                time(|| query.is_compiled(&[])).0
            });
            let theirs = median(|| time(|| sqlite.prepare(&sql).map(drop)).0);
            println!("{form:>6} {tables:>6} {prepare:>10.0} {plan:>10.0} {theirs:>10.0}");
            if shows {
                println!("{}", PreparedQuery::prepare(&sql, &memory.catalog).unwrap().explain(&[]));
            }
        }
    }
}
