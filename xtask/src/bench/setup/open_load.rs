//! Open load by `sapsan loadtest`: requests at planned moments, whatever the server does; latency counts from those moments.

use super::process::Server;
use crate::bench::{Cores, Effort};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Connections of a load, all made before the start.
const CONNECTIONS: u32 = 64;
/// Seconds of a load for each second of the effort.
const SECONDS_FACTOR: u32 = 2;
/// Largest number of lines in ammo that requests single documents. With their paths they fit what the load tester keeps in memory
/// (4 MB).
const IDS_MAX: u64 = 60_000;

/// Quantiles of one run, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::bench) struct Latency {
    pub(in crate::bench) p50: f64,
    pub(in crate::bench) p99: f64,
    pub(in crate::bench) max: f64,
    /// Lateness of the load tester's own sending, 99th percentile.
    pub(in crate::bench) late_p99: f64,
}

/// The load tester, on the cores of the load.
#[derive(Clone, Debug)]
pub(in crate::bench) struct OpenLoad {
    sapsan: PathBuf,
    cores: Cores,
    seconds: u32,
    connections: u32,
}

impl OpenLoad {
    /// Uses this build of `sapsan`.
    pub(in crate::bench) fn by(sapsan: &Path, cores: &Cores, effort: Effort) -> OpenLoad {
        OpenLoad {
            sapsan: sapsan.to_owned(),
            cores: cores.clone(),
            seconds: effort.seconds * SECONDS_FACTOR,
            connections: CONNECTIONS,
        }
    }

    /// The same with this many connections.
    pub(in crate::bench) fn with_connections(self, connections: u32) -> OpenLoad {
        OpenLoad { connections, ..self }
    }

    /// Starts a load with this rate per second, and with lines of ammo (docs/loadtest.md), at most 4 MB.
    pub(in crate::bench) fn start(&self, server: &Server, rate: f64, ammo: &str) -> Result<Child, String> {
        let failed = |error: std::io::Error| format!("cannot start {}: {error}", self.sapsan.display());
        let mut child = Command::new("taskset")
            .args(["-c", &self.cores.load])
            .arg(&self.sapsan)
            .args(["loadtest", &format!("http://{}/", server.address), "--json", "--quiet", "--ammo", "-"])
            .args(["--rate", &format!("{rate:.0}"), "--duration", &format!("{}s", self.seconds)])
            .args(["--connections", &self.connections.to_string(), "--threads", &self.cores.threads.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut input = child.stdin.take().ok_or("the load tester takes no input")?;
        // If it ends before it has read all, its output tells why.
        let _ = input.write_all(ammo.as_bytes());
        Ok(child)
    }

    /// Runs a load whose requests must all be answered correctly.
    pub(in crate::bench) fn measure(&self, server: &Server, rate: f64, ammo: &str) -> Result<Latency, String> {
        quantiles(self.start(server, rate, ammo)?)
    }
}

/// Waits for a load's end, and parses its results.
pub(in crate::bench) fn quantiles(child: Child) -> Result<Latency, String> {
    let output = child.wait_with_output().map_err(|error| format!("the load tester: {error}"))?;
    latency_of(&String::from_utf8_lossy(&output.stdout))
}

/// The latencies in a report of `--json`. Requests without a right answer are an error.
fn latency_of(report: &str) -> Result<Latency, String> {
    let json: Value = serde_json::from_str(report).map_err(|error| format!("the load tester: {error}: {report}"))?;
    if json["errors"] != 0 {
        return Err(format!("requests failed: {report}"));
    }
    let number = |of: &str, name: &str| json[of][name].as_f64().ok_or_else(|| format!("no {of}.{name}: {report}"));
    Ok(Latency {
        p50: number("latency_us", "p50")?,
        p99: number("latency_us", "p99")?,
        max: number("latency_us", "max")?,
        late_p99: number("sending_error_us", "p99")?,
    })
}

/// Ammo of GETs of single documents: `path` followed by the ids 1, 1 + `step` and so on below `end`. If there are too many, an
/// evenly spread selection.
pub(in crate::bench) fn gets_of_ids(path: &str, end: u64, step: u64) -> String {
    let count = end.saturating_sub(1).div_ceil(step);
    let lines = count.min(IDS_MAX);
    (0..lines).map(|line| format!("{path}{}\n", 1 + line * count / lines * step)).collect()
}

#[cfg(test)]
mod reports {
    use super::{IDS_MAX, Latency, gets_of_ids, latency_of};

    #[test]
    fn latencies_are_read_and_requests_that_failed_are_an_error() {
        let report = r#"{"errors":0,"latency_us":{"p50":80.5,"p99":210.0,"max":900.0},"sending_error_us":{"p50":1.0,"p99":17.2},"valid":true}"#;
        assert_eq!(latency_of(report), Ok(Latency { p50: 80.5, p99: 210.0, max: 900.0, late_p99: 17.2 }));
        for wrong in ["", "{}", &report.replace("\"errors\":0", "\"errors\":1"), &report.replace("\"p99\"", "\"p98\"")]
        {
            assert!(latency_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ids_keep_their_step_and_are_spread_over_all() {
        assert_eq!(gets_of_ids("/u/", 30, 12), "/u/1\n/u/13\n/u/25\n");
        let all = gets_of_ids("/u/", 6_000_000, 12);
        let ids: Vec<u64> = all.lines().map(|line| line[3..].parse().expect("an id")).collect();
        assert!(ids.len() as u64 == IDS_MAX && ids.is_sorted_by(|one, other| one < other));
        assert!(ids.iter().all(|id| id % 12 == 1) && ids.last().is_some_and(|id| *id > 5_900_000), "{:?}", ids.last());
    }
}
