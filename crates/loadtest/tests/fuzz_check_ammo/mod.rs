//! Properties that hold for any ammo and any answers; used by the tests here and by targets of `fuzz/`.

#![allow(dead_code, clippy::unwrap_used)] // Each driver takes its part; a failed step is a failed test.

use loadtest::ammo::{Ammo, AmmoOptions, Format, Loops, OnBroken};
use loadtest::answers::Comparison;
use loadtest::source::{Observed, ObservedReply, Observer as _, REQUEST_BYTES_MAX, ReplyVerdict, RequestSource as _};
use std::io::Cursor;
use std::num::NonZeroU64;
use std::sync::Arc;

/// Largest number of requests that are read of one input.
const REQUESTS_MAX: usize = 1000;

fn options(format: Option<Format>, on_broken: OnBroken) -> AmmoOptions {
    AmmoOptions { format, on_broken, loops: Loops::Times(NonZeroU64::new(2).unwrap()), ..AmmoOptions::default() }
}

/// Reads all requests, or up to the first fault.
fn read(bytes: &[u8], options: AmmoOptions) -> Vec<Vec<u8>> {
    let stream = Box::new(Cursor::new(bytes.to_vec()));
    let Ok(mut ammo) = Ammo::of_streams(("ammo", stream), None, options) else { return Vec::new() };
    let (mut requests, mut request) = (Vec::new(), Vec::new());
    while let Ok(Some(described)) = ammo.next(&mut request) {
        check_request(&request, described.is_head);
        requests.push(std::mem::take(&mut request));
        if requests.len() == REQUESTS_MAX {
            break;
        }
    }
    requests
}

/// A request is one head of HTTP/1.x, within the bound, and its description is correct.
fn check_request(bytes: &[u8], is_head: bool) {
    assert!(bytes.len() <= REQUEST_BYTES_MAX);
    assert!(
        memchr::memmem::find(bytes, b"\n\r\n").or(memchr::memmem::find(bytes, b"\n\n")).is_some(),
        "a head that ends"
    );
    assert_eq!(bytes.starts_with(b"HEAD "), is_head);
}

/// In each format and in the detected one: requests or an error, the same in two readings, and at least as many if broken records
/// are skipped.
pub(crate) fn check_ammo(bytes: &[u8]) {
    let formats = Format::ALL.map(Some);
    for format in formats.into_iter().chain([None]) {
        let strict = read(bytes, options(format, OnBroken::Stop));
        assert_eq!(strict, read(bytes, options(format, OnBroken::Stop)));
        let lenient = read(bytes, options(format, OnBroken::Skip));
        assert!(lenient.len() >= strict.len());
    }
}

/// Reads the bytes as answers to the requests that each line may name, and as bodies to compare.
pub(crate) fn check_answers(bytes: &[u8]) {
    let comparison = Arc::new(Comparison::default());
    let ammo = Box::new(Cursor::new(b"GET /a\nGET /b\n".to_vec()));
    let answers: (&str, Box<dyn std::io::BufRead + Send>, _) =
        ("answers", Box::new(Cursor::new(bytes.to_vec())), Arc::clone(&comparison));
    let Ok(mut ammo) = Ammo::of_streams(("ammo", ammo), Some(answers), options(Some(Format::Urls), OnBroken::Stop))
    else {
        return;
    };
    let mut comparer = comparison.comparer();
    while let Ok(Some(described)) = ammo.next(&mut Vec::new()) {
        let reply = ObservedReply { status: described.expected_status, body: bytes, is_cut: false };
        comparer.observe(&Observed { index: described.index, tag: described.tag, reply: Some(reply) });
    }
    let _ = comparison.differences().to_string();
}

/// Two bodies: each equals itself, and the comparison is symmetric.
pub(crate) fn check_bodies(one: &[u8], other: &[u8]) {
    let verdict = |expected: &[u8], received: &[u8]| {
        let comparison = Arc::new(Comparison::default());
        let expected = loadtest::answers::Expected { status: 200, body: Some(expected.to_vec()), ..Default::default() };
        comparison.expect(0, b"", expected);
        let reply = ObservedReply { status: 200, body: received, is_cut: false };
        comparison.comparer().observe(&Observed { index: 0, tag: 0, reply: Some(reply) })
    };
    assert_eq!(verdict(one, one), ReplyVerdict::Right);
    assert_eq!(verdict(one, other), verdict(other, one));
}
