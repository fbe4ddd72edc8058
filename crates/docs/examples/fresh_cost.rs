//! The cost of queries over data written since the last checkpoint, beside the same data in the tree file: instructions, counted by
//! callgrind, so other load of the machine does not matter.
//!
//! ```text
//! cc -O1 -shared -fPIC -o /tmp/smallmap.so bench/smallmap.c
//! cargo build --release -p docs --example fresh_cost
//! target/release/examples/fresh_cost make /tmp/fresh/10 10
//! LD_PRELOAD=/tmp/smallmap.so valgrind --tool=callgrind --toggle-collect='fresh_cost::counted' --dump-after='fresh_cost::counted' \
//!     --callgrind-out-file=/tmp/fresh/10.out target/release/examples/fresh_cost count /tmp/fresh/10
//! grep -H totals /tmp/fresh/10.out.*
//! ```
//!
//! `make FOLDER PERMILLE` fills a database, makes a checkpoint, changes so many of a thousand visits in one transaction, and ends
//! without closing. `count FOLDER` opens it, which replays the changes into the memtable, and runs each load twice: the second time
//! in the function `counted`. The dumps are in the order of [`LOADS`]. `time FOLDER` prints nanoseconds. An open store may make a
//! checkpoint in the background, so a folder is made anew for each run.

#![allow(clippy::unwrap_used, reason = "a measurement ends where something fails")]

use std::path::Path;
use std::time::Instant;

use docs::config::{Config, IncludedFields};
use docs::key::KeyType;
use docs::sql::{Budget, PreparedQuery, Scratch, Value};
use docs::{DocumentDatabase, Op, Precondition, Write};

const CONFIG: &str = r#"
[collections.users]
key = { field = "id", type = "u32" }
[collections.locations]
key = { field = "id", type = "u32" }
[collections.visits]
key = { field = "id", type = "u32" }
indexes = [["user", "visited_at"], ["location"]]
[collections.visits.schema]
type = "object"
additionalProperties = false
required = ["id", "location", "user", "visited_at", "mark"]
[collections.visits.schema.properties]
id = { type = "integer", minimum = 0, maximum = 4294967295 }
location = { type = "integer", minimum = 0, maximum = 4294967295 }
user = { type = "integer", minimum = 0, maximum = 4294967295 }
visited_at = { type = "integer" }
mark = { type = "integer", minimum = 0, maximum = 5 }
"#;

const VISITS: u32 = 100_000;
/// Each has ten visits.
const USERS: u32 = 10_000;
/// Each has a thousand visits.
const LOCATIONS: u32 = 100;
/// Writes of one transaction while the database is filled.
const BATCH: usize = 10_000;

/// A query, how often it is counted, and the number from which its parameter `:id` is taken.
struct Load {
    name: &'static str,
    sql: &'static str,
    executions: u32,
    ids: u32,
}

const LOADS: [Load; 8] = [
    Load {
        name: "a: visit by key",
        sql: "SELECT v.mark, v.visited_at FROM visits v WHERE v.id = :id",
        executions: 2_000,
        ids: VISITS,
    },
    Load {
        name: "b: visits of a user, joined",
        sql: "SELECT v.mark, v.visited_at, l.place FROM visits v JOIN locations l ON l.id = v.location \
              WHERE v.user = :id ORDER BY v.visited_at, v.id",
        executions: 500,
        ids: USERS,
    },
    Load {
        name: "b: the last three of a user, joined",
        sql: "SELECT v.mark, v.visited_at, l.place FROM visits v JOIN locations l ON l.id = v.location \
              WHERE v.user = :id ORDER BY v.visited_at DESC, v.id DESC LIMIT 3",
        executions: 500,
        ids: USERS,
    },
    Load {
        name: "c: average of a location",
        sql: "SELECT AVG(v.mark) AS mark FROM visits v WHERE v.location = :id",
        executions: 20,
        ids: LOCATIONS,
    },
    Load {
        name: "c: average of a location, joined",
        sql: "SELECT AVG(v.mark) AS mark FROM visits v JOIN users u ON u.id = v.user \
              WHERE v.location = :id AND u.gender = 'f'",
        executions: 20,
        ids: LOCATIONS,
    },
    Load {
        name: "d: scan with filter and group",
        sql: "SELECT v.mark, COUNT(*) AS n, SUM(v.visited_at) AS s FROM visits v WHERE v.user > :id GROUP BY v.mark",
        executions: 1,
        ids: 1,
    },
    Load {
        name: "d: scan with filter and count",
        sql: "SELECT COUNT(*) AS n, SUM(v.visited_at) AS s FROM visits v WHERE v.user > :id AND v.mark > 2",
        executions: 1,
        ids: 1,
    },
    Load {
        name: "d: index scan with group",
        sql: "SELECT v.location, COUNT(*) AS n, AVG(v.mark) AS m FROM visits v WHERE v.location > :id GROUP BY v.location",
        executions: 1,
        ids: 1,
    },
];

