//! Statements that grow: whatever a client sends, alone or beside another, the real binary stays within its memory setting, and each is
//! answered with its rows or with an error that has a status.

use crate::heavy::Place;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MEMORY: u64 = 64 << 20;
/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(120);
const DOCUMENTS: usize = 1_500;
/// What a statement of this test may be answered with: rows, a value that is none, too large, out of time, come again.
const CLEAR: [u16; 5] = [200, 400, 413, 503, 504];

const CONFIG: &str = r#"
[collections.items]
key = { field = "id", type = "u32" }
indexes = [["a"], ["b", "c"]]
[[endpoints]]
route = "GET /grow"
query = """
SELECT SUM(length(replace(printf('%' || :n || 's', id), ' ', :t))) AS n FROM items"""
params = { n = { type = "integer", required = true }, t = { type = "string", required = true } }
[[endpoints]]
route = "GET /wide"
query = """
SELECT k.x AS a, k.x AS b, k.x AS c, k.x AS d, k.x AS e, k.x AS f FROM (SELECT printf('%' || :n || 's', 1) AS x) k
JOIN items i ON i.id < 50"""
params = { n = { type = "integer", required = true } }
[server]
http = "127.0.0.1:0"
query_seconds = 1
"#;

struct Server {
    process: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends the process that this test started.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start() -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("service.toml"), format!("{CONFIG}memory = {MEMORY}\n")).expect("a file");
        let mut process = Command::new(env!("CARGO_BIN_EXE_sapsan"))
            .current_dir(folder.path())
            .args(["serve", "service.toml", "--data", "d"])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let line = lines.next().and_then(Result::ok).expect("it starts");
        let address = line.strip_prefix("listening on http://").expect("an address").parse().expect("an address");
        Server { process, address, _folder: folder }
    }

    /// Resident anonymous memory, from proc_pid_status(5).
    fn anonymous_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel tells");
        1024 * line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number")
    }

    /// A reply's status, and its head and body as they came.
    fn ask(&self, method: &str, target: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).expect("it takes connections");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).expect("it reads");
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).expect("it answers");
        let reply = String::from_utf8_lossy(&reply).into_owned();
        let status = reply.get(9..12).and_then(|status| status.parse().ok());
        (status.unwrap_or_else(|| panic!("no reply: {reply:.200}")), reply)
    }

    fn query(&self, sql: &str) -> (u16, String) {
        self.ask("POST", "/_/query", &serde_json::json!({ "sql": sql }).to_string())
    }

    fn fill(&self) {
        let line = |id: usize| {
            serde_json::json!({ "id": id, "a": format!("k{}", id % 7), "b": id % 11, "c": "x".repeat(200) }).to_string()
        };
        for from in (0..DOCUMENTS).step_by(500) {
            let lines: Vec<String> = (from..from + 500).map(line).collect();
            let (status, reply) = self.ask("POST", "/_/collections/items/bulk", &lines.join("\n"));
            assert!([200, 201].contains(&status), "{reply:.300}");
        }
    }
}

fn list(count: usize, part: impl Fn(usize) -> String, between: &str) -> String {
    (0..count).map(part).collect::<Vec<_>>().join(between)
}

/// A table of one text `x`.
fn text(bytes: usize) -> String {
    format!("(SELECT replace(printf('%{bytes}s', ''), ' ', 'x') AS x) k")
}

/// Expressions that make much of little.
fn expressions() -> Vec<String> {
    let mut all: Vec<String> = [
        "length(printf('%100000000d', 1))",
        "length(printf('%.*c', 90000000, 'x'))",
        "length(hex(hex(hex(hex(printf('%90000s', 'a'))))))",
        "length(quote(replace(printf('%300000s', ''), ' ', '''')))",
        "length(replace(replace(printf('%900s', ''), ' ', printf('%900s', '')), ' ', printf('%900s', '')))",
        "length(json_quote(replace(printf('%200000s', ''), ' ', char(1))))",
        "length(json_array(json_array(printf('%90000s', 1), printf('%90000s', 2)), printf('%90000s', 3), printf('%90000s', 4)))",
        "length(json_object('a', printf('%200000s', 1), 'b', printf('%200000s', 2)))",
        "length(json_extract('[' || printf('%0300000d', 1) || ']', '$[0]', '$[0]', '$[0]'))",
        "length(strftime(replace(printf('%.90000c', 'x'), 'x', '%J'), 1))",
        "length(trim(printf('%300000s', 'a'), printf('%300000s', 'b')))",
        "printf('%200000s', 1) LIKE replace(printf('%9000s', ''), ' ', '% ') || 'x'",
        "printf('%200000s', 1) GLOB '*' || printf('%40000s', '') || 'x*'",
        "length(char(1) || upper(lower(upper(printf('%300000s', 'a')))))",
    ]
    .map(str::to_owned)
    .into();
    // A text that doubles 40 times: with what is put around it, no deeper than a statement may nest.
    all.push((0..40).fold("printf('%9000d', 1)".to_owned(), |inner, _| format!("replace({inner}, ' ', '  ')")));
    all.push(format!("length({})", list(100, |n| format!("printf('%90000s', {n})"), " || ")));
    // 8 KB of SQL without a table.
    all.push(list(8, |_| format!("max({})", list(30, |n| format!("length(printf('%400000s', {n}))"), ", ")), " + "));
    all
}

