//! The commands through the real binary: what they say, and with which status they end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const CONFIG: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n[server]\nhttp = \"127.0.0.1:0\"\naccess_log = true\n";

fn sapsan(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sapsan")).current_dir(folder).args(arguments).output().expect("the binary runs")
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("service.toml"), CONFIG).expect("a file");
    std::fs::write(folder.path().join("items.ndjson"), "{\"id\":1}\n{\"id\":\"x\"}\n{\"id\":2}\n").expect("a file");
    folder
}

#[test]
fn an_import_that_skipped_says_what_it_did_and_ends_with_a_failure() {
    let folder = folder();
    let import =
        ["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items", "--on-error", "skip"];
    let output = sapsan(folder.path(), &import);
    assert!(!output.status.success());
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("imported 2 documents") && out.contains("1 skipped"), "{out}");
    let query = ["query", "service.toml", "--data", "d", "--format", "json", "SELECT COUNT(*) AS n FROM items"];
    assert_eq!(String::from_utf8_lossy(&sapsan(folder.path(), &query).stdout), "[{\"n\":2}]\n");
}

#[test]
fn a_command_that_opens_the_folder_builds_what_is_new_before_it_looks() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = "[collections.users]\nkey = { field = \"id\", type = \"u32\" }\n";
    std::fs::write(folder.path().join("service.toml"), config).expect("a file");
    let users: String = (0..3000).map(|id| format!("{{\"id\":{id},\"name\":\"n{}\"}}\n", id / 2)).collect();
    std::fs::write(folder.path().join("users.ndjson"), users).expect("a file");
    let import = ["import", "service.toml", "--data", "d", "users.ndjson", "--collection", "users"];
    assert!(sapsan(folder.path(), &import).status.success());
    let change = ["query", "service.toml", "--data", "d", "DELETE FROM users WHERE id = 5000"];
    std::fs::write(folder.path().join("service.toml"), format!("{config}indexes = [[\"name\"]]\n")).expect("a file");
    assert!(sapsan(folder.path(), &change).status.success());
    let output = sapsan(folder.path(), &["verify", "d", "--config", "service.toml"]);
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("documents: 3000, entries of indexes and unique fields: 3000\nclean"), "{out}");
    std::fs::write(folder.path().join("service.toml"), format!("{config}unique = [\"name\"]\n")).expect("a file");
    let output = sapsan(folder.path(), &change);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("users/0 and users/1 have the same value"), "{told}");
}

#[test]
fn a_command_that_only_looks_refuses_a_file_that_declares_other_than_the_folder_holds() {
    let folder = folder();
    let own = format!("{CONFIG}[views.all]\nquery = \"SELECT COUNT(*) AS n FROM items\"\n");
    let other = CONFIG.replace("[server]", "indexes = [[\"name\"]]\n[server]")
        + "[views.ids]\nquery = \"SELECT id, COUNT(*) AS n FROM items GROUP BY id\"\n";
    std::fs::write(folder.path().join("service.toml"), own).expect("a file");
    std::fs::write(folder.path().join("other.toml"), other).expect("a file");
    std::fs::write(folder.path().join("items.ndjson"), "{\"id\":1}\n{\"id\":2}\n").expect("a file");
    let ask = |arguments: &[&str]| {
        let output = sapsan(folder.path(), arguments);
        let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), told.concat())
    };
    assert!(ask(&["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items"]).0);
    let log = |told: &str| told.split_once("up to change ").map(|(_, rest)| rest.split(',').next().map(str::to_owned));
    let before = log(&ask(&["verify", "d"]).1);
    let looks: [&[&str]; 3] = [
        &["verify", "d", "--config", "other.toml"],
        &["verify", "d", "--views", "--config", "other.toml"],
        &["query", "other.toml", "--data", "d", "SELECT id FROM items"],
    ];
    for look in looks {
        let (succeeded, told) = ask(look);
        assert!(!succeeded, "{look:?}: {told}");
        let differences =
            "the index items(name) would be built; the view ids would be built; the view all would be dropped";
        assert!(told.contains(differences) && told.contains("the file that the service runs with"), "{told}");
    }
    let (succeeded, told) = ask(&["verify", "d", "--config", "service.toml"]);
    assert!(succeeded && told.contains("view all: 1 rows of 2 documents\nclean"), "{told}");
    assert!(before.is_some() && log(&told) == before, "{before:?}: {told}");
}

