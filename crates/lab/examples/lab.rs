//! `sapsan lab` without the server, which takes long to build: `cargo run --release -p lab --example lab -- --only 1,12,15`.

use clap::Parser;
use lab::cli::{CommandOutcome, Lab, execute};
use std::time::Duration;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    lab: Lab,
}

fn main() -> Result<(), String> {
    let command = Command::parse();
    let mut notice = |text: &str| eprintln!("{text}");
    if let CommandOutcome::Serving(served) = execute(&command.lab, &mut std::io::stdout().lock(), &mut notice)? {
        eprintln!("listening on http://{}", served.address());
        loop {
            std::thread::sleep(Duration::MAX);
        }
    }
    Ok(())
}
