//! Runs with ammo and answers from files, against a server of known behaviour.

use crate::harness::{Answer, Server, closed, finish, open, reply};
use loadtest::ammo::{Ammo, AmmoOptions, Loops};
use loadtest::answers::Comparison;
use loadtest::engine::Watchers;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

/// Ten requests `/0` to `/9`; the server answers `{"n": N, "x": 1}`, `/7` with another number, `/8` with 404, `/9` not at all.
fn server() -> Server {
    Server::start(|arrived| {
        let number: u32 = arrived.head.split(['/', ' ']).nth(2).and_then(|number| number.parse().ok()).unwrap();
        match number {
            7 => Answer::Bytes(reply(200, r#"{"x":1,"n":70}"#)),
            8 => Answer::Bytes(reply(404, r#"{"x":1,"n":8}"#)),
            9 => Answer::Last(Vec::new()),
            _ => Answer::Bytes(reply(200, &format!(r#"{{"x":1,"n":{number}}}"#))),
        }
    })
}

fn files(folder: &std::path::Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let (ammo, answers) = (folder.join("ammo"), folder.join("answers"));
    let lines = |line: &dyn Fn(u32) -> String| (0..10).map(line).collect::<String>();
    std::fs::write(&ammo, lines(&|n| format!("/{n}\n"))).unwrap();
    std::fs::write(&answers, lines(&|n| format!("GET\t/{n}\t200\t{{\"n\": {n}.0, \"x\": 1}}\n"))).unwrap();
    (ammo, answers)
}

fn once() -> AmmoOptions {
    AmmoOptions { loops: Loops::Times(NonZeroU64::MIN), ..AmmoOptions::default() }
}

#[test]
fn wrong_answers_are_found_shown_and_rated() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let (ammo, answers) = files(folder.path());
    let comparison = Arc::new(Comparison::default());
    let ammo = Ammo::open_with_answers(&ammo, &answers, Arc::clone(&comparison), once()).unwrap();
    let watchers = Watchers { observer: Some(Box::new(comparison.comparer())), ..Watchers::default() };
    let mut settings = open(server.address, "const(50,1s)");
    settings.timeout = Duration::from_secs(2);
    let finished = finish(&settings, Box::new(ammo), watchers);
    let outcome = &finished.recording.outcome;
    assert_eq!((outcome.right, outcome.wrong, outcome.late), (7, 2, 0), "{outcome:?}");
    let differences = comparison.differences();
    let mut what: Vec<_> = differences.kept.iter().map(|kept| (kept.index, kept.what.as_str())).collect();
    what.sort_unstable();
    assert_eq!(what, [(7, "the bodies differ at $.n"), (8, "the status differs")]);
    let text = differences.to_string();
    assert!(
        text.contains("GET /7 HTTP/1.1") && text.contains("expected  200") && text.contains("received  404"),
        "{text}"
    );
    // Expected: two seconds for each of the three others, and the times of the seven right answers.
    let right_max = 7.0 * finished.recording.latencies.latency.max() as f64 / 1e9;
    let of_right = outcome.rating - 2.0 * (outcome.planned - 7) as f64;
    assert!(of_right > 0.0 && of_right <= right_max, "{outcome:?}");
}

#[test]
fn a_run_ends_where_its_ammo_ends() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let path = folder.path().join("ammo");
    std::fs::write(&path, "/1\n/2\n/3\n").unwrap();
    let options = AmmoOptions { loops: Loops::Times(NonZeroU64::new(4).unwrap()), ..AmmoOptions::default() };
    let finished =
        finish(&closed(server.address, 20_000), Box::new(Ammo::open(&path, options).unwrap()), Watchers::default());
    assert!(finished.failure.is_none());
    assert_eq!((server.requests(), finished.recording.outcome.right), (12, 12));
}

#[test]
fn a_broken_line_ends_the_run_with_its_number_and_the_recording_so_far() {
    let (server, folder) = (server(), tempfile::tempdir().unwrap());
    let path = folder.path().join("ammo");
    std::fs::write(&path, "/1\n/2\nnonsense here now\n").unwrap();
    let finished =
        finish(&closed(server.address, 20_000), Box::new(Ammo::open(&path, once()).unwrap()), Watchers::default());
    let failure = finished.failure.expect("a broken line").to_string();
    assert!(failure.contains("line 3: "), "{failure}");
    assert_eq!(finished.recording.outcome.right, 2);
}
