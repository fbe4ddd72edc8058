//! Outputs of a run: the summary on standard output, files, and failed conditions for the caller.
//!
//! The command line fills [`Outputs`] and calls [`Outputs::check`] before the run, so that a missing folder is reported before an
//! hour of load and not after it. A file is written under another name and then renamed: a reader never sees a part of it.

use crate::fail_if::{self, FailIf};
use crate::recording::Recording;
use crate::versus::SideBySide;
use crate::{hdr, json, page, table};
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Largest file of a recording in bytes. The longest run has about two million.
const RECORDING_BYTES_MAX: u64 = 64 << 20;

/// The outputs that the user requested.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// `--json`: one JSON object instead of the table.
    pub is_json: bool,
    /// `--report FILE.html`
    pub report: Option<PathBuf>,
    /// `--hdr FILE`
    pub hdr: Option<PathBuf>,
    /// `--record FILE`: the recording itself, which a later run's `--compare` reads.
    pub record: Option<PathBuf>,
    /// `--fail-if CONDITION`, repeatable.
    pub fail_if: Vec<FailIf>,
}

/// A file that cannot be written or read: its name and the reason.
#[derive(Debug)]
pub struct OutputError {
    path: PathBuf,
    reason: String,
}

impl fmt::Display for OutputError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path.display(), self.reason)
    }
}

impl std::error::Error for OutputError {}

impl OutputError {
    fn new(path: &Path, reason: impl fmt::Display) -> OutputError {
        OutputError { path: path.to_owned(), reason: reason.to_string() }
    }
}

impl Outputs {
    /// Checks whether the files can be written, as far as that can be known before the run.
    pub fn check(&self) -> Result<(), OutputError> {
        for path in [&self.report, &self.hdr, &self.record].into_iter().flatten() {
            let folder = folder_of(path);
            if !folder.is_dir() {
                return Err(OutputError::new(path, format!("the folder {} is not there", folder.display())));
            }
            if path.is_dir() {
                return Err(OutputError::new(path, "is a folder, not a file"));
            }
        }
        Ok(())
    }

    /// Writes the files, and the summary with lines of `width` characters to `summary`. With a comparison the summary is that of
    /// the comparison. Returns a line for each condition by which the run has failed; if there is any, the command ends with
    /// status 1.
    pub fn deliver(
        &self,
        run: &Recording,
        comparison: Option<&SideBySide>,
        width: usize,
        summary: &mut impl Write,
    ) -> Result<Vec<String>, OutputError> {
        let text = match (self.is_json, comparison) {
            (true, None) => json::text(run) + "\n",
            (true, Some(comparison)) => comparison.json() + "\n",
            (false, None) => table::text(run, width),
            (false, Some(comparison)) => table::text(run, width) + "\n" + &comparison.text(),
        };
        if let Some(path) = &self.report {
            replace(path, page::html(run, comparison).as_bytes())?;
        }
        if let Some(path) = &self.hdr {
            let mut log = Vec::new();
            hdr::write(run, &mut log).map_err(|error| OutputError::new(path, error))?;
            replace(path, &log)?;
        }
        if let Some(path) = &self.record {
            let bytes = serde_json::to_vec(run).map_err(|error| OutputError::new(path, error))?;
            replace(path, &bytes)?;
        }
        // Last: a summary that cannot be written costs no file.
        match summary.write_all(text.as_bytes()).and_then(|()| summary.flush()) {
            // Its reader has closed the pipe (`… | head`), and has what it wants.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(OutputError::new(Path::new("standard output"), error));
            }
            _ => {}
        }
        Ok(fail_if::failures(&self.fail_if, run))
    }
}

/// Writes the page of one phase into an existing folder, and returns its path.
pub(crate) fn phase_report(folder: &Path, number: usize, run: &Recording) -> Result<PathBuf, OutputError> {
    let path = folder.join(format!("phase-{number}.html"));
    replace(&path, page::html(run, None).as_bytes())?;
    Ok(path)
}

/// Reads a recording that `--record` wrote, for `--compare`.
pub fn read_recording(path: &Path) -> Result<Recording, OutputError> {
    let error_of = |reason: &dyn fmt::Display| OutputError::new(path, reason);
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| error_of(&error))?;
    file.take(RECORDING_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error_of(&error))?;
    if bytes.len() as u64 > RECORDING_BYTES_MAX {
        return Err(error_of(&format!("is larger than {} MB, so it is no recording", RECORDING_BYTES_MAX >> 20)));
    }
    serde_json::from_slice(&bytes).map_err(|error| error_of(&format!("is no recording of --record: {error}")))
}

