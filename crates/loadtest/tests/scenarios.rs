//! Scenarios: users that take values from replies and think between their steps.

use crate::harness::{Answer, Server, closed, finish, reply};
use loadtest::ammo::Defaults;
use loadtest::engine::{Finished, Load, LoadSettings, Watchers};
use loadtest::scenario::{Scenario, StepNames};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SCENARIO: &str = r#"
    [[step]]
    name = "sign in"
    path = "/sessions"
    json = '{"user":{seq}}'
    expect_status = 201
    take = { token = "json:/token", me = "header:Location" }
    [[step]]
    name = "me"
    path = "{me}?token={token}"
    take = { next = 'regex:next=(\w+)' }
    [[step]]
    path = "/feed/{next}"
    headers = { X-Token = "{token}" }
"#;

/// A load of so many users who follow a scenario.
fn load(server: &Server, users: u32, milliseconds: u64, text: &str) -> LoadSettings {
    let scenario = Arc::new(Scenario::parse("file", text, &Defaults::new("test", Vec::new()), 1).unwrap());
    let load = Load::Users { duration: Duration::from_millis(milliseconds), scenario };
    LoadSettings { load, connections: users, ..closed(server.address, milliseconds) }
}

fn run(settings: &LoadSettings) -> Finished {
    let Load::Users { scenario, .. } = &settings.load else { panic!("no scenario") };
    finish(settings, Box::new(StepNames::of(scenario)), Watchers::default())
}

/// A service with sessions: it checks that each value comes back where the scenario puts it.
fn service(faults: &'static str) -> (Server, Arc<Mutex<HashSet<String>>>) {
    let tokens = Arc::new(Mutex::new(HashSet::new()));
    let known = Arc::clone(&tokens);
    let server = Server::start(move |arrived| {
        let target = arrived.head.split(' ').nth(1).unwrap_or_default();
        let number = arrived.number;
        if target == "/sessions" {
            known.lock().unwrap().insert(format!("t{number}"));
            let body = if faults == "no token" { "{}".to_owned() } else { format!("{{\"token\":\"t{number}\"}}") };
            let length = body.len();
            let head = format!("HTTP/1.1 201 Created\r\nLocation: /users/{number}\r\nContent-Length: {length}\r\n\r\n");
            // The harness takes the body of a request for the beginning of the next head.
            return Answer::Bytes((head + &body).into_bytes());
        }
        if let Some(token) = target.strip_prefix("/users/").and_then(|rest| rest.split_once("?token=")) {
            let is_known = known.lock().unwrap().contains(token.1) && token.1 == format!("t{}", token.0);
            return Answer::Bytes(if is_known {
                reply(200, &format!("<a href=?next={}>", token.1))
            } else {
                reply(401, "")
            });
        }
        let token = arrived.head.lines().find_map(|line| line.strip_prefix("X-Token: ")).unwrap_or_default();
        Answer::Bytes(if target == format!("/feed/{token}") { reply(200, "[]") } else { reply(404, "") })
    });
    (server, tokens)
}

#[test]
fn values_of_replies_come_back_in_later_requests() {
    let (server, tokens) = service("");
    let finished = run(&load(&server, 4, 1_000, SCENARIO));
    let recording = finished.recording;
    assert!(recording.outcome.right > 0 && recording.outcome.errors() == 0, "{:?}", recording.outcome);
    let passes = recording.passes.unwrap();
    assert!(passes.complete > 0);
    let of =
        |name: &str| recording.tags.iter().find(|tag| tag.name == name).map(|tag| (tag.requests, tag.errors)).unwrap();
    assert_eq!((of("GET /feed/{next}").1, passes.given_up, finished.missing_values.len()), (0, 0, 0));
    assert_eq!(passes.complete, of("GET /feed/{next}").0);
    // Users that were in the middle at the end have made earlier steps.
    assert!(
        (0..=4).contains(&(of("sign in").0 - passes.complete))
            && of("sign in").0 == tokens.lock().unwrap().len() as u64
    );
}

#[test]
fn a_value_that_is_missing_is_a_wrong_answer_that_says_which() {
    let (server, _) = service("no token");
    let finished = run(&load(&server, 2, 100, SCENARIO));
    let outcome = &finished.recording.outcome;
    assert!(outcome.wrong == outcome.planned && outcome.planned > 0, "{outcome:?}");
    let passes = finished.recording.passes.unwrap();
    assert_eq!((passes.complete, passes.given_up), (0, outcome.planned));
    assert_eq!(
        finished.missing_values[0],
        "step \"sign in\", token = \"json:/token\": the body has no such value (status 201)"
    );
    assert!(finished.missing_values.len() <= 10);
}

#[test]
fn users_think_between_their_steps() {
    let server = Server::start(|_| Answer::Bytes(reply(200, "")));
    let text = "[[step]]\npath = \"/\"\nthink = \"100ms..150ms\"\n";
    let recording = run(&load(&server, 3, 1_000, text)).recording;
    // Each of the three users makes at most one request in 100 ms; on a machine that is busy, fewer.
    assert!((3..=30).contains(&recording.outcome.right), "{:?}", recording.outcome);
    assert_eq!(recording.outcome.errors(), 0);
    assert!(recording.latencies.latency.value_at_quantile(0.5) < 50_000_000, "thinking is no latency");
}

#[test]
fn a_lost_connection_begins_the_scenario_again() {
    let server = Server::start(|arrived| match arrived.head.contains("/second") {
        true => Answer::Last(Vec::new()),
        false => Answer::Bytes(reply(200, "")),
    });
    let text = "[[step]]\npath = \"/first\"\n[[step]]\npath = \"/second\"\n[[step]]\npath = \"/third\"\n";
    let mut settings = load(&server, 1, 300, text);
    (settings.threads, settings.timeout) = (1, Duration::from_secs(5));
    let recording = run(&settings).recording;
    let requests = |name: &str| recording.tags.iter().find(|tag| tag.name == name).map_or(0, |tag| tag.requests);
    let (first, second) = (requests("GET /first"), requests("GET /second"));
    assert!(first >= second && first - second <= 1 && requests("GET /third") == 0, "{:?}", recording.tags);
    assert_eq!(recording.passes.unwrap().given_up, recording.outcome.failures.closed);
    assert!(recording.outcome.failures.closed > 1, "{:?}", recording.outcome);
}
