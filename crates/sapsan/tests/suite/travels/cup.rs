//! `sapsan loadtest cup`: a short run of the contest, in which every answer is the expected one.

use super::process::{sapsan, travels_toml};
use std::path::Path;
use std::process::Output;

/// The part of the contest's time that is run: two seconds in all.
const SCALE: &str = "0.005";

fn generate(zip: &Path) {
    let mut command = sapsan(&["generate", "travels", "--users", "300", "--locations", "200", "--visits", "3000"]);
    let output = command.arg(zip).output().expect("the sapsan binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn cup(zip: &Path, report: &Path) -> Output {
    let mut command = sapsan(&["loadtest", "cup", "--profile", "2017", "--scale", SCALE]);
    command
        .arg("--report")
        .arg(report)
        .arg(travels_toml())
        .arg("--data")
        .arg(zip)
        .output()
        .expect("the sapsan binary starts")
}

#[test]
fn a_short_cup_has_no_wrong_answer_and_its_board_shows_the_published_results() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let zip = folder.path().join("data.zip");
    generate(&zip);
    std::fs::write(folder.path().join("options.txt"), "1503966608\n0\n").expect("written");
    let output = cup(&zip, folder.path());
    let board = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{board}\n{}", String::from_utf8_lossy(&output.stderr));
    let wrong = |phase: &str| {
        let row = board.lines().find(|line| line.starts_with(phase)).expect("a row for each phase");
        row.split_whitespace().nth(4).map(str::to_owned)
    };
    for phase in ["1 GET ", "2 POST ", "3 GET "] {
        assert_eq!(wrong(phase).as_deref(), Some("0"), "{board}");
    }
    assert!(board.contains("→ sapsan, this run (scaled up"), "{board}");
    for number in 1..=3 {
        let page = std::fs::read_to_string(folder.path().join(format!("phase-{number}.html"))).expect("a page");
        assert!(page.contains("<h2>Latency over time</h2>"), "{page}");
    }
    assert!(board.contains("80.586385") && board.contains("Machines differ"), "{board}");
}

#[test]
fn a_folder_for_pages_that_is_not_there_is_an_error_before_the_import() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = cup(&folder.path().join("none.zip"), &folder.path().join("pages"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("this folder is not there"), "{told}");
}
