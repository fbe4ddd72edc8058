//! `cargo xtask bench bank [--quick] [--application PROGRAM]`: the bank beside the stack that contestants tuned, under the contest's load
//! and scored as there: 100 points for each right page, 2 for each right asset (`apps/bank/load`).
//!
//! The other side is nginx, a Go application (`bench/peers/bank-stack`), Redis and MariaDB. All programs of a side share the cores of
//! the server; the load has the other ones. Both sides hold the same generated data, and a closed load of the same requests runs against them
//! in turns. `--application` puts another program in the place of the Go application, such as one of the contest's (`stack.rs` says
//! how it is started).
//!
//! Nothing is installed: a missing program is an error that says where to get it.

mod programs;
mod reply;
mod stack;

use super::setup::process::{Server, free_address};
use super::setup::results::{Row, record};
use super::{Cores, median, spread};
use crate::{dist, tools};
use programs::Programs;
use stack::Stack;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

const COMMAND: &str = "cargo xtask bench bank";
/// Smallest permitted score, relative to the other side's.
const SCORE_LEAST: f64 = 3.0;
const CONNECTIONS: u32 = 64;
/// Users of the bank, as many as the contest's.
const USERS: &str = "200000";
const ROUNDS: usize = 3;
const SECONDS: u32 = 20;
const QUICK_SECONDS: u32 = 5;
/// The static files: the contest's names, and sizes in bytes. What they contain does not matter.
const ASSETS: [(&str, usize); 4] = [
    ("stylesheets/bootstrap.min.css", 109_518),
    ("stylesheets/bootflat.min.css", 53_197),
    ("stylesheets/isucon-bank.css", 660),
    ("images/isucon-bank.png", 16_456),
];

/// What the command line says.
#[derive(Debug, Default, PartialEq)]
struct Options {
    is_quick: bool,
    /// A program in the place of our Go application.
    application: Option<PathBuf>,
}

/// Programs, cores and folders of one run.
struct Stage {
    cores: Cores,
    seconds: u32,
    folder: tempfile::TempDir,
    bank: PathBuf,
    sapsan: PathBuf,
}

/// One side: a name for its files, and the address that takes the load.
struct Side<'s> {
    name: &'static str,
    address: SocketAddr,
    cpu_seconds: &'s dyn Fn() -> f64,
}

/// Results of one run of the load.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Outcome {
    points: f64,
    right: f64,
    errors: f64,
    /// CPU of all programs of the side, in seconds per second of a core.
    busy: f64,
    /// CPU of all programs of the side for a right reply, in microseconds.
    cpu_us: f64,
}

pub(super) fn run(arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    let programs = Programs::find(options.application.is_none())?;
    let stage = Stage::set(&options)?;
    let application = match &options.application {
        Some(application) => application.clone(),
        None => programs.build_application(stage.folder.path())?,
    };
    let name = application.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let [users, log] = stage.data()?;
    let assets = stage.assets()?;
    let bank = stage.bank(&users, &log, &assets)?;
    let data = stack::Data { users: &users, log: &log, assets: &assets };
    let stack = Stack::start(&programs, &application, &data, stage.folder.path(), &stage.cores)?;
    let difference = reply::reports_differ(bank.address, stack.address())?;
    let ours = Side { name: "ours", address: bank.address, cpu_seconds: &|| bank.cpu_seconds() };
    let theirs = Side { name: "theirs", address: stack.address(), cpu_seconds: &|| stack.cpu_seconds() };
    let outcomes = stage.rounds(&ours, &theirs, &users, if options.is_quick { 1 } else { ROUNDS })?;
    let row = row(&name, difference, stage.seconds, &outcomes);
    row.print();
    let command =
        if options.application.is_some() { format!("{COMMAND} --application {name}") } else { COMMAND.into() };
    if options.is_quick { Ok(()) } else { record(&command, &[row]) }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--quick" => options.is_quick = true,
            "--application" => {
                let program = words.next().ok_or("`--application` needs the path of a program")?;
                let found = std::fs::canonicalize(program).map_err(|error| format!("{program}: {error}"))?;
                options.application = Some(found);
            }
            _ => return Err(format!("`{word}` is not known; allowed: --quick, --application PROGRAM")),
        }
    }
    Ok(options)
}

