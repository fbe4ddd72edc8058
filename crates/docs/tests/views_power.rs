//! Views through power failures at any operation of the disk: in writes, in builds and after changed definitions, including
//! views over views. Everything acknowledged exists, and every view equals its query run from scratch.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::declared_views::{self, Views, rows, with_views};
use crate::lives;
use crate::simulation::content::Files;
use crate::simulation::disk::SimulatedDisk;
use docs::RuleState;
use docs::{DocumentDatabase, Op, Precondition, Write, WriteError};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value as Json, json};

/// Seconds after which no further history begins. For the long run, VIEWS_POWER_SECONDS sets another number, and
/// VIEWS_POWER_SEED repeats one history, as far as threads permit: the n-th operation may differ.
const SECONDS: u64 = 4;
const LONG_SECONDS: u64 = 600;
/// Lives of one history.
const LIVES: u32 = 8;
const KEYS: u32 = 300;
/// Operations of the disk after which the power of most lives fails.
const OPERATIONS: u64 = 160;

const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
/// Names with alternating definitions; `w` and `x` read earlier views.
const CHOICES: [(&str, &[&str]); 5] = [
    (
        "v",
        &[
            "SELECT kind, COUNT(*) AS n, SUM(amount) AS s, MIN(at) AS first FROM items GROUP BY kind",
            "SELECT kind, COUNT(DISTINCT tag) AS n, SUM(amount * 2) AS s, MIN(at) AS first FROM items \
             WHERE amount > 0 GROUP BY kind",
            "SELECT kind, COUNT(tag) AS n, TOTAL(amount) AS s, MAX(at) AS first FROM items GROUP BY kind",
        ],
    ),
    (
        "w",
        &[
            "SELECT first, COUNT(*) AS kinds, SUM(n) AS docs, MAX(s) AS most FROM v GROUP BY first",
            "SELECT first, COUNT(*) AS kinds, MAX(n) AS docs, MIN(kind) AS most FROM v WHERE n > 2 GROUP BY first",
            "SELECT at AS first, COUNT(*) AS kinds, COUNT(tag) AS docs, SUM(amount) AS most FROM items GROUP BY at",
        ],
    ),
    (
        "x",
        &[
            "SELECT kinds, COUNT(*) AS n, COUNT(DISTINCT docs) AS d, MIN(most) AS lo FROM w GROUP BY kinds",
            "SELECT COUNT(*) AS n, SUM(docs) AS s, MAX(most) AS hi FROM w",
        ],
    ),
    ("r", &["SELECT kind, tag, COUNT(*) AS n FROM items GROUP BY ROLLUP (kind, tag)"]),
    ("o", &["SELECT COUNT(*) AS n, AVG(amount) AS a, MAX(tag) AS t FROM items"]),
];

fn definitions(rng: &mut SmallRng) -> Views {
    let chosen = CHOICES.iter().map(|(name, queries)| (*name, queries[rng.random_range(0..queries.len())]));
    let mut chosen: Views = chosen.collect();
    let left_out = rng.random_range(0..8);
    // Views that others read stay.
    chosen.retain(|(name, _)| {
        !(left_out == 0 && *name == "x" || left_out == 1 && *name == "r" || left_out == 2 && *name == "o")
    });
    chosen
}

fn open(disk: &Arc<SimulatedDisk>, definitions: &Views) -> Option<DocumentDatabase> {
    lives::open_powered(disk, &with_views(ITEMS, definitions))
}

/// The acknowledged state, and the one write with an unknown outcome.
#[derive(Clone, Debug, Default)]
struct Model {
    items: BTreeMap<u32, Json>,
    unknown: Option<(u32, Option<Json>)>,
}

impl Model {
    fn set(&mut self, id: u32, item: Option<Json>) {
        match item {
            Some(item) => drop(self.items.insert(id, item)),
            None => drop(self.items.remove(&id)),
        }
    }
}

fn write(database: &DocumentDatabase, rng: &mut SmallRng, model: &mut Model) -> bool {
    let id = rng.random_range(0..KEYS);
    let key = id.to_be_bytes().to_vec();
    let amount = match rng.random_range(0..3) {
        0 => json!(f64::from(rng.random_range(0..1000)) / 8.0),
        1 => json!(rng.random_range(-50..50)),
        _ => Json::Null,
    };
    let item = json!({ "id": id, "kind": rng.random_range(0..9), "tag": format!("t{}", rng.random_range(0..7)),
                       "amount": amount, "at": rng.random_range(0..12) });
    let item = (rng.random_range(0..4) > 0).then_some(item);
    let op = match &item {
        None => Op::Delete { key },
        Some(item) => Op::Put { key, body: item.to_string().into_bytes() },
    };
    let collection = database.collection("items").unwrap();
    match database.write_now(&Write { collection, op, precondition: Precondition::None }) {
        Ok(_) => model.set(id, item),
        Err(WriteError::NotFound) => assert!(!model.items.contains_key(&id)),
        Err(_) => {
            model.unknown = Some((id, item));
            return false;
        }
    }
    true
}