/// Statements, with the expressions in every place of them.
fn statements() -> Vec<String> {
    let mut all = Vec::new();
    for expr in expressions() {
        all.push(format!("SELECT {expr} AS n"));
        all.push(format!("SELECT SUM({expr} + id) AS n FROM items WHERE id < 3"));
    }
    let grown =
        ["printf('%90000s', id)", "replace(c, 'x', printf('%600s', id))", "json_array(c, c, printf('%50000s', id))"];
    for grown in grown {
        all.push(format!("SELECT id FROM items ORDER BY {grown}, {grown} || 'y' LIMIT 5"));
        all.push(format!("SELECT id FROM items ORDER BY {grown} DESC"));
        all.push(format!("SELECT DISTINCT {grown} AS x FROM items"));
        all.push(format!("SELECT {grown} AS x, COUNT(*) AS n FROM items GROUP BY x"));
        all.push(format!("SELECT b, MAX({grown}) AS m, MIN({grown}) AS l FROM items GROUP BY b"));
        all.push(format!(
            "SELECT length(GROUP_CONCAT({grown})) AS n, length(json_group_array({grown})) AS m FROM items"
        ));
        all.push(format!("SELECT COUNT(DISTINCT {grown}) AS n FROM items"));
        all.push(format!("SELECT id, json_group_object(id, {grown}) AS o FROM items GROUP BY id"));
        all.push(format!("SELECT COUNT(*) AS n FROM items WHERE {grown} IN (SELECT {grown} FROM items)"));
        all.push(format!("SELECT COUNT(*) AS n FROM items x JOIN (SELECT {grown} AS k FROM items) y ON y.k = x.c"));
        all.push(format!("SELECT {grown} AS x FROM items UNION SELECT {grown} || 'u' FROM items"));
        all.push(format!("UPDATE items SET d = {grown} WHERE id < 400"));
        all.push(format!("UPDATE items SET d = 1 WHERE length({grown}) = 1"));
        all.push(format!("INSERT INTO items (id, c) SELECT id + 100000, {grown} FROM items WHERE id < 400"));
        all.push(format!("DELETE FROM items WHERE {grown} = 'x'"));
        all.push(format!("UPDATE items SET e = 1 WHERE id < 300 RETURNING {grown} AS r, {grown} || 'z' AS s"));
    }
    let sums = |count: usize| list(count, |n| format!("id + {n} AS c{n}"), ", ");
    all.push(format!(
        "SELECT COUNT(*) AS n FROM {}, (SELECT {} FROM items WHERE id < 50) r WHERE {}",
        text(110_000),
        sums(150),
        list(150, |n| format!("r.c{n} = k.x"), " AND ")
    ));
    all.push(format!(
        "SELECT COUNT(*) AS n FROM (SELECT '[\"' || replace(printf('%60000s', ''), ' ', 'x') || '\"]' AS x) k, {}",
        list(7, |n| format!("json_each(k.x) j{n}"), ", ")
    ));
    all.push(format!("SELECT {} FROM {}", list(250, |n| format!("k.x AS c{n}"), ", "), text(90_000)));
    all.push(format!(
        "SELECT {} FROM items",
        list(60, |n| format!("length(json_group_array(c || {n})) AS n{n}"), ", ")
    ));
    all.push((0..18).fold("SELECT id, c AS k FROM items".to_owned(), |inner, depth| {
        format!("SELECT id, k FROM ({inner}) x{depth} WHERE id + {depth} > 0 ORDER BY k || id LIMIT 1400")
    }));
    let nested = (0..7).fold("0".to_owned(), |inner, depth| {
        format!(
            "(SELECT COUNT(*) FROM (SELECT x{depth}.c || x{depth}.id AS k, CASE WHEN x{depth}.id = 1300 THEN {inner} ELSE 0 END AS m \
             FROM items x{depth} WHERE x{depth}.id < 1301 ORDER BY k, m LIMIT 100000) y{depth})"
        )
    });
    all.push(format!("SELECT {nested} AS n"));
    all
}

#[test]
fn statements_that_grow_stay_within_the_memory_setting() {
    let _place = Place::take();
    let server = Server::start();
    server.fill();
    let idle = server.anonymous_bytes();
    let (over, mut wrong, mut done) = (AtomicBool::new(false), Vec::new(), 0);
    let peak = std::thread::scope(|scope| {
        let (server, over) = (&server, &over);
        let sampler = scope.spawn(move || {
            let mut peak = 0;
            while !over.load(Ordering::Relaxed) {
                peak = peak.max(server.anonymous_bytes());
                std::thread::sleep(Duration::from_millis(1));
            }
            peak
        });
        for sql in statements() {
            // Two at once: there are two threads for them.
            let twin = (!sql.starts_with("INSERT")).then(|| {
                let sql = &sql;
                scope.spawn({
                    let sql = sql.clone();
                    move || server.query(&sql)
                })
            });
            let answers = std::iter::once(server.query(&sql)).chain(twin.map(|twin| twin.join().expect("an answer")));
            for (status, reply) in answers {
                let is_sql = !(status == 400 && reply.contains("line 1, column"));
                if !CLEAR.contains(&status) || !is_sql {
                    wrong.push(format!("{sql:.300}: {}", reply.chars().take(600).collect::<String>()));
                }
                done += usize::from(status == 200);
            }
        }
        for n in [1_000, 100_000, 1_000_000, 900_000_000] {
            for target in [format!("/grow?n={n}&t=abcdefgh"), format!("/wide?n={n}")] {
                let (status, reply) = server.ask("GET", &target, "");
                if !CLEAR.contains(&status) {
                    wrong.push(format!("{target}: {reply:.300}"));
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        sampler.join().expect("the server runs to the end")
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("idle {idle}, peak {peak}, {done} done");
    assert!(peak <= MEMORY, "{peak} bytes of {MEMORY}");
    assert!(done > 5, "{done} statements had room");
    // It goes on, and what it holds is what it held, and some places of documents that it remembers.
    assert_eq!(server.query("SELECT 1 AS n").0, 200);
    let after = server.anonymous_bytes();
    assert!(after < idle + MEMORY / 4, "{idle} bytes before, {after} after");
}
