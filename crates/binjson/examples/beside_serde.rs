//! Binary JSON compared with `serde_json`, both in one run, in alternating rounds; the medians are reported.
//! `cargo xtask bench json` runs this and records the rows; run alone it prints them.
//!
//! Measures bytes per second from text to stored document; nanoseconds for one field of a document in the processor's caches,
//! and the same in cycles at the core's clock rate during these rounds; the hit rate of the field cache for mixed shapes; and
//! the size of the tables. It does not measure documents that are read from memory or disk.

use binjson::{Encoder, FieldCache, FieldName, JsonWriter, StoredDocument};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Duration of one side's work in each round.
const ROUND: Duration = Duration::from_millis(40);

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let rounds = if quick { 5 } else { 25 };
    let documents = [("400-byte document", small_document()), ("37 KB document", large_document())];
    for (name, text) in &documents {
        from_text(name, text, rounds);
    }
    for ((name, text), fields) in documents.iter().zip([["id", "score", "about"], ["id", "customer", "total"]]) {
        one_field(name, text, &fields, rounds);
    }
    mixed_shapes(rounds);
    for ((name, text), bound) in documents.iter().zip([1.20, 1.10]) {
        size(name, text, bound);
    }
    round_trip(&documents);
}

/// A row for `cargo xtask bench`: see `xtask/src/bench/store.rs`.
struct Row<'r> {
    work: String,
    other: String,
    ours: String,
    figure: String,
    bound: &'r str,
    reached: bool,
    noise: String,
}

impl Row<'_> {
    fn print(&self) {
        let verdict = if self.reached { "reached" } else { "short" };
        let Row { work, other, ours, figure, bound, noise, .. } = self;
        println!("row\t{work}\t{other}\t{ours}\t{figure}\t{bound}\t{verdict}\t{noise}");
    }
}

/// Steps of a clock measurement in a round, and the cycles of each: a product that depends on the previous one, then a bit is
/// set.
const CLOCK_STEPS: u32 = 500_000;
const CYCLES_OF_A_STEP: f64 = 4.0;

/// Nanoseconds of one call of each side, in alternating rounds, and the length of the core's cycle measured between them.
#[derive(Default)]
struct Rounds {
    ours: Vec<f64>,
    theirs: Vec<f64>,
    cycles: Vec<f64>,
}

impl Rounds {
    fn measure(rounds: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) -> Rounds {
        let (our_calls, their_calls) = (calls_of_a_round(&mut ours), calls_of_a_round(&mut theirs));
        let mut measured = Rounds::default();
        for _ in 0..rounds {
            measured.ours.push(nanoseconds(&mut ours, our_calls));
            measured.theirs.push(nanoseconds(&mut theirs, their_calls));
            measured.cycles.push(nanoseconds_of_a_cycle());
        }
        for times in [&mut measured.ours, &mut measured.theirs, &mut measured.cycles] {
            times.sort_by(f64::total_cmp);
        }
        measured
    }

    /// A time in cycles of the core at its measured rate: on a shared machine that differs much from the nominal rate.
    fn in_cycles(&self, nanoseconds: f64) -> f64 {
        nanoseconds / self.cycles[self.cycles.len() / 2]
    }

    fn medians(&self) -> (f64, f64) {
        (self.ours[self.ours.len() / 2], self.theirs[self.theirs.len() / 2])
    }

    /// The spread of the middle half of our rounds.
    fn noise(&self) -> String {
        let (ours, _) = self.medians();
        let quarter = self.ours.len() / 4;
        let spread = self.ours[self.ours.len() - 1 - quarter] - self.ours[quarter];
        format!("{:.0} %", spread / ours * 100.0)
    }
}

fn calls_of_a_round(call: &mut impl FnMut()) -> u32 {
    let mut calls = 1u32;
    loop {
        let taken = nanoseconds(call, calls) * f64::from(calls);
        if taken >= ROUND.as_nanos() as f64 / 2.0 {
            return calls;
        }
        calls = calls.saturating_mul(2);
    }
}

