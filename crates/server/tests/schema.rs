//! The replies of `/_/schema`.

use crate::harness::TestServer;
use serde_json::json;

#[test]
fn the_schema_tells_keys_indexes_and_unique_fields_and_their_state() {
    let more = "[collections.notes]\nkey = { field = \"id\", type = \"string\" }\nunique = [\"x\", [\"a\", \"b\"]]\nindexes = [[\"a\", \"b\"]]\n";
    let more = format!(
        "{more}[collections.orders]\nkey = {{ field = \"id\", type = \"u32\" }}\nindexes = [[\"at\", \"by\"]]\n\
         expire = {{ after_seconds = 60 }}\n[collections.tokens]\nkey = {{ field = \"id\", type = \"u32\" }}\n\
         expire = {{ field = \"until\", after_seconds = 5 }}\n\
         [[endpoints]]\nroute = \"GET /by/{{at}}\"\nquery = \"SELECT at, by, sum FROM orders WHERE at = :at\"\n"
    );
    let server = TestServer::start("", &more);
    let told = server.get("/_/schema").json();
    let notes = json!({
        "name": "notes",
        "key": { "field": "id", "type": "string" },
        "indexes": [{ "fields": ["a", "b"], "state": "ready" }],
        "unique": [{ "field": "x", "state": "ready" }, { "fields": ["a", "b"], "state": "ready" }],
    });
    assert_eq!((told["collections"].as_array().map(Vec::len), &told["collections"][1]), (Some(4), &notes), "{told}");
    let orders = &told["collections"][2];
    assert_eq!(
        orders["indexes"],
        json!([{ "fields": ["at", "by"], "include": ["at", "by", "sum"], "state": "ready" }])
    );
    assert!(orders["expire"]["after_seconds"] == 60 && orders["expire"]["since"].is_i64(), "{orders}");
    let tokens = &told["collections"][3];
    assert_eq!(tokens["expire"], json!({ "field": "until", "after_seconds": 5 }));
    assert_eq!(tokens["indexes"], json!([{ "fields": ["until"], "state": "ready" }]));
    assert_eq!((server.metric("sapsan_schema_building"), server.metric("sapsan_schema_refused")), (0.0, 0.0));
}
