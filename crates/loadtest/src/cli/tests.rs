use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    arguments: LoadArguments,
}

fn arguments(line: &[&str]) -> Result<LoadArguments, String> {
    let line = ["loadtest"].iter().chain(line);
    Line::try_parse_from(line).map(|line| line.arguments).map_err(|error| error.to_string())
}

#[track_caller]
fn check_refused(line: &[&str], what: &str) {
    let error = arguments(line).unwrap_err();
    assert!(error.contains(what), "{error}");
}

#[test]
fn wrong_arguments_are_told_with_what_is_allowed() {
    check_refused(&["http://a/", "--duration", "30"], "write 30s");
    check_refused(&["http://a/", "--timeout", "0s"], "1ms to 120s");
    check_refused(&["http://a/", "--header", "x"], "NAME: VALUE");
    check_refused(&["http://a/", "--rate", "5", "--profile", "const(5,1s)"], "--profile");
    check_refused(&["http://a/", "--new-connections", "--pipeline", "2"], "--pipeline");
    check_refused(&["http://a/", "--fail-if", "p99~5ms"], "p99~5ms");
    check_refused(&["http://a/", "--rounds", "3"], "--vs");
    check_refused(&["http://a/", "--vs", "http://b/", "--rounds", "0"], "1 to 1000");
    check_refused(&["http://a/", "--vs", "http://b/", "--metrics", "http://a/m"], "--metrics");
    check_refused(&["http://a/", "--seed", "7"], "--ammo");
    check_refused(&["http://a/", "--header", "content-length: 5"], "made of the body");
    check_refused(&["http://a/", "--ammo", "x", "--loops", "0"], "1 or more");
    check_refused(&["http://a/", "--scenario", "x", "--rate", "5"], "--rate");
    check_refused(&["http://a/", "--scenario", "x", "--ammo", "y"], "--ammo");
    assert!(arguments(&["http://a/", "--scenario", "x", "--seed", "5", "--connections", "3"]).is_ok());
    check_refused(&["http://a/", "--expect-status", "20"], "write 200, 2xx or 200-299");
    check_refused(&["http://a/", "--ammo", "x", "--answers", "y", "--expect-body", "z"], "--expect-body");
    check_refused(&["http://a/", "--vs", "http://b/", "--log", "x"], "--log");
    check_refused(&[], "URL");
}

#[test]
fn expected_statuses_and_bodies_are_those_of_the_arguments() {
    let given =
        arguments(&["http://a/", "--expect-status", "404", "--expect-body-part", "a", "--expect-body-part", "b"]);
    let given = given.unwrap();
    let statuses = given.expect.expect_status.unwrap();
    assert!(statuses.contains(404) && !statuses.contains(200) && given.expect.body_check().unwrap().is_some());
    assert!(arguments(&["http://a/"]).unwrap().expect.body_check().unwrap().is_none());
    let missing = arguments(&["http://a/", "--expect-body", "@no/such.file"]).unwrap().expect.body_check().unwrap_err();
    assert!(missing.starts_with("--expect-body: cannot read no/such.file"), "{missing}");
}

#[test]
fn a_body_is_a_regular_file_of_a_bounded_size() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let at = format!("@{}", file.path().display());
    std::fs::write(file.path(), "text").unwrap();
    let body = |text: &str| text_or_file("--body", text);
    assert_eq!((body(&at), body("text")), (Ok(b"text".to_vec()), Ok(b"text".to_vec())));
    file.as_file().set_len(BODY_BYTES_MAX + 1).unwrap();
    assert!(body(&at).unwrap_err().contains("is larger than 8 MB"));
    assert!(body("@/dev/null").unwrap_err().contains("/dev/null is not a regular file"));
}

#[test]
fn arguments_that_contradict_are_told_with_what_to_do() {
    let check = |line: &[&str]| contradictions::check(&arguments(line).unwrap());
    for (line, what) in [
        (&["http://a/", "--ammo", "-", "--vs", "http://b/"][..], "--ammo -: standard input is read once"),
        (&["http://a/", "--ammo", "x", "--answers", "-", "--vs", "http://b/"], "--answers -: standard input"),
        (&["http://a/", "--ammo", "-", "--answers", "-"], "both take standard input"),
        (&["http://a/", "--tls-ca", "x"], "no address begins with https://"),
    ] {
        let message = check(line).unwrap_err();
        assert!(message.contains(what), "{message}");
    }
    for line in [
        &["http://a/", "--ammo", "-", "--loops", "2"][..],
        &["http://a/", "--ammo", "x", "--vs", "http://b/"],
        &["http://a/", "--vs", "https://b/", "--tls-ca", "x"],
    ] {
        assert_eq!(check(line), Ok(()), "{line:?}");
    }
}

