//! The store beside the embedded stores that one would take instead of it: the same work in one program and one run.
//!
//! `peers [--quick] [--rows a,b] [--engines x,y] [--folder DIR] [--seconds N]`, the seconds those of the steady updates;
//! `cargo xtask bench store` builds and runs it and records the rows, which are the lines of standard output that begin
//! with `row`. All data lies in a temporary folder inside `DIR` (the current folder unless given), which must be on a real
//! disk, and is removed at the end.

mod commits;
mod data;
mod disk;
mod engine;
mod engines;
mod rows;
mod stage;
mod table;

use engine::{Kind, Outcome};
use stage::{Effort, Stage};
use std::path::PathBuf;
use std::process::ExitCode;

// As in the project's binary. The engines in C and C++ keep their own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Arguments {
    effort: Effort,
    rows: Vec<String>,
    kinds: Vec<Kind>,
    folder: PathBuf,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((first, rest)) if first == rows::crash::CHILD => rows::crash::live_and_die(rest),
        _ => parse(&arguments).and_then(|arguments| compare(&arguments)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Outcome<Arguments> {
    let available = Kind::ALL.into_iter().filter(|&kind| kind != Kind::RocksDb || cfg!(feature = "rocksdb"));
    let mut parsed =
        Arguments { effort: Effort::FULL, rows: Vec::new(), kinds: available.collect(), folder: PathBuf::from(".") };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--quick" {
            parsed.effort = Effort::QUICK;
            continue;
        }
        let value = rest.next().ok_or_else(|| format!("`{argument}` wants a value"))?;
        match argument.as_str() {
            "--rows" => parsed.rows = value.split(',').map(str::to_owned).collect(),
            "--engines" => parsed.kinds = value.split(',').map(kind).collect::<Outcome<_>>()?,
            "--folder" => parsed.folder = PathBuf::from(value),
            "--seconds" => parsed.effort.steady = std::time::Duration::from_secs(value.parse()?),
            _ => {
                return Err(format!(
                    "`{argument}` is not known; allowed: --quick, --rows, --engines, --folder, --seconds"
                )
                .into());
            }
        }
    }
    let known = |name: &String| rows::GROUPS.iter().any(|group| group.name == name);
    if let Some(unknown) = parsed.rows.iter().find(|name| !known(name)) {
        let names: Vec<_> = rows::GROUPS.iter().map(|group| group.name).collect();
        return Err(format!("no rows `{unknown}`; there are: {}", names.join(", ")).into());
    }
    Ok(parsed)
}

fn kind(name: &str) -> Outcome<Kind> {
    let found = Kind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name));
    Ok(found.ok_or_else(|| format!("no engine `{name}`; there are: {}", Kind::ALL.map(Kind::name).join(", ")))?)
}

fn compare(arguments: &Arguments) -> Outcome<()> {
    let mut stage = Stage::new(&arguments.folder, arguments.effort, arguments.kinds.clone())?;
    for group in rows::GROUPS {
        let is_named = arguments.rows.iter().any(|name| name == group.name);
        if is_named || arguments.rows.is_empty() && !group.is_asked_for {
            eprintln!("== {}", group.name);
            (group.measure)(&mut stage)?;
        }
    }
    Ok(())
}
