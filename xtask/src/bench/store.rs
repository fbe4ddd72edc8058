//! `cargo xtask bench store`: the store compared with LMDB, redb, fjall, RocksDB and SQLite, in one program and one run.
//!
//! The program is a separate workspace, `bench/peers`, so that testing the project does not build the peers. RocksDB needs
//! libclang and many minutes of compiling: if it cannot be built, the run continues without it and says so.

use super::setup::results::{Row, record};
use crate::tools;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The beginning of a row's line; fields are separated by tabs.
const ROW: &str = "row\t";
const FIELDS: usize = 7;

/// The selection of work.
#[derive(Debug, Default, PartialEq, Eq)]
struct Choice {
    quick: bool,
    without_rocksdb: bool,
    /// Rows and engines to run; all if empty.
    rows: Option<String>,
    engines: Option<String>,
    /// Seconds of the steady updates, instead of ten minutes.
    seconds: Option<String>,
}

impl Choice {
    fn parse(arguments: &[String]) -> Result<Choice, String> {
        let mut choice = Choice::default();
        for argument in arguments {
            match argument.split_once('=') {
                None if argument == "--quick" => choice.quick = true,
                None if argument == "--without-rocksdb" => choice.without_rocksdb = true,
                Some(("--rows", names)) => choice.rows = Some(names.to_owned()),
                Some(("--engines", names)) => choice.engines = Some(names.to_owned()),
                Some(("--seconds", number)) => choice.seconds = Some(number.to_owned()),
                _ => {
                    return Err(format!(
                        "`{argument}` is not known; allowed: --quick, --rows=A,B, --engines=A,B, --seconds=N (of --rows=steady), --without-rocksdb"
                    ));
                }
            }
        }
        Ok(choice)
    }

    /// The command as it was given, for the record.
    fn text(&self) -> String {
        let mut text = "cargo xtask bench store".to_owned();
        for (name, value) in [("rows", &self.rows), ("engines", &self.engines), ("seconds", &self.seconds)] {
            if let Some(value) = value {
                text.push_str(&format!(" --{name}={value}"));
            }
        }
        text
    }
}

pub(super) fn run(arguments: &[String]) -> Result<(), String> {
    let choice = Choice::parse(arguments)?;
    let program = build(!choice.without_rocksdb && has_libclang())?;
    // Next to the build, not in /tmp, which may be in memory: durable commits must be measured on a disk.
    let folder = tools::root().join("bench/peers/target/data");
    let mut command = Command::new(program);
    command.arg("--folder").arg(folder);
    if choice.quick {
        command.arg("--quick");
    }
    for (name, value) in [("--rows", &choice.rows), ("--engines", &choice.engines), ("--seconds", &choice.seconds)] {
        if let Some(value) = value {
            command.args([name, value]);
        }
    }
    let rows = rows_of(&mut command)?;
    if choice.quick || rows.is_empty() { Ok(()) } else { record(&choice.text(), &rows) }
}

/// Builds the program; without RocksDB if that does not build.
fn build(with_rocksdb: bool) -> Result<PathBuf, String> {
    tools::require("cc", "build-essential")?;
    let manifest = tools::root().join("bench/peers/Cargo.toml");
    let cargo = |features: &[&str]| {
        let mut command = Command::new("cargo");
        command.args(["build", "--release", "--locked", "--manifest-path"]).arg(&manifest).args(features);
        // A separate folder: other features of the same libraries would invalidate the project's build.
        tools::run_with(command.env("CARGO_TARGET_DIR", tools::root().join("bench/peers/target")))
    };
    if !with_rocksdb {
        eprintln!("xtask: without RocksDB, which needs libclang (Debian's package is libclang-dev) and a C++ compiler");
        cargo(&[])?;
    } else if let Err(message) = cargo(&["--features", "rocksdb"]) {
        eprintln!("xtask: RocksDB does not build, the run goes on without it ({message})");
        cargo(&[])?;
    }
    Ok(tools::root().join("bench/peers/target/release/peers"))
}

