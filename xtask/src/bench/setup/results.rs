//! `bench/RESULTS.md`: the latest run of every command with its date, machine and commit, including rows that miss their
//! bound. Earlier runs are in the file's history.

use crate::tools;
use std::fmt::Write as _;
use std::process::Command;

/// Largest permitted cost of a change beside an earlier revision.
pub(in crate::bench) const COST_MOST: f64 = 1.03;

/// One measured row.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Row {
    /// The measured work.
    pub(in crate::bench) work: String,
    /// The other side's result, with its unit.
    pub(in crate::bench) other: String,
    /// Our result, with its unit.
    pub(in crate::bench) ours: String,
    /// The judged figure.
    pub(in crate::bench) figure: String,
    /// Its bound.
    pub(in crate::bench) bound: String,
    /// Whether the bound is met.
    pub(in crate::bench) reached: bool,
    /// Spread of equal runs.
    pub(in crate::bench) noise: String,
}

impl Row {
    pub(in crate::bench) fn print(&self) {
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

/// Records one run, replacing the previous one of the same command.
pub(in crate::bench) fn record(command: &str, rows: &[Row]) -> Result<(), String> {
    let path = tools::root().join("bench/RESULTS.md");
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let before = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.map_err(failed)?,
    };
    let text = without(&before, command) + &section(command, rows);
    // Written under another name and renamed, so that the old text stays until the new one is complete.
    let beside = path.with_extension("md.new");
    std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, &path)).map_err(failed)
}

/// A run as text: heading, machine, table.
fn section(command: &str, rows: &[Row]) -> String {
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
    text
}

/// `text` without the sections whose heading ends with `command`.
fn without(text: &str, command: &str) -> String {
    let ending = format!("— `{command}`");
    let mut kept = String::with_capacity(text.len());
    let mut is_old = false;
    for line in text.split_inclusive('\n') {
        if line.starts_with("## ") {
            is_old = line.trim_end().ends_with(&ending);
        }
        if !is_old {
            kept.push_str(line);
        }
    }
    kept.truncate(kept.trim_end().len());
    if !kept.is_empty() {
        kept.push('\n');
    }
    kept
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_takes_the_place_of_the_one_of_its_command_alone() {
        let before = "# Results\n\n## d1 — `bench a`\n\n| old |\n\n## d2 — `bench a full`\n\n| kept |\n";
        assert_eq!(without(before, "bench a"), "# Results\n\n## d2 — `bench a full`\n\n| kept |\n");
        assert_eq!(without(before, "bench b"), before);
        assert_eq!(without("", "bench a"), "");
    }
}
