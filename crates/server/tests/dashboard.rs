//! `docs/grafana.json`: its expressions are PromQL, use only metrics and labels that a running server has, and its panels have
//! positions.
//!
//! PromQL is checked by `promtool`, which `cargo xtask promtool` unpacks into `target`; without it that test is skipped with a
//! message.

use crate::harness::TestServer;
use crate::metrics::{Sample, read};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DASHBOARD: &str = include_str!("../../../docs/grafana.json");
const OPERATIONS: &str = include_str!("../../../docs/operations.md");

/// Labels that Prometheus adds when it scrapes.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];

fn dashboard() -> Json {
    serde_json::from_str(DASHBOARD).expect("JSON")
}

fn panels(dashboard: &Json) -> &[Json] {
    dashboard["panels"].as_array().map_or(&[], Vec::as_slice)
}

/// The expressions of all panels, with values for Grafana's own variables, and the labels in each legend.
fn expressions(dashboard: &Json) -> Vec<(String, String)> {
    let targets = panels(dashboard).iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let text = |target: &Json, key: &str| target[key].as_str().unwrap_or_default().to_owned();
    let all = targets.map(|target| (text(target, "expr"), text(target, "legendFormat")));
    all.map(|(expr, legend)| (expr.replace("$__rate_interval", "5m").replace("$instance", ".*"), legend)).collect()
}

/// The metrics of a server with a view, some of whose requests failed.
fn samples() -> Vec<Sample> {
    let more = "[views.groups]\nquery = \"SELECT \\\"group\\\", COUNT(*) AS n FROM items GROUP BY \\\"group\\\"\"\n\
                [[endpoints]]\nroute = \"GET /items/{id}\"\nget = \"items/{id}\"\n";
    let server = TestServer::start("", more);
    server.get("/items/1");
    let answer = server.get("/_/metrics");
    let (families, problems) = read(answer.text());
    assert!(problems.is_empty(), "{problems:#?}");
    families.into_values().flat_map(|family| family.samples).collect()
}

/// The names of metrics in an expression, each with the text after it.
fn metrics(expr: &str) -> Vec<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let beginnings = ["sapsan_", "process_"].iter().flat_map(|beginning| expr.match_indices(beginning));
    let found = beginnings.filter(|(at, _)| !expr[..*at].ends_with(is_part));
    found.map(|(at, _)| expr[at..].split_at(expr[at..].find(|c| !is_part(c)).unwrap_or(expr.len() - at))).collect()
}

/// The labels that an expression groups or joins by.
fn grouped_by(expr: &str) -> BTreeSet<&str> {
    let lists = [" by (", " on ("].iter().flat_map(|word| expr.split(word).skip(1));
    lists.flat_map(|list| list.split(')').next().unwrap_or_default().split(',')).map(str::trim).collect()
}

/// The comparisons of a selector `{label="value",…}`: label, operator with quote, value.
fn compared(behind: &str) -> Vec<(&str, &str)> {
    let Some(selector) = behind.strip_prefix('{').and_then(|rest| rest.split('}').next()) else { return Vec::new() };
    let parts = selector.split(',').filter(|part| !part.is_empty());
    parts.map(|part| part.split_at(part.find(['=', '!']).expect("an operator"))).collect()
}

/// The parts of an expression that the server does not have.
fn unknown(expr: &str, legend: &str, samples: &[Sample]) -> Vec<String> {
    let (mut problems, mut labels) = (Vec::new(), BTreeSet::from(OF_PROMETHEUS));
    let found = metrics(expr);
    if found.is_empty() {
        problems.push("no metric".to_owned());
    }
    for (name, behind) in found {
        let own: Vec<&Sample> = samples.iter().filter(|sample| sample.name == name).collect();
        if own.is_empty() {
            problems.push(format!("no metric {name}"));
        }
        let known: BTreeSet<&str> = own.iter().flat_map(|sample| sample.labels.keys()).map(String::as_str).collect();
        for (label, value) in compared(behind) {
            if !known.contains(label) && !OF_PROMETHEUS.contains(&label) {
                problems.push(format!("{name} has no label {label}"));
            }
            let is_there =
                |value: &str| own.iter().any(|sample| sample.labels.get(label).is_some_and(|of| of == value));
            if let Some(value) = value.strip_prefix("=\"").and_then(|value| value.strip_suffix('"'))
                && !is_there(value)
            {
                problems.push(format!("{name} has no {label} {value}"));
            }
        }
        labels.extend(known);
    }
    let by = grouped_by(expr);
    problems.extend(by.iter().filter(|label| !labels.contains(*label)).map(|label| format!("no label {label}")));
    let shown = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
    problems
        .extend(shown.filter(|label| !by.contains(label)).map(|label| format!("the legend's {label} is summed away")));
    problems
}

