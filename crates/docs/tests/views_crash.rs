//! Views through lives that end at any operation of the disk (`lives`). A life has any sequence of writes, changed definitions
//! and killed processes, also during a build. Afterwards a view equals its query run from scratch.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::declared_views::{Views, check, with_views};
use crate::lives::{self, Random};
use docs::RuleState;
use docs::{DocumentDatabase, Op, Precondition, Write};
use serde_json::{Value as Json, json};

const SEEDS: u64 = 8;
const LIVES: u64 = 10;
const KEYS: u64 = 400;
/// Operations of the disk after which most lives end.
const OPERATIONS: u64 = 120;

const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
const NAMES: [&str; 3] = ["v", "w", "x"];
/// Alternating views under these names; some have the same columns, so that one serves until the other is built.
const QUERIES: [&str; 6] = [
    "SELECT kind, COUNT(*) AS n, SUM(amount) AS s FROM items GROUP BY kind",
    "SELECT kind, COUNT(tag) AS n, SUM(amount * 2) AS s FROM items WHERE amount > 0 GROUP BY kind",
    "SELECT kind, COUNT(DISTINCT tag) AS n, MIN(amount) AS s FROM items GROUP BY kind",
    "SELECT tag, CAST(amount AS INTEGER) % 7 AS m, MAX(amount) AS hi FROM items GROUP BY tag, m",
    "SELECT id, TOTAL(amount) AS t FROM items GROUP BY id",
    "SELECT COUNT(*) AS n, AVG(amount) AS a FROM items",
];

/// Result of one life.
#[derive(Debug, Default)]
struct Ends {
    killed: u32,
    killed_in_a_build: u32,
    whole: u32,
}

fn definitions(random: &mut Random) -> Views {
    let chosen = NAMES.into_iter().filter(|_| random.0.is_multiple_of(2) || random.below(4) > 0).collect::<Vec<_>>();
    chosen.into_iter().map(|name| (name, QUERIES[random.below(QUERIES.len() as u64) as usize])).collect()
}

fn open(dir: &Path, definitions: &Views, left: &Arc<AtomicI64>) -> Option<DocumentDatabase> {
    lives::open(dir, &with_views(ITEMS, definitions), left)
}

fn write(database: &DocumentDatabase, random: &mut Random) -> bool {
    let id = random.below(KEYS) as u32;
    let key = id.to_be_bytes().to_vec();
    let op = match random.below(5) {
        0 => Op::Delete { key },
        _ => {
            let amount = match random.below(3) {
                0 => json!(random.below(1000) as f64 / 10.0 - 50.03),
                1 => json!(random.below(100) as i64 - 50),
                _ => Json::Null,
            };
            let body =
                json!({ "id": id, "kind": random.below(5), "tag": format!("t{}", random.below(9)), "amount": amount });
            Op::Put { key, body: body.to_string().into_bytes() }
        }
    };
    let collection = database.collection("items").unwrap();
    let written = database.write_now(&Write { collection, op, precondition: Precondition::None });
    matches!(written, Ok(_) | Err(docs::WriteError::NotFound))
}

/// The states in the catalog of the views with this query.
fn states(database: &DocumentDatabase, query: &str) -> Vec<String> {
    let store = database.store();
    let (tree, mut states) = (store.tree("catalog").unwrap(), Vec::new());
    let reader = store.reader().unwrap();
    let visit = &mut |_: &[u8], row: &[u8]| {
        let row: Json = serde_json::from_slice(row).unwrap_or_default();
        if row["query"] == query {
            states.push(row["state"].as_str().unwrap().to_string());
        }
        std::ops::ControlFlow::Continue(())
    };
    reader.snapshot().scan(tree, docs::engine::KeyRange::ALL, docs::engine::Direction::Forward, visit).unwrap();
    states
}

/// Most attempts until a failure was met before the switch and another one after it.
const ROUNDS_MAX: u32 = 20;

#[test]
fn a_view_that_is_switched_in_answers_wherever_the_disk_fails_after_that() {
    // The number of operations of a build varies with the machine's load: sometimes none is left after its end.
    let met =
        (0..ROUNDS_MAX).map(|_| switch_in_on_failing_disks()).find(|(failed, answered)| *failed > 0 && *answered > 1);
    assert!(met.is_some(), "no disk failed before and after the view was switched in");
}

/// Switches a view in, each time on a disk that fails one operation later; returns how often the build failed, and how often
/// the view was switched in and then had to answer.
fn switch_in_on_failing_disks() -> (u32, u32) {
    let (old, new) = (QUERIES[0], QUERIES[1]);
    let (mut operations, mut failed, mut answered) = (0, 0, 0);
    loop {
        let dir = tempfile::tempdir().unwrap();
        let (mut random, whole) = (Random(7), || Arc::new(AtomicI64::new(i64::MAX)));
        let database = open(dir.path(), &vec![("v", old)], &whole()).unwrap();
        (0..20).for_each(|_| assert!(write(&database, &mut random)));
        drop(database);
        let left = Arc::new(AtomicI64::new(operations));
        operations += 1;
        let Some(database) = open(dir.path(), &vec![("v", new)], &left) else { continue };
        database.wait_for_views();
        if states(&database, new) != ["ready"] {
            failed += 1;
            continue;
        }
        answered += 1;
        assert_eq!(database.views()[0].state, RuleState::Ready, "{:?}", database.views()[0].failure);
        if left.load(Ordering::Acquire) > 0 {
            return (failed, answered);
        }
    }
}

/// A life of writes under these definitions that ends when the disk dies.
fn live(dir: &Path, definitions: &Views, operations: i64, random: &mut Random, ends: &mut Ends) {
    let left = Arc::new(AtomicI64::new(operations));
    let Some(database) = open(dir, definitions, &left) else {
        ends.killed += 1;
        return;
    };
    for _ in 0..random.below(60) {
        if !write(&database, random) {
            break;
        }
    }
    database.wait_for_views();
    let states: Vec<RuleState> = database.views().iter().map(|view| view.state).collect();
    if left.load(Ordering::Acquire) > 0 {
        ends.whole += 1;
        // A verification also writes, as it sorts on disk.
        left.store(i64::MAX, Ordering::Release);
        assert!(!states.contains(&RuleState::Refused), "{:?}", database.views());
        check(&database, definitions);
    } else {
        ends.killed += 1;
        ends.killed_in_a_build += u32::from(states.iter().any(|state| *state != RuleState::Ready));
    }
}

#[test]
fn after_writes_kills_and_changed_definitions_views_equal_their_queries() {
    let mut ends = Ends::default();
    for seed in 1..=SEEDS {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let dir = tempfile::tempdir().unwrap();
        let mut declared = definitions(&mut random);
        live(dir.path(), &Vec::new(), i64::MAX, &mut random, &mut ends);
        for _ in 0..LIVES {
            if random.below(3) > 0 {
                declared = definitions(&mut random);
            }
            let operations = if random.below(4) == 0 { i64::MAX } else { random.below(OPERATIONS) as i64 };
            live(dir.path(), &declared, operations, &mut random, &mut ends);
        }
        live(dir.path(), &declared, i64::MAX, &mut random, &mut ends);
    }
    println!("{ends:?}");
    assert!(ends.killed_in_a_build > 0 && ends.killed > 10 && ends.whole > 20, "{ends:?}");
}