#[test]
fn views_are_computed_again_in_a_folder_and_on_a_running_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("{CONFIG}[views.all]\nquery = \"SELECT COUNT(*) AS n FROM items\"\n");
    std::fs::write(folder.path().join("service.toml"), config).expect("a file");
    std::fs::write(folder.path().join("items.ndjson"), "{\"id\":1}\n{\"id\":2}\n").expect("a file");
    let import = ["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items"];
    assert!(sapsan(folder.path(), &import).status.success());
    let verify = |arguments: &[&str]| {
        let output = sapsan(folder.path(), &[&["verify"], arguments].concat());
        let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), told.concat())
    };
    let clean = (true, "view all: 1 rows of 2 documents\nclean\n".to_owned());
    assert_eq!(verify(&["d", "--views", "--config", "service.toml"]), clean);
    let (succeeded, told) = verify(&["d", "--views"]);
    assert!(!succeeded && told.contains("--views wants --config"), "{told}");
    let mut server = Command::new(env!("CARGO_BIN_EXE_sapsan"))
        .current_dir(folder.path())
        .args(["serve", "service.toml", "--data", "d"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let line = BufReader::new(server.stdout.take().expect("its output")).lines().next().expect("a line").expect("text");
    let address = line.strip_prefix("listening on ").expect("an address");
    assert_eq!(verify(&[address, "--views"]), clean);
    let (succeeded, told) = verify(&[address]);
    assert!(!succeeded && told.contains("--views"), "{told}");
    server.kill().expect("it runs");
    server.wait().expect("it ends");
}

#[test]
fn generated_users_are_the_same_lines_on_standard_output_and_in_a_file_and_can_be_imported() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = "[collections.users]\nkey = { field = \"Id\", type = \"u32\" }\n";
    std::fs::write(folder.path().join("service.toml"), config).expect("a file");
    let generate = ["generate", "stackoverflow-users", "--docs", "3000", "--seed", "7"];
    let printed = sapsan(folder.path(), &generate);
    assert!(printed.status.success());
    let written = sapsan(folder.path(), &[&generate[..], &["--out", "users.ndjson"]].concat());
    assert_eq!(String::from_utf8_lossy(&written.stdout), "wrote 3000 documents to users.ndjson\n");
    assert!(std::fs::read(folder.path().join("users.ndjson")).expect("the file") == printed.stdout);
    let import = ["import", "service.toml", "--data", "d", "users.ndjson", "--collection", "users"];
    let output = sapsan(folder.path(), &import);
    assert!(String::from_utf8_lossy(&output.stdout).contains("imported 3000 documents"));
}

