//! Messages for a broken file: file, line, column, what is wrong, what is allowed.

use crate::harness::mistakes;
use server::config::ServiceConfig;

const COLLECTION: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";

/// An endpoint after a collection: its first line is the file's fourth.
#[track_caller]
fn check_endpoint(endpoint: &str, told: &[&str]) {
    check(&format!("{COLLECTION}[[endpoints]]\n{endpoint}\n"), told);
}

/// Checks one mistake: it begins with the place and contains the other pieces. Without pieces: no mistake.
#[track_caller]
fn check(config: &str, told: &[&str]) {
    let all = mistakes(config);
    let Some((place, pieces)) = told.split_first() else { return assert_eq!(all, "") };
    let line = all.lines().find(|line| line.contains(&format!("service.toml:{place}: ")));
    let line = line.unwrap_or_else(|| panic!("nothing at {place} in: {all}"));
    for piece in pieces {
        assert!(line.contains(piece), "`{piece}` is not in: {line}");
    }
}

#[test]
fn values_of_the_wrong_kind_or_size() {
    for (config, told) in [
        ("[server]\nhttp = \"localhost\"", ["2:8", "`server.http` is \"localhost\"", "ADDRESS:PORT"]),
        ("[server]\nhttp = \"example.com:80\"", ["2:8", "is \"example.com:80\"", "or localhost:8080"]),
        ("[server]\nthreads = 1.5", ["2:11", "is a float", "an integer from 1 to 256"]),
        ("[server]\nmemory = 1", ["2:10", "`server.memory` is 1", "from 33554432"]),
        ("[server]\nmemory = -5", ["2:10", "`server.memory` is -5", "from 33554432"]),
        ("[server]\nbody_bytes_max = \"1TB\"", ["2:18", "is \"1TB\"", "from 1 KiB to 64 MiB"]),
        ("[server]\nchanges_kept_bytes = \"1MB\"", ["2:22", "is \"1MB\"", "from 16 MiB to 64 GiB"]),
        ("[server]\nchanges_kept_seconds = 60", ["2:24", "without `changes_kept_bytes`", "both, or the bytes alone"]),
        (
            "[server]\ndurability = \"maybe\"",
            ["2:14", "is \"maybe\"", "\"commit\", \"none\", { interval_seconds = N }"],
        ),
        ("[server]\ntrusted_proxies = \"::1\"", ["2:19", "`server.trusted_proxies` is a string", "a list"]),
        (
            "[server]\ntrusted_proxies = [\"::1\", \"proxy.lan\"]",
            ["2:27", "is \"proxy.lan\"", "an address, a network as in 10.0.0.0/8 or fd00::/8, or \"unix\""],
        ),
        (
            "[server]\ntrusted_proxies = [\"10.0.0.1/8\"]",
            ["2:20", "is \"10.0.0.1/8\"", "the network itself: \"10.0.0.0/8\""],
        ),
        ("[server]\ndurability = 5", ["2:14", "is an integer", "\"commit\", \"none\", { interval_seconds = N }"]),
        (
            "[server]\nquery_model = \"event-loop\"",
            ["2:15", "is \"event-loop\"", "\"pool\", \"io-aware\", \"work-stealing\""],
        ),
        ("[server]\ncold_model = \"inline\"", ["2:14", "is \"inline\"", "\"pool\", \"io-aware\", \"work-stealing\""]),
        ("[server]\nredis = \"x\"", ["2:1", "`redis` in [server] is not supported yet", "allowed: http"]),
        ("[server]\ntls = \"x\"", ["2:7", "`server.tls` is a string", "a table"]),
        ("[server]\ntls = { cert = \"no.pem\", key = \"no.key\" }", ["2:7", "cannot read", "no.pem: No such file"]),
        ("server = 5", ["1:10", "`server` is an integer", "a table"]),
        ("endpoints = 5", ["1:13", "`endpoints` is an integer", "a list"]),
        ("[errors]\ninvalid = 200", ["2:11", "`errors.invalid` is 200", "from 400 to 599"]),
        ("[collections.\"a b\"]\n", ["1:14", "cannot be named \"a b\"", "a-z"]),
        ("[collections.c]\nkey = { field = \"\", type = \"u32\" }", ["2:17", "the name of no field", "empty"]),
        (
            "[collections.c]\nkey = { field = \"a\", type = \"x\" }",
            ["2:29", "is \"x\"", "\"u32\", \"i64\", \"string\""],
        ),
        ("[params.now]\ntype = \"date\"", ["2:8", "is \"date\"", "\"integer\""]),
    ] {
        check(config, &told);
    }
}

