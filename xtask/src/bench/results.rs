//! `bench/RESULTS.md`: every run with its date, machine and commit; rows that fall short included.

use crate::tools;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;

/// One measured row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// What was measured.
    pub(super) work: String,
    /// The other side, with its unit.
    pub(super) other: String,
    /// Our side, with its unit.
    pub(super) ours: String,
    /// The figure that is judged.
    pub(super) figure: String,
    /// What it should be.
    pub(super) bound: String,
    /// Whether it is reached.
    pub(super) reached: bool,
    /// How far equal runs differ.
    pub(super) noise: String,
}

impl Row {
    pub(super) fn print(&self) {
        println!(
            "{} | {} | {} | {} (bound {}) {} | noise {}",
            self.work,
            self.other,
            self.ours,
            self.figure,
            self.bound,
            if self.reached { "reached" } else { "SHORT" },
            self.noise
        );
    }
}

/// Appends one run.
pub(super) fn append(command: &str, rows: &[Row]) -> Result<(), String> {
    let mut text = format!(
        "\n## {} — `{command}`\n\n{}; commit {}\n\n| work | other side | ours | figure | bound | | noise |\n|---|---|---|---|---|---|---|\n",
        output("date", &["-u", "+%Y-%m-%d %H:%M"]),
        machine(),
        output("git", &["describe", "--always", "--dirty"]),
    );
    for row in rows {
        let verdict = if row.reached { "reached" } else { "short" };
        // Writing into a String does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {verdict} | {} |",
            row.work, row.other, row.ours, row.figure, row.bound, row.noise
        );
    }
    let path = tools::root().join("bench/RESULTS.md");
    let file = std::fs::OpenOptions::new().append(true).create(true).open(&path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| format!("{}: {error}", path.display()))
}

fn machine() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown CPU", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{model}, {cores} cores, Linux {}", output("uname", &["-r"]).split('-').next().unwrap_or_default())
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(tools::root()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
