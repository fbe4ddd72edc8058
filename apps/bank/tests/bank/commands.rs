//! The commands: generated files are imported completely, invalid ones are refused with their line, counters
//! are exported as SQL.

use std::path::Path;
use std::process::{Command, Output};

fn bank(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bank")).args(arguments).output().unwrap()
}

#[track_caller]
fn run(arguments: &[&str]) -> String {
    let output = bank(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn check_refused(arguments: &[&str], told: &str) {
    let output = bank(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains(told), "{arguments:?}: {error}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn generated_files_come_in_and_their_counters_go_out() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log.tsv"));
    let (data, users) = (text(&data), folder.path().join("users.tsv"));
    let made = run(&["generate", text(folder.path()), "--users", "20000", "--seed", "7"]);
    assert!(made.contains("wrote 20000 users and 3000 attempts"), "{made}");
    assert!(made.contains("they lock 10 users and ban 1 addresses"), "{made}");
    let imported = run(&["import", "--data", data, "--users", text(&users), "--log", text(&log)]);
    assert!(imported.contains("imported 20000 users") && imported.contains("imported 3000 attempts"), "{imported}");
    let sql = run(&["export-sql", "--data", data]);
    let locked: Vec<&str> =
        sql.lines().filter(|line| line.contains("('customer") && line.contains(", 3, NULL")).collect();
    assert_eq!(locked.len(), 10, "{locked:?}");
    assert_eq!(sql.matches("('198.18.0.0', 10)").count(), 1);
    check_refused(&["import", "--data", data, "--log", text(&log)], "the data folder has attempts already");
}

#[test]
fn failures_of_an_imported_log_count_from_the_last_of_several_successes() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log.tsv"));
    let line = |succeeded: u8| format!("2014-09-27 10:00:00\t1\tann\t10.0.0.1\t{succeeded}\n");
    std::fs::write(&log, [0, 1, 0, 0, 1, 0, 0].map(line).concat()).unwrap();
    run(&["import", "--data", text(&data), "--log", text(&log)]);
    let sql = run(&["export-sql", "--data", text(&data)]);
    assert_eq!(sql.matches("('10.0.0.1', 2)").count(), 1, "{sql}");
}

#[test]
fn the_same_seed_makes_the_same_files() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for folder in [&one, &other] {
        run(&["generate", text(folder.path()), "--users", "2000", "--seed", "3"]);
    }
    for name in ["users.tsv", "log.tsv"] {
        let read = |folder: &tempfile::TempDir| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read(&one), read(&other));
        assert!(read(&one).lines().count() >= 299);
    }
}

#[test]
fn a_wrong_line_is_told_and_nothing_comes_in() {
    let folder = tempfile::tempdir().unwrap();
    let (data, users) = (folder.path().join("data"), folder.path().join("users.tsv"));
    let (data, hash) = (text(&data), "0".repeat(64));
    std::fs::write(&users, format!("1\tann\tpw\ts\t{hash}\n2\tbob\tpw\ts\n")).unwrap();
    check_refused(&["import", "--data", data, "--users", text(&users)], "users.tsv, line 2: 4 fields instead of 5");
    std::fs::write(&users, format!("1\tann\tpw\ts\t{hash}\n2\tann\tpw\ts\t{hash}\n")).unwrap();
    check_refused(&["import", "--data", data, "--users", text(&users)], "line 2");
    std::fs::write(&users, format!("1\tann\tpw\ts\t{hash}\n")).unwrap();
    assert!(run(&["import", "--data", data, "--users", text(&users)]).contains("imported 1 users"));
}

#[test]
fn an_export_makes_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    check_refused(&["export-sql", "--data", text(&absent)], "there is no such folder");
    assert!(!absent.exists());
}