/// Opens the folder after the failure, with power. Everything acknowledged exists, every view exists, and built views answer at
/// once.
#[track_caller]
fn check(files: &Files, definitions: &Views, model: &mut Model) {
    let disk = Arc::new(SimulatedDisk::powered(files, u64::MAX));
    let database = open(&disk, definitions).unwrap();
    let found: BTreeMap<u32, Json> = rows(&database, "SELECT id, kind, tag, amount, at FROM items")
        .into_iter()
        .map(|item| (item["id"].as_u64().unwrap() as u32, item))
        .collect();
    if let Some((id, item)) = model.unknown.take()
        && found.get(&id) == item.as_ref()
    {
        model.set(id, item);
    }
    assert_eq!(found, model.items);
    if database.views().iter().all(|view| view.state == RuleState::Ready) {
        declared_views::check(&database, definitions);
    }
    database.wait_for_views();
    assert!(database.views().iter().all(|view| view.state != RuleState::Refused), "{:?}", database.views());
    declared_views::check(&database, definitions);
}

#[derive(Debug, Default)]
struct Tally {
    failures: u32,
    in_builds: u32,
    whole: u32,
}

/// A sequence of lives on one disk.
fn history(seed: u64, tally: &mut Tally) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let (mut files, mut model) = (Files::new(), Model::default());
    let mut declared = Views::new();
    for life in 0..LIVES {
        let operations =
            if life == 0 || rng.random_range(0..5) == 0 { u64::MAX } else { rng.random_range(0..OPERATIONS) };
        let disk = Arc::new(SimulatedDisk::powered(&files, operations));
        if life > 0 && rng.random_range(0..3) > 0 {
            declared = definitions(&mut rng);
        }
        if let Some(database) = open(&disk, &declared) {
            let count = if life == 0 { 150 } else { rng.random_range(0..60) };
            for number in 0..count {
                if !write(&database, &mut rng, &mut model) {
                    break;
                }
                if number % 16 == 15 && rng.random_range(0..2) == 0 && database.store().checkpoint().is_err() {
                    break;
                }
            }
            if operations == u64::MAX {
                database.wait_for_views();
            }
            let is_building = database.views().iter().any(|view| view.state != RuleState::Ready);
            tally.in_builds += u32::from(is_building && disk.met() > 0);
        }
        tally.failures += u32::from(disk.met() > 0);
        tally.whole += u32::from(disk.met() == 0);
        files = disk.after_power_failure(&files, &mut rng);
        check(&files, &declared, &mut model);
    }
}

#[test]
fn a_view_that_goes_and_comes_back_is_whole_wherever_the_power_fails_between() {
    let mut rng = SmallRng::seed_from_u64(5);
    let declared: Views = CHOICES.iter().map(|(name, queries)| (*name, queries[0])).collect();
    let (mut model, empty) = (Model::default(), Files::new());
    let disk = Arc::new(SimulatedDisk::powered(&empty, u64::MAX));
    let database = open(&disk, &declared).unwrap();
    (0..60).for_each(|_| assert!(write(&database, &mut rng, &mut model)));
    drop(database);
    let files = disk.after_power_failure(&empty, &mut rng);
    let mut operations = 0;
    loop {
        let disk = Arc::new(SimulatedDisk::powered(&files, operations));
        drop(open(&disk, &declared[..1].to_vec()));
        let left = disk.after_power_failure(&files, &mut rng);
        check(&left, &declared, &mut model.clone());
        if disk.met() == 0 {
            break;
        }
        operations += 1;
    }
    assert!(operations > 10, "{operations}");
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn run(seconds: u64) -> Tally {
    let (mut tally, began) = (Tally::default(), Instant::now());
    let mut seed = setting("VIEWS_POWER_SEED").unwrap_or(1);
    while began.elapsed() < Duration::from_secs(seconds) {
        println!("seed {seed}");
        history(seed, &mut tally);
        seed += 1;
    }
    println!("{tally:?}");
    tally
}

#[test]
fn after_power_failures_in_writes_builds_and_changed_definitions_views_equal_their_queries() {
    let tally = run(SECONDS);
    assert!(tally.failures > 0, "{tally:?}");
}

#[test]
#[ignore = "minutes: `cargo xtask campaign views`"]
fn power_failures_for_long() {
    let tally = run(setting("VIEWS_POWER_SECONDS").unwrap_or(LONG_SECONDS));
    assert!(tally.failures > 0 && tally.in_builds > 0 && tally.whole > 0, "{tally:?}");
}