fn nanoseconds(call: &mut impl FnMut(), calls: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        call();
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

/// Measured by a chain of dependent products: three cycles each on current processors, plus one.
fn nanoseconds_of_a_cycle() -> f64 {
    let start = Instant::now();
    let mut value = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..CLOCK_STEPS {
        value = value.wrapping_mul(value) | 2;
    }
    black_box(value);
    start.elapsed().as_nanos() as f64 / (f64::from(CLOCK_STEPS) * CYCLES_OF_A_STEP)
}

fn encoded(text: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    binjson::encode(text, &mut stored).expect("the documents here are JSON");
    stored
}

/// From text to stored document, compared with text to `serde_json::Value`.
fn from_text(name: &str, text: &[u8], rounds: usize) {
    let (mut encoder, mut stored) = (Encoder::new(), Vec::new());
    let measured = Rounds::measure(
        rounds,
        || {
            stored.clear();
            black_box(encoder.encode(black_box(text), &mut stored).is_ok());
        },
        || {
            black_box(serde_json::from_slice::<serde_json::Value>(black_box(text)).is_ok());
        },
    );
    let (ours, theirs) = measured.medians();
    let rate = |nanoseconds: f64| text.len() as f64 * 1000.0 / nanoseconds;
    let row = |figure: String, bound, reached| Row {
        work: format!("binary JSON from text, {name} ({} bytes)", text.len()),
        other: format!("serde_json::Value {:.0} MB/s", rate(theirs)),
        ours: format!("{:.0} MB/s", rate(ours)),
        figure,
        bound,
        reached,
        noise: measured.noise(),
    };
    if text.len() < 1000 {
        let cycles = measured.in_cycles(ours) / text.len() as f64;
        row(format!("{:.2} GB/s, {cycles:.1} cycles a byte", rate(ours) / 1000.0), "≥ 1 GB/s", rate(ours) >= 1000.0)
            .print();
    }
    row(format!("{:.2} ×", theirs / ours), "≥ 2 ×", theirs / ours >= 2.0).print();
}

/// One field of a stored document, whose bytes are opened each time. The slowest of the fields counts.
fn one_field(name: &str, text: &[u8], fields: &[&str], rounds: usize) {
    let stored = encoded(text);
    let (mut plain, mut cached) = (Vec::new(), Vec::new());
    for field in fields {
        let prepared = FieldName::new(field);
        let mut cache = FieldCache::default();
        let measured = Rounds::measure(
            rounds,
            || {
                let document = StoredDocument::from_bytes(black_box(&stored)).ok();
                black_box(document.and_then(|document| document.field(black_box(field))));
            },
            || {
                let document = StoredDocument::from_bytes(black_box(&stored)).ok();
                black_box(document.map(|document| document.raw_named(black_box(&prepared), &mut cache)));
            },
        );
        let (named, remembered) = measured.medians();
        plain.push((named, measured.in_cycles(named), measured.noise()));
        cached.push((remembered, measured.in_cycles(remembered), measured.noise()));
    }
    let slowest = |mut all: Vec<(f64, f64, String)>| {
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.pop().unwrap_or_default()
    };
    for (way, (nanoseconds, cycles, noise), bound, limit) in
        [("by name", slowest(plain), "< 20 ns", 20.0), ("with the property cache", slowest(cached), "< 8 ns", 8.0)]
    {
        Row {
            work: format!("one field of a {name}, {way}: the slowest of {}", fields.join(", ")),
            other: "—".to_owned(),
            ours: format!("{cycles:.0} cycles"),
            figure: format!("{nanoseconds:.1} ns"),
            bound,
            reached: nanoseconds < limit,
            noise,
        }
        .print();
    }
}

/// The field cache when it sometimes misses: documents in which some fields are missing at random.
fn mixed_shapes(rounds: usize) {
    let documents: Vec<Vec<u8>> = (0..256).map(|number| encoded(&person(number))).collect();
    for field in ["reputation", "views"] {
        let name = FieldName::new(field);
        let (mut cache, mut hits) = (FieldCache::default(), 0);
        for stored in &documents {
            let before = cache;
            let document = StoredDocument::from_bytes(stored).expect("just encoded");
            black_box(document.raw_named(&name, &mut cache));
            hits += usize::from(before == cache);
        }
        let measured = Rounds::measure(
            rounds,
            || {
                for stored in black_box(&documents) {
                    let document = StoredDocument::from_bytes(stored).ok();
                    black_box(document.map(|document| document.raw_named(&name, &mut cache)));
                }
            },
            || {
                for stored in black_box(&documents) {
                    let document = StoredDocument::from_bytes(stored).ok();
                    black_box(document.and_then(|document| document.field(black_box(field))));
                }
            },
        );
        let (with, without) = measured.medians();
        let each = documents.len() as f64;
        Row {
            work: format!("`{field}` of 256 documents of mixed shapes, with the property cache beside without"),
            other: format!("without {:.1} ns", without / each),
            ours: format!("with {:.1} ns, right {:.0} % of the time", with / each, hits as f64 / each * 100.0),
            figure: format!("{:.2} ×", without / with),
            bound: "≥ 1 ×",
            reached: without >= with,
            noise: measured.noise(),
        }
        .print();
    }
}

fn size(name: &str, text: &[u8], bound: f64) {
    let stored = encoded(text);
    let document = StoredDocument::from_bytes(&stored).expect("just encoded");
    let share = stored.len() as f64 / document.text().len() as f64;
    Row {
        work: format!("stored size of a {name}"),
        other: format!("minified text {} bytes", document.text().len()),
        ours: format!("{} bytes", stored.len()),
        figure: format!("{share:.3} ×"),
        bound: if bound > 1.15 { "≤ 1.20 ×" } else { "≤ 1.10 ×" },
        reached: share <= bound,
        noise: "exact".to_owned(),
    }
    .print();
}

/// The documents are written without whitespace and with unusual numbers, so each must come back byte for byte.
fn round_trip(documents: &[(&str, Vec<u8>)]) {
    let odd = br#"{"z":1.10,"a":-0,"m":1E+2,"b":12345678901234567890123,"y":0.1e-7,"c":-0.0}"#.to_vec();
    let texts = documents.iter().map(|(_, text)| text).chain([&odd]);
    let exact = texts.filter(|text| {
        let stored = encoded(text);
        StoredDocument::from_bytes(&stored).is_ok_and(|document| document.text() == text.as_slice())
    });
    let (exact, all) = (exact.count(), documents.len() + 1);
    Row {
        work: "round trip: text of numbers, order of keys".to_owned(),
        other: "—".to_owned(),
        ours: format!("{exact} of {all} documents byte for byte"),
        figure: format!("{exact} of {all}"),
        bound: "all",
        reached: exact == all,
        noise: "exact".to_owned(),
    }
    .print();
}

fn small_document() -> Vec<u8> {
    br#"{"id":1048577,"email":"wilhelmina.okafor@example.org","first_name":"Wilhelmina","last_name":"Okafor","gender":"f","birth_date":-384652800,"address":{"street":"14 Harbour Road","city":"Kristiansand","zip":"4612","country":"Norway"},"tags":["sailing","maps","coffee"],"score":87.25,"active":true,"visits":1294,"about":"Keeps the lights of the northern pier and writes now and then about it all."}"#.to_vec()
}

/// An order with lines: 37 KB of objects in an array, and fields around it.
fn large_document() -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = JsonWriter::new(&mut out);
    writer.begin_object().key("id").u64(77).key("customer").string("ООО «Северный пирс»").key("lines").begin_array();
    for line in 0..245u64 {
        writer.begin_object();
        writer.key("line").u64(line).key("sku").string(&format!("SKU-{:06}", line * 7919 % 999_983));
        writer.key("title").string("Фонарь маячный, латунь, 40 см").key("quantity").u64(line % 9 + 1);
        writer.key("price").f64(line as f64 * 1.25 + 0.5).key("note").string("fragile, keep upright").end_object();
    }
    writer.end_array().key("address").begin_object().key("street").string("14 Harbour Road");
    writer.key("city").string("Kristiansand").key("zip").string("4612").end_object();
    writer.key("status").string("packed").key("total").f64(24_531.75).end_object();
    out
}

/// A person; the place, the page and the text about them may be missing.
fn person(number: u64) -> Vec<u8> {
    // Pseudo-random bits, the same in each run.
    let random = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let mut out = Vec::new();
    let mut writer = JsonWriter::new(&mut out);
    writer.begin_object().key("id").u64(number).key("reputation").u64(random % 1000).key("name").string("Somebody");
    for (field, share) in [("location", 4), ("page", 8), ("about", 5)] {
        if (random / 7).is_multiple_of(share) {
            writer.key(field).string("a few words about it");
        }
    }
    writer.key("views").u64(random % 77).key("votes").u64(random % 5).end_object();
    out
}