/// The folder of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file atomically. A device or a pipe, such as `/dev/stdout`, is written directly.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), OutputError> {
    let is_special = path.metadata().is_ok_and(|metadata| !metadata.is_file());
    let written = if is_special {
        std::fs::write(path, bytes)
    } else {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = folder_of(path).join(name);
        std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, path))
    };
    written.map_err(|error| OutputError::new(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run::{self, Shape};

    fn delivered(outputs: &Outputs, comparison: Option<&SideBySide>) -> (String, Vec<String>) {
        let mut summary = Vec::new();
        let run = sample_run::recording(Shape::Stall);
        let failures = outputs.deliver(&run, comparison, 100, &mut summary).unwrap();
        (String::from_utf8(summary).unwrap(), failures)
    }

    #[test]
    fn all_files_are_written_and_a_recording_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| Some(folder.path().join(name));
        let outputs = Outputs {
            report: file("run.html"),
            hdr: file("run.hdr"),
            record: file("run.json"),
            fail_if: vec!["p50>1s".parse().unwrap(), "errors>1%".parse().unwrap()],
            ..Outputs::default()
        };
        outputs.check().unwrap();
        let (summary, failures) = delivered(&outputs, None);
        assert!(summary.contains("service time") && failures.len() == 1, "{summary} {failures:?}");
        let mut names: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["run.hdr", "run.html", "run.json"]);
        let (run, read) =
            (sample_run::recording(Shape::Stall), read_recording(&folder.path().join("run.json")).unwrap());
        assert_eq!(read.latencies.latency, run.latencies.latency);
        assert_eq!((read.outcome.statuses, read.intervals), (run.outcome.statuses, run.intervals));
        assert_eq!((read.server.len(), read.phases.len()), (run.server.len(), run.phases.len()));
    }

    /// Fails each write with this kind.
    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_summary_that_cannot_be_written_costs_no_file_and_one_that_is_not_read_is_no_error() {
        let run = sample_run::recording(Shape::Calm);
        for (kind, is_error) in [(ErrorKind::BrokenPipe, false), (ErrorKind::StorageFull, true)] {
            let folder = tempfile::tempdir().unwrap();
            let outputs = Outputs { record: Some(folder.path().join("run.json")), ..Outputs::default() };
            let delivered = outputs.deliver(&run, None, 100, &mut Failing(kind));
            assert_eq!(delivered.is_err(), is_error, "{kind}");
            assert!(folder.path().join("run.json").exists(), "{kind}");
        }
    }

    #[test]
    fn the_summary_is_json_where_that_is_asked() {
        let outputs = Outputs { is_json: true, ..Outputs::default() };
        let [calm, stall] = [Shape::Calm, Shape::Stall].map(sample_run::recording);
        let comparison = SideBySide::of_runs(&calm, &stall);
        for (comparison, key) in [(None, "latency_us"), (Some(&comparison), "figures")] {
            let (summary, _) = delivered(&outputs, comparison);
            let object: serde_json::Value = serde_json::from_str(&summary).unwrap();
            assert!(object[key].is_object() && summary.lines().count() == 1, "{summary}");
        }
        let (summary, _) = delivered(&Outputs::default(), Some(&comparison));
        assert!(summary.contains("B / A"), "{summary}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_told_before_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Outputs { report: Some(folder.path().join("no/run.html")), ..Outputs::default() };
        assert!(missing.check().unwrap_err().to_string().contains("is not there"));
        let a_folder = Outputs { hdr: Some(folder.path().to_owned()), ..Outputs::default() };
        assert!(a_folder.check().unwrap_err().to_string().contains("is a folder"));
        let here = Outputs { record: Some("run.json".into()), ..Outputs::default() };
        here.check().unwrap();
    }

    #[test]
    fn a_file_that_is_no_recording_is_an_error_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        std::fs::write(&path, "{}").unwrap();
        let error = read_recording(&path).unwrap_err().to_string();
        assert!(error.contains("x.json") && error.contains("no recording"), "{error}");
    }
}
