//! The command as a process: its summary, its JSON, Ctrl-C. The program is the example `load`, which `cargo test -p loadtest` builds too.

use crate::harness::{PATIENCE, Server, ok, unused_address};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The program, next to this test's folder.
fn program() -> Option<PathBuf> {
    let folder = std::env::current_exe().unwrap().parent()?.parent()?.join("examples");
    let program = Some(folder.join("load")).filter(|program| program.is_file());
    if program.is_none() {
        // Bypasses libtest, which captures the output of a passing test: `cargo xtask test` counts this line.
        let line = b"\nSKIPPED: the example `load` is not built (`cargo build -p loadtest --examples`)\n";
        std::io::stdout().write_all(line).unwrap();
    }
    program
}

fn start(program: &PathBuf, arguments: &[&str]) -> Child {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Waits for the end, with a time limit for a run that hangs.
fn output(mut child: Child) -> Output {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the command hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_interrupt_ends_the_run_with_the_report_so_far() {
    let Some(program) = program() else { return };
    let server = Server::start(|_| ok());
    let url = format!("http://{}/", server.address);
    let child = start(&program, &[&url, "--rate", "100", "--duration", "1h", "--json"]);
    crate::harness::eventually("twenty requests", || server.requests() >= 20);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = output(child);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(json["answered"].as_u64().unwrap() >= 20 || json["requests"].as_u64().unwrap() >= 20, "{json}");
    assert_eq!(json["errors"], 0);
}

#[test]
fn two_servers_are_both_checked_before_the_first_turn() {
    let Some(program) = program() else { return };
    let server = Server::start(|_| ok());
    let url = format!("http://{}/", server.address);
    let unused = format!("http://{}/", unused_address());
    for (other, expected) in [("localhost", "write http://"), (unused.as_str(), "takes no connection")] {
        let output = output(start(&program, &[&url, "--vs", other, "--duration", "100ms"]));
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains(expected), "{told}");
        assert!(!told.contains("turn 1") && server.requests() == 0, "{told}");
    }
}

#[test]
fn a_scenario_a_log_and_expectations_are_options_of_the_command() {
    let Some(program) = program() else { return };
    let (server, folder) = (Server::start(|_| ok()), tempfile::tempdir().unwrap());
    let (scenario, log) = (folder.path().join("users.toml"), folder.path().join("log.csv"));
    let step = "[[step]]\npath = \"/a\"\ntake = { length = \"header:Content-Length\" }\n";
    std::fs::write(&scenario, format!("{step}[[step]]\npath = \"/b/{{length}}\"\nthink = \"1ms\"\n")).unwrap();
    let url = format!("http://{}/", server.address);
    let [scenario_path, log_path] = [&scenario, &log].map(|path| path.to_str().unwrap());
    let load = [&url, "--scenario", scenario_path, "--connections", "2", "--duration", "500ms", "--quiet", "--json"];
    let expectations = ["--log", log_path, "--expect-status", "200", "--expect-body-part", "ell"];
    let output = output(start(&program, &[&load[..], &expectations[..]].concat()));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(json["passes"]["complete"].as_u64().unwrap() > 0 && json["errors"] == 0, "{json}");
    let names: Vec<&str> = json["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"GET /a") && names.contains(&"GET /b/{length}"), "{json}");
    let lines = std::fs::read_to_string(&log).unwrap().lines().count() as u64;
    assert_eq!(lines, 1 + json["requests"].as_u64().unwrap());

    std::fs::write(&scenario, "[[step]]\npath = \"/a\"\n[[step]]\npath = \"/{token}\"\n").unwrap();
    let output = self::output(start(&program, &load));
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.contains("users.toml, line 3: step 2: path: \"{token}\""), "{told}");
}

#[test]
fn what_cannot_be_loaded_is_told_on_standard_error() {
    let Some(program) = program() else { return };
    let unused = format!("http://{}/", unused_address());
    for (url, expected) in [
        ("http://no-such-host.invalid/", "has no address"),
        ("http://192.0.2.1/", "--i-may-load-this-host"),
        (unused.as_str(), "takes no connection"),
        ("localhost", "write http://"),
    ] {
        let output = output(start(&program, &[url, "--duration", "100ms"]));
        let told = text(&output.stderr);
        assert!(!output.status.success() && told.contains(expected), "{url}: {told}");
    }
}
