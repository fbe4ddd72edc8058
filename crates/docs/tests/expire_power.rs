//! Expiry by last write through power failures at any operation of the disk: during writes, during sweeps, and while the rule
//! comes into force. An acknowledged document exists until its duration is over, and not longer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::lives;
use crate::service::config;
use crate::simulation::content::Files;
use crate::simulation::disk::SimulatedDisk;
use docs::expire::WallClock;
use docs::key::KeyType;
use docs::{DocumentDatabase, Op, Precondition, Write, WriteError};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const SEEDS: u64 = 24;
const LIVES: u32 = 6;
const KEYS: u32 = 60;
const OPERATIONS: u64 = 120;
const AFTER_SECONDS: i64 = 100;
const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";

fn key(id: u32) -> Vec<u8> {
    KeyType::U32.of_text(&id.to_string()).unwrap().as_bytes().to_vec()
}

/// The lives of one disk, and the expected state.
struct History {
    random: SmallRng,
    now: Arc<AtomicI64>,
    files: Files,
    /// The seconds of the last acknowledged writes.
    written: BTreeMap<u32, i64>,
    /// The write with an unknown outcome: the document exists with this second, or not.
    unknown: Option<(u32, Option<i64>)>,
}

impl History {
    fn open(&self, disk: &Arc<SimulatedDisk>, expires: bool) -> Option<DocumentDatabase> {
        let rule = if expires { format!("expire = {{ after_seconds = {AFTER_SECONDS} }}\n") } else { String::new() };
        let mut settings = config(&format!("{ITEMS}{rule}"));
        settings.clock = WallClock::given(Arc::clone(&self.now));
        settings.builds_indexes_later = true;
        lives::open_powered(disk, &settings)
    }

    fn second(&self) -> i64 {
        self.now.load(Ordering::Relaxed) / 1000
    }

    fn later(&mut self) {
        self.now.fetch_add(1000 * self.random.random_range(0..8), Ordering::Relaxed);
    }

    fn is_due(&self, second: i64) -> bool {
        second + AFTER_SECONDS <= self.second()
    }

    /// False if the power has failed.
    fn write(&mut self, database: &DocumentDatabase) -> bool {
        let id = self.random.random_range(0..KEYS);
        let is_put = self.random.random_range(0..4) > 0;
        let body = format!("{{\"id\":{id},\"x\":{}}}", self.random.random_range(0..2)).into_bytes();
        let op = if is_put { Op::Put { key: key(id), body } } else { Op::Delete { key: key(id) } };
        let second = is_put.then(|| self.second());
        let collection = database.collection("items").unwrap();
        match database.write_now(&Write { collection, op, precondition: Precondition::None }) {
            Ok(_) => match second {
                Some(second) => drop(self.written.insert(id, second)),
                None => drop(self.written.remove(&id)),
            },
            Err(WriteError::NotFound) => assert!(self.written.get(&id).is_none_or(|second| self.is_due(*second))),
            Err(_) => {
                self.unknown = Some((id, second));
                return false;
            }
        }
        true
    }

    fn sweep(&self, database: &DocumentDatabase) -> bool {
        database.expiring().into_iter().all(|collection| database.expire(&mut database.sweep(collection), 50).is_ok())
    }

    fn live(&mut self, operations: u64) -> bool {
        let disk = Arc::new(SimulatedDisk::powered(&self.files, operations));
        if let Some(database) = self.open(&disk, true) {
            for number in 0..self.random.random_range(0..80) {
                self.later();
                let goes_on = match number % 8 {
                    5 => self.sweep(&database),
                    7 => database.store().checkpoint().is_ok(),
                    _ => self.write(&database),
                };
                if !goes_on {
                    break;
                }
            }
        }
        self.files = disk.after_power_failure(&self.files, &mut self.random);
        disk.met() > 0
    }

