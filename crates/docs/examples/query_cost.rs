//! The cost of one execution of the travels queries over data in memory: nanoseconds, without store, HTTP and sockets.
//!
//! The data has the train set's size and distribution (10,000 users and locations, ten visits each). Documents are in a hash
//! map, so a lookup by key costs about as much as in the store's memtable; the figures compare builds, not databases.
//!
//! `cargo run --release --example query_cost -p docs [EXECUTIONS [IDS [NAME]]]`; with few ids the caches stay hot.

#![allow(clippy::unwrap_used, reason = "the data is made here")]

#[path = "../tests/sql_memory/mod.rs"]
mod sql_memory;

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Instant;

use docs::engine::{Direction, KeyRange, ReadView, TreeId};
use docs::sql::{Budget, PreparedQuery, Scratch, Value};
use sql_memory::{AVERAGE, Memory, VISITS, travels};

/// The same data, with lookups of documents by hash.
struct Hashed {
    memory: Memory,
    documents: Vec<HashMap<[u8; 4], Vec<u8>, std::hash::BuildHasherDefault<Multiply>>>,
}

/// A very cheap hash for keys of four bytes.
#[derive(Default)]
struct Multiply(u64);

impl std::hash::Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 << 8 | u64::from(byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
    fn write_usize(&mut self, _: usize) {}
}

impl ReadView for Hashed {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, docs::engine::StoreError> {
        let Some(key) = key.first_chunk::<4>() else { return Ok(None) };
        Ok(self.documents[tree.0 as usize].get(key).map(|value| Cow::Borrowed(&value[..])))
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), docs::engine::StoreError> {
        self.memory.scan(tree, range, direction, visit)
    }
}

const COUNT: u32 = 10_000;

fn load() -> Hashed {
    let mut memory = travels();
    let mut random = 88_172_645_463_325_252u64;
    let mut below = |end: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % end
    };
    for id in 0..COUNT {
        let birth = below(2_000_000_000) as i64 - 1_200_000_000;
        memory.insert("users", &format!(r#"{{"id":{id},"email":"user{id}@mail.example","first_name":"Пётр","last_name":"Лебеданный","gender":"{}","birth_date":{birth}}}"#, ["m", "f"][below(2) as usize]));
        memory.insert(
            "locations",
            &format!(
                r#"{{"id":{id},"place":"Набережная","country":"Россия","city":"Новомосква","distance":{}}}"#,
                below(100)
            ),
        );
    }
    for id in 0..COUNT * 10 {
        let visit = format!(
            r#"{{"id":{id},"location":{},"user":{},"visited_at":{},"mark":{}}}"#,
            below(COUNT.into()),
            below(COUNT.into()),
            946_684_800 + below(473_385_600),
            below(6)
        );
        memory.insert("visits", &visit);
    }
    let mut documents = vec![HashMap::default(); 16];
    for info in &memory.catalog.collections {
        let all = KeyRange { from: std::ops::Bound::Unbounded, to: std::ops::Bound::Unbounded };
        let map = &mut documents[info.tree.0 as usize];
        let _ = memory.scan(info.tree, all, Direction::Forward, &mut |key, value| {
            if let Some(key) = key.first_chunk::<4>() {
                map.insert(*key, value.to_vec());
            }
            ControlFlow::Continue(())
        });
    }
    Hashed { memory, documents }
}

fn measure(name: &str, sql: &str, view: &Hashed, present: &[(&str, Value<'_>)], (executions, ids): (u32, u32)) {
    if std::env::args().nth(3).is_some_and(|only| only != name) {
        return;
    }
    let query = PreparedQuery::prepare(sql, &view.memory.catalog).expect("the query is right");
    let mut values = vec![Value::Null; query.parameters().len()];
    for (name, value) in present {
        if let Some(slot) = query.slot(name) {
            values[slot] = *value;
        }
    }
    let id = query.slot("id").expect("the query has :id");
    let (mut scratch, budget, mut out) = (Scratch::new(), Budget::default(), Vec::new());
    let mut run = |executions: u32| {
        let (start, mut rows) = (Instant::now(), 0);
        for number in 0..executions {
            values[id] = Value::Integer(i64::from(number.wrapping_mul(7_919) % ids));
            out.clear();
            let outcome = query.write_array(view, &values, &mut scratch, &budget, &mut out).expect("it runs");
            rows += outcome.rows_read;
        }
        (start.elapsed().as_nanos() as f64 / f64::from(executions), rows as f64 / f64::from(executions))
    };
    run(executions / 10);
    let mut results: Vec<(f64, f64)> = (0..5).map(|_| run(executions)).collect();
    results.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("{name:34} {:8.0} ns, {:5.1} entries read", results[2].0, results[2].1);
}

fn main() {
    let argument = |place: usize| std::env::args().nth(place).and_then(|text| text.parse().ok());
    let executions = (argument(1).unwrap_or(100_000), argument(2).unwrap_or(COUNT).clamp(1, COUNT));
    let view = load();
    let from = ("fromDate", Value::Integer(1_200_000_000));
    let now = ("now", Value::Integer(1_503_966_608));
    measure("visits of a user", VISITS, &view, &[], executions);
    measure("visits, fromDate", VISITS, &view, &[from], executions);
    measure(
        "visits, country, toDistance",
        VISITS,
        &view,
        &[("country", Value::text("Россия")), ("toDistance", Value::Integer(50))],
        executions,
    );
    measure("average of a location", AVERAGE, &view, &[now], executions);
    measure("average, fromDate", AVERAGE, &view, &[now, from], executions);
    measure("average, gender", AVERAGE, &view, &[now, ("gender", Value::text("m"))], executions);
    measure("average, fromAge", AVERAGE, &view, &[now, ("fromAge", Value::Integer(30))], executions);
    measure(
        "empty index scan of 10 entries",
        "SELECT COUNT(*) AS n FROM visits v WHERE v.location = :id",
        &view,
        &[],
        executions,
    );
    measure("one document by key", "SELECT place FROM locations WHERE id = :id", &view, &[], executions);
}
