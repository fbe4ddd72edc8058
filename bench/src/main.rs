//! Load client of the open model and the recorded results.
fn main() {}
