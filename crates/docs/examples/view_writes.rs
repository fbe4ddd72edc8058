//! The cost of views for writes: durable writes of single documents, 1,024 in flight, into collections with an index, with and
//! without a view.
//!
//! `cargo run --release -p docs --example view_writes -- [--dir=DIR] [--rounds=N] [--seconds=N] [--only=NAME]`. Each write
//! replaces a random document by one of about 400 bytes; at first half of them are new. The new document belongs to another
//! group, so the view loses a row in one group and gains one in another. The sides alternate, as a disk's speed changes within
//! seconds. Lines that begin with `row` are for `cargo xtask bench query`.
//!
//! Both sides share one process and its memory; HTTP is not included.

#![allow(clippy::unwrap_used, reason = "a measurement ends where something fails")]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use docs::config::Config;
use docs::{DocumentDatabase, Op, Precondition, Write};

const IN_FLIGHT: usize = 1024;
const SUBMITTERS: usize = 2;
/// Writes completed between two wake-ups of a submitter.
const STRIDE: usize = 32;
/// Number of documents that writes choose from.
const DOCUMENTS: u64 = 400_000;
const MONTHS: u64 = 120;
const PLACES: u64 = 5_000;
const ANONYMOUS_MOST: u64 = 1_000_000_000;

const COLLECTION: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
const INDEX: &str = "indexes = [[\"place\"]]\n";

/// A side: its name, its view, and the required share of the rate without a view.
const SIDES: [(&str, &str, f64); 2] = [
    ("COUNT and SUM", "SELECT month, COUNT(*) AS n, SUM(amount) AS s FROM items GROUP BY month", 0.6),
    (
        "MIN, MAX and COUNT(DISTINCT)",
        "SELECT month, MIN(amount) AS lo, MAX(amount) AS hi, COUNT(DISTINCT place) AS places FROM items GROUP BY month",
        0.4,
    ),
];