/// A fixed sequence that looks random (Marsaglia's xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % u64::from(end)) as u32
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", folder, permille] => make(folder.as_ref(), permille.parse().unwrap()),
        ["count", folder] => run(folder.as_ref(), |_, mut run| {
            run();
            counted(&mut run);
        }),
        ["time", folder] => run(folder.as_ref(), |load, mut run| {
            let mut times: Vec<f64> = (0..15).map(|_| timed(&mut run) / f64::from(load.executions)).collect();
            times.sort_by(f64::total_cmp);
            println!("{:36} {:10.0} ns", load.name, times[0]);
        }),
        _ => panic!("make FOLDER PERMILLE, or count FOLDER, or time FOLDER"),
    }
}

fn timed(run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_nanos() as f64
}

/// The function whose instructions are counted.
#[inline(never)]
fn counted(run: &mut dyn FnMut()) {
    run();
}

fn open(folder: &Path) -> DocumentDatabase {
    let mut config = Config::parse("fresh_cost".as_ref(), CONFIG).unwrap();
    for (index, fields) in [(&["user", "visited_at"][..], ["mark", "location"]), (&["location"], ["mark", "user"])] {
        config.included.push(IncludedFields {
            collection: "visits".into(),
            index: index.iter().map(|field| (*field).into()).collect(),
            fields: fields.map(Into::into).into(),
        });
    }
    let mut options = docs::engine::StoreOptions::default();
    // All changes fit into one transaction and one memtable.
    options.memtable_bytes = 512 << 20;
    options.log_segment_bytes = 256 << 20;
    options.queue_bytes_max = 512 << 20;
    options.durability = docs::engine::Durability::None;
    DocumentDatabase::open(&config, folder, options).unwrap().0
}

fn insert(database: &DocumentDatabase, collection: &str, bodies: impl Iterator<Item = String>) {
    let collection = database.collection(collection).unwrap();
    let write = |body: String| {
        let op = Op::Insert { body: body.into_bytes() };
        Write { collection, op, precondition: Precondition::None }
    };
    let writes: Vec<Write> = bodies.map(write).collect();
    writes.chunks(BATCH).for_each(|writes| database.write_all(writes).unwrap());
}

fn make(folder: &Path, permille: u32) {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).unwrap();
    let database = open(folder);
    let user = |id: u32| format!(r#"{{"id":{id},"gender":"{}","name":"user {id}"}}"#, ["f", "m"][id as usize % 2]);
    insert(&database, "users", (0..USERS).map(user));
    let location = |id: u32| format!(r#"{{"id":{id},"place":"place {id}","distance":{}}}"#, id * 7 % 100);
    insert(&database, "locations", (0..LOCATIONS).map(location));
    let mut numbers = Numbers(88_172_645_463_325_252);
    let visit = |id: u32| {
        let [user, location, at, mark] = [USERS, LOCATIONS, 473_385_600, 6].map(|end| numbers.below(end));
        let at = 946_684_800 + at;
        format!(r#"{{"id":{id},"location":{location},"user":{user},"visited_at":{at},"mark":{mark}}}"#)
    };
    insert(&database, "visits", (0..VISITS).map(visit));
    database.store().checkpoint().unwrap();
    let collection = database.collection("visits").unwrap();
    // Half of the changes replace the values of index entries, the others move an entry.
    let change = |id: u32| {
        let patch = if id.is_multiple_of(2) {
            format!(r#"{{"mark":{}}}"#, numbers.below(6))
        } else {
            format!(r#"{{"visited_at":{}}}"#, 946_684_800 + numbers.below(473_385_600))
        };
        let key = KeyType::U32.of_text(&id.to_string()).unwrap().as_bytes().to_vec();
        Write { collection, op: Op::Update { key, patch: patch.into_bytes() }, precondition: Precondition::None }
    };
    let is_changed = |id: &u32| id.wrapping_mul(2_654_435_761) >> 12 & 0xf_ffff < permille * 1_049;
    let writes: Vec<Write> = (0..VISITS).filter(is_changed).map(change).collect();
    database.write_all(&writes).unwrap();
    println!("{} of {VISITS} visits changed since the checkpoint", writes.len());
    // No checkpoint may follow.
    std::process::exit(0);
}

fn run(folder: &Path, mut measure: impl FnMut(&Load, &mut dyn FnMut())) {
    let database = open(folder);
    let session = database.session().unwrap();
    // The state before any checkpoint that might follow.
    let now = session.now();
    let (mut scratch, budget, mut out) = (Scratch::new(), Budget::default(), Vec::new());
    for load in &LOADS {
        let query = PreparedQuery::prepare(load.sql, database.catalog()).unwrap();
        measure(load, &mut || {
            for number in 0..load.executions {
                let id = number.wrapping_mul(7_919) % load.ids;
                out.clear();
                query
                    .write_array(now.view(), &[Value::Integer(i64::from(id))], &mut scratch, &budget, &mut out)
                    .unwrap();
            }
        });
    }
    std::process::exit(0);
}
