//! Lines: a path, then patterns, each with a digit for its method before it. The segments are plain ones or parameters.
#![no_main]

use http::Method;

#[path = "../../crates/http/tests/fuzz_check/mod.rs"]
mod fuzz_check;

fn method(line: &str) -> (Method, &str) {
    let number = line.bytes().next().map_or(0, usize::from);
    (Method::ALL[number % Method::ALL.len()], line.get(1..).unwrap_or_default())
}

/// Braces inside a segment are matchit's own affair: they may be refused or taken, and a plain look does not know them.
fn is_plain(pattern: &str) -> bool {
    let whole =
        |part: &str| part.starts_with('{') && part.ends_with('}') && !part[1..part.len() - 1].contains(['{', '}', '*']);
    pattern.split('/').all(|part| !part.contains(['{', '}', '*']) || whole(part))
}

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let (asked, path) = method(lines.next().unwrap_or_default());
    let routes: Vec<(Method, String)> =
        lines.take(16).map(method).map(|(m, pattern)| (m, pattern.to_owned())).collect();
    if routes.iter().all(|(_, pattern)| is_plain(pattern)) {
        fuzz_check::check_routes(&routes, asked, path);
    }
});