fn main() {
    let (mut dir, mut rounds, mut seconds, mut only) = ("/tmp/sapsan-view-writes".to_owned(), 3, 2.0, None);
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            Some(("--dir", text)) => dir = text.to_owned(),
            Some(("--rounds", text)) => rounds = text.parse().unwrap(),
            Some(("--seconds", text)) => seconds = text.parse().unwrap(),
            Some(("--only", text)) => only = Some(text.to_owned()),
            _ => panic!("{argument}"),
        }
    }
    let dir = Path::new(&dir);
    let time = Duration::from_secs_f64(seconds);
    let mut sides = vec![("nothing beside", COLLECTION.to_owned()), ("an index", format!("{COLLECTION}{INDEX}"))];
    for (name, query, _) in SIDES {
        sides.push((name, format!("{COLLECTION}{INDEX}[views.v]\nquery = \"{query}\"\n")));
    }
    sides.retain(|(name, _)| only.as_deref().is_none_or(|only| *name == only));
    let open = |(number, (name, text)): (usize, &(&'static str, String))| {
        let config = Config::parse("view_writes".as_ref(), text).unwrap();
        let dir = dir.join(number.to_string());
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        (*name, DocumentDatabase::open(&config, &dir, docs::engine::StoreOptions::default()).unwrap().0)
    };
    let sides: Vec<(&str, DocumentDatabase)> = sides.iter().enumerate().map(open).collect();
    let (mut rates, mut anonymous) = (vec![Vec::new(); sides.len()], 0);
    for round in 0..=rounds {
        for ((name, database), rates) in sides.iter().zip(&mut rates) {
            let rate = writes(database, round, time);
            println!("round {round}, {name}: {rate:.0}/s");
            anonymous = anonymous.max(anonymous_bytes());
            // The first round is a warm-up.
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    for (_, database) in sides.iter().filter(|(name, _)| SIDES.iter().any(|(side, ..)| side == name)) {
        let report = database.verify_view("v").unwrap().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
    let _ = std::fs::remove_dir_all(dir);
    if only.is_none() {
        rows(&rates, anonymous);
    }
}

/// Runs writes for the given time; returns the durable writes per second.
fn writes(database: &DocumentDatabase, round: u64, time: Duration) -> f64 {
    let began = Instant::now();
    let done: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SUBMITTERS as u64)
            .map(|thread| scope.spawn(move || submit(database, (round + 1) << 8 | thread, began + time)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    done as f64 / began.elapsed().as_secs_f64()
}

#[derive(Default)]
struct Flying {
    count: AtomicUsize,
    done: AtomicU64,
}

fn submit(database: &DocumentDatabase, seed: u64, until: Instant) -> u64 {
    let session = database.session().unwrap();
    let collection = database.collection("items").unwrap();
    let (flying, this) = (Arc::new(Flying::default()), std::thread::current());
    let (mut random, mut given) = (Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1), 0u64);
    loop {
        if given.is_multiple_of(64) && Instant::now() >= until {
            break;
        }
        while flying.count.load(Ordering::Acquire) >= IN_FLIGHT / SUBMITTERS {
            std::thread::park();
        }
        given += 1;
        flying.count.fetch_add(1, Ordering::AcqRel);
        let id = random.below(DOCUMENTS) as u32;
        let op = Op::Put { key: id.to_be_bytes().to_vec(), body: body(id, &mut random) };
        let (flying, thread) = (Arc::clone(&flying), this.clone());
        let done = move |outcome: Result<docs::Written, docs::WriteError>| {
            outcome.unwrap();
            flying.done.fetch_add(1, Ordering::Relaxed);
            if flying.count.fetch_sub(1, Ordering::AcqRel).is_multiple_of(STRIDE) {
                thread.unpark();
            }
        };
        database.write(&session, Write { collection, op, precondition: Precondition::None }, Box::new(done));
    }
    while flying.count.load(Ordering::Acquire) > 0 {
        std::thread::park_timeout(Duration::from_micros(100));
    }
    flying.done.load(Ordering::Relaxed)
}

fn body(id: u32, random: &mut Random) -> Vec<u8> {
    let (month, place, amount) = (random.below(MONTHS), random.below(PLACES), random.below(1_000_000));
    let mut text = String::with_capacity(420);
    let _ = write!(
        text,
        "{{\"id\":{id},\"month\":\"{}-{:02}\",\"place\":\"place {place}\"",
        2010 + month / 12,
        month % 12 + 1
    );
    let _ = write!(text, ",\"amount\":{amount},\"text\":\"");
    while text.len() < 395 {
        text.push_str("nothing in particular ");
    }
    text.push_str("\"}");
    text.into_bytes()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

fn rows(rates: &[Vec<f64>], anonymous: u64) {
    let median = |rates: &[f64]| {
        let mut rates = rates.to_vec();
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (without, index) = (median(&rates[0]), median(&rates[1]));
    for ((name, _, bound), with) in SIDES.iter().zip(&rates[2..]) {
        let spread = with.iter().copied().fold(0.0, f64::max) / with.iter().copied().fold(f64::MAX, f64::min) - 1.0;
        let with = median(with);
        println!(
            "row\tdurable writes of single documents, {IN_FLIGHT} in flight, with one index and a view of {name}\t\
             without both: {:.0}k/s; with the index alone: {:.0}k/s\t{:.0}k/s\t{:.2} × without both ({:.2} × with the index)\t\
             ≥ {bound:.2} ×\t{}\t{:.0} %",
            without / 1e3,
            index / 1e3,
            with / 1e3,
            with / without,
            with / index,
            if with >= bound * without { "reached" } else { "short" },
            spread * 100.0
        );
    }
    println!(
        "row\tanonymous memory of those writes, four databases in one process\t—\t{0:.0} MB\t{0:.0} MB\t< 1000 MB\t{1}\t—",
        anonymous as f64 / 1e6,
        if anonymous < ANONYMOUS_MOST { "reached" } else { "short" }
    );
}

fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}