#[test]
fn arguments_that_would_change_nothing_of_the_ammo_are_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let check = |text: &str, more: &[&str]| {
        std::fs::write(path, text).unwrap();
        let given = arguments(&[&["http://a/", "--ammo", path][..], more].concat()).unwrap();
        let defaults = defaults(&given, &TargetUrl::parse("http://a/").unwrap());
        contradictions::check_ammo(&given, &given.ammo.open(given.seed, defaults).unwrap().unwrap().ammo)
    };
    let phantom = "18 a\nGET / HTTP/1.0\r\n\r\n";
    for (text, more, what) in [
        ("/a\n/b\n", &["--seed", "7"][..], "--seed"),
        (phantom, &["--seed", "7"], "--seed"),
        ("/a\n", &["--shuffle", "7"], "--shuffle"),
        (phantom, &["--header", "A: b"], "--header"),
    ] {
        let message = check(text, more).unwrap_err();
        assert!(message.starts_with(what) && message.contains(": "), "{message}");
    }
    for (text, more) in [
        ("/{int:1..9}\n", &["--seed", "7", "--header", "A: b"][..]),
        ("/a\n/b\n", &["--shuffle", "7"]),
        (phantom, &["--new-connections"]),
    ] {
        assert_eq!(check(text, more), Ok(()), "{more:?}");
    }
}

#[test]
fn without_a_plan_the_load_is_closed_and_with_one_open() {
    let load = |line: &[&str]| super::load(&arguments(line).unwrap(), 2).unwrap();
    assert!(matches!(load(&["http://a/"]), (Load::Closed { duration: DURATION }, CLOSED_CONNECTIONS)));
    let (Load::Open { profile, connections_at_start }, connections) = load(&["http://a/", "--rate", "5"]) else {
        panic!("a closed load");
    };
    assert_eq!((profile.total(), connections_at_start, connections), (50, 32, OPEN_CONNECTIONS_MAX));
    let (Load::Open { connections_at_start, .. }, connections) =
        load(&["http://a/", "--profile", "line(1,5,2s)", "--connections", "7"])
    else {
        panic!("a closed load");
    };
    assert_eq!((connections_at_start, connections), (7, 7));
}

#[test]
fn a_host_of_others_is_refused_until_the_user_says_that_they_may() {
    // An address reserved for documentation (RFC 5737): nothing is sent to it.
    let given = arguments(&["http://192.0.2.1/"]).unwrap();
    let target = TargetUrl::parse(given.url.as_deref().unwrap()).unwrap();
    assert!(settings(&given, &target).unwrap_err().contains("--i-may-load-this-host"));
}

#[test]
fn a_request_for_its_own_connection_asks_the_server_to_close() {
    let request = |line: &[&str]| {
        let given = arguments(line).unwrap();
        let (bytes, described) =
            source(&given, &TargetUrl::parse(given.url.as_deref().unwrap()).unwrap()).unwrap().constant().unwrap();
        (String::from_utf8(bytes).unwrap(), described.closes)
    };
    let (text, closes) = request(&["http://a/b", "--new-connections", "--header", "X: y"]);
    assert_eq!((text.as_str(), closes), ("GET /b HTTP/1.1\r\nHost: a\r\nX: y\r\nConnection: close\r\n\r\n", true));
    let (text, closes) = request(&["http://a/b", "--body", "{}"]);
    assert_eq!((text.as_str(), closes), ("POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", false));
}

#[test]
fn arguments_of_ammo_want_ammo_and_a_known_format() {
    check_refused(&["http://a/", "--answers", "x"], "--ammo");
    check_refused(
        &["http://a/", "--ammo", "x", "--ammo-format", "csv"],
        "phantom, urls, ndjson, har, access-log, uri, uripost, jsonline",
    );
    check_refused(&["http://a/", "--ammo", "x", "--body", "y"], "--body");
    let read =
        arguments(&["http://a/", "--ammo", "x", "--ammo-format", "har", "--loops", "3", "--shuffle", "7"]).unwrap();
    assert_eq!(read.ammo.ammo_format, Some(crate::ammo::Format::Har));
    assert_eq!((read.ammo.loops.map(u64::from), read.ammo.shuffle), (Some(3), Some(7)));
}

#[test]
fn the_cup_is_a_command_that_needs_no_url() {
    let read = arguments(&["cup", "a.toml", "--data", "a.zip", "b.zip", "--profile", "tenth"]).unwrap();
    let Some(LoadtestCommand::Cup(cup)) = read.command else { panic!("no command") };
    assert_eq!((cup.data.len(), cup.profile), (2, crate::cup::Contest::Tenth));
    check_refused(&["cup", "a.toml"], "--data");
    check_refused(&["cup", "a.toml", "--data", "a.zip", "--profile", "2018"], "2017, final, tenth");
}
