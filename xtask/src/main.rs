//! Tasks of the project: test, bench, fuzz, crash.
fn main() {}
