//! The page as text, and in headless Chromium. `SAPSAN_KEEP_PAGES=FOLDER` keeps the pages that the tests make, for inspection.

use super::html;
use crate::recording::{Recording, Validity};
use crate::sample_run::{self, Shape};
use crate::versus::SideBySide;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A browser that needs longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A run with everything on it, beside a calm one.
fn full_page() -> String {
    let run = sample_run::recording(Shape::Stall);
    let calm = sample_run::recording(Shape::Calm);
    html(&run, Some(&SideBySide::of_runs(&calm, &run)))
}

fn hostile() -> Recording {
    let text = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&";
    let mut run = sample_run::recording(Shape::Stall);
    run.target = format!("http://127.0.0.1/{text}");
    run.load = text.into();
    run.validity = Validity::Invalid(text.into());
    run.phases[0].name = text.into();
    run.outcome.failures.connect.insert(text.into(), 7);
    for sample in &mut run.server {
        sample.values.insert(format!("a_queued{{x=\"{text}\"}}"), 1.0);
    }
    run
}

#[test]
fn the_page_has_all_parts_and_needs_nothing_from_elsewhere() {
    let page = full_page();
    for part in [
        "<h2>Rate",
        "<h2>Latency over time",
        "<h2>Distribution",
        "<h2>Errors",
        "<h3>By cause",
        "<h2>Phases",
        "<h2>The server's own numbers",
        "<h2>A and B compared",
        "99.99 %",
        "no connection: connection refused",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    for loads in ["src=", "@import", "url(", "<link rel=\"stylesheet"] {
        assert!(!page.contains(loads), "the page loads something by {loads}");
    }
    let ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
}

#[test]
fn a_comparison_comes_first() {
    let page = full_page();
    let place = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part} is missing"));
    assert!(place("whether they differ was not tested") < place("<h2>A and B compared"));
    assert!(place("<h2>A and B compared") < place("<h2>The run B") && place("<h2>The run B") < place("<h2>Rate"));
}

#[test]
fn errors_are_coloured_and_not_below_a_green_verdict() {
    let page = |shape| html(&sample_run::recording(shape), None);
    let (calm, stall) = (page(Shape::Calm), page(Shape::Stall));
    assert!(calm.contains("<p class=\"verdict valid\"><b>Valid:</b>") && !calm.contains("class=\"bad\""));
    assert!(stall.contains("<p class=\"verdict invalid\"><b>Errors:</b>") && !stall.contains("verdict valid"));
    assert!(stall.contains("<p class=\"verdict plain\"><b>Measured as planned:</b> the generator kept to its plan"));
    // The tile, the section's sentence, and the cells of both phases that have errors.
    assert_eq!(stall.matches("class=\"bad\"").count(), 4);
}

#[test]
fn tags_have_a_table() {
    let page = html(&sample_run::with_tags(), None);
    assert!(page.contains("<h2>Tags</h2>") && page.contains("<th scope=\"row\">GET /users/{int}</th><td>900</td>"));
    assert!(page.contains("<th scope=\"row\">&lt;b&gt;\u{fffd}POST</th><td>100</td><td class=\"bad\">7</td>"));
    assert!(!html(&sample_run::recording(Shape::Calm), None).contains("<h2>Tags"));
}

#[test]
fn a_rating_is_shown_where_it_was_asked_for() {
    let run = sample_run::recording(Shape::Calm);
    assert!(!html(&run, None).contains("rating"));
    assert!(html(&Recording { is_rated: true, ..run }, None).contains("<dt>rating</dt>"));
}

#[test]
fn hostile_texts_stay_texts() {
    let run = hostile();
    let page = html(&run, Some(&SideBySide::of_runs(&run, &run)));
    assert!(!page.contains("<img") && !page.contains("<script>alert"), "a text of others became an element");
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
}

#[test]
fn a_run_without_an_answer_has_a_page() {
    let page = html(&sample_run::nothing_answered(), None);
    assert!(
        page.contains("there is no distribution")
            && page.contains("No latency was measured")
            && page.contains("10 of 10 requests"),
        "{page}"
    );
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn the_page_of_the_longest_run_is_bounded() {
    let mut run = sample_run::recording(Shape::Calm);
    let row = run.intervals[50].clone();
    run.intervals =
        (0..crate::recording::INTERVALS_MAX as u32).map(|at| crate::Interval { at: at * 24, ..row.clone() }).collect();
    run.interval_seconds = 24;
    let page = html(&run, None);
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    assert!(page.contains("A point of the charts covers 24 seconds"));
}

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join("chromium")).find(|program| program.is_file())
}

/// Ends the browser if a test fails or the browser hangs.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Opens a page; returns its elements after its script has run, and the output of its console.
fn open(program: &Path, folder: &Path, name: &str, page: &str) -> Output {
    let file = folder.join(name);
    std::fs::write(&file, page).unwrap();
    let [elements, console] = ["elements", "console"].map(|part| folder.join(format!("{name}.{part}")));
    let mut command = Command::new(program);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]);
    command.args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]);
    command.args(["--enable-logging=stderr", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    command.arg(format!("file://{}", file.display()));
    let [stdout, stderr] = [&elements, &console].map(|file| Stdio::from(std::fs::File::create(file).unwrap()));
    let mut browser = Browser(command.stdout(stdout).stderr(stderr).spawn().unwrap());
    let began = Instant::now();
    let status = loop {
        if let Some(status) = browser.0.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "the browser hangs");
        std::thread::sleep(Duration::from_millis(20));
    };
    Output { status, stdout: std::fs::read(elements).unwrap(), stderr: std::fs::read(console).unwrap() }
}

#[test]
fn a_browser_shows_the_page_without_an_error_in_its_console() {
    let pages = [
        ("full.html", full_page()),
        ("hostile.html", html(&hostile(), None)),
        ("nothing.html", html(&sample_run::nothing_answered(), None)),
    ];
    if let Some(kept) = std::env::var_os("SAPSAN_KEEP_PAGES") {
        pages.iter().for_each(|(name, page)| std::fs::write(Path::new(&kept).join(name), page).unwrap());
    }
    let Some(program) = browser() else {
        // Not `println!`, which libtest captures in a passing test: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: chromium is not there (cargo xtask browser installs it)\n";
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    for (name, page) in pages {
        let output = open(&program, folder.path(), name, &page);
        let [elements, console] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(elements.contains("data-ready=\"true\""), "{name}: the script did not run: {console}");
        assert!(!console.contains("CONSOLE"), "{name}: {console}");
    }
}