#[test]
fn routes_that_no_request_can_have() {
    for (pattern, why) in [
        ("/a b", "' ' cannot stand in a path"),
        ("/a\\n", "'\\n' cannot stand in a path"),
        ("/caf\u{e9}", "'\u{e9}' cannot stand in a path, unless escaped"),
        ("/a?x=1", "a path ends before `?`"),
        ("/a#x", "a path ends before `#`"),
        ("/a%zz", "% is not followed by two hexadecimal digits"),
        ("/a/../b", "clients remove the segment `..` from a path"),
        ("/x{id}y", "a parameter is a whole segment of the path"),
        ("/{id", "a parameter is a whole segment of the path"),
        ("/{*rest}", "`{*rest}` is no parameter"),
        ("/{id}/{id}", "{id} is listed twice"),
    ] {
        let endpoint = format!("route = \"GET {pattern}\"\nquery = \"SELECT id FROM items\"");
        check_endpoint(&endpoint, &["4:9", "`endpoints[0].route` is", why, "allowed: \"METHOD /path/{parameter}\""]);
    }
    for pattern in ["/a%20b/{id}", "/a-b.c_d~e/{id_2}", "/a:b@c/", "/"] {
        check_endpoint(&format!("route = \"GET {pattern}\"\nquery = \"SELECT id FROM items\""), &[]);
    }
}

#[test]
fn endpoints_that_contradict_themselves() {
    let bounds = |bounds: &str| {
        format!(
            "route = \"GET /x\"\nquery = \"SELECT id FROM items\"\nparams = {{ x = {{ type = \"integer\", {bounds} }} }}"
        )
    };
    check_endpoint("route = \"GET /i/{id}\"\ndelete = \"items/{id}\"", &["3:1", "a GET that writes", "POST, PUT"]);
    check_endpoint("route = \"GET /x\"", &["3:1", "no action", "one of get, insert"]);
    check_endpoint("route = \"get /x\"\nget = \"items/{id}\"", &["4:9", "is \"get /x\"", "GET, POST"]);
    check_endpoint("route = \"GET /x\"\nget = \"items/{id}\"", &["5:7", "uses {id}, which the route /x does not have"]);
    check_endpoint(&bounds("min = 5, max = 1"), &["6:12", "`min` is 5 and `max` is 1"]);
    check_endpoint(&bounds("min = 1, default = 0"), &["6:55", "the default of `x` is none of its own values"]);
    check_endpoint(&bounds("enum = [1, 2], default = 3"), &["6:61", "the default of `x`"]);
    check_endpoint(&bounds("min = 1, max = 5, default = 5"), &[]);
}

