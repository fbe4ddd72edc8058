//! How fast texts become documents and fields are read, beside `serde_json::Value`, in one run.
//!
//! Answers: bytes per second of `Encoder::encode` on four documents (the best of several rounds, so a busy machine shows
//! in the spread, not in the figure), nanoseconds for a field of a document that is in the cache, and what the tables
//! cost. It says nothing about documents that are not in the processor's caches.

use binjson::{Document, Encoder, FieldCache, FieldName, JsonWriter};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(20);

/// The least time of one call, in nanoseconds.
fn fastest(mut call: impl FnMut()) -> f64 {
    let mut calls = 1u32;
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        loop {
            let start = Instant::now();
            (0..calls).for_each(|_| call());
            let taken = start.elapsed();
            if taken >= ROUND {
                best = best.min(taken.as_nanos() as f64 / f64::from(calls));
                break;
            }
            calls = calls.saturating_mul(2);
        }
    }
    best
}

fn small_document() -> Vec<u8> {
    br#"{"id":1048577,"email":"wilhelmina.okafor@example.org","first_name":"Wilhelmina","last_name":"Okafor","gender":"f","birth_date":-384652800,"address":{"street":"14 Harbour Road","city":"Kristiansand","zip":"4612","country":"Norway"},"tags":["sailing","maps","coffee"],"score":87.25,"active":true,"visits":1294,"about":"Keeps the lights of the northern pier and writes about it now and then."}"#.to_vec()
}

fn travels_user() -> Vec<u8> {
    r#"{"id":5071,"email":"wetnaheot@yahoo.com","first_name":"Екатерина","last_name":"Хопатосная","gender":"f","birth_date":-712108800}"#
        .as_bytes()
        .to_vec()
}

fn escaped_user() -> Vec<u8> {
    let text = String::from_utf8(travels_user()).unwrap_or_default();
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_ascii() {
            escaped.push(character);
        } else {
            escaped.push_str(&format!("\\u{:04x}", character as u32));
        }
    }
    escaped.into_bytes()
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

fn measure(name: &str, text: &[u8], fields: &[&str]) {
    let mut encoder = Encoder::new();
    let mut stored = Vec::new();
    if encoder.encode(text, &mut stored).is_err() {
        println!("{name}: refused");
        return;
    }
    let bytes = stored.clone();
    let ours = fastest(|| {
        stored.clear();
        black_box(encoder.encode(black_box(text), &mut stored).is_ok());
    });
    let theirs = fastest(|| {
        black_box(serde_json::from_slice::<serde_json::Value>(black_box(text)).is_ok());
    });
    let Ok(document) = Document::from_bytes(&bytes) else { return };
    let minified = document.text().len();
    let rate = |nanoseconds: f64| text.len() as f64 * 1000.0 / nanoseconds;
    println!(
        "{name:14} {:6} B  stored {:.3} x  encode {:6.0} MB/s  serde_json::Value {:5.0} MB/s  ratio {:.1}",
        text.len(),
        bytes.len() as f64 / minified as f64,
        rate(ours),
        rate(theirs),
        theirs / ours
    );
    let open = fastest(|| {
        black_box(Document::from_bytes(black_box(&bytes)).ok());
    });
    println!("{:14} opening {open:.1} ns", "");
    for field in fields {
        let found = fastest(|| {
            black_box(
                Document::from_bytes(black_box(&bytes)).ok().and_then(|document| document.field(black_box(field))),
            );
        });
        let mut cache = FieldCache::default();
        let cached = fastest(|| {
            let document = Document::from_bytes(black_box(&bytes)).ok();
            black_box(document.and_then(|document| document.field_cached(black_box(field), &mut cache)));
        });
        let name = FieldName::new(field);
        let named = fastest(|| {
            let document = Document::from_bytes(black_box(&bytes)).ok();
            black_box(document.and_then(|document| document.field_named(black_box(&name), &mut cache)));
        });
        let opened = fastest(|| {
            black_box(black_box(&document).field_named(black_box(&name), &mut cache));
        });
        println!(
            "{:14} field {field:12} {found:5.1} ns  property cache {cached:5.1} ns  and a prepared name {named:5.1} ns  \
             in an opened document {opened:5.1} ns",
            ""
        );
    }
}

fn main() {
    measure("400 bytes", &small_document(), &["id", "score", "about"]);
    let pretty =
        serde_json::from_slice::<serde_json::Value>(&small_document()).and_then(|v| serde_json::to_vec_pretty(&v));
    measure("same, pretty", &pretty.unwrap_or_default(), &[]);
    measure("37 KB", &large_document(), &["id", "total"]);
    measure("travels user", &travels_user(), &["id", "birth_date"]);
    measure("with escapes", &escaped_user(), &[]);
    let bytes = {
        let mut out = Vec::new();
        let _ = binjson::encode(&large_document(), &mut out);
        out
    };
    let city = fastest(|| {
        let document = Document::from_bytes(black_box(&bytes)).ok();
        black_box(document.and_then(|document| document.field("address")?.field("city")));
    });
    let line = fastest(|| {
        let document = Document::from_bytes(black_box(&bytes)).ok();
        black_box(document.and_then(|document| document.field("lines")?.element(150)?.field("price")));
    });
    println!("37 KB: address.city {city:.1} ns, lines[150].price {line:.1} ns");
}