#[test]
fn a_query_takes_lists_as_their_text_and_explains() {
    let folder = folder();
    std::fs::write(folder.path().join("items.ndjson"), "{\"id\":1}\n").expect("a file");
    let import = ["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items"];
    assert!(sapsan(folder.path(), &import).status.success());
    let query = |arguments: &[&str]| {
        let output =
            sapsan(folder.path(), &[&["query", "service.toml", "--data", "d", "--format", "json"], arguments].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let list = query(&["--param", "a=[1,\"x\"]", "SELECT :a AS a FROM items"]);
    assert_eq!(list, "[{\"a\":\"[1,\\\"x\\\"]\"}]\n");
    assert_eq!(query(&["EXPLAIN SELECT id FROM items WHERE id = 1"]), "[{\"plan\":\"LOOKUP items BY KEY (id=?)\"}]\n");
}

#[test]
fn a_table_cuts_long_cells_only_where_others_stand_beside_them() {
    let folder = folder();
    let text = "x".repeat(100);
    std::fs::write(folder.path().join("items.ndjson"), format!("{{\"id\":1,\"t\":\"{text}\"}}\n")).expect("a file");
    let import = ["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items"];
    assert!(sapsan(folder.path(), &import).status.success());
    let row = |sql: &str| {
        let output = sapsan(folder.path(), &["query", "service.toml", "--data", "d", sql]);
        String::from_utf8_lossy(&output.stdout).lines().nth(2).expect("a row").to_owned()
    };
    assert_eq!(row("SELECT t FROM items"), text);
    assert_eq!(row("SELECT t, id FROM items"), format!("{}…  1", &text[..59]));
}

#[test]
fn a_statement_that_writes_prints_its_rows_and_tells_how_many_documents() {
    let folder = folder();
    std::fs::write(folder.path().join("items.ndjson"), "{\"id\":1}\n").expect("a file");
    let import = ["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items"];
    assert!(sapsan(folder.path(), &import).status.success());
    let query = |arguments: &[&str]| {
        let output = sapsan(folder.path(), &[&["query", "service.toml", "--data", "d"], arguments].concat());
        let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), told)
    };
    let insert = "INSERT INTO items (id, n) VALUES (2, :n), (3, :n) RETURNING id, n";
    let table = ["id  n\n--  -\n2   x\n3   x\n".to_owned(), "2 documents\n".to_owned()];
    assert_eq!(query(&["--format", "table", "--param", "n=x", insert]), (true, table));
    let json = ["{\"changed\":1}\n".to_owned(), "1 documents\n".to_owned()];
    assert_eq!(query(&["--format", "json", "DELETE FROM items WHERE id = 1"]), (true, json));
    assert_eq!(query(&["--format", "json", "SELECT COUNT(*) AS n FROM items"]).1[0], "[{\"n\":2}]\n");
    let (succeeded, [out, told]) = query(&["UPDATE items SET id = 3"]);
    assert!(!succeeded && out.is_empty() && told.contains("the key \"id\" cannot be changed"), "{told}");
}

#[test]
fn a_set_of_no_parameter_is_a_mistake_of_the_command_line() {
    let folder = folder();
    let output = sapsan(folder.path(), &["serve", "service.toml", "--data", "d", "--set", "nobody=1"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("sapsan: --set nobody=1: [params] has no `nobody`"), "{told}");
    assert!(!folder.path().join("d").exists());
}

#[test]
fn a_number_of_threads_out_of_range_is_refused_and_not_bent() {
    let folder = folder();
    for threads in ["0", "257", "-1", "two"] {
        let output = sapsan(folder.path(), &["serve", "service.toml", "--data", "d", "--threads", threads]);
        assert_eq!(output.status.code(), Some(2), "{threads}");
    }
    assert!(!folder.path().join("d").exists());
}

#[test]
fn the_access_log_is_a_line_for_each_request_on_standard_output() {
    let folder = folder();
    let mut server = Command::new(env!("CARGO_BIN_EXE_sapsan"))
        .current_dir(folder.path())
        .args(["serve", "service.toml", "--data", "d"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(server.stdout.take().expect("its output")).lines();
    let first = lines.next().expect("a line").expect("text");
    let address = first.strip_prefix("listening on http://").expect("an address").to_owned();
    let mut client = TcpStream::connect(&address).expect("a connection");
    let request = b"GET /_/health?x=1 HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    client.write_all(request).expect("a request");
    client.read_to_end(&mut Vec::new()).expect("a reply");
    let line = lines.next().expect("a line").expect("text");
    // Ends the process that this test started.
    server.kill().expect("it runs");
    server.wait().expect("it ends");
    assert!(line.contains("\"GET /_/health?x=1 HTTP/1.1\" 200 "), "{line}");
}
