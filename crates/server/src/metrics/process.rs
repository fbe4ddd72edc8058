//! Metrics of the process in `/_/metrics`: processor time, memory, descriptors, start; read from procfs (proc(5)) when the page
//! is requested.
//!
//! The names `process_*` are those of Prometheus's client libraries
//! (<https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>), so they lack this server's prefix. A number
//! that the kernel does not provide is left out.

use std::fmt::Write as _;
use std::fs;
use std::sync::LazyLock;

/// Clock ticks a second in `/proc/PID/stat`: fixed at 100 by the kernel's interface to user space.
const TICKS_PER_SECOND: f64 = 100.0;
/// Bytes in the unit of `/proc/PID/status`, which it calls kB.
const STATUS_UNIT_BYTES: f64 = 1024.0;
/// Contains a link for each open descriptor.
const DESCRIPTORS: &str = "/proc/self/fd";

/// Fields of `/proc/PID/stat`, counted behind the command's name (proc_pid_stat(5)).
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const START_TICKS: usize = 19;

/// When the process started, in seconds of Unix time. Computed once, so that rounding never changes it.
static STARTED: LazyLock<Option<f64>> =
    LazyLock::new(|| started(&text("/proc/stat"), stat_field(&text("/proc/self/stat"), START_TICKS)?));

/// Appends the metrics.
pub(crate) fn append(out: &mut String) {
    let (stat, status) = (text("/proc/self/stat"), text("/proc/self/status"));
    let memory = |name: &str| Some(number_behind(&status, name)? * STATUS_UNIT_BYTES);
    for (name, kind, help, value) in [
        (
            "process_cpu_seconds_total",
            "counter",
            "Processor time of all threads, user and system.",
            processor_seconds(&stat),
        ),
        ("process_open_fds", "gauge", "Open descriptors: connections, files, pipes.", open_descriptors()),
        (
            "process_max_fds",
            "gauge",
            "Largest number of open descriptors: the limit of the process.",
            number_behind(&text("/proc/self/limits"), "Max open files"),
        ),
        ("process_resident_memory_bytes", "gauge", "Resident memory, mapped files included.", memory("VmRSS:")),
        ("process_start_time_seconds", "gauge", "Start of the process, Unix time.", *STARTED),
        ("sapsan_memory_anonymous_bytes", "gauge", "Resident anonymous memory.", memory("RssAnon:")),
        (
            "sapsan_memory_mapped_bytes",
            "gauge",
            "Resident pages of mapped files, which are the kernel's.",
            memory("RssFile:"),
        ),
    ] {
        let Some(value) = value else { continue };
        // Writing into a String does not fail.
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }
}

/// A file of procfs; empty if it cannot be read.
fn text(path: &str) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// A field of `/proc/PID/stat`. The command's name, in parentheses, may contain blanks and parentheses.
fn stat_field(stat: &str, index: usize) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(index)?.parse().ok()
}

fn processor_seconds(stat: &str) -> Option<f64> {
    Some((stat_field(stat, USER_TICKS)? + stat_field(stat, SYSTEM_TICKS)?) / TICKS_PER_SECOND)
}

/// The first number of the line that begins with `name`.
fn number_behind(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// The start time of a process that started this many ticks after the machine; `/proc/stat` has the machine's start in seconds of
/// Unix time.
fn started(machine: &str, ticks: f64) -> Option<f64> {
    Some(number_behind(machine, "btime ")? + ticks / TICKS_PER_SECOND)
}

/// Since Linux 6.2 the folder's size is the number of its links. Before that it is 0, and the links are counted.
fn open_descriptors() -> Option<f64> {
    match fs::metadata(DESCRIPTORS).ok()?.len() {
        // Without the descriptor by which the folder is read.
        0 => Some(fs::read_dir(DESCRIPTORS).ok()?.count().saturating_sub(1) as f64),
        count => Some(count as f64),
    }
}

#[cfg(test)]
mod reading {
    use super::{START_TICKS, number_behind, processor_seconds, started, stat_field};

    const STAT: &str = "17 (a (b) c) S 1 17 17 0 -1 4194304 102 0 0 0 1234 66 0 0 20 0 9 0 285875 3133440 412";

    #[test]
    fn fields_are_counted_behind_the_last_parenthesis() {
        assert_eq!(processor_seconds(STAT), Some(13.0));
        assert_eq!(stat_field(STAT, START_TICKS), Some(285_875.0));
        for cut in ["", "17 (a", "17 (a) S 1", "17 (a) S 1 17 17 0 -1 4194304 102 0 0 0 x 66"] {
            assert_eq!(processor_seconds(cut), None, "{cut}");
        }
    }

    #[test]
    fn numbers_are_found_by_the_beginning_of_their_line() {
        let text = "cpu 1 2\nbtime 1795643513\nMax open files            1024                 524288     files\nVmRSS:\t    64 kB\n";
        assert_eq!(number_behind(text, "Max open files"), Some(1024.0));
        assert_eq!(number_behind(text, "VmRSS:"), Some(64.0));
        assert_eq!(number_behind(&text.replace("1024", "unlimited"), "Max open files"), None);
        assert_eq!(number_behind(text, "RssAnon:"), None);
        assert_eq!(started(text, 250.0), Some(1_795_643_515.5));
    }
}
