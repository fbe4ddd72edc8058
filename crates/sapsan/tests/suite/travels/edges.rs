//! Cases that random requests meet too seldom, each by name. The scripts run on an empty store.

use super::client::{Client, request_bytes};
use super::process::Server;
use super::random::LEAP_NOON;
use serde_json::Value;

/// A running server with an empty store.
struct Scene {
    client: Client,
    server: Server,
    _store: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let store = tempfile::tempdir().expect("a temporary folder");
        let server = Server::start(store.path(), LEAP_NOON);
        Scene { client: Client::new(server.address), server, _store: store }
    }

    /// A scene with user 1, location 1 and visit 1.
    fn with_a_visit() -> Scene {
        let mut scene = Scene::new();
        scene.post("/users/new", &user(1), 200);
        scene.post("/locations/new", &location(1), 200);
        scene.post("/visits/new", r#"{"id":1,"user":1,"location":1,"visited_at":100,"mark":3}"#, 200);
        scene
    }

    #[track_caller]
    fn post(&mut self, target: &str, body: &str, status: u16) {
        let answer = self.client.request("POST", target, Some(body.as_bytes()));
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, status, "POST {target} {body}: {text}");
        assert_eq!(text, if status == 200 { "{}" } else { "" }, "POST {target} {body}");
    }

    #[track_caller]
    fn status(&mut self, method: &str, target: &str, status: u16) {
        let answer = self.client.request(method, target, None);
        assert_eq!(answer.status, status, "{method} {target}: {}", String::from_utf8_lossy(&answer.body));
    }

    #[track_caller]
    fn get(&mut self, target: &str, expected: &str) {
        let answer = self.client.request("GET", target, None);
        assert_eq!((answer.status, String::from_utf8_lossy(&answer.body).as_ref()), (200, expected), "GET {target}");
    }

    #[track_caller]
    fn average(&mut self, target: &str, expected: f64) {
        let answer = self.client.request("GET", target, None);
        let body: Value = serde_json::from_slice(&answer.body).expect("a JSON body");
        assert_eq!(body["avg"].as_f64(), Some(expected), "GET {target}: {body}");
    }
}

fn user(id: u32) -> String {
    format!(
        r#"{{"id":{id},"email":"u{id}@list.me","first_name":"Инна","last_name":"Я","gender":"f","birth_date":-631065600}}"#
    )
}

