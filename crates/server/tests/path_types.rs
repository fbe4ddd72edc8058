//! Undeclared path parameters: their types follow from the endpoint's statements.

use crate::harness::{SERVER, TestServer};

const FILE: &str = r#"
[collections.trees]
key = { field = "id", type = "u32" }
[collections.trees.schema]
type = "object"
properties = { id = { type = "integer" }, height = { type = "number" }, rings = { type = "integer" }, name = { type = "string" } }
[collections.nests]
key = { field = "id", type = "u32", generate = "counter" }
[views.ages]
query = "SELECT rings, COUNT(*) AS trees FROM trees GROUP BY rings"

[[endpoints]]
route = "GET /ages/{rings}"
query = "SELECT trees FROM ages WHERE rings = :rings"
[[endpoints]]
route = "GET /trees/{id}"
query = "SELECT name FROM trees WHERE id = :id"
[[endpoints]]
route = "GET /high/{height}"
query = "SELECT id FROM trees WHERE height >= :height ORDER BY id"
[[endpoints]]
route = "GET /between/{low}/{high}"
query = "SELECT id FROM trees WHERE rings BETWEEN :low AND :high AND (:high IS NULL OR id IN (1, 2, 3, :low)) ORDER BY id"
[[endpoints]]
route = "GET /inner/{id}"
query = "SELECT COUNT(*) AS n FROM trees t WHERE EXISTS (SELECT 1 FROM trees u WHERE u.id = :id AND u.rings = t.rings)"
[[endpoints]]
route = "GET /named/{name}"
query = "SELECT id FROM trees WHERE name = :name"
[[endpoints]]
route = "GET /either/{of}"
query = "SELECT id FROM trees WHERE id = :of OR name = :of ORDER BY id"
[[endpoints]]
route = "GET /shown/{id}"
query = "SELECT :id AS id, typeof(:id) AS is FROM trees WHERE id = :id"
[[endpoints]]
route = "GET /said/{id}"
query = "SELECT name FROM trees WHERE id = :id"
params = { id = "string" }
[[endpoints]]
route = "GET /unknown/{tree}"
query = "SELECT id FROM nests WHERE tree = :tree"
[[endpoints]]
route = "POST /trees/{id}/rings"
steps = [
  { sql = "UPDATE trees SET rings = rings + 1 WHERE id = :id", expect = "rows = 1", else = 404 },
  { sql = "SELECT rings FROM trees WHERE id = :id" },
]
[[endpoints]]
route = "PUT /trees/{id}/rings/{rings}"
steps = [{ sql = "UPDATE trees SET rings = :rings WHERE id = :id RETURNING rings, typeof(rings) AS is" }]
[[endpoints]]
route = "POST /nests/{tree}"
steps = [{ sql = "INSERT INTO nests (tree) VALUES (:tree) RETURNING typeof(tree) AS is" }]
"#;

fn server() -> TestServer {
    let server = TestServer::of_file(&format!("{FILE}\n[server]\n{SERVER}")).unwrap_or_else(|error| panic!("{error}"));
    for tree in [
        r#"{"id":1,"height":10,"rings":5,"name":"oak"}"#,
        r#"{"id":2,"height":10.5,"rings":6,"name":"2"}"#,
        r#"{"id":3,"height":11,"rings":5,"name":"elm"}"#,
    ] {
        assert_eq!(server.ask("POST", "/_/collections/trees", "", tree.as_bytes()).status, 201);
    }
    server
}

#[track_caller]
fn check(server: &TestServer, target: &str, status: u16, body: &str) {
    let (method, target) = target.split_once(' ').unwrap_or(("GET", target));
    let answer = server.ask(method, target, "", b"");
    assert_eq!((answer.status, answer.text()), (status, body), "{target}");
}

#[test]
fn what_is_only_compared_with_numbers_is_a_number() {
    let server = server();
    check(&server, "/trees/1", 200, r#"[{"name":"oak"}]"#);
    check(&server, "/ages/5", 200, r#"[{"trees":2}]"#);
    check(&server, "/high/10.5", 200, r#"[{"id":2},{"id":3}]"#);
    check(&server, "/between/3/5", 200, r#"[{"id":1},{"id":3}]"#);
    check(&server, "/inner/1", 200, r#"[{"n":2}]"#);
    for target in ["/trees/oak", "/trees/1.5", "/high/x", "/between/1/x"] {
        let answer = server.get(target);
        assert!(answer.status == 404 && answer.text().contains(" in the path is not "), "{target}: {}", answer.text());
    }
}

#[test]
fn what_is_text_somewhere_or_is_shown_stays_text() {
    let server = server();
    check(&server, "/named/2", 200, r#"[{"id":2}]"#);
    check(&server, "/either/2", 200, r#"[{"id":2}]"#);
    check(&server, "/shown/1", 200, "[]");
    check(&server, "/unknown/1", 200, "[]");
}

#[test]
fn a_declared_type_is_the_type() {
    check(&server(), "/said/1", 200, "[]");
}

#[test]
fn all_steps_are_asked_and_what_they_give_to_fields() {
    let server = server();
    check(&server, "POST /trees/1/rings", 200, r#"[{"rings":6}]"#);
    check(&server, "PUT /trees/1/rings/9", 200, r#"[{"rings":9,"is":"integer"}]"#);
    check(&server, "POST /nests/1", 200, r#"[{"is":"text"}]"#);
    assert_eq!(server.ask("POST", "/trees/oak/rings", "", b"").status, 404);
}

#[test]
fn the_openapi_document_says_it() {
    let document = server().get("/_/openapi.json").json();
    let kind = |path: &str, place: usize| document["paths"][path]["get"]["parameters"][place]["schema"]["type"].clone();
    assert_eq!(kind("/trees/{id}", 0), "integer");
    assert_eq!(kind("/high/{height}", 0), "number");
    assert_eq!(kind("/named/{name}", 0), "string");
}