#[test]
fn files_are_checked_with_their_places() {
    // A folder that exists on every machine.
    let files = |route: &str, files: &str| format!("route = \"{route}\"\nfiles = {files}");
    let check_files = |route: &str, value: &str, told: &[&str]| check_endpoint(&files(route, value), told);
    check_files("GET /a/{*path}", "\"/usr\"", &[]);
    check_files("GET /{*path}", "{ folder = \"/usr\", index = true, hidden = true, immutable = false }", &[]);
    check_files("GET /{section}/{*path}", "\"/usr\"", &[]);
    let missing = ["5:9", "cannot open the folder", "missing: No such file", "relative to this file"];
    check_files("GET /a/{*path}", "\"missing\"", &missing);
    check_files("GET /a/{*path}", "{ folder = \"service.toml\" }", &["5:20", "Not a directory"]);
    check_files("GET /a/{*path}", "{ index = true }", &["5:1", "needs `folder`"]);
    check_files(
        "GET /a/{*path}",
        "{ folder = \"/usr\", follow = true }",
        &["5:28", "unknown key `follow`", "immutable"],
    );
    check_files("GET /a/{*path}", "\".\"", &["5:9", "would serve this file", "a folder of its own"]);
    check_files("GET /a/{*path}", "\"..\"", &["5:9", "would serve this file"]);
    check_files("GET /a/{*path}", "5", &["5:9", "is an integer", "text"]);
    check_files("GET /a/{path}", "\"/usr\"", &["5:9", "no parameter for the path of the file", "GET /path/{*name}"]);
    check_files("GET /a", "\"/usr\"", &["5:9", "no parameter for the path of the file"]);
    check_files("POST /a/{*path}", "\"/usr\"", &["5:9", "the method POST"]);
    check_files("GET /a/{*path}/b", "\"/usr\"", &["4:9", "`{*path}` is no parameter"]);
    check_files("GET /{path}/{*path}", "\"/usr\"", &["4:9", "{path} is listed twice"]);
    let more = |more: &str| format!("{}\n{more}", files("GET /a/{*path}", "\"/usr\""));
    check_endpoint(&more("query = \"SELECT id FROM items\""), &["3:1", "2 actions"]);
    check_endpoint(&more("require = \"items/{path}\""), &["6:11", "`require` beside `files`"]);
    check_endpoint(&more("params = { a = \"text\" }"), &["6:10", "`params` beside `files`"]);
    check_endpoint(&more("limit = 5"), &["6:9", "`limit` belongs to `query`"]);
    let twice = "[[endpoints]]\nroute = \"GET /a/\"\nquery = \"SELECT id FROM items\"";
    let index = files("GET /a/{*path}", "{ folder = \"/usr\", index = true }");
    check_endpoint(&format!("{index}\n{twice}"), &["6:1", "/a/"]);
}

#[test]
fn steps_are_checked_with_their_places() {
    let steps = |steps: &str| format!("route = \"POST /x/{{id}}\"\nsteps = [\n{steps}\n]");
    let check_steps = |text: &str, told: &[&str]| check_endpoint(&steps(text), told);
    check_steps("{ sql = \"UPDATE items SET a = 1 WHERE id = :id\", expect = \"rows = 1\", else = 404 }", &[]);
    check_endpoint("route = \"POST /x\"\nsteps = []", &["5:9", "0 steps", "1 to 16"]);
    check_endpoint("route = \"GET /x\"\nsteps = [{ sql = \"DELETE FROM items\" }]", &["5:9", "a GET that writes"]);
    check_steps("{ expect = \"rows\" }", &["6:1", "needs `sql`"]);
    check_steps("{ sql = \"DELETE FROM item\" }", &["6:9", "line 1, column 13: no collection \"item\""]);
    check_steps("{ sql = \"DELETE FROM items\", expect = \"lines > 0\" }", &["6:39", "line 1, column 1: no field"]);
    check_steps("{ sql = \"DELETE FROM items\", expect = \"rows >\" }", &["6:39", "the expectation is incomplete"]);
    check_steps("{ sql = \"DELETE FROM items\", else = 409 }", &["6:37", "without `expect`"]);
    check_steps("{ sql = \"DELETE FROM items\", expect = \"rows\", else = 200 }", &["6:54", "from 400 to 599"]);
    check_steps("{ sql = \"DELETE FROM items WHERE id = :key\" }", &["6:9", "no value for :key; there are: id"]);
    check_steps("{ sql = \"DELETE FROM items\", status = 409 }", &["6:30", "unknown key `status`"]);
    let more = |more: &str| format!("{}\n{more}", steps("{ sql = \"DELETE FROM items\" }"));
    check_endpoint(&more("result = \"row\""), &["5:9", "the last step gives no rows"]);
    check_endpoint(&more("wrap = \"x\"\nreply = {}"), &["8:8", "`wrap` is about the last step's rows"]);
    check_endpoint(&more("limit = 5"), &["8:9", "`limit` belongs to `query`"]);
    check_endpoint(&more("status = 404"), &["8:10", "from 200 to 299"]);
    let id = "body = { properties = { id = { type = \"integer\" } } }";
    check_endpoint(&more(id), &["8:8", "a field `id`, which is a part of the path too"]);
    check_endpoint(&more("body = { type = \"objekt\" }"), &["8:8", "no JSON Schema of a body"]);
    check_endpoint("route = \"POST /x\"\ninsert = \"items\"\nbody = {}", &["6:8", "`body` belongs to `steps`"]);
}

