//! Schema changes through lives that end at any operation of the disk (`lives`). A life has any sequence of writes, changed
//! configurations (at an opening and while open) and killed processes, also during a build. Afterwards an index equals one
//! built from scratch, no value occurs twice in a unique field, and no document breaks a rule in force.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::lives::{self, Random};
use crate::service::config;
use docs::{DatabaseOpenError, DocumentDatabase, Op, Precondition, ReadinessState, Write, WriteError};
use serde_json::json;

const SEEDS: u64 = 16;
const LIVES: u64 = 10;
const KEYS: u64 = 500;
/// Operations of the disk after which most lives end.
const OPERATIONS: u64 = 100;

/// The possible declarations of a life; each line may be present or absent.
const COLLECTION: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
const OWNERS: &str = "[collections.owners]\nkey = { field = \"id\", type = \"u32\" }\n";
const LINES: [&str; 4] = [
    "indexes = [[\"x\"], [\"tag\", \"x\"]]\n",
    "unique = [\"u\"]\n",
    "references = { owner = \"owners\" }\n",
    "schema = { type = \"object\", properties = { x = { type = \"integer\", maximum = 90 } } }\n",
];

/// Statistics of the lives.
#[derive(Debug, Default)]
struct Ends {
    killed: u32,
    killed_in_a_build: u32,
    whole: u32,
    ready: u32,
    refused: u32,
    reopened: u32,
}

fn declared(random: &mut Random) -> String {
    let lines: String = LINES.into_iter().filter(|_| random.below(2) == 0).collect();
    format!("{COLLECTION}{lines}{OWNERS}")
}

fn settings(text: &str) -> docs::config::Config {
    let mut settings = config(text);
    settings.builds_indexes_later = true;
    settings
}

fn open(dir: &Path, text: &str, left: &Arc<AtomicI64>) -> Option<DocumentDatabase> {
    lives::open(dir, &settings(text), left)
}

/// False if the disk has died. A write that breaks a rule is refused, as it should be.
fn write(database: &DocumentDatabase, random: &mut Random) -> bool {
    let id = random.below(KEYS) as u32;
    let key = id.to_be_bytes().to_vec();
    // Most documents satisfy all possible rules, some do not. More of those while a build runs: rules on documents that the
    // build has passed are enforced only by writes.
    let is_building = states(database).iter().any(|state| matches!(state, ReadinessState::Building(_)));
    let is_odd = random.below(if is_building { 6 } else { 400 }) == 0;
    let (name, op) = match random.below(8) {
        0 => ("items", Op::Delete { key }),
        1 => {
            let owner = random.below(30) as u32;
            let op = match random.below(4) {
                0 => Op::Delete { key: owner.to_be_bytes().to_vec() },
                _ => Op::Put { key: owner.to_be_bytes().to_vec(), body: json!({ "id": owner }).to_string().into() },
            };
            ("owners", op)
        }
        _ => {
            let (x, u) = if is_odd { (random.below(200), 7) } else { (random.below(90), 10_000 + u64::from(id)) };
            let mut body = json!({ "id": id, "x": x, "u": u, "tag": format!("t{}", random.below(9)) });
            if random.below(if is_building { 6 } else { 200 }) == 0 {
                body["owner"] = json!(random.below(30));
            }
            ("items", Op::Put { key, body: body.to_string().into_bytes() })
        }
    };
    let collection = database.collection(name).unwrap();
    let written = database.write_now(&Write { collection, op, precondition: Precondition::None });
    match written {
        Ok(_) | Err(WriteError::NotFound | WriteError::Invalid { .. } | WriteError::Conflict { .. }) => true,
        Err(_) => false,
    }
}

fn states(database: &DocumentDatabase) -> Vec<ReadinessState> {
    let infos = &database.catalog().collections;
    let all = infos.iter().flat_map(|info| {
        let unique = info.unique.iter().map(|unique| unique.readiness.state());
        info.indexes.iter().map(|index| index.readiness.state()).chain(unique)
    });
    all.chain(database.rules().into_iter().map(|rule| rule.state)).collect()
}

/// A life of writes under changing configurations that ends when the disk dies.
fn live(dir: &Path, text: &str, operations: i64, random: &mut Random, ends: &mut Ends) {
    let left = Arc::new(AtomicI64::new(operations));
    let Some(mut database) = open(dir, text, &left) else {
        ends.killed += 1;
        return;
    };
    for _ in 0..random.below(150) {
        if random.below(60) == 0 {
            match database.reopen::<DatabaseOpenError>(&settings(&declared(random)), |_| Ok(())) {
                Ok((next, _)) => {
                    ends.reopened += 1;
                    database = next;
                }
                // The disk has died.
                Err(error) => {
                    assert!(left.load(Ordering::Acquire) <= 0, "{error}");
                    break;
                }
            }
        }
        if !write(&database, random) {
            break;
        }
    }
    database.wait_for_indexes();
    let states = states(&database);
    if left.load(Ordering::Acquire) > 0 {
        ends.whole += 1;
        assert!(!states.iter().any(|state| matches!(state, ReadinessState::Building(_))), "{states:?}");
        ends.refused += states.iter().filter(|state| matches!(state, ReadinessState::Refused(_))).count() as u32;
        ends.ready += database.rules().iter().filter(|rule| rule.state == ReadinessState::Ready).count() as u32;
        let report = docs::verify::database(&database).unwrap();
        assert_eq!(report.faults, [""; 0]);
    } else {
        ends.killed += 1;
        ends.killed_in_a_build += u32::from(states.iter().any(|state| *state != ReadinessState::Ready));
    }
}

#[test]
fn after_writes_kills_and_changed_configurations_all_that_is_in_force_holds() {
    let mut ends = Ends::default();
    for seed in 1..=SEEDS {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let dir = tempfile::tempdir().unwrap();
        let mut text = format!("{COLLECTION}{OWNERS}");
        live(dir.path(), &text, i64::MAX, &mut random, &mut ends);
        for _ in 0..LIVES {
            if random.below(3) > 0 {
                text = declared(&mut random);
            }
            let operations = if random.below(3) == 0 { i64::MAX } else { random.below(OPERATIONS) as i64 };
            live(dir.path(), &text, operations, &mut random, &mut ends);
        }
        live(dir.path(), &text, i64::MAX, &mut random, &mut ends);
    }
    println!("{ends:?}");
    assert!(ends.killed_in_a_build > 0 && ends.killed > 10 && ends.whole > 20, "{ends:?}");
    assert!(ends.ready > 10 && ends.refused > 0 && ends.reopened > 20, "{ends:?}");
}
