//! The cost of ORDER BY when the rows exceed the memory: 590,000 users, here with 8 MB and spilling to disk, here in memory
//! alone, and in SQLite with its default cache. One thread each; our data is in memory, SQLite's in a file that was just
//! written.
//!
//! `cargo run --release --example sort_cost -p docs [USERS]`

#![allow(clippy::unwrap_used, reason = "the data is made here")]

#[path = "../tests/sql_memory/mod.rs"]
mod sql_memory;

use std::sync::Arc;
use std::time::Instant;

use docs::catalog::FieldKind;
use docs::sql::{Budget, FieldValue, PreparedQuery, RowSink, Scratch, SpillSpace};
use sql_memory::{Memory, Shape};

const USERS: u32 = 590_000;
const MEMORY_BYTES: usize = 8_000_000;
const ROUNDS: usize = 3;
const OURS: &str = "SELECT Id, DisplayName, Location FROM users ORDER BY DisplayName, Reputation DESC";
const THEIRS: &str = "SELECT json_extract(j, '$.Id'), json_extract(j, '$.DisplayName'), json_extract(j, '$.Location') FROM users \
     ORDER BY json_extract(j, '$.DisplayName'), json_extract(j, '$.Reputation') DESC";

/// Counts rows and their bytes.
#[derive(Default)]
struct Counted(usize, usize);

impl RowSink for Counted {
    fn begin_row(&mut self) {}
    fn field(&mut self, _column: usize, field: FieldValue<'_>) {
        self.1 += if let FieldValue::Json(json) = field { json.len() } else { 8 };
    }
    fn end_row(&mut self) {
        self.0 += 1;
    }
    fn bytes(&self) -> usize {
        0
    }
}

/// 850 bytes on average.
fn user(id: u32) -> String {
    let mixed = id.wrapping_mul(0x9e37_79b9) ^ id.rotate_left(13);
    let about = "about me ".repeat(mixed as usize % 140);
    format!(
        r#"{{"Id":{id},"Reputation":{},"DisplayName":"user {mixed:08x}","Location":"town {}","Views":{},"AboutMe":"{about}"}}"#,
        mixed % 10_007,
        mixed % 997,
        id % 100
    )
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() {
    let users = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(USERS);
    let folder = tempfile::tempdir().unwrap();
    let mut memory = Memory::default();
    let names = ["Reputation", "DisplayName", "Location", "Views", "AboutMe"];
    let fields = names.map(|field| (field, FieldKind::Any));
    memory.add(&Shape { name: "users", key: "Id", fields: &fields, closed: false, indexes: &[], references: &[] });
    let mut sqlite = rusqlite::Connection::open(folder.path().join("users.db")).unwrap();
    sqlite.execute_batch("CREATE TABLE users (j TEXT)").unwrap();
    let transaction = sqlite.transaction().unwrap();
    {
        let mut insert = transaction.prepare("INSERT INTO users VALUES (?)").unwrap();
        for id in 0..users {
            let text = user(id);
            memory.insert("users", &text);
            insert.execute([text]).unwrap();
        }
    }
    transaction.commit().unwrap();
    let query = PreparedQuery::prepare(OURS, &memory.catalog).unwrap();
    let space = Arc::new(SpillSpace::new(folder.path(), 1 << 34));
    let ours = |budget: &Budget<'_>| {
        let mut counted = Counted::default();
        let began = Instant::now();
        query.execute(&memory, &[], &mut Scratch::new(), budget, &mut counted).unwrap();
        assert_eq!(counted.0, users as usize);
        began.elapsed().as_secs_f64()
    };
    let small = Budget { memory_bytes_max: MEMORY_BYTES, spill: Some(&space), ..Budget::default() };
    let large = Budget { memory_bytes_max: 1 << 32, ..Budget::default() };
    let theirs = || {
        let began = Instant::now();
        let mut statement = sqlite.prepare(THEIRS).unwrap();
        let (mut rows, mut count) = (statement.query([]).unwrap(), 0);
        while let Some(row) = rows.next().unwrap() {
            count += u32::from(row.get_ref(1).unwrap().as_str().is_ok());
        }
        assert_eq!(count, users);
        began.elapsed().as_secs_f64()
    };
    let (mut on_disk, mut in_memory, mut by_sqlite) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        on_disk.push(ours(&small));
        in_memory.push(ours(&large));
        by_sqlite.push(theirs());
    }
    let (on_disk, in_memory, by_sqlite) = (median(on_disk), median(in_memory), median(by_sqlite));
    println!(
        "ORDER BY over {users} users: in 8 MB {on_disk:.2} s ({} MB written), in memory {in_memory:.2} s, SQLite {by_sqlite:.2} s",
        space.written() / 1_000_000 / ROUNDS as u64
    );
    println!("in 8 MB {:.2} × as fast as SQLite", by_sqlite / on_disk);
}
