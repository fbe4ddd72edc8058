//! The counts of the tests that were run, and the steps of a check.

use crate::programs;
use std::time::Instant;

/// Sum of the results of the test binaries.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    skipped: u64,
    /// The part of `skipped` that libtest counts as passed.
    skipped_as_passed: u64,
}

impl Tally {
    /// Adds a line of libtest's form `test result: ok. 3 passed; 0 failed; 1 ignored; …`, or the line of a test that skipped
    /// itself at run time, which libtest counts as passed. Other lines are ignored.
    pub(crate) fn add(&mut self, line: &str) {
        if line.starts_with("SKIPPED: ") {
            self.skipped += 1;
            self.skipped_as_passed += 1;
        }
        let Some(rest) = line.strip_prefix("test result: ") else { return };
        let counts = rest.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }

    /// The counts for the closing line.
    pub(crate) fn summary(&self) -> String {
        let passed = self.passed.saturating_sub(self.skipped_as_passed);
        format!("{passed} passed, {} failed, {} skipped", self.failed, self.skipped)
    }
}

/// One step of a check: prints its begin, and its outcome and duration at the end.
pub(crate) fn step(name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("== {name}");
    let started = Instant::now();
    let outcome = work();
    println!(
        "== {name}: {} in {:.0} s",
        if outcome.is_ok() { "done" } else { "FAILED" },
        started.elapsed().as_secs_f64()
    );
    outcome
}

/// Builds and runs the test programs that cargo selects by these arguments, and counts their tests. `prepare` runs during the build.
pub(crate) fn run_programs(tally: &mut Tally, targets: &[&str], prepare: impl FnOnce() + Send) -> Result<(), String> {
    let mut failed = Vec::new();
    programs::run(targets, prepare, |ended| {
        println!("== {}: {:.0} s\n{}", ended.name, ended.took.as_secs_f64(), ended.output);
        ended.output.lines().for_each(|line| tally.add(line));
        match ended.status {
            Ok(status) if status.success() => {}
            Ok(status) => failed.push(format!("{} ended with {status}", ended.name)),
            Err(why) => failed.push(why),
        }
    })?;
    if failed.is_empty() {
        return Ok(());
    }
    // An aborted program prints no result line: the closing line must not report that nothing failed.
    tally.failed = tally.failed.max(1);
    Err(failed.join("; "))
}

#[cfg(test)]
mod counting {
    use super::Tally;

    #[test]
    fn result_lines_are_added_up_and_others_ignored() {
        let mut tally = Tally::default();
        for line in [
            "running 4 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s",
            "test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
            "12 passed; 3 failed",
            "SKIPPED: the train data is not there",
        ] {
            tally.add(line);
        }
        assert_eq!(tally, Tally { passed: 5, failed: 5, skipped: 2, skipped_as_passed: 1 });
    }
}
