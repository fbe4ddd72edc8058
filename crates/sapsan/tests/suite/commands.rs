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
fn what_there_is_not_is_told_with_what_there_is() {
    let folder = folder();
    let told = |arguments: &[&str]| {
        let output = sapsan(folder.path(), arguments);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    std::fs::write(folder.path().join("items.csv"), "number;name\n1;x\n").expect("a file");
    let csv = told(&["import", "service.toml", "--data", "d", "items.csv", "--collection", "items"]);
    assert!(
        csv.contains("items.csv: the header line has no column \"id\"") && csv.contains("separated by commas"),
        "{csv}"
    );
    std::fs::write(folder.path().join("items.json"), "[{\"id\":1}]").expect("a file");
    let unnamed = told(&["import", "service.toml", "--data", "d", "items.json"]);
    assert!(unnamed.contains("name one with --collection"), "{unnamed}");
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
    let unique = format!("{config}indexes = [[\"name\"]]\nunique = [\"name\"]\n");
    std::fs::write(folder.path().join("service.toml"), unique).expect("a file");
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
fn a_command_that_writes_refuses_a_file_that_would_drop_something_and_one_of_another_service() {
    let folder = folder();
    let items = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
    let own =
        format!("{items}indexes = [[\"name\"]]\n[collections.notes]\nkey = {{ field = \"id\", type = \"u32\" }}\n");
    let other = "[collections.users]\nkey = { field = \"id\", type = \"u32\" }\n[server]\nhttp = \"127.0.0.1:0\"\n";
    let files = [("own.toml", &own[..]), ("less.toml", items), ("other.toml", other), ("items.ndjson", "{\"id\":1}\n")];
    files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).expect("a file"));
    let ask = |arguments: &[&str]| {
        let output = sapsan(folder.path(), arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let import = |file| ["import", file, "--data", "d", "items.ndjson", "--collection", "items"];
    let delete = |file| ["query", file, "--data", "d", "DELETE FROM items WHERE id = 7"];
    assert_eq!(ask(&import("own.toml")).0, Some(0));
    assert_eq!(ask(&["query", "own.toml", "--data", "d", "INSERT INTO notes (id) VALUES (1)"]).0, Some(0));
    let lost = "This would be dropped: the collection notes (its documents stay in the folder); the index items(name)";
    for command in [&["serve", "less.toml", "--data", "d"][..], &import("less.toml"), &delete("less.toml")] {
        let (status, told) = ask(command);
        assert!(status == Some(1) && told.contains("less.toml no longer declares what d holds"), "{command:?}: {told}");
        assert!(told.contains(lost) && told.contains("--allow-drop"), "{command:?}: {told}");
    }
    let users = ["import", "other.toml", "--data", "d", "items.ndjson", "--collection", "users"];
    let count = ["query", "other.toml", "--data", "d", "SELECT COUNT(*) AS n FROM users"];
    for command in [
        &["serve", "other.toml", "--data", "d"][..],
        &users,
        &["query", "other.toml", "--data", "d", "DELETE FROM users"],
    ] {
        for flags in [&[][..], &["--allow-drop"]] {
            let (status, told) = ask(&[command, flags].concat());
            assert!(
                status == Some(1) && told.contains("d belongs to another service than other.toml"),
                "{command:?}: {told}"
            );
            assert!(told.contains("the collections items, notes") && told.contains("the collection users"), "{told}");
        }
    }
    assert_eq!(ask(&count).0, Some(1));
    // All of it is there.
    let (status, told) = ask(&["verify", "d", "--config", "own.toml"]);
    assert_eq!((status, told.as_str()), (Some(0), ""));
    let (status, told) = ask(&[&delete("less.toml")[..], &["--allow-drop"]].concat());
    assert_eq!(status, Some(0), "{told}");
    let dropped = "dropped from d: the collection notes (its documents stay in the folder); the index items(name)\n";
    assert_eq!(told, format!("{dropped}0 documents\n"));
    assert_eq!(ask(&delete("less.toml")).0, Some(0));
    // The documents come back with their collection.
    let (status, _) = ask(&["query", "own.toml", "--data", "d", "DELETE FROM notes WHERE id = 1"]);
    assert_eq!(status, Some(0));
}

#[test]
fn compaction_says_that_a_file_stays_which_would_not_be_smaller() {
    let folder = folder();
    std::fs::write(folder.path().join("items.ndjson"), "{\"id\":1}\n").expect("a file");
    let import = ["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items"];
    assert!(sapsan(folder.path(), &import).status.success());
    let bytes = || std::fs::metadata(folder.path().join("d/tree")).expect("a tree file").len();
    let before = bytes();
    let output = sapsan(folder.path(), &["compact", "d"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains(&format!("the file of {before} bytes stays")), "{told}");
    assert_eq!(bytes(), before);
}

#[test]
fn no_command_panics_or_complains_where_nobody_reads_its_output() {
    let folder = folder();
    std::fs::write(folder.path().join("items.ndjson"), "{\"id\":1}\n{\"id\":2}\n").expect("a file");
    std::fs::write(folder.path().join("bad.ndjson"), "{\"id\":\"x\"}\n".repeat(3)).expect("a file");
    let import = ["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items"];
    assert!(sapsan(folder.path(), &import).status.success());
    let closed = || Stdio::from(std::io::pipe().expect("a pipe").1);
    let query =
        |format: &'static str| ["query", "service.toml", "--data", "d", "--format", format, "SELECT id FROM items"];
    let commands: [(&[&str], i32); 32] = [
        (&["--help"], 0),
        (&["--version"], 0),
        (&["help", "serve"], 0),
        (&["query", "--help"], 0),
        (&[], 2),
        (&["nobody"], 2),
        (&["check-config", "service.toml"], 0),
        (&["check-config", "nowhere.toml"], 1),
        (&["generate", "stackoverflow-users", "--docs", "20000"], 0),
        (&["generate", "stackoverflow-users", "--docs", "10", "--out", "users.ndjson"], 0),
        (&["generate", "travels", "t.zip", "--users", "10", "--locations", "10", "--visits", "10"], 0),
        (&["token", "reader", "--allow", "read"], 0),
        (&["export"], 2),
        (&["export", "service.toml"], 2),
        (&["export", "service.toml", "--data", "d"], 0),
        (&["export", "service.toml", "--data", "d", "--format", "csv"], 0),
        (&["init", "items.ndjson"], 0),
        (&["init", "bad.ndjson"], 1),
        (&query("table"), 0),
        (&query("json"), 0),
        (&query("ndjson"), 0),
        (&query("csv"), 0),
        (&["query", "service.toml", "--data", "d", "UPDATE items SET n = 1 RETURNING id"], 0),
        (&["import", "service.toml", "--data", "e", "items.ndjson", "--collection", "items"], 0),
        (&["import", "service.toml", "--data", "e", "bad.ndjson", "--collection", "items", "--on-error", "skip"], 1),
        (&["stat", "d"], 0),
        (&["verify", "d"], 0),
        (&["verify", "d", "--config", "service.toml"], 0),
        (&["backup", "d", "copy"], 0),
        (&["restore", "copy", "again"], 0),
        (&["compact", "d"], 0),
        (&["serve", "nowhere.toml", "--data", "d"], 1),
    ];
    for (command, status) in commands {
        let made = match command.first() {
            Some(&"backup") => Some("copy"),
            Some(&"restore") => Some("again"),
            Some(&"import") => Some("e"),
            _ => None,
        };
        let run = |notices: Stdio| {
            made.map(|folder_name| std::fs::remove_dir_all(folder.path().join(folder_name)));
            // `generate` overwrites none.
            ["users.ndjson", "t.zip"].iter().for_each(|file| drop(std::fs::remove_file(folder.path().join(file))));
            let mut process = Command::new(env!("CARGO_BIN_EXE_sapsan"));
            let process = process.current_dir(folder.path()).args(command).stdout(closed()).stderr(notices);
            process.spawn().and_then(|child| child.wait_with_output()).expect("the binary runs")
        };
        let output = run(Stdio::piped());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{command:?}: {told}");
        assert!(!told.contains("panicked") && !told.contains("Broken pipe"), "{command:?}: {told}");
        assert_eq!(run(closed()).status.code(), Some(status), "{command:?}");
    }
}

#[test]
fn an_independent_reader_finds_a_row_of_csv_for_each_row() {
    let folder = folder();
    std::fs::write(folder.path().join("items.ndjson"), "{\"id\":1}\n{\"id\":2,\"t\":\"a,b\"}\n{\"id\":3}\n")
        .expect("a file");
    let import = ["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items"];
    assert!(sapsan(folder.path(), &import).status.success());
    let query = ["query", "service.toml", "--data", "d", "--format", "csv", "SELECT t FROM items ORDER BY id"];
    let printed = sapsan(folder.path(), &query).stdout;
    let read = "import csv, io, sys\nprint(list(csv.reader(io.TextIOWrapper(sys.stdin.buffer, newline=''))))";
    let python = Command::new("python3").args(["-c", read]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut python) = python else {
        // Past libtest, which keeps what a passing test prints: `cargo xtask test` counts this line.
        std::io::Write::write_all(&mut std::io::stdout(), b"\nSKIPPED: there is no python3\n")
            .expect("a standard output");
        return;
    };
    python.stdin.take().expect("a pipe").write_all(&printed).expect("it reads");
    let rows = python.wait_with_output().expect("it ends").stdout;
    assert_eq!(String::from_utf8_lossy(&rows), "[['t'], [''], ['a,b'], ['']]\n");
}

#[test]
fn localhost_is_an_address_to_listen_on() {
    let folder = folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
    let command =
        command.current_dir(folder.path()).args(["serve", "service.toml", "--data", "d", "--http", "localhost:0"]);
    let mut serving = Serving(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs"));
    let mut lines = BufReader::new(serving.0.stdout.take().expect("its output")).lines();
    let line = lines.next().and_then(Result::ok).expect("it says where it listens");
    assert!(line.starts_with("listening on http://127.0.0.1:"), "{line}");
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
fn verify_checks_the_pages_whatever_else_it_is_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    // No view reads what is damaged.
    let other = "[collections.others]\nkey = { field = \"id\", type = \"u32\" }\n";
    let config = format!("{other}{CONFIG}[views.all]\nquery = \"SELECT COUNT(*) AS n FROM others\"\n");
    std::fs::write(folder.path().join("service.toml"), config).expect("a file");
    let name = |id| if id == 1000 { "a name to be found" } else { "one of very many names that are all alike" };
    let lines: String = (0..2000).map(|id| format!("{{\"id\":{id},\"name\":\"{}\"}}\n", name(id))).collect();
    std::fs::write(folder.path().join("items.ndjson"), lines).expect("a file");
    let import = ["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items"];
    assert!(sapsan(folder.path(), &import).status.success());
    let tree = folder.path().join("d/tree");
    let mut bytes = std::fs::read(&tree).expect("the data file");
    let found =
        bytes.windows(8).enumerate().filter(|(_, text)| text == b"be found").map(|(at, _)| at).collect::<Vec<_>>();
    assert!(!found.is_empty());
    found.into_iter().for_each(|at| bytes[at] = b'B');
    std::fs::write(&tree, bytes).expect("the data file");
    for flags in [&[][..], &["--config", "service.toml"], &["--views", "--config", "service.toml"]] {
        let output = sapsan(folder.path(), &[&["verify", "d"], flags].concat());
        let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(!output.status.success() && told.contains("checksum differs"), "{flags:?}: {told}");
    }
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

/// What `sapsan token` prints: the token, and the lines for the file.
fn new_token(folder: &Path, arguments: &[&str]) -> (String, String) {
    let output = sapsan(folder, &[&["token"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let token = text.lines().find(|line| line.starts_with("sapsan_")).expect("a token").to_owned();
    let lines = text[text.find("[tokens.").expect("a section")..].to_owned();
    (token, lines)
}

#[test]
fn a_token_is_made_put_into_the_file_and_used_by_commands() {
    let folder = folder();
    let (reader, lines) = new_token(folder.path(), &["reader", "--allow", "read", "--until", "2999-01-01"]);
    let (admin, more) = new_token(folder.path(), &["boss-1", "--allow", "read,write,admin"]);
    assert_ne!(reader, admin);
    assert!(!lines.contains(&reader) && lines.contains("until  = \"2999-01-01\""), "{lines}");
    let config = format!("{}backups = \"backups\"\n{lines}{more}", CONFIG.replace("access_log = true\n", ""));
    std::fs::write(folder.path().join("service.toml"), config).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
    let command = command.current_dir(folder.path()).args(["serve", "service.toml", "--data", "d"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
    let mut serving = Serving(child);
    let mut lines = BufReader::new(serving.0.stdout.take().expect("its output")).lines();
    let line = lines.next().and_then(Result::ok).expect("it says where it listens");
    let url = line.strip_prefix("listening on ").expect("an address");
    let refused = |arguments: &[&str], why: &str| {
        let output = sapsan(folder.path(), arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(why), "{arguments:?}: {text}");
    };
    refused(&["stat", url, "--token", "sapsan_0"], "the server answers 401: unknown token");
    refused(&["backup", url, "monday", "--token", &reader], "the token `reader` allows read; this needs admin");
    refused(&["verify", url, "--views", "--token", "a b"], "bytes that no token has");
    assert!(sapsan(folder.path(), &["stat", url, "--token", &reader]).status.success());
    assert!(sapsan(folder.path(), &["verify", url, "--views", "--token", &admin]).status.success());
    let by_variable = |token: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
        let command = command.current_dir(folder.path()).args(["backup", url, "tuesday"]).env("SAPSAN_TOKEN", token);
        command.output().expect("the binary runs").status.success()
    };
    assert!(!by_variable(&reader) && by_variable(&admin));
    assert!(folder.path().join("backups/tuesday").is_dir());
}

#[test]
fn commands_ask_a_server_by_its_unix_socket() {
    let folder = folder();
    let config =
        format!("{}admin = \"unix:sapsan.sock\"\nbackups = \"backups\"\n", CONFIG.replace("access_log = true\n", ""));
    std::fs::write(folder.path().join("service.toml"), config).expect("a file");
    let place = "unix:sapsan.sock";
    let away = sapsan(folder.path(), &["stat", place]);
    let told = String::from_utf8_lossy(&away.stderr).into_owned();
    assert!(!away.status.success() && told.contains("unix:sapsan.sock: No such file"), "{told}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
    let command = command.current_dir(folder.path()).args(["serve", "service.toml", "--data", "d"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
    let mut serving = Serving(child);
    let lines = BufReader::new(serving.0.stdout.take().expect("its output")).lines();
    let told: Vec<String> = lines.take(2).map_while(Result::ok).collect();
    assert!(told.last().is_some_and(|line| line == "the general API is at unix:sapsan.sock"), "{told:?}");
    for arguments in [&["stat", place][..], &["backup", place, "monday"], &["verify", place, "--views"]] {
        let output = sapsan(folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(folder.path().join("backups/monday").is_dir());
}

#[test]
fn a_token_that_no_file_could_have_is_not_made() {
    let folder = folder();
    for arguments in [
        &["token", "a b", "--allow", "read"][..],
        &["token", "a", "--allow", "Read"],
        &["token", "a", "--allow", "read,,write"],
        &["token", "a", "--allow", "read", "--until", "soon"],
        &["token", "a"],
    ] {
        let output = sapsan(folder.path(), arguments);
        assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_token_that_is_over_is_made_with_a_note() {
    let folder = folder();
    let noted = |until: &str| {
        let output = sapsan(folder.path(), &["token", "a", "--allow", "read", "--until", until]);
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(noted("1970-01-01").contains("--until 1970-01-01 has passed"));
    assert_eq!(noted("9999-01-01"), "");
}

#[test]
fn an_import_without_its_file_makes_no_data_folder() {
    let folder = folder();
    let import = ["import", "service.toml", "--data", "d", "items.ndjson", "nowhere.ndjson", "--collection", "items"];
    let output = sapsan(folder.path(), &import);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("nowhere.ndjson: No such file"), "{told}");
    assert!(!folder.path().join("d").exists());
}

/// A signal arrives while the file has its temporary name.
#[test]
fn a_signal_leaves_no_part_of_a_file() {
    let folder = folder();
    let files = || {
        let names =
            std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.contains("big")).collect::<Vec<_>>()
    };
    for signal in ["-INT", "-TERM"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
        let command =
            command.current_dir(folder.path()).args(["generate", "travels", "big.zip", "--visits", "100000000"]);
        let mut making = Serving(command.stderr(Stdio::null()).spawn().expect("the binary runs"));
        let begun = std::time::Instant::now();
        while files().is_empty() {
            assert!(begun.elapsed() < std::time::Duration::from_secs(30), "no file is begun");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(files().iter().all(|name| name.ends_with(".part")), "{:?}", files());
        // The file is noted right after it is made.
        std::thread::sleep(std::time::Duration::from_millis(100));
        let sent = Command::new("kill").args([signal, &making.0.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        assert_eq!(making.0.wait().expect("it ends").code(), Some(130));
        assert_eq!(files(), [""; 0]);
    }
    std::fs::write(folder.path().join("mine.zip"), "mine").expect("a file");
    let output = sapsan(
        folder.path(),
        &["generate", "travels", "mine.zip", "--users", "1", "--locations", "1", "--visits", "1"],
    );
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.contains("exists already"), "{told}");
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
    let request = b"GET /_/health?x=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    client.write_all(request).expect("a request");
    client.read_to_end(&mut Vec::new()).expect("a reply");
    let line = lines.next().expect("a line").expect("text");
    // Ends the process that this test started.
    server.kill().expect("it runs");
    server.wait().expect("it ends");
    let (time, rest) = line.split_once(' ').expect("its time");
    assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
    assert!(rest.contains("\"GET /_/health?x=1 HTTP/1.1\" 200 ") && rest.ends_with("us"), "{line}");
}

#[test]
fn the_log_has_the_lines_of_its_level() {
    let folder = folder();
    let logged = |level: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
        let command = command.current_dir(folder.path()).args(["serve", "service.toml", "--data", "d", "--log", level]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
        let mut serving = Serving(child);
        BufReader::new(serving.0.stdout.take().expect("its output")).read_line(&mut String::new()).expect("a line");
        let sent = Command::new("kill").args(["-TERM", &serving.0.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        let mut told = String::new();
        serving.0.stderr.take().expect("its notices").read_to_string(&mut told).expect("text");
        told
    };
    assert!(logged("info").contains("INFO"), "a start tells how the memory is divided");
    assert!(!logged("error").contains("INFO"));
}

/// The shell sets the limit, since a test must not lower its own process's.
#[test]
fn a_server_raises_its_limit_of_descriptors_and_keeps_its_connections_below_it() {
    let folder = folder();
    let started = |limit: &str, arguments: &str| {
        let mut command = Command::new("sh");
        let line = format!("ulimit {limit} && exec \"$0\" {arguments}");
        let command = command.current_dir(folder.path()).args(["-c", &line, env!("CARGO_BIN_EXE_sapsan")]);
        Serving(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the shell runs"))
    };
    let told = |mut serving: Serving| {
        let mut told = String::new();
        serving.0.stderr.take().expect("its notices").read_to_string(&mut told).expect("text");
        told
    };
    let (serve, proxy) = ("serve service.toml --data d", "proxy --listen 127.0.0.1:0 --nodes 127.0.0.1:1");
    for arguments in [serve, proxy] {
        let refused = told(started("-n 24", arguments));
        assert!(refused.contains("may open 24 files") && refused.contains("with `ulimit -n "), "{refused}");

        let mut serving = started("-n 256", arguments);
        BufReader::new(serving.0.stdout.take().expect("its output")).read_line(&mut String::new()).expect("a line");
        let sent = Command::new("kill").args(["-TERM", &serving.0.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        let log = told(serving);
        let line = log.lines().find(|line| line.contains("descriptors=256")).unwrap_or_else(|| panic!("{log}"));
        let value = line.split("s_max=").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
        assert!(value.is_some_and(|value| (16..256).contains(&value)), "{line}");

        let mut serving = started("-S -n 64", arguments);
        BufReader::new(serving.0.stdout.take().expect("its output")).read_line(&mut String::new()).expect("a line");
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.0.id())).expect("its limits");
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("the limit of files");
        let [soft, hard] = [3, 4].map(|place| line.split_whitespace().nth(place).expect("a number"));
        assert!(soft == hard && soft != "64", "{line}");
    }
}

/// The query visits a million combinations of rows, which takes longer than a thousandth of a second anywhere.
#[test]
fn a_slow_request_is_a_line_of_the_log_with_its_route_and_its_work() {
    let folder = folder();
    let list = format!("json_each('[{}]')", vec!["1"; 100].join(","));
    let endpoint = format!(
        "[server]\nhttp = \"127.0.0.1:0\"\nslow_log_seconds = 0.001\n[[endpoints]]\nroute = \"GET /slow\"\n\
         query = \"SELECT COUNT(*) AS n FROM {list} a, {list} b, {list} c WHERE a.value + b.value + c.value > 0\"\n\
         result = \"row\"\n[collections.items]\nkey = {{ field = \"id\", type = \"u32\" }}\n"
    );
    std::fs::write(folder.path().join("service.toml"), endpoint).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
    let command = command.current_dir(folder.path()).args(["serve", "service.toml", "--data", "d"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut serving = Serving(child);
    let mut first = String::new();
    BufReader::new(serving.0.stdout.take().expect("its output")).read_line(&mut first).expect("a line");
    let address = first.trim().strip_prefix("listening on http://").expect("an address");
    let mut client = TcpStream::connect(address).expect("a connection");
    client.write_all(b"GET /slow HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("a request");
    let mut reply = String::new();
    client.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200") && reply.ends_with("{\"n\":1000000}"), "{reply}");
    let mut lines = BufReader::new(serving.0.stderr.take().expect("its notices")).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains("a slow request"))).expect("a line");
    for piece in ["WARN", "method=\"GET\"", "route=\"GET /slow\"", "status=200", "rows read: ", "plan: "] {
        assert!(line.contains(piece), "{piece}: {line}");
    }
    let micros = line.split_once("micros=").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(micros.is_some_and(|micros| micros >= 1_000), "{line}");
}

#[test]
fn a_result_that_cannot_be_written_is_an_error_and_no_panic() {
    let folder = folder();
    let import = ["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items"];
    std::fs::write(folder.path().join("items.ndjson"), "{\"id\":1}\n").expect("a file");
    assert!(sapsan(folder.path(), &import).status.success());
    let run = |arguments: &[&str], out: Stdio, notices: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
        let command = command.current_dir(folder.path()).args(arguments).stdout(out).stderr(notices);
        command.spawn().and_then(|child| child.wait_with_output()).expect("the binary runs")
    };
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").expect("Linux has it"));
    let closed = || Stdio::from(std::io::pipe().expect("a pipe").1);
    let commands: [&[&str]; 5] = [
        &["check-config", "service.toml"],
        &["stat", "d"],
        &["verify", "d", "--config", "service.toml"],
        &["query", "service.toml", "--data", "d", "SELECT id FROM items"],
        &["query", "service.toml", "--data", "d", "UPDATE items SET n = 1 RETURNING id"],
    ];
    for command in commands {
        let output = run(command, full(), Stdio::piped());
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(1) && told.contains("cannot write to standard output"),
            "{command:?}: {told}"
        );
        assert_eq!(run(command, full(), full()).status.code(), Some(1), "{command:?}");
        // A reader that has gone has what it wants.
        assert_eq!(run(command, closed(), closed()).status.code(), Some(0), "{command:?}");
    }
}

#[test]
fn completions_and_manual_pages_have_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let printed = |arguments: &[&str]| {
        let output = sapsan(folder.path(), arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let help = printed(&["--help"]);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 15 && ["serve", "export", "man"].iter().all(|name| commands.contains(name)), "{help}");
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        let missing: Vec<&&str> = commands.iter().filter(|command| !script.contains(**command)).collect();
        assert!(missing.is_empty() && script.contains("allow-drop"), "{shell}: {missing:?}");
    }
    std::fs::write(folder.path().join("sapsan.bash"), printed(&["completions", "bash"])).expect("a file");
    let checked = Command::new("bash").arg("-n").arg(folder.path().join("sapsan.bash")).status();
    assert!(checked.expect("bash runs").success());
    let program = printed(&["man"]);
    for command in commands.iter().filter(|command| **command != "help") {
        assert!(program.contains(&format!("sapsan\\-{}", command.replace('-', "\\-"))), "{command}: {program}");
        let page = printed(&["man", command]);
        assert!(page.contains(".SH NAME") && page.contains("Example"), "{command}: {page}");
    }
    assert!(printed(&["man", "generate", "travels"]).contains("100570"));
    let told = String::from_utf8(sapsan(folder.path(), &["man", "nobody"]).stderr).expect("text");
    assert!(told.contains("there is no command \"nobody\"; there are: ") && told.contains(" serve, "), "{told}");
    let told = String::from_utf8(sapsan(folder.path(), &["man", "serve", "nobody"]).stderr).expect("text");
    assert!(told.contains("`sapsan serve` has no commands of its own"), "{told}");
}

/// A server, killed when the test is over.
struct Serving(std::process::Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves with this standard error; a request is on its way when SIGTERM comes.
#[track_caller]
fn check_ends_well(notices: Stdio) {
    let folder = folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
    let command = command.current_dir(folder.path()).args(["serve", "service.toml", "--data", "d"]);
    let child = command.stdout(Stdio::piped()).stderr(notices).spawn().expect("the binary runs");
    let mut serving = Serving(child);
    let mut lines = BufReader::new(serving.0.stdout.take().expect("its output")).lines();
    let line = lines.next().and_then(Result::ok).expect("it says where it listens");
    let address = line.strip_prefix("listening on http://").expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream
        .write_all(b"POST /_/collections/items HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\n{\"id")
        .expect("sent");
    // The server has read the head when it answers what came later.
    let mut other = TcpStream::connect(address).expect("it listens");
    other.write_all(b"GET /_/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    other.read_to_end(&mut Vec::new()).expect("an answer");
    drop(other);
    let sent = Command::new("kill").args(["-TERM", &serving.0.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    // Longer than the process took to end by a panic.
    std::thread::sleep(std::time::Duration::from_millis(150));
    stream.write_all(b"\":7}").expect("it is still there");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    drop(stream);
    // Nobody waits longer for a server whose standard error takes nothing.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let status = loop {
        match serving.0.try_wait().expect("it is ours") {
            Some(status) => break status,
            None => assert!(std::time::Instant::now() < until, "it does not end"),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert!(status.success(), "{status}");
}

#[test]
fn a_standard_error_that_is_full_or_closed_or_read_by_nobody_does_not_end_the_drain() {
    check_ends_well(Stdio::from(std::fs::File::options().write(true).open("/dev/full").expect("Linux has it")));
    check_ends_well(Stdio::from(std::io::pipe().expect("a pipe").1));
    let (_unread, mut pipe) = std::io::pipe().expect("a pipe");
    // As much as a pipe holds.
    pipe.write_all(&[b'.'; 64 << 10]).expect("it fits");
    check_ends_well(Stdio::from(pipe));
}

#[test]
fn a_statement_that_writes_more_than_a_transaction_holds_runs_on_a_stopped_folder_too() {
    let folder = folder();
    let lines: String = (0..60_000).map(|id| format!("{{\"id\":{id},\"n\":{}}}\n", id % 7)).collect();
    std::fs::write(folder.path().join("items.ndjson"), lines).expect("a file");
    let import = ["import", "service.toml", "--data", "d", "items.ndjson", "--collection", "items"];
    assert!(sapsan(folder.path(), &import).status.success());
    let query = |sql: &str| sapsan(folder.path(), &["query", "service.toml", "--data", "d", "--format", "json", sql]);
    let changed = query("UPDATE items SET n = n + 1, text = printf('%2000s', n) WHERE n < 6");
    assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
    let counted = query("SELECT COUNT(*) AS n FROM items WHERE text IS NOT NULL");
    assert_eq!(String::from_utf8_lossy(&counted.stdout), "[{\"n\":51429}]\n");
}

#[test]
fn rules_that_check_nothing_or_refuse_everything_are_notes() {
    let folder = folder();
    let config = "[collections.users]\nkey = { field = \"id\", type = \"string\" }\n[collections.users.schema.properties]\n\
                  id = { type = \"integer\" }\nage = { minimun = 0 }\n[[endpoints]]\nroute = \"POST /users\"\n\
                  body = { properties = { age = { minimum = 2, maximum = 1 } } }\n\
                  steps = [{ sql = \"INSERT INTO users (id) VALUES (:age)\" }]\n";
    std::fs::write(folder.path().join("service.toml"), config).expect("a file");
    let output = sapsan(folder.path(), &["check-config", "service.toml"]);
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{notes}");
    let expected = "\
        note: collections.users.schema/properties/age/minimun is no keyword of JSON Schema and checks nothing: `minimum`?\n\
        note: collections.users.schema/properties/id allows integer, but the keys are of the type string: no document fits both\n\
        note: the body of POST /users: /properties/age/minimum is 2 and maximum is 1: no value fits both\n";
    assert_eq!(notes, expected);
}

#[test]
fn a_scope_that_no_token_has_is_told_and_is_no_mistake() {
    let folder = folder();
    let endpoint =
        "[[endpoints]]\nroute = \"GET /items/{id}\"\nget = \"items/{id}\"\nallow = \"token\"\nscope = \"shelf\"\n";
    std::fs::write(folder.path().join("service.toml"), format!("{CONFIG}{endpoint}")).expect("a file");
    let output = sapsan(folder.path(), &["check-config", "service.toml"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
    assert!(told.contains("no token has the scope `shelf`, which GET /items/{id} asks for"), "{told}");
}
