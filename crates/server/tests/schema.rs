//! What `/_/schema` tells.

use crate::harness::TestServer;
use serde_json::json;

#[test]
fn the_schema_tells_keys_indexes_and_unique_fields_and_their_state() {
    let more = "[collections.notes]\nkey = { field = \"id\", type = \"string\" }\nunique = [\"x\"]\nindexes = [[\"a\", \"b\"]]\n";
    let server = TestServer::start("", more);
    let told = server.get("/_/schema").json();
    let notes = json!({
        "name": "notes",
        "key": { "field": "id", "type": "string" },
        "indexes": [{ "fields": ["a", "b"], "state": "ready" }],
        "unique": [{ "field": "x", "state": "ready" }],
    });
    assert_eq!((told["collections"].as_array().map(Vec::len), &told["collections"][1]), (Some(2), &notes), "{told}");
    assert_eq!((server.metric("sapsan_schema_building"), server.metric("sapsan_schema_refused")), (0.0, 0.0));
}