#[test]
fn ways_to_sort_are_checked_with_their_places() {
    let query = |sort: &str| format!("route = \"GET /x\"\nquery = \"SELECT id FROM items\"\n{sort}");
    check_endpoint(&query("sort = { id = \"ORDER BY id\", last = \"WHERE id > 5 ORDER BY id DESC\" }"), &[]);
    check_endpoint(&query("sort = { id = \"ORDER BY id LIMIT\" }"), &["6:15", "Expected: an expression"]);
    check_endpoint(&query("sort = {}"), &["6:8", "0 ways to sort", "1 to 32"]);
    check_endpoint(&query("sort = { id = 5 }"), &["6:15", "is an integer", "text"]);
    let clash = "sort = { id = \"ORDER BY id\" }\nparams = { sort = \"integer\" }";
    check_endpoint(&query(clash), &["6:8", "a built-in parameter"]);
}

#[test]
fn pages_are_checked_with_their_places() {
    let of = |sql: &str, more: &str| format!("route = \"GET /x\"\nquery = \"{sql}\"\n{more}");
    let query = |more: &str| of("SELECT id FROM items", more);
    check_endpoint(&query("page = { limit = 5 }"), &[]);
    check_endpoint(&query("page = { limit = 5, max = 10000 }\nwrap = \"rows\""), &[]);
    check_endpoint(&query("page = 5"), &["6:8", "`endpoints[0].page` is an integer", "a table"]);
    check_endpoint(&query("page = { max = 5 }"), &["6:1", "needs `limit`"]);
    check_endpoint(&query("page = { limit = 0 }"), &["6:18", "is 0", "from 1 to 10000"]);
    check_endpoint(&query("page = { limit = 5, max = 4 }"), &["6:27", "is 4", "from 5 to 10000"]);
    check_endpoint(&query("page = { limit = 5, most = 9 }"), &["6:21", "unknown key `most`", "limit, max"]);
    check_endpoint(&query("page = { limit = 5 }\nlimit = 7"), &["7:9", "`limit` beside `page`"]);
    check_endpoint(&query("page = { limit = 5 }\nresult = \"row\""), &["7:10", "a page of one row"]);
    check_endpoint(&query("page = { limit = 5 }\nwrap = \"after\""), &["7:8", "the name of the cursor"]);
    let clash = "page = { limit = 5 }\nparams = { after = \"integer\" }";
    check_endpoint(&query(clash), &["6:8", "`after` is a built-in parameter of `page`"]);
    check_endpoint("route = \"GET /x/{id}\"\nget = \"items/{id}\"\npage = {}", &["6:8", "`page` belongs to `query`"]);
    let page = "page = { limit = 5 }";
    check_endpoint(&of("SELECT id FROM items LIMIT 3", page), &["5:9", "line 1, column 28: ", "no LIMIT and OFFSET"]);
    check_endpoint(&of("SELECT 1 AS one", page), &["5:9", "line 1, column 1: a query without FROM is one row"]);
    let rolled = format!(
        "{COLLECTION}[views.v]\nquery = \"SELECT a, b, COUNT(*) AS n FROM items GROUP BY ROLLUP (a, b)\"\n[[endpoints]]\n{}",
        of("SELECT a, n FROM v", page)
    );
    check(&rolled, &["7:9", "line 1, column 18: the view \"v\" with ROLLUP has no pages"]);
}

#[test]
fn a_file_that_is_not_utf_8_is_told_with_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("service.toml");
    std::fs::write(&path, b"[server]\n# caf\xe9\n").expect("a file");
    let error = ServiceConfig::load(&path, &[]).expect_err("no text").to_string();
    assert!(error.contains("service.toml:2:6: not UTF-8 from here on; allowed: text in UTF-8"), "{error}");
}

#[test]
fn a_folder_that_is_in_use_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("service.toml");
    std::fs::write(&path, format!("{COLLECTION}[server]\nhttp = \"127.0.0.1:0\"\n")).expect("a file");
    let config = ServiceConfig::load(&path, &[]).expect("a configuration");
    let data = folder.path().join("data");
    let running = server::start(&config, &data).expect("a server");
    let told = server::start(&config, &data).err().expect("the folder is in use").to_string();
    assert!(told.contains(&format!("{}: ", data.display())) && told.contains("another process has"), "{told}");
    running.drain();
    running.join().expect("it ends");
}