impl Stage {
    /// Builds the bank and the load tester.
    fn set(options: &Options) -> Result<Stage, String> {
        let ours = dist::build(&["--package", "sapsan", "--package", "bank", "--bin", "sapsan", "--bin", "bank"])?;
        // Next to the build, not in /tmp, which may be in memory: durable writes must be measured on a disk.
        let target = tools::target();
        let folder = std::fs::create_dir_all(&target).and_then(|()| tempfile::tempdir_in(&target));
        let folder = folder.map_err(|error| format!("a temporary folder in {}: {error}", target.display()))?;
        let seconds = if options.is_quick { QUICK_SECONDS } else { SECONDS };
        let (bank, sapsan) = (ours.join("bank"), ours.join("sapsan"));
        Ok(Stage { cores: Cores::of_machine(), seconds, folder, bank, sapsan })
    }

    /// Generates customers and attempts; returns the two files.
    fn data(&self) -> Result<[PathBuf; 2], String> {
        let files = self.folder.path().join("files");
        tools::run_with(Command::new(&self.bank).args(["generate", "--users", USERS, "--seed", "1"]).arg(&files))?;
        Ok(["users.tsv", "log.tsv"].map(|name| files.join(name)))
    }

    /// Makes the static files up; returns their folder.
    fn assets(&self) -> Result<PathBuf, String> {
        let folder = self.folder.path().join("www");
        for (name, bytes) in ASSETS {
            let file = folder.join(name);
            let made = file.parent().map_or(Ok(()), std::fs::create_dir_all);
            let written = made.and_then(|()| std::fs::write(&file, "b".repeat(bytes)));
            written.map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(folder)
    }

    /// Imports the data into the bank and serves it.
    fn bank(&self, users: &Path, log: &Path, assets: &Path) -> Result<Server, String> {
        let (data, address) = (self.folder.path().join("bank"), free_address()?);
        let mut import = Command::new(&self.bank);
        import.args(["import", "--data"]).arg(&data).arg("--users").arg(users).arg("--log").arg(log);
        tools::run_with(&mut import)?;
        let [data, assets] = [&data, assets].map(|path| path.display().to_string());
        let (http, threads) = (address.to_string(), self.cores.threads.to_string());
        // The load says which address each login comes from.
        let trust = ["--trusted-proxy", "127.0.0.1"];
        let arguments = ["serve", "--data", &data, "--http", &http, "--assets", &assets, "--threads", &threads];
        let arguments: Vec<String> = arguments.iter().chain(&trust).map(|word| (*word).to_owned()).collect();
        Server::start(&self.cores.server, &self.bank, &arguments, address)
    }

    /// Runs the load against both sides in turns; returns theirs and ours of each round.
    fn rounds(
        &self,
        ours: &Side<'_>,
        theirs: &Side<'_>,
        users: &Path,
        rounds: usize,
    ) -> Result<Vec<[Outcome; 2]>, String> {
        for side in [theirs, ours] {
            let url = format!("http://{}", side.address);
            tools::run_with(ammo_command("make").arg(url).arg(users).arg(self.ammo(side)))?;
        }
        let mut outcomes = Vec::new();
        for round in 1..=rounds {
            let pair = [self.load(theirs)?, self.load(ours)?];
            println!("round {round}: theirs {}; ours {}", figures(&pair[0]), figures(&pair[1]));
            outcomes.push(pair);
        }
        Ok(outcomes)
    }

    /// The folder of a side's requests: each side signs the cookies of its own sessions.
    fn ammo(&self, side: &Side<'_>) -> PathBuf {
        self.folder.path().join(side.name)
    }

    /// Runs the load against one side.
    fn load(&self, side: &Side<'_>) -> Result<Outcome, String> {
        let ammo = self.ammo(side);
        let [requests, answers] = ["ammo.ndjson", "answers.ndjson"].map(|name| ammo.join(name).display().to_string());
        let (url, connections) = (format!("http://{}", side.address), CONNECTIONS.to_string());
        let (duration, threads) = (format!("{}s", self.seconds), self.cores.threads.to_string());
        let mut command = Command::new("taskset");
        command.args(["-c", &self.cores.load]).arg(&self.sapsan).args(["loadtest", &url, "--ammo", &requests]);
        command.args(["--answers", &answers, "--connections", &connections, "--duration", &duration]);
        let (before, started) = ((side.cpu_seconds)(), Instant::now());
        let text = output(command.args(["--threads", &threads, "--json"]))?;
        let (cpu, took) = ((side.cpu_seconds)() - before, started.elapsed().as_secs_f64());
        let run = ammo.join("run.json");
        std::fs::write(&run, text).map_err(|error| format!("{}: {error}", run.display()))?;
        let score = output(ammo_command("score").arg(&ammo).arg(&run))?;
        let [right, errors, points] =
            parse_score(&score).ok_or_else(|| format!("ammo.py printed no score: {score}"))?;
        Ok(Outcome { points, right, errors, busy: cpu / took, cpu_us: cpu * 1e6 / right })
    }
}

/// A command of the contest's load.
fn ammo_command(name: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg(tools::root().join("apps/bank/load/ammo.py")).arg(name);
    command
}

/// Runs a command and returns its standard output.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    Err(format!("{command:?} ended with {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Right replies, errors and points in the line that `ammo.py score` prints.
fn parse_score(text: &str) -> Option<[f64; 3]> {
    let (right, rest) = text.split_once(" right replies in ")?;
    let (errors, points) = rest.split_once(" s, ")?.1.split_once(" errors: ")?;
    let numbers = [right, errors, points.trim_end().strip_suffix(" points")?].map(|number| number.parse().ok());
    let [Some(right), Some(errors), Some(points)] = numbers else { return None };
    Some([right, errors, points])
}

fn figures(outcome: &Outcome) -> String {
    format!(
        "{:.0} points, {:.0} errors, {:.1} µs CPU a reply, {:.2} cores busy",
        outcome.points, outcome.errors, outcome.cpu_us, outcome.busy
    )
}

/// The row of all rounds, each with theirs and ours.
fn row(application: &str, difference: Option<String>, seconds: u32, rounds: &[[Outcome; 2]]) -> Row {
    let side = |place: usize| {
        let middle = |of: fn(&Outcome) -> f64| median(rounds.iter().map(|pair| of(&pair[place])).collect());
        figures(&Outcome {
            points: middle(|run| run.points),
            right: middle(|run| run.right),
            errors: middle(|run| run.errors),
            busy: middle(|run| run.busy),
            cpu_us: middle(|run| run.cpu_us),
        })
    };
    let ratios: Vec<f64> = rounds.iter().map(|[theirs, ours]| ours.points / theirs.points).collect();
    let ratio = median(ratios.clone());
    Row {
        work: format!(
            "the contest's load, {CONNECTIONS} connections, {USERS} users, {} × {seconds} s each, beside nginx, {application}, Redis \
             and MariaDB{}",
            rounds.len(),
            difference.map(|text| format!(" ({text})")).unwrap_or_default()
        ),
        other: side(0),
        ours: side(1),
        figure: format!("score {ratio:.2} ×"),
        bound: format!("≥ {SCORE_LEAST:.2} ×"),
        reached: ratio >= SCORE_LEAST && rounds.iter().all(|[_, ours]| ours.errors == 0.0),
        noise: format!("{:.0} %", spread(&ratios) * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn scored(points: f64, errors: f64) -> Outcome {
        Outcome { points, right: 10.0, errors, busy: 1.0, cpu_us: 5.0 }
    }

    #[test]
    fn the_line_of_a_score_has_right_replies_errors_and_points() {
        let line = "120034 right replies in 20.0 s, 7 errors: 3423242 points\n";
        assert_eq!(parse_score(line), Some([120_034.0, 7.0, 3_423_242.0]));
        assert_eq!(parse_score("no such file"), None);
        assert_eq!(parse_score("1 right replies in 2 s, x errors: 3 points"), None);
    }

    #[test]
    fn the_command_line_takes_an_application_that_exists() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = std::fs::canonicalize(file.path()).unwrap();
        let given = words(&format!("--quick --application {}", file.path().display()));
        assert_eq!(parse(&given), Ok(Options { is_quick: true, application: Some(path) }));
        assert!(parse(&words("--application")).unwrap_err().contains("path"));
        assert!(parse(&words("--application /no/such/program")).unwrap_err().contains("/no/such/program"));
        assert!(parse(&words("--slow")).unwrap_err().contains("--slow"));
    }

    #[test]
    fn a_row_compares_each_round_and_takes_the_median() {
        let rounds = [
            [scored(10.0, 3.0), scored(40.0, 0.0)],
            [scored(20.0, 4.0), scored(60.0, 0.0)],
            [scored(10.0, 5.0), scored(20.0, 0.0)],
        ];
        let made = row("peer", None, 20, &rounds);
        assert_eq!((made.figure.as_str(), made.reached), ("score 3.00 ×", true));
        assert!(made.other.starts_with("10 points, 4 errors"), "{}", made.other);
        assert!(made.ours.starts_with("40 points, 0 errors"), "{}", made.ours);
    }

    #[test]
    fn a_row_with_errors_of_ours_falls_short() {
        assert!(!row("peer", None, 20, &[[scored(10.0, 0.0), scored(90.0, 1.0)]]).reached);
    }
}
