//! `cargo xtask bench change --before REVISION`: the cost of the working tree compared with an earlier revision, in one run.
//!
//! Both revisions are built, get the same data in separate folders, and are measured in turns: before, after, before. A row gives
//! the median of the ratios of each run to the mean of its two neighbours, and as noise half the width of the middle half of the
//! ratios (the interquartile range). A change may cost 3 %. Ratios of CPU per request (HTTP, durable writes) and of rates (the
//! store, durable writes) are judged. The instructions of a request are counted too ([`instructions`]).
//!
//! A server's speed depends on the placement of its memory: two processes of one binary differed by 5 % for as long as they ran.
//! Therefore each turn over HTTP uses a new process.

use super::setup::process::Server;
use super::setup::results::{COST_MOST, Row, record};
use super::setup::stage::{Imported, Stage};
use super::setup::wrk::{self, Load};
use super::{Effort, http, instructions, median, writes};
use crate::{dist, tools};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Turns of each row; each is divided by the mean of its two neighbours.
const ROUNDS: usize = 11;
const STORE_EXAMPLE: &str = "crates/store/examples/read_rate.rs";

/// The kinds of rows.
const ROWS: [&str; 4] = ["http", "writes", "store", "instructions"];

pub(super) fn run(arguments: &[String]) -> Result<(), String> {
    let (revision, only) = match arguments {
        [flag, revision] if flag == "--before" => (revision, None),
        [flag, revision, only] if flag == "--before" && ROWS.contains(&only.as_str()) => {
            (revision, Some(only.as_str()))
        }
        _ => {
            return Err(
                "wants `--before REVISION`, and behind it `http`, `writes`, `store` or `instructions` for these rows alone".into()
            );
        }
    };
    let wants = |name: &str| only.is_none_or(|only| only == name);
    let programs = Programs::build(revision)?;
    let mut rows = Vec::new();
    if wants("store") {
        rows.extend(store_rows(&programs)?);
    }
    if wants("http") || wants("writes") || wants("instructions") {
        let stage = Stage::set(Effort { rounds: ROUNDS, seconds: 1, record: true })?;
        if wants("instructions") {
            rows.extend(instructions::rows(&stage, &programs.before.join("sapsan"), &stage.sapsan)?);
        }
        if wants("http") || wants("writes") {
            let sides = [
                stage.imported_with("before", programs.before.join("sapsan"))?,
                stage.imported_with("after", stage.sapsan.clone())?,
            ];
            if wants("http") {
                rows.extend(served_rows(&stage, &sides, &http::loads().collect::<Vec<_>>(), Judged::Cpu)?);
            }
            if wants("writes") {
                rows.extend(served_rows(&stage, &sides, &writes::loads().collect::<Vec<_>>(), Judged::Rate)?);
            }
        }
    }
    let only = only.map_or_else(String::new, |only| format!(" {only}"));
    record(&format!("cargo xtask bench change --before {revision}{only}"), &rows)
}

/// Programs of the earlier revision, which has a checkout and a build of its own in `target`, and of the working tree.
struct Programs {
    before: PathBuf,
    after: PathBuf,
}

impl Programs {
    fn build(revision: &str) -> Result<Programs, String> {
        let checkout = tools::target().join("before");
        if checkout.exists() {
            tools::run_with(
                Command::new("git")
                    .arg("-C")
                    .arg(&checkout)
                    .args(["checkout", "--quiet", "--force", "--detach", revision]),
            )?;
        } else {
            tools::run_with(
                Command::new("git").args(["worktree", "add", "--force", "--detach"]).arg(&checkout).arg(revision),
            )?;
        }
        // The same measuring program on both sides; it uses only public calls of the store that have not changed.
        std::fs::copy(tools::root().join(STORE_EXAMPLE), checkout.join(STORE_EXAMPLE))
            .map_err(|error| format!("{STORE_EXAMPLE}: {error}"))?;
        let before = build(&checkout, &checkout.join("target"))?;
        Ok(Programs { before, after: build(&tools::root(), &tools::target())? })
    }
}

fn build(checkout: &Path, target: &Path) -> Result<PathBuf, String> {
    dist::build_in(checkout, target, &["--package", "sapsan"])?;
    dist::build_in(checkout, target, &["--package", "store", "--example", "read_rate"])
}

/// The judged figure of a row.
#[derive(Clone, Copy)]
enum Judged {
    Cpu,
    Rate,
}