/// Whether a libclang is in one of the usual folders.
fn has_libclang() -> bool {
    let is_libclang = |name: &str| name.starts_with("libclang.so") || name.starts_with("libclang-");
    let holds_it = |folder: PathBuf| {
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
        names.into_iter().any(|entry| entry.file_name().to_str().is_some_and(is_libclang))
    };
    let llvm = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let llvm = llvm.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains("llvm"));
    let mut folders: Vec<PathBuf> = llvm.map(|path| path.join("lib")).collect();
    folders.extend(
        ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"].map(PathBuf::from),
    );
    folders.extend(std::env::var_os("LIBCLANG_PATH").map(PathBuf::from));
    tools::is_on_path("c++") && folders.into_iter().any(holds_it)
}

/// Runs a comparison and collects its rows; each is printed when it arrives.
pub(super) fn rows_of(command: &mut Command) -> Result<Vec<Row>, String> {
    let mut child = command
        .current_dir(tools::root())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start the comparison: {error}"))?;
    let output = child.stdout.take().ok_or("the comparison gave no output")?;
    let mut rows = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| format!("reading the comparison's output: {error}"))?;
        if let Some(row) = parse_row(&line)? {
            row.print();
            rows.push(row);
        }
    }
    let status = child.wait().map_err(|error| format!("waiting for the comparison: {error}"))?;
    if status.success() { Ok(rows) } else { Err(format!("the comparison ended with {status}")) }
}

/// Parses a line of the comparison's output; other lines give nothing.
fn parse_row(line: &str) -> Result<Option<Row>, String> {
    let Some(fields) = line.strip_prefix(ROW) else { return Ok(None) };
    let fields: Vec<String> = fields.split('\t').map(str::to_owned).collect();
    let Ok([work, other, ours, figure, bound, verdict, noise]) = <[String; FIELDS]>::try_from(fields) else {
        return Err(format!("a row of the comparison has not {FIELDS} fields: {line}"));
    };
    Ok(Some(Row { work, other, ours, figure, bound, reached: verdict == "reached", noise }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_from_its_line_and_other_lines_are_passed_over() {
        let line = "row\tscans\tLMDB 9M/s\t20M/s\t2.2 × LMDB\t≥ 2.00 ×\treached\t3 %";
        let row = parse_row(line).unwrap().unwrap();
        assert_eq!((row.work.as_str(), row.noise.as_str(), row.reached), ("scans", "3 %", true));
        assert!(parse_row("loading LMDB").unwrap().is_none());
        assert!(parse_row("row\ttoo\tfew").is_err());
    }

    #[test]
    fn what_is_asked_for_is_kept_and_what_is_unknown_is_refused() {
        let arguments = ["--quick", "--rows=reads,loads", "--engines=lmdb"].map(str::to_owned);
        let choice = Choice::parse(&arguments).unwrap();
        assert!(choice.quick && !choice.without_rocksdb);
        assert_eq!(choice.text(), "cargo xtask bench store --rows=reads,loads --engines=lmdb");
        assert!(Choice::parse(&["reads".to_owned()]).is_err());
    }
    /// The peers have a separate lock file, and the tests do not build them: a new dependency of the store must be added there
    /// too (`cargo build --offline --manifest-path bench/peers/Cargo.toml` does it), or the comparison does not start.
    #[test]
    fn what_the_store_uses_is_in_the_peers_lock_file_too() {
        let read = |path: &str| std::fs::read_to_string(tools::root().join(path)).unwrap();
        let (manifest, lock) = (read("crates/store/Cargo.toml"), read("bench/peers/Cargo.lock"));
        let (_, uses) = manifest.split_once("\n[dependencies]\n").unwrap();
        let uses =
            uses.split("\n[").next().unwrap().lines().filter(|line| !line.is_empty() && !line.contains("optional"));
        let (_, locked) = lock.split_once("name = \"store\"\n").unwrap();
        let locked = locked.split("\n\n").next().unwrap();
        for name in uses.map(|line| line.split(['.', ' ', '=']).next().unwrap()) {
            let is_there = |entry: &str| locked.contains(&format!("\"{name}{entry}"));
            assert!(is_there("\"") || is_there(" "), "`{name}` is missing in bench/peers/Cargo.lock: {locked}");
        }
    }
}
