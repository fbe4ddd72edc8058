//! The command line, from arguments to output.

use clap::Parser;
use lab::cli::{CommandOutcome, Lab, execute};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    lab: Lab,
}

/// The output of a command, and its notices.
fn ask(words: &[&str]) -> Result<(String, Vec<String>), String> {
    let words = std::iter::once("lab").chain(words.iter().copied());
    let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
    let (mut out, mut notices) = (Vec::new(), Vec::new());
    let outcome = execute(&command.lab, &mut out, &mut |notice| notices.push(notice.to_owned()))?;
    assert!(matches!(outcome, CommandOutcome::Finished));
    Ok((String::from_utf8(out).unwrap(), notices))
}

#[test]
fn the_list_shows_every_number_with_its_model() {
    let (list, _) = ask(&["list", "--cores", "4"]).unwrap();
    assert_eq!(list.lines().count(), 17);
    assert!(list.contains("12  IO-aware pool, 8 P threads, P running") && list.contains("io-aware:32/4"), "{list}");
}

#[test]
fn a_series_gives_json_and_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lab.html").display().to_string();
    let words = ["--only", "1,15", "--requests", "501", "--scale", "0.01", "--cores", "2", "--repeat", "3", "--json"];
    let (json, notices) = ask(&[&words[..], &["--report", &file]].concat()).unwrap();
    assert_eq!(notices, ["running sequential", "running P event loops, waits suspended"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&report["requests"], &report["cores"]), (&501.into(), &2.into()));
    assert!(report["optimum"]["chain"].as_f64().unwrap() >= 0.01);
    let second = &report["experiments"][1];
    assert_eq!((&second["number"], &second["model"]), (&15.into(), &"event-loop:2".into()));
    assert_eq!(second["walls"].as_array().unwrap().len(), 3);
    assert_eq!((&second["run"]["control"]["yields"], &second["run"]["threads_peak"]), (&249.into(), &3.into()));
    assert!(second["above_optimum"].is_f64() && second["run"]["latency"]["p99"].is_f64());
    assert!(std::fs::read_to_string(&file).unwrap().contains("15. P event loops, waits suspended"));
}

#[test]
fn models_are_asked_for_by_name_and_a_mix_by_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mix.toml");
    std::fs::write(&file, "[[kinds]]\nsteps = [\"cpu 1us\", \"yield\"]\n").unwrap();
    let file = file.display().to_string();
    let (table, _) = ask(&["--model", "pool:3,io-aware:4/2", "--requests", "50", "--mix", &file]).unwrap();
    assert!(table.contains("waits 0 ms, yields 50, requests 50"), "{table}");
    assert!(table.contains("pool:3") && table.contains("io-aware:4/2"), "{table}");
}

#[test]
fn the_overhead_of_models_is_told_in_microseconds() {
    let (lines, _) = ask(&["overhead", "--model", "pool:2,event-loop:1", "--tasks", "40", "--task", "2"]).unwrap();
    assert_eq!(lines.lines().count(), 2);
    assert!(lines.starts_with("pool:2") && lines.contains("µs of processor time beside a task's"), "{lines}");
    let (json, _) = ask(&["overhead", "--model", "pool:2", "--tasks", "40", "--json"]).unwrap();
    let all: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(all[0]["cpu_us"].is_f64() && all[0]["model"] == "pool:2", "{json}");
}

#[track_caller]
fn told(words: &[&str], part: &str) {
    let error = ask(words).unwrap_err();
    assert!(error.contains(part), "{error}");
}

#[test]
fn a_mistake_is_told_with_what_is_allowed() {
    told(&["--only", "18"], "there is no experiment 18; there are 1 to 17");
    told(&["--model", "threads"], "`threads` is no execution model; allowed: inline, ");
    told(&["--scale", "0"], "a number over 0 and up to 10");
    told(&["--requests", "0"], "1..=10000000");
    told(&["--mix", "/nowhere/mix.toml"], "cannot read /nowhere/mix.toml");
    told(&["--report", "/nowhere/lab.html", "--only", "1", "--requests", "1", "--scale", "0.001"], "/nowhere/lab.html");
    told(&["serve", "--model", "none"], "`none` is no execution model");
    told(&["--json", "list"], "cannot be used");
}
