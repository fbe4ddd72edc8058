//! Ammo from files of every format, with answers.

use loadtest::ammo::{Ammo, AmmoOptions, Format, Loops, OnBroken};
use loadtest::answers::Comparison;
use loadtest::source::{Described, Observed, ObservedReply, Observer as _, ReplyVerdict, RequestSource as _};
use std::io::Write as _;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ammo").join(name)
}

fn once() -> AmmoOptions {
    AmmoOptions { loops: Loops::Times(NonZeroU64::MIN), ..AmmoOptions::default() }
}

/// All requests of `ammo`, as the engine receives them.
fn all(mut ammo: Ammo) -> Result<Vec<(String, Described)>, String> {
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    while let Some(described) = ammo.next(&mut bytes).map_err(|error| error.to_string())? {
        all.push((String::from_utf8_lossy(&bytes).into_owned(), described));
        bytes.clear();
    }
    Ok(all)
}

fn request_lines(requests: &[(String, Described)]) -> Vec<&str> {
    requests.iter().filter_map(|(bytes, _)| bytes.lines().next()).collect()
}

#[test]
fn a_phantom_file_is_sent_as_it_is() {
    let ammo = Ammo::open(&file("phantom.ammo"), once()).expect("open");
    assert_eq!(ammo.format(), Format::Phantom);
    let requests = all(ammo).expect("good");
    assert_eq!(
        request_lines(&requests),
        ["GET /users/1 HTTP/1.1", "POST /users/1?query_id=0 HTTP/1.1", "GET /visits/7 HTTP/1.1"]
    );
    assert!(requests[1].0.ends_with("{\"mark\": 3}\r\n"), "with the stray line break: {:?}", requests[1].0);
    let closes: Vec<bool> = requests.iter().map(|(_, described)| described.closes).collect();
    assert_eq!(closes, [false, true, false]);
    assert_eq!(requests.iter().map(|(_, described)| described.tag).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_list_of_urls_is_read_by_lines() {
    let ammo = Ammo::open(&file("urls.txt"), once()).expect("open");
    assert_eq!(ammo.format(), Format::Urls);
    let requests = all(ammo).expect("good");
    assert_eq!(
        request_lines(&requests),
        ["GET /users/1 HTTP/1.1", "GET /visits/7?a=b HTTP/1.1", "DELETE /users/2 HTTP/1.1"]
    );
    assert!(requests[1].0.contains("\r\nHost: travels.com\r\n"));
}

#[track_caller]
fn check_found(name: &str, format: Format, lines: &[&str], parts: &[&str]) {
    let ammo = Ammo::open(&file(name), once()).expect("open");
    assert_eq!(ammo.format(), format, "{name}");
    let requests = all(ammo).expect("good");
    assert_eq!(request_lines(&requests), lines);
    for ((bytes, _), part) in requests.iter().zip(parts) {
        assert!(bytes.contains(part), "{part}: {bytes}");
    }
}

#[test]
fn lists_of_yandex_tank_are_read_in_its_three_forms() {
    let uri = ["GET /?drg HTTP/1.1", "GET /buy HTTP/1.1", "GET /buy/?rt=0 HTTP/1.1"];
    check_found("tank.uri", Format::Uri, &uri, &["Connection: close\r\n", "target.example.com", "Cookie: test\r\n"]);
    let posts = ["POST /route/?a=1 HTTP/1.1", "POST /route/ HTTP/1.1"];
    check_found("tank.uripost", Format::UriPost, &posts, &["User-Agent: Tank", "Content-Length: 7\r\n\r\nuripost"]);
    let json = ["GET /api/url1 HTTP/1.1", "POST /api/url2 HTTP/1.1"];
    check_found("tank.jsonl", Format::JsonLine, &json, &["Host: example.com", "\r\n\r\n{\"data\": \"some_data\"}"]);
}

#[test]
fn targets_of_vegeta_are_read_in_both_forms() {
    let http = ["GET /path/to/dragon?item=ball HTTP/1.1", "DELETE /path/to/remove HTTP/1.1"];
    check_found("vegeta.http", Format::Vegeta, &http, &["X-Account-ID: 8675309", "Host: goku:9090"]);
    let json = ["POST /1 HTTP/1.1", "GET /2 HTTP/1.1"];
    check_found(
        "vegeta.jsonl",
        Format::VegetaJson,
        &json,
        &["Content-Type: text/plain\r\nContent-Length: 3\r\n\r\nFOO", ""],
    );
}

#[test]
fn templates_are_filled_with_values_that_a_seed_decides() {
    let requests = |seed| {
        let loops = Loops::Times(NonZeroU64::new(50).expect("some"));
        all(Ammo::open(&file("templates.txt"), AmmoOptions { seed, loops, ..AmmoOptions::default() }).expect("open"))
            .expect("good")
    };
    let (first, again, other) = (requests(1), requests(1), requests(2));
    assert_eq!(first, again);
    assert_ne!(first, other);
    let targets: Vec<&str> = request_lines(&first).iter().filter_map(|line| line.split(' ').nth(1)).collect();
    for pair in targets.chunks(2) {
        let id = pair[0].strip_prefix("/users/").and_then(|rest| rest.split_once('/')).expect("a user");
        assert!((1..=10_000).contains(&id.0.parse::<u32>().expect("a number")), "{pair:?}");
        assert!(["visits?country=France", "visits?country=Peru"].contains(&id.1), "{pair:?}");
    }
    assert!(targets[1].ends_with("?n=2") && targets[99].ends_with("?n=100"), "{targets:?}");
    assert_eq!(first.iter().map(|(_, described)| described.tag).max(), Some(1), "one tag for each shape");
}

#[test]
fn ndjson_holds_methods_headers_and_bodies() {
    let ammo = Ammo::open(&file("requests.ndjson"), once()).expect("open");
    assert_eq!(ammo.format(), Format::Ndjson);
    let requests = all(ammo).expect("good");
    assert_eq!(request_lines(&requests), ["GET /users/1 HTTP/1.1", "POST /users/1 HTTP/1.1", "PUT /notes/1 HTTP/1.1"]);
    assert!(requests[1].0.contains("\r\nX-Run: 7\r\n") && requests[1].0.ends_with("\r\n\r\n{\"mark\": 3}"));
    assert!(requests[2].0.ends_with("\r\nContent-Length: 10\r\n\r\nplain text"));
}

#[test]
fn a_har_is_sent_without_the_requests_for_other_hosts() {
    let ammo = Ammo::open(&file("browser.har"), once()).expect("open");
    assert_eq!(ammo.format(), Format::Har);
    let counts = ammo.counts();
    let requests = all(ammo).expect("good");
    assert_eq!(request_lines(&requests), ["GET /users/1 HTTP/1.1", "POST /users/1 HTTP/1.1"]);
    assert!(requests[1].0.ends_with("\r\n\r\n{\"mark\": 3}"));
    assert_eq!(counts.left_out.load(Ordering::Relaxed), 1);
}

#[test]
fn an_access_log_is_sent_again_and_its_broken_lines_stop_it_or_are_counted() {
    let error = all(Ammo::open(&file("access.log"), once()).expect("open")).expect_err("a broken line");
    assert!(error.contains("access.log, line 3: ") && error.contains("no request line"), "{error}");
    let options = AmmoOptions { on_broken: OnBroken::Skip, ..once() };
    let ammo = Ammo::open(&file("access.log"), options).expect("open");
    assert_eq!(ammo.format(), Format::AccessLog);
    let counts = ammo.counts();
    let requests = all(ammo).expect("good");
    assert_eq!(
        request_lines(&requests),
        ["GET /users/1 HTTP/1.1", "GET /visits/7?a=%20 HTTP/1.1", "POST /users/1 HTTP/1.1"]
    );
    assert_eq!(counts.broken.load(Ordering::Relaxed), 1);
}

#[test]
fn a_format_that_is_named_goes_before_the_one_that_is_found() {
    let options = AmmoOptions { format: Some(Format::Ndjson), ..once() };
    let error = all(Ammo::open(&file("urls.txt"), options).expect("open")).expect_err("no JSON");
    assert!(error.contains("urls.txt, line 2: "), "{error}");
}

#[test]
fn answers_are_paired_with_requests_by_their_order() {
    for answers in ["answers.tsv", "answers.ndjson"] {
        let comparison = Arc::new(Comparison::default());
        let ammo = Ammo::open_with_answers(&file("phantom.ammo"), &file(answers), Arc::clone(&comparison), once());
        let requests = all(ammo.expect("open")).expect("good");
        let statuses: Vec<u16> = requests.iter().map(|(_, described)| described.expected_status).collect();
        assert_eq!(statuses, [200, 200, 404], "{answers}");
        let replies: [(u64, u16, &[u8]); 3] = [(2, 404, b""), (0, 200, b"{\"email\":\"a\",\"id\":1}"), (1, 200, b"{}")];
        let mut comparer = comparison.comparer();
        for (index, status, body) in replies {
            let reply = Some(ObservedReply { status, body, is_cut: false });
            assert_eq!(comparer.observe(&Observed { index, tag: 0, reply }), ReplyVerdict::Right, "{answers}, {index}");
        }
    }
}

#[test]
fn answers_of_other_requests_are_an_error_with_their_line() {
    let check = |ammo: &str, part: &str| {
        let opened = Ammo::open_with_answers(&file(ammo), &file("answers.tsv"), Arc::default(), once());
        let error = all(opened.expect("open")).expect_err("they do not belong together");
        assert!(error.contains(part), "{error}");
    };
    check("requests.ndjson", "answers.tsv, line 2: the answer is one to \"POST /users/1?query_id=0\"");
    let short = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(short.path(), "/users/1\n").expect("written");
    check(short.path().to_str().expect("UTF-8"), "answers.tsv, line 2: the ammo ended before this answer");
    let long = tempfile::NamedTempFile::new().expect("a file");
    let phantom = std::fs::read(file("phantom.ammo")).expect("readable");
    std::fs::write(long.path(), [phantom.as_slice(), &phantom].concat()).expect("written");
    check(long.path().to_str().expect("UTF-8"), "record 4: ");
}

#[test]
fn shuffled_requests_keep_their_answers() {
    let options = AmmoOptions { shuffle: Some(5), loops: Loops::Times(NonZeroU64::new(20).expect("some")), ..once() };
    let ammo = Ammo::open_with_answers(&file("phantom.ammo"), &file("answers.tsv"), Arc::default(), options);
    let requests = all(ammo.expect("open")).expect("good");
    assert_eq!(requests.len(), 60);
    assert!(
        requests
            .iter()
            .all(|(bytes, described)| bytes.starts_with("GET /visits") == (described.expected_status == 404))
    );
    let lines = request_lines(&requests);
    assert!(lines.chunks(3).any(|pass| pass != &lines[..3]), "some pass has another order");
}

#[test]
fn the_contests_files_are_read_whole_and_their_answers_belong_to_them() {
    let train = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/travels/train");
    if !train.join("ammo").exists() {
        let line = "\nSKIPPED: the train data is not beside this checkout (../shared/travels/train)\n";
        std::io::stdout().write_all(line.as_bytes()).expect("a standard output");
        return;
    }
    for (name, statuses) in [("phase_1_get", [2669, 60, 271]), ("phase_2_post", [2861, 94, 45])] {
        let (ammo, answers) = (train.join(format!("ammo/{name}.ammo")), train.join(format!("answers/{name}.answ")));
        let ammo = Ammo::open_with_answers(&ammo, &answers, Arc::default(), once()).expect("open");
        let requests = all(ammo).expect("good");
        let with = |status| requests.iter().filter(|(_, described)| described.expected_status == status).count();
        assert_eq!([200, 400, 404].map(with), statuses, "{name}");
        assert!(requests.iter().all(|(_, described)| described.closes == name.ends_with("post")));
        assert_eq!(
            requests.iter().map(|(_, described)| described.tag).max(),
            Some(if name.ends_with("get") { 4 } else { 5 })
        );
    }
}
