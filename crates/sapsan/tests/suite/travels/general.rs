//! The general API under more than it takes: what is over a bound is told as such, and nothing else suffers.

use super::client::{Answer, Client, request_bytes};
use super::process::Server;

/// Visits of the one user; a join of them with themselves keeps a thread busy for a while.
const VISITS: usize = 400;

fn server_with_visits() -> (tempfile::TempDir, Server) {
    let data = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(data.path(), 0);
    let mut client = Client::new(server.address);
    let user = br#"{"id":1,"email":"a@b","first_name":"A","last_name":"B","gender":"m","birth_date":1}"#;
    let location = br#"{"id":1,"place":"p","country":"c","city":"t","distance":1}"#;
    assert_eq!(client.request("POST", "/users/new", Some(user)).status, 200);
    assert_eq!(client.request("POST", "/locations/new", Some(location)).status, 200);
    let visits: String = (0..VISITS)
        .map(|id| format!("{{\"id\":{id},\"user\":1,\"location\":1,\"visited_at\":{id},\"mark\":3}}\n"))
        .collect();
    let answer = client.request("POST", "/_/collections/visits/bulk", Some(visits.as_bytes()));
    assert_eq!((answer.status, String::from_utf8_lossy(&answer.body).as_ref()), (200, ""));
    (data, server)
}

#[test]
fn queries_beyond_the_queue_are_told_to_come_again() {
    let (_data, server) = server_with_visits();
    let sql = br#"{"sql":"SELECT COUNT(*) AS n FROM visits a JOIN visits b ON b.user = a.user WHERE a.mark = b.mark"}"#;
    let query = request_bytes("POST", "/_/query", Some(sql));
    let mut client = Client::new(server.address);
    // Two run, 64 wait.
    client.send(&query.repeat(100)).expect("the requests are sent");
    let answers: Vec<Answer> = (0..100).map(|_| client.receive().expect("each has its reply")).collect();
    let of = |status| answers.iter().filter(move |answer| answer.status == status).count();
    assert!(of(200) >= 64, "{} were answered", of(200));
    assert_eq!(of(200) + of(503), 100, "{:?}", answers.iter().map(|answer| answer.status).collect::<Vec<_>>());
    let busy = answers.iter().find(|answer| answer.status == 503).expect("one is over the queue");
    assert!(String::from_utf8_lossy(&busy.body).contains("too many requests"));
    server.stop();
}

#[test]
fn a_bulk_request_has_no_bound_of_lines_and_tells_each_that_is_refused() {
    let (_data, server) = server_with_visits();
    let mut client = Client::new(server.address);
    let lines = b"{}\n".repeat(10_001);
    let answer = client.request("POST", "/_/collections/visits/bulk", Some(&lines));
    let told = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status, 200);
    let more =
        told.lines().find_map(|line| line.strip_prefix("{\"detail\":")?.split("\"more\":").nth(1)?.split(',').next());
    let more: usize = more.map_or(0, |count| count.parse().expect("a count"));
    let listed = told.lines().filter(|line| line.contains("\"line\":")).count();
    assert_eq!(listed + more, 10_001, "{told}");
    let mut some = b"{}\n\n".to_vec();
    some.extend_from_slice(br#"{"id":1000000,"user":1,"location":1,"visited_at":1,"mark":3}"#);
    let answer = client.request("POST", "/_/collections/visits/bulk", Some(&some));
    let told = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(answer.status == 200 && told.lines().count() == 1 && told.contains("\"line\":1"), "{told}");
    assert_eq!(client.request("GET", "/visits/1000000", None).status, 200);
    server.stop();
}