#[test]
fn localhost_is_an_address_to_listen_on() {
    check("[server]\nhttp = \"localhost:8081\"\nadmin = \"localhost:9081\"", &[]);
    check("[server]\nhttp = \"localhost:8081\"\nadmin = \"127.0.0.1:8081\"", &["1:2", "are one address"]);
    check("[server]\nhttp = \"localhost:66000\"", &["2:8", "is \"localhost:66000\""]);
}

/// Sixteen mistakes, none of which follows from another, among statements that use faulty parts.
const MANY: &str = r#"
[server]
threads = 0

[params]
now = { type = "date" }

[collections.items]
key = { field = "id", type = "u32" }
schema = { type = "object", additionalProperties = false, properties = { id = { type = "integer" }, price = { type = "integer" } } }

[collections.broken]
key = { field = "id", type = "u23" }
idexes = []

[collections.others]
key = { field = "id", type = "u32" }
references = { item = "items", nobody = "persons" }

[views.wrong]
query = "SELECT nosuch, COUNT(*) AS n FROM items GROUP BY nosuch"
[views.follows]
query = "SELECT n, COUNT(*) AS m FROM wrong GROUP BY n"
[views.right]
query = "SELECT price, COUNT(*) AS n FROM items GROUP BY price"

[[endpoints]]
route = "GO /a"
query = "SELECT id FROM items"
statuss = 1
limit = 0

[[endpoints]]
route = "GET /b"
query = "SELECT cost FROM items WHERE price < :now"

[[endpoints]]
route = "GET /c/{id}"
gets = "items/{id}"
require = "persons/{id}"

[[endpoints]]
route = "POST /d"
steps = [
  { sql = "SELECT idd FROM items WHERE id = :id" },
  { sql = "SELECT prize FROM items WHERE id = :idd" },
  { sql = "SELECT id FROM broken", expect = "rowz = 1" },
]
params = { id = { type = "intger" }, max = { type = "integer", from = "body:x" } }

[[endpoints]]
route = "GET /e"
query = "SELECT whatever FROM broken JOIN follows"

[[endpoints]]
route = "GET /f"
get = "broken/{id}"
"#;

#[test]
fn mistakes_that_do_not_depend_on_one_another_are_told_in_one_run() {
    let all = mistakes(MANY);
    for told in [
        "`server.threads` is 0",
        "`params.now.type` is \"date\"",
        "`collections.broken.key.type` is \"u23\"",
        "unknown key `idexes`",
        "is \"persons\"",
        "no field \"nosuch\"",
        "is \"GO /a\"",
        "unknown key `statuss`",
        "`endpoints[0].limit` is 0",
        "no field \"cost\"",
        "unknown key `gets`",
        "an endpoint with no action",
        "names the collection \"persons\"",
        "no field \"idd\"",
        "no field \"prize\"",
        "`endpoints[3].params.id.type` is \"intger\"",
        "is \"body:x\"",
        "the route /f does not have",
    ] {
        assert!(all.contains(told), "{told} is not in:\n{all}");
    }
    for follows in
        ["whatever", "\"m\"", "no collection \"broken\"", "not declared; allowed: items, others", ":now", ":idd"]
    {
        assert!(!all.contains(follows), "{follows} is in:\n{all}");
    }
    assert!(all.lines().count() <= 20, "{all}");
}

#[test]
fn a_default_in_a_schema_of_documents_or_of_a_body_has_no_effect_and_is_a_mistake() {
    let told = "/properties/state/default would be ignored";
    let state = "state = { type = \"string\", default = \"open\" }";
    let schema = format!("{COLLECTION}[collections.items.schema.properties]\n{state}\n");
    check(&schema, &["3:20", "`collections.items.schema`", told, "coalesce(FIELD, VALUE)"]);
    let steps = "route = \"POST /a\"\nsteps = [{ sql = \"SELECT :state AS state\" }]";
    check_endpoint(&format!("{steps}\nbody = {{ properties = {{ {state} }} }}"), &["6:8", "`endpoints[0].body`", told]);
    // A parameter's default is applied.
    check_endpoint(
        "route = \"GET /a\"\nquery = \"SELECT :state AS state\"\nparams = { state = { type = \"string\", default = \"open\" } }",
        &[],
    );
}
