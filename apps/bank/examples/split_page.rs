//! Whether it pays to split a page into its static parts and its values when the program is built: `cargo run --release -p bank
//! --example split_page`.
//!
//! Three ways to make the body of My page and to put it into the buffer from which the kernel takes it, and the copy of its static parts
//! alone, without a server. Static parts of the bank's pages are smaller than `sapsan::http::UNCOPIED_BYTES_MIN`, so the server copies them too, whichever way they come.

use std::hint::black_box;
use std::time::Instant;

use askama::Template;
use askama::filters::{Html, escape};
use bank::page::MyPage;
use sapsan::Part;

const PAGES: u32 = 200_000;
const ROUNDS: usize = 15;
const VALUES: [&str; 3] = ["2014-09-27 10:00:00", "203.0.113.7", "customer4711"];

fn page(values: &[&'static str; 3]) -> MyPage<'static> {
    MyPage { last_at: values[0], last_address: values[1], login: values[2] }
}

/// What lies between, before and behind the values.
fn split() -> [&'static str; 4] {
    let marks = ["\u{1}", "\u{2}", "\u{3}"];
    let text: &'static str = page(&marks).render().expect("a page").leak();
    let mut rest = text;
    let before = marks.map(|mark| {
        let (before, behind) = rest.split_once(mark).expect("the page has this value");
        rest = behind;
        before
    });
    [before[0], before[1], before[2], rest]
}

/// Nanoseconds for each page.
fn time(buffer: &mut Vec<u8>, mut put: impl FnMut(&mut Vec<u8>, &[&'static str; 3])) -> f64 {
    let begun = Instant::now();
    for _ in 0..PAGES {
        buffer.clear();
        put(buffer, black_box(&VALUES));
        black_box(&buffer);
    }
    begun.elapsed().as_nanos() as f64 / f64::from(PAGES)
}

fn main() {
    let statics = split();
    let rendered = |buffer: &mut Vec<u8>, values: &[&'static str; 3]| {
        buffer.extend_from_slice(page(values).render().expect("a page").as_bytes());
    };
    let in_place = |buffer: &mut Vec<u8>, values: &[&'static str; 3]| {
        page(values).write_into(buffer).expect("a page");
    };
    let listed = |buffer: &mut Vec<u8>, values: &[&'static str; 3]| {
        let mut parts: Vec<Part> = Vec::with_capacity(7);
        for (part, value) in statics.into_iter().zip(values) {
            parts.push(part.into());
            parts.push(escape(*value, Html).expect("a text").to_string().into());
        }
        parts.push(statics[3].into());
        parts.iter().for_each(|part| buffer.extend_from_slice(part.bytes()));
    };
    let copied = |buffer: &mut Vec<u8>, _: &[&'static str; 3]| {
        statics.iter().for_each(|part| buffer.extend_from_slice(part.as_bytes()));
    };
    let mut buffer = Vec::with_capacity(4096);
    rendered(&mut buffer, &VALUES);
    let page = buffer.clone();
    for put in [&in_place as &dyn Fn(&mut Vec<u8>, &[&'static str; 3]), &listed] {
        buffer.clear();
        put(&mut buffer, &VALUES);
        assert_eq!(page, buffer, "all ways make the same page");
    }
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(time(&mut buffer, rendered));
        times[1].push(time(&mut buffer, in_place));
        times[2].push(time(&mut buffer, listed));
        times[3].push(time(&mut buffer, copied));
    }
    println!("a page of {} bytes, {} of them static", page.len(), statics.iter().map(|part| part.len()).sum::<usize>());
    let names = ["rendered, then copied", "rendered in place", "a list of parts, copied", "its static parts alone"];
    for (name, mut times) in names.into_iter().zip(times) {
        times.sort_unstable_by(f64::total_cmp);
        println!("{name}: {:.0} ns (the median of {ROUNDS} times {PAGES})", times[ROUNDS / 2]);
    }
}