#[test]
fn expressions_ask_for_metrics_and_labels_that_the_server_has() {
    let (dashboard, samples) = (dashboard(), samples());
    let all = expressions(&dashboard);
    assert!(all.len() >= 40, "{}", all.len());
    for (expr, legend) in &all {
        assert_eq!(unknown(expr, legend, &samples), [] as [String; 0], "{expr}");
    }
    for (wrong, count) in [
        ("sum(sapsan_uptime_second)", 1),
        ("sum by (rout) (sapsan_http_requests_total{instance=~\".*\"})", 1),
        ("sapsan_http_requests_total{rute=\"/_/\"}", 2),
        ("sapsan_memory_used_bytes{part=\"plan\"}", 1),
        ("process_cpu_seconds{instance=~\"a\"} and on (instance) sapsan_uptime_seconds", 1),
        ("vector(0)", 1),
    ] {
        assert_eq!(unknown(wrong, "", &samples).len(), count, "{wrong}: {:?}", unknown(wrong, "", &samples));
    }
    assert_eq!(unknown("sum by (le) (sapsan_uptime_seconds)", "{{route}}", &samples).len(), 2);
}

#[test]
fn what_is_worth_an_alarm_is_on_the_dashboard() {
    let all: String = expressions(&dashboard()).into_iter().map(|(expr, _)| expr + "\n").collect();
    let table = OPERATIONS.split_once("Worth an alarm:").expect("the list").1.split("\n\n").nth(1).expect("a table");
    let rows = table.lines().filter(|row| row.starts_with("| `sapsan_"));
    let named: Vec<&str> =
        rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2)).collect();
    assert!(named.len() >= 5, "{named:?}");
    for name in named {
        assert!(all.contains(&format!("{name}{{")), "{name} is not on the dashboard");
    }
}

#[test]
fn panels_have_numbers_and_places_of_their_own() {
    let (dashboard, mut ids, mut cells) = (dashboard(), BTreeSet::new(), BTreeSet::new());
    for panel in panels(&dashboard) {
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{}", panel["id"]);
        assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()));
        let is_row = panel["type"] == "row";
        assert!(is_row || panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{}", panel["title"]);
        assert!(is_row || panel["datasource"]["uid"] == "${datasource}", "{}", panel["title"]);
        let place = |key: &str| panel["gridPos"][key].as_u64().expect("a number");
        assert!(place("x") + place("w") <= 24, "{}", panel["title"]);
        for row in place("y")..place("y") + place("h") {
            for column in place("x")..place("x") + place("w") {
                assert!(cells.insert((row, column)), "{} lies over another", panel["title"]);
            }
        }
    }
    let variables: Vec<&str> = dashboard["templating"]["list"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(variables, ["datasource", "instance"]);
}

/// Prometheus's checker.
pub(crate) fn promtool() -> Option<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(target.join("promtool/usr/bin")).chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join("promtool")).find(|file| file.is_file());
    if found.is_none() {
        // Not by `println!`, which libtest hides in passing tests: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: promtool is not there (cargo xtask promtool unpacks it)\n";
        std::io::stdout().write_all(line.as_bytes()).expect("somebody listens");
    }
    found
}

/// The output of promtool for a standard input or a file, if it finds a fault.
pub(crate) fn said(promtool: &Path, arguments: &[&str], input: &str) -> Option<String> {
    let mut command = Command::new(promtool);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (!output.status.success()).then_some(told)
}

#[test]
fn expressions_are_promql() {
    let Some(promtool) = promtool() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.json");
    // A file of rules in YAML, of which JSON is a subset.
    let judge = |expressions: &[String]| {
        let rules = expressions.iter().enumerate();
        let rules: Vec<Json> =
            rules.map(|(number, expr)| serde_json::json!({ "record": format!("r{number}"), "expr": expr })).collect();
        let file = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
        std::fs::write(&path, file.to_string()).expect("a file");
        said(&promtool, &["check", "rules", &path.to_string_lossy()], "")
    };
    let mut all: Vec<String> = expressions(&dashboard()).into_iter().map(|(expr, _)| expr).collect();
    // Those of the document.
    all.extend(OPERATIONS.lines().map(str::trim).filter(|line| line.contains("[5m]")).map(str::to_owned));
    assert_eq!(judge(&all), None);
    assert!(judge(&["sum by (route (up)".to_owned()]).is_some(), "promtool takes anything");
}
