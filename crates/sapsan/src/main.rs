//! One config file becomes a JSON service: the command line and the library facade.
fn main() {}