/// Loads against both sides; each turn uses a new process, and each load that writes one of its own.
fn served_rows(
    stage: &Stage,
    sides: &[Imported; 2],
    loads: &[(&'static str, Load)],
    judged: Judged,
) -> Result<Vec<Row>, String> {
    let mut turns: Vec<Turns> = loads.iter().map(|_| Turns::default()).collect();
    let mut failures = vec![0; loads.len()];
    let folder = stage.folder.path();
    let mut seed = 0;
    let mut run = |server: &Server, load: &Load| {
        seed += 1;
        wrk::run(server, load, &stage.cores, stage.effort, folder, seed)
    };
    // The checkpoint of what one load wrote would fall into the next load, of one side sooner than of the other.
    let loads_of_process = match judged {
        Judged::Cpu => loads.len(),
        Judged::Rate => 1,
    };
    let numbered: Vec<(usize, &Load)> = loads.iter().map(|(_, load)| load).enumerate().collect();
    for turn in 0..=2 * ROUNDS {
        for together in numbered.chunks(loads_of_process) {
            let server = stage.serve_imported(&sides[turn % 2])?;
            // The first run reads pages that this process has not read.
            together.first().map(|(_, load)| run(&server, load)).transpose()?;
            for (index, load) in together {
                let outcome = run(&server, load)?;
                failures[*index] += outcome.failures;
                turns[*index].push(match judged {
                    Judged::Cpu => outcome.cpu_microseconds,
                    Judged::Rate => 1e6 / outcome.requests_per_second,
                });
            }
            server.terminate()?;
        }
    }
    let unit = match judged {
        Judged::Cpu => "µs CPU a request",
        Judged::Rate => "µs a request",
    };
    let rows = loads.iter().zip(turns).zip(failures).map(|(((name, _), turns), failures)| {
        let mut row = turns.row(name, |cost| format!("{cost:.2} {unit}"));
        if failures > 0 {
            row.reached = false;
            row.work = format!("{name} ({failures} failed)");
        }
        row.print();
        row
    });
    Ok(rows.collect())
}

/// Costs measured in turns: before, after, before, …
#[derive(Default)]
struct Turns(Vec<f64>);

impl Turns {
    fn push(&mut self, cost: f64) {
        self.0.push(cost);
    }

    /// Each cost after the change, divided by the mean of its two neighbours before.
    fn ratios(&self) -> Vec<f64> {
        self.0.windows(3).step_by(2).map(|turn| 2.0 * turn[1] / (turn[0] + turn[2])).collect()
    }

    fn row(&self, name: &str, text: impl Fn(f64) -> String) -> Row {
        let ratio = median(self.ratios());
        let of = |first: usize| text(median(self.0.iter().copied().skip(first).step_by(2).collect()));
        Row {
            work: name.to_owned(),
            other: format!("before: {}", of(0)),
            ours: of(1),
            figure: format!("cost {ratio:.3} ×"),
            bound: format!("≤ {COST_MOST:.2} ×"),
            reached: ratio <= COST_MOST,
            noise: format!("{:.0} %", http::spread(self.ratios()) * 100.0),
        }
    }
}

/// The store's measuring program, which measures once for each line that it receives.
struct Measurer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Measurer {
    fn start(program: &Path, folder: &Path) -> Result<Measurer, String> {
        let mut child = Command::new(program)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else { return Err("no pipes".into()) };
        let mut measurer = Measurer { child, input, output: BufReader::new(output) };
        match measurer.line()?.as_str() {
            "ready" => Ok(measurer),
            other => Err(format!("{} said `{other}` instead of `ready`", program.display())),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| format!("reading the measuring program: {error}"))?;
        Ok(line.trim().to_owned())
    }

    /// Rates of point reads, scanned rows and commits.
    fn measure(&mut self) -> Result<[f64; 3], String> {
        writeln!(self.input).map_err(|error| format!("the measuring program: {error}"))?;
        let line = self.line()?;
        let rates: Vec<f64> = line.split(' ').filter_map(|text| text.parse().ok()).collect();
        rates.try_into().map_err(|_| format!("the measuring program said `{line}` instead of three rates"))
    }
}

impl Drop for Measurer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn store_rows(programs: &Programs) -> Result<Vec<Row>, String> {
    let folder = tempfile::tempdir_in(tools::target()).map_err(|error| format!("a folder: {error}"))?;
    let program = |programs: &Path| programs.join("examples/read_rate");
    let mut sides = [
        Measurer::start(&program(&programs.before), &folder.path().join("before"))?,
        Measurer::start(&program(&programs.after), &folder.path().join("after"))?,
    ];
    let mut turns = [Turns::default(), Turns::default(), Turns::default()];
    for side in &mut sides {
        // The first run reads pages that are not cached.
        side.measure()?;
    }
    for turn in 0..=2 * ROUNDS {
        let rates = sides[turn % 2].measure()?;
        turns.iter_mut().zip(rates).for_each(|(turns, rate)| turns.push(1e9 / rate));
    }
    let names =
        ["store: random point reads, one thread", "store: full scan, a row", "store: durable commits, 64 threads"];
    let rows: Vec<Row> =
        names.iter().zip(&turns).map(|(name, turns)| turns.row(name, |cost| format!("{cost:.0} ns"))).collect();
    rows.iter().for_each(Row::print);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_after_is_divided_by_its_neighbours_before() {
        let turns = Turns(vec![1.0, 2.0, 3.0, 6.0, 1.0]);
        assert_eq!(turns.ratios(), [1.0, 3.0]);
        assert!(!turns.row("x", |cost| cost.to_string()).reached);
    }
}
