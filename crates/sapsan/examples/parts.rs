//! One page of three parts, as a list and joined: `cargo run --release -p sapsan --example parts -- 127.0.0.1:8080`, then
//! `curl localhost:8080/list` and `curl localhost:8080/joined`. `cargo xtask bench web` compares the two.

use sapsan::{App, Html, Parts};

/// What stands before and behind the text of every page.
const HEAD: &str = include_str!("parts/head.html");
const FOOT: &str = include_str!("parts/foot.html");

fn text() -> String {
    format!("<p>{} seats are free.</p>", 3)
}

fn list() -> Parts {
    Parts::html().with(HEAD).with(text()).with(FOOT)
}

fn joined() -> Html<String> {
    Html([HEAD, &text(), FOOT].concat())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: parts ADDRESS:PORT")?;
    App::new().get("/list", list).get("/joined", joined).serve(address.as_str())?;
    Ok(())
}