    /// Opens the folder after the failure, with power; twice, to bring an announced rule into force.
    fn check(&mut self) {
        let disk = Arc::new(SimulatedDisk::powered(&self.files, u64::MAX));
        for _ in 0..2 {
            let database = self.open(&disk, true).unwrap();
            database.wait_for_indexes();
            assert!(
                database.rules().iter().all(|rule| rule.state == docs::ReadinessState::Ready),
                "{:?}",
                database.rules()
            );
        }
        let database = self.open(&disk, true).unwrap();
        assert_eq!(database.expiring().len(), 1);
        let report = docs::verify::database(&database).unwrap();
        assert!(report.is_clean(), "{report:?}");
        let before = self.now.load(Ordering::Relaxed);
        let last = |now_ms: i64| {
            self.now.store(now_ms, Ordering::Relaxed);
            let session = database.session().unwrap();
            let now = session.now();
            let is_there = |id: &u32| {
                let bytes = key(*id);
                now.get(database.collection("items").unwrap(), &KeyType::U32.of_bytes(&bytes).unwrap())
                    .unwrap()
                    .is_some()
            };
            (0..KEYS).filter(is_there).collect::<Vec<u32>>()
        };
        if let Some((id, second)) = self.unknown.take() {
            let comes = |second: i64| (second + AFTER_SECONDS) * 1000;
            let there = |at: i64| last(at).contains(&id);
            let is_done = second.is_some_and(|second| there(comes(second) - 1) && !there(comes(second)));
            match second {
                Some(second) if is_done => drop(self.written.insert(id, second)),
                None if !there(before) => drop(self.written.remove(&id)),
                _ => {}
            }
        }
        // Each document exists until its time, and not afterwards; expired ones are removed or hidden.
        let mut moments: Vec<i64> = self.written.values().map(|second| (second + AFTER_SECONDS) * 1000).collect();
        moments.extend(moments.clone().iter().map(|moment| moment - 1));
        for moment in moments.into_iter().filter(|moment| *moment >= before).chain([before]) {
            let expected = self.written.iter().filter(|(_, second)| (**second + AFTER_SECONDS) * 1000 > moment);
            let expected: Vec<u32> = expected.map(|(id, _)| *id).collect();
            assert_eq!(last(moment), expected, "at {moment}, after {before}");
        }
        self.now.store(before, Ordering::Relaxed);
    }
}

#[test]
fn the_time_of_the_last_write_survives_the_power_wherever_it_fails() {
    let (mut failures, mut whole) = (0, 0);
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let now = Arc::new(AtomicI64::new(1_700_000_000_000));
        let random = SmallRng::seed_from_u64(seed);
        let (written, unknown) = (BTreeMap::new(), None);
        let mut history = History { random, now, files: Files::new(), written, unknown };
        for life in 0..LIVES {
            let operations = if life == 0 || history.random.random_range(0..6) == 0 {
                u64::MAX
            } else {
                history.random.random_range(0..OPERATIONS)
            };
            if history.live(operations) {
                failures += 1
            } else {
                whole += 1
            }
            history.check();
        }
    }
    println!("{failures} failures, {whole} whole lives");
    assert!(failures > 50 && whole > 20, "{failures}, {whole}");
}

#[test]
fn a_rule_that_comes_over_documents_counts_them_as_written_then_wherever_the_power_fails() {
    let mut operations = 0;
    loop {
        let now = Arc::new(AtomicI64::new(1_700_000_000_000));
        let random = SmallRng::seed_from_u64(operations);
        let (written, unknown) = (BTreeMap::new(), None);
        let mut history = History { random, now, files: Files::new(), written, unknown };
        let disk = Arc::new(SimulatedDisk::powered(&history.files, u64::MAX));
        let plain = history.open(&disk, false).unwrap();
        for _ in 0..50 {
            assert!(history.write(&plain));
        }
        drop(plain);
        history.files = disk.after_power_failure(&history.files, &mut history.random);
        history.now.fetch_add(1_000_000, Ordering::Relaxed);
        let announced = history.second();
        let disk = Arc::new(SimulatedDisk::powered(&history.files, operations));
        if let Some(database) = history.open(&disk, true) {
            // Documents written meanwhile count from their own time.
            history.now.fetch_add(10_000, Ordering::Relaxed);
            history.write(&database);
            database.wait_for_indexes();
        }
        let is_known = history.unknown.take().is_none();
        let met = disk.met();
        history.files = disk.after_power_failure(&history.files, &mut history.random);
        history.now.fetch_add(20_000, Ordering::Relaxed);
        let opened = history.second();
        let disk = Arc::new(SimulatedDisk::powered(&history.files, u64::MAX));
        for _ in 0..2 {
            history.open(&disk, true).unwrap().wait_for_indexes();
        }
        let database = history.open(&disk, true).unwrap();
        let since =
            database.catalog().collection("items").unwrap().expire.as_ref().and_then(|expire| expire.since_seconds);
        assert!(since == Some(announced) || since == Some(opened), "{since:?}, {announced}, {opened}");
        let report = docs::verify::database(&database).unwrap();
        assert!(report.is_clean() && report.documents > 10, "{report:?}");
        let swept = |second: i64| {
            history.now.store(second * 1000, Ordering::Relaxed);
            database.expire(&mut database.sweep(database.collection("items").unwrap()), 1000).unwrap().removed
        };
        assert_eq!(swept(since.unwrap() + AFTER_SECONDS - 1), 0);
        // All documents except those written since.
        let later = history.written.values().filter(|second| Some(**second) > since).count() as u64;
        let left = report.documents - swept(since.unwrap() + AFTER_SECONDS);
        assert!(left == later || !is_known && left <= 1, "{left} are left of {report:?}, {later} were written later");
        if met == 0 {
            break;
        }
        operations += 1;
    }
    assert!(operations > 10, "{operations}");
}