fn location(id: u32) -> String {
    format!(r#"{{"id":{id},"place":"Ручей","country":"Россия","city":"Кронск","distance":10}}"#)
}

#[test]
fn a_document_comes_back_as_it_was_sent_without_white_space() {
    let mut scene = Scene::new();
    let sent = r#" { "distance" : 10, "city":"\u041a\u0440\u043e\u043d\u0441\u043a", "id":7,"place":"a\"\\\/b","country":"" } "#;
    scene.post("/locations/new", sent, 200);
    scene.get("/locations/7", r#"{"distance":10,"city":"Кронск","id":7,"place":"a\"\\/b","country":""}"#);
}

#[test]
fn keys_in_paths_are_plain_digits_within_32_bits() {
    let mut scene = Scene::new();
    scene.post("/users/new", &user(0), 200);
    scene.post("/users/new", &user(u32::MAX), 200);
    scene.status("GET", "/users/0", 200);
    scene.status("GET", "/users/4294967295", 200);
    for id in ["4294967296", "18446744073709551616", "-0", "-1", "00", "0x0", "", "new", "0/", "0/x", "0/visits/"] {
        scene.status("GET", &format!("/users/{id}"), 404);
    }
    for id in ["4294967296", "18446744073709551616", "-1", "x"] {
        scene.post(&format!("/users/{id}"), "{}", 404);
    }
}

#[test]
fn ids_in_bodies_are_whole_numbers_within_32_bits() {
    let mut scene = Scene::new();
    for id in ["-1", "4294967296", "18446744073709551616", "1.5", "1e-1", "\"1\"", "null", "true", "[1]", "{}"] {
        scene.post("/locations/new", &location(1).replace("\"id\":1", &format!("\"id\":{id}")), 400);
    }
    scene.post("/locations/new", r#"{"place":"a","country":"b","city":"c","distance":1}"#, 400);
    scene.status("GET", "/locations/1", 404);
}

#[test]
fn unknown_paths_are_not_found_and_a_path_that_takes_another_method_says_so() {
    let mut scene = Scene::with_a_visit();
    for target in
        ["/", "/user", "/users", "/users/", "/visits/1/avg", "/locations/1/visits", "/Users/1", "/users/1/visits/1"]
    {
        scene.status("GET", target, 404);
    }
    scene.status("DELETE", "/users/1", 405);
    scene.status("PUT", "/users/new", 405);
}

#[test]
fn bodies_that_break_a_rule_are_refused_and_change_nothing() {
    let mut scene = Scene::with_a_visit();
    let before = scene.client.request("GET", "/visits/1", None);
    for body in [
        "",
        " ",
        "{",
        "}",
        "[]",
        "null",
        "1",
        "\"x\"",
        "{\"mark\":1",
        "{\"mark\":1}}",
        "{\"mark\":1,}",
        "{mark:1}",
        "{\"mark\":1,\"mark\":1}",
        "{\"mark\":1,\"mar\\u006b\":1}",
        "{\"mark\":null}",
        "{\"mark\":6}",
        "{\"mark\":-1}",
        "{\"mark\":1.5}",
        "{\"mark\":\"1\"}",
        "{\"mark\":01}",
        "{\"mark\":+1}",
        "{\"id\":1}",
        "{\"id\":2}",
        "{\"nobody\":1}",
        "{\"user\":2}",
        "{\"location\":2}",
        "{\"mark\":1,\"user\":2}",
        "{\"visited_at\":9223372036854775808}",
        "{\"mark\":1}\u{0}",
        "{\"mark\": 1, \"user\": 4294967296}",
    ] {
        scene.post("/visits/1", body, 400);
    }
    assert_eq!(scene.client.request("GET", "/visits/1", None), before);
    scene.post("/visits/2", "{\"mark\":", 404);
    scene.post("/visits/1", "{}", 200);
    assert_eq!(scene.client.request("GET", "/visits/1", None), before);
}

#[test]
fn an_update_that_breaks_a_rule_in_its_last_field_leaves_nothing_behind() {
    let mut scene = Scene::with_a_visit();
    scene.post("/users/new", &user(2), 200);
    scene.post("/users/1", r#"{"email":"free@list.me","gender":"x"}"#, 400);
    scene.post("/users/2", r#"{"email":"free@list.me"}"#, 200);
    scene.post("/users/1", r#"{"gender":"m","email":"free@list.me"}"#, 400);
    scene.get("/users/1", &user(1));
    scene.post("/users/1", r#"{"email":"u2@list.me"}"#, 200);
    scene.post("/users/1", r#"{"email":"u2@list.me"}"#, 200);
}

#[test]
fn lengths_count_characters_not_bytes() {
    let mut scene = Scene::new();
    let with_city = |id: u32, city: &str| location(id).replace("Кронск", city);
    scene.post("/locations/new", &with_city(1, &"ж".repeat(50)), 200);
    scene.post("/locations/new", &with_city(2, &"ж".repeat(51)), 400);
    scene.post("/locations/new", &with_city(3, &"\u{1F600}".repeat(50)), 200);
    scene.post("/locations/new", &with_city(4, &"\\u0436".repeat(50)), 200);
    scene.post("/locations/new", &with_city(5, &"\\ud83d\\ude00".repeat(51)), 400);
    scene.post("/locations/new", &with_city(6, "\\ud83d"), 400);
}

#[test]
fn a_visit_that_moves_is_seen_where_it_went_and_no_longer_where_it_was() {
    let mut scene = Scene::with_a_visit();
    scene.post("/users/new", &user(2), 200);
    scene.post("/locations/new", &location(2).replace("Ручей", "Дол"), 200);
    scene.post("/visits/1", r#"{"user":2,"location":2,"visited_at":101}"#, 200);
    scene.get("/users/1/visits", r#"{"visits":[]}"#);
    scene.get("/users/2/visits", r#"{"visits":[{"mark":3,"visited_at":101,"place":"Дол"}]}"#);
    scene.average("/locations/1/avg", 0.0);
    scene.average("/locations/2/avg", 3.0);
    scene.average("/locations/2/avg?gender=m", 0.0);
    scene.post("/users/2", r#"{"gender":"m"}"#, 200);
    scene.average("/locations/2/avg?gender=m", 3.0);
}

#[test]
fn visits_of_one_moment_are_ordered_by_id() {
    let mut scene = Scene::with_a_visit();
    for (id, mark) in [(300, 1), (2, 2), (256, 4)] {
        scene.post(
            "/visits/new",
            &format!(r#"{{"id":{id},"user":1,"location":1,"visited_at":100,"mark":{mark}}}"#),
            200,
        );
    }
    let row = |mark| format!(r#"{{"mark":{mark},"visited_at":100,"place":"Ручей"}}"#);
    scene.get("/users/1/visits", &format!(r#"{{"visits":[{},{},{},{}]}}"#, row(3), row(2), row(4), row(1)));
}

#[test]
fn averages_that_tie_at_the_sixth_decimal_are_rounded_up() {
    let mut scene = Scene::with_a_visit();
    scene.post("/visits/1", r#"{"mark":1}"#, 200);
    for id in 2..=64 {
        scene.post("/visits/new", &format!(r#"{{"id":{id},"user":1,"location":1,"visited_at":1,"mark":0}}"#), 200);
    }
    scene.average("/locations/1/avg", 0.01563); // 1/64 = 0.015625
    scene.post("/visits/2", r#"{"mark":2}"#, 200);
    scene.average("/locations/1/avg", 0.04688); // 3/64 = 0.046875
}

#[test]
fn ages_are_counted_in_calendar_years_up_to_the_second() {
    let mut scene = Scene::with_a_visit();
    // Now is 2024-02-29 12:00; one year before is 2023-03-01 12:00.
    let cut = super::model::years_before(LEAP_NOON, 1);
    for (birth, from_age, to_age) in [(cut - 1, 3.0, 0.0), (cut, 0.0, 0.0), (cut + 1, 0.0, 3.0)] {
        scene.post("/users/1", &format!(r#"{{"birth_date":{birth}}}"#), 200);
        scene.average("/locations/1/avg?fromAge=1", from_age);
        scene.average("/locations/1/avg?toAge=1", to_age);
    }
}

#[test]
fn of_repeated_parameters_the_first_counts_and_unknown_ones_do_not() {
    let mut scene = Scene::with_a_visit();
    let all = r#"{"visits":[{"mark":3,"visited_at":100,"place":"Ручей"}]}"#;
    scene.get("/users/1/visits?fromDate=99&fromDate=x", all);
    scene.get("/users/1/visits?query_id=&x=%zz&%ff=1", all);
    scene.get("/users/1/visits?country=%D0%A0%d0%be%D1%81%D1%81%D0%B8%D1%8F", all);
    for query in
        ["fromDate=x&fromDate=99", "country=", "country", "toDistance=", "fromDate=%zz", "country=%ff", "toDate=1.0"]
    {
        scene.status("GET", &format!("/users/1/visits?{query}"), 400);
        scene.status("GET", &format!("/users/2/visits?{query}"), 404);
    }
    scene.post("/users/1?query_id=1", "{}", 200);
}

#[test]
fn a_read_pipelined_behind_a_write_sees_it() {
    let mut scene = Scene::with_a_visit();
    for mark in (0..=5).cycle().take(60) {
        let mut bytes = request_bytes("POST", "/visits/1", Some(format!("{{\"mark\":{mark}}}").as_bytes()));
        bytes.extend(request_bytes("GET", "/locations/1/avg", None));
        bytes.extend(request_bytes("GET", "/visits/1", None));
        scene.client.send(&bytes).expect("sent");
        assert_eq!(scene.client.receive().expect("the write's reply").status, 200);
        let average = scene.client.receive().expect("the average");
        let average: Value = serde_json::from_slice(&average.body).expect("a JSON body");
        assert_eq!(average["avg"].as_f64(), Some(f64::from(mark)));
        let visit = scene.client.receive().expect("the visit");
        let visit: Value = serde_json::from_slice(&visit.body).expect("a JSON body");
        assert_eq!(visit["mark"].as_i64(), Some(i64::from(mark)));
    }
}

#[test]
fn stray_bytes_behind_a_closing_request_never_cost_the_reply() {
    let mut scene = Scene::with_a_visit();
    for _ in 0..200 {
        let body = r#"{"mark":4}"#;
        let length = body.len();
        let request = format!(
            "POST /visits/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}\r\n"
        );
        let mut client = Client::new(scene.server.address);
        client.send(request.as_bytes()).expect("sent");
        assert_eq!(client.receive().expect("a reply").status, 200);
    }
    scene.average("/locations/1/avg", 4.0);
}
