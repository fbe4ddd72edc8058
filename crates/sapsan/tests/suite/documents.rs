//! The commands and answers that the pages for users show are true: they are run, in their order, and the answers are compared.
//!
//! A command is a line `    $ …` or `    target/release/sapsan …` of an indented block, with the lines that its quotes or a `\` at its end
//! add; what follows it until the next one is its answer. In an answer a line `…` stands for any number of lines, and `…` inside of a
//! line for any text. Numbers that differ from run to run are not compared in the lines of [`LOOSE`], and neither are dates and UUIDs.
//!
//! Each page says in [`PAGES`] what its commands talk to; commands that are not run stand in [`NOT_RUN`] with the reason, and blocks of
//! configuration that are not checked in [`BLOCKS_NOT_RUN`]. A page with a command that is in no list fails. `curl` is played by this
//! program, so that none is needed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What a section's commands talk to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Against {
    /// `sapsan demo`.
    Demo,
    /// The first block of TOML in the section, saved as `shop.toml`.
    OwnFile,
    /// The file of the quick start with what the section's blocks of TOML add, as `shop.toml`; two goods are stored first.
    QuickStart,
    /// What the commands themselves serve.
    Commands,
}

/// Page, heading of the section (`# ` is the whole page, `## ` the part to the next one), what it talks to, and how many commands of it
/// are run.
const PAGES: [(&str, &str, Against, usize); 21] = [
    ("README.md", "## Two commands", Against::Commands, 0),
    ("README.md", "## Five minutes with the demo", Against::Demo, 5),
    ("README.md", "## Your own data", Against::OwnFile, 4),
    ("docs/quick-start.md", "## The demo", Against::Demo, 11),
    ("docs/quick-start.md", "## Your own data", Against::OwnFile, 4),
    ("docs/quick-start.md", "## A service from your data", Against::Commands, 4),
    ("docs/quick-start.md", "## Larger data to try", Against::Commands, 3),
    ("docs/endpoints.md", "# Endpoints", Against::OwnFile, 7),
    ("docs/sql.md", "# SQL", Against::Demo, 6),
    ("docs/http-api.md", "# The general API", Against::QuickStart, 7),
    ("docs/access.md", "# Who may use the general API", Against::QuickStart, 2),
    ("docs/views.md", "# Views", Against::QuickStart, 3),
    ("docs/changes.md", "# The feed of changes", Against::QuickStart, 1),
    ("docs/expiry.md", "# Documents that expire", Against::OwnFile, 2),
    ("docs/import.md", "# Import and bulk", Against::QuickStart, 7),
    ("docs/reload.md", "# Changing the file", Against::QuickStart, 1),
    ("docs/operations.md", "# Operations", Against::Commands, 6),
    ("docs/reshard.md", "# Resharding a Redis", Against::Commands, 0),
    ("docs/loadtest.md", "# Load testing", Against::Commands, 0),
    ("apps/shop/README.md", "# The shop", Against::Commands, 6),
    ("apps/travels/README.md", "# The travels service", Against::Commands, 4),
];

/// The beginnings of commands that are not run, and why.
const NOT_RUN: [(&str, &str); 8] = [
    ("cargo run --release -- demo", "makes a release build; `sapsan demo` is run"),
    ("cargo xtask", "runs this test, or measures for minutes"),
    ("cargo run --release -p loadtest --example against_itself", "measures for minutes"),
    ("cargo build", "this test has its binary"),
    ("sapsan generate stackoverflow-users --docs 5900000", "makes 5 GB"),
    ("sapsan loadtest", "loads for a minute: crates/loadtest/tests/command.rs runs it"),
    ("sapsan proxy", "wants Redis servers: tests/reshard.rs runs it"),
    ("sapsan reshard", "wants Redis servers: tests/reshard.rs runs it"),
];

/// Languages of fenced blocks that are not checked, and why.
const BLOCKS_NOT_RUN: [(&str, &str); 7] = [
    ("text", "a drawing"),
    ("rust", "the documentation tests of this crate run it"),
    ("rust,no_run", "they compile it"),
    ("ini", "wants systemd"),
    ("dockerfile", "wants docker"),
    ("nginx", "wants nginx"),
    ("yaml", "wants Prometheus"),
];

/// Beginnings of lines in which numbers, `true` and `false` are not compared.
const LOOSE: [&str; 5] = ["imported ", "the state before it: ", "log: ", "sapsan_memory_", "{\"is_building\":"];

/// What blocks of TOML that are parts of a file are parts of: page, beginning of the block, the rest of the file.
const REST: [(&str, &str, &str); 7] = [
    (
        "docs/endpoints.md",
        "[[endpoints]]\nroute = \"POST /goods/{sku}/sell\"",
        "[collections.goods]\nkey = { field = \"sku\", type = \"string\" }\n\
         [collections.sales]\nkey = { field = \"id\", type = \"u32\", generate = \"counter\" }\n",
    ),
    (
        "docs/endpoints.md",
        "[guards.session]",
        "[collections.sessions]\nkey = { field = \"id\", type = \"string\" }\n\
         [collections.baskets]\nkey = { field = \"id\", type = \"u32\", generate = \"counter\" }\nindexes = [[\"user\"]]\n",
    ),
    ("docs/endpoints.md", "[server]\ncors", ""),
    (
        "docs/users.md",
        "[collections.sessions]",
        "[collections.users]\nkey = { field = \"name\", type = \"string\" }\n\
         [collections.projects]\nkey = { field = \"id\", type = \"string\" }\n\
         [collections.issues]\nkey = { field = \"id\", type = \"u32\" }\nindexes = [[\"assignee\"]]\n",
    ),
    (
        "docs/users.md",
        "[[endpoints]]\nroute = \"PATCH /issues/{issue}\"",
        "[collections.issues]\nkey = { field = \"id\", type = \"u32\", generate = \"counter\" }\n",
    ),
    (
        "docs/import.md",
        "[collections.goods.schema",
        "[collections.goods]\nkey = { field = \"sku\", type = \"string\" }\n",
    ),
    ("docs/views.md", "[views.shelves]", "[collections.goods]\nkey = { field = \"sku\", type = \"string\" }\n"),
];

/// Where the pages say that the server is.
const SHOWN: &str = "http://127.0.0.1:8080";
/// What `sapsan import` of a page finds.
const GOODS: &str = "{\"sku\":\"tea-9\",\"shelf\":\"tea\",\"price\":9}\n";
/// The same as a table, and with a price that is none.
const TABLES: [(&str, &str); 2] = [
    ("goods.csv", "sku,shelf,price\r\ntea-10,tea,12\r\ntea-11,tea,14\r\n"),
    ("dear.csv", "sku,shelf,price\r\ntea-12,tea,16\r\ntea-13,tea,dear\r\n"),
];
/// The goods of [`Against::QuickStart`].
const STORED: [&str; 2] =
    [r#"{"sku": "tea-1", "shelf": "tea", "price": 350}"#, r#"{"sku": "tea-2", "shelf": "tea", "price": 90}"#];
/// No answer is waited for longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command, and the lines of its answer.
struct Shown {
    command: String,
    answer: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

fn section(page: &str, heading: &str) -> String {
    let text = text(page);
    let behind = text.split_once(heading).unwrap_or_else(|| panic!("{page} has no {heading}")).1;
    let end = if heading.starts_with("## ") { behind.find("\n## ") } else { None };
    behind[..end.unwrap_or(behind.len())].to_owned()
}

/// The command that a line of a block begins, if it does.
fn command_of(code: &str) -> Option<String> {
    let own = ["target/release/sapsan ", "cargo "].iter().any(|program| code.starts_with(program));
    code.strip_prefix("$ ").or(own.then_some(code)).map(|command| command.replace("target/release/sapsan", "sapsan"))
}

/// Whether the next line belongs to the command.
fn goes_on(command: &str) -> bool {
    command.ends_with('\\') || ['\'', '"'].iter().any(|quote| open_quote(command) == Some(*quote))
}

fn open_quote(command: &str) -> Option<char> {
    command.chars().fold(None, |open, character| match (open, character) {
        (None, '\'' | '"') => Some(character),
        (Some(quote), _) if quote == character => None,
        (open, _) => open,
    })
}

fn shown(section: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let (mut is_open, mut is_fenced) = (false, false);
    for line in section.lines() {
        is_fenced ^= line.starts_with("```");
        let Some(code) = line.strip_prefix("    ").filter(|_| !is_fenced) else {
            // An empty line may stand inside of an answer.
            is_open &= line.is_empty();
            if let Some(last) = all.last_mut().filter(|_| is_open) {
                last.answer.push(String::new());
            }
            continue;
        };
        let unfinished = |last: &&mut Shown| is_open && last.answer.is_empty() && goes_on(&last.command);
        if let Some(last) = all.last_mut().filter(unfinished) {
            last.command = format!("{}\n{code}", last.command.trim_end_matches('\\'));
        } else if let Some(command) = command_of(code) {
            all.push(Shown { command, answer: Vec::new() });
            is_open = true;
        } else if let Some(last) = all.last_mut().filter(|_| is_open) {
            last.answer.push(code.to_owned());
        }
    }
    for one in &mut all {
        while one.answer.last().is_some_and(String::is_empty) {
            one.answer.pop();
        }
    }
    all
}

/// The words of a command as a shell makes them: quotes, and a comment behind ` #`.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = command.chars().peekable();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), character) if open == character => quote = None,
            (Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (Some(_), character) => word.get_or_insert_default().push(character),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, ' ' | '\n') => words.extend(word.take()),
            (None, '#') if word.is_none() => break,
            (None, character) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// A server, ended when the section is.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, arguments: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
        command.current_dir(folder).args(arguments).args(["--http", "127.0.0.1:0"]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
        let lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let mut lines = lines.map(|line| line.expect("text"));
        let line = lines.find(|line| line.contains("listening on http://")).expect("it says where it listens");
        let address = line.split("http://").nth(1).expect("an address").trim().to_owned();
        // What it says later is read, so that it never waits for that.
        std::thread::spawn(move || lines.for_each(drop));
        Server { process, address }
    }

    /// Plays `curl`: the lines that it would print; of a reply without end as many as `wanted`.
    fn curl(&self, folder: &Path, words: &[String], wanted: usize) -> Vec<String> {
        let (mut method, mut body, mut fields, mut shows_head, mut url) = (None, None, String::new(), false, None);
        let (mut rest, mut is_endless) = (words.iter(), false);
        while let Some(word) = rest.next() {
            match word.as_str() {
                "-X" => method = rest.next().cloned(),
                "-d" => body = rest.next().cloned(),
                "--data-binary" => {
                    let name = rest.next().and_then(|name| name.strip_prefix('@')).expect("a file");
                    body = Some(std::fs::read_to_string(folder.join(name)).expect("its text"));
                }
                "-H" => fields = format!("{fields}{}\r\n", rest.next().expect("a field")),
                "-i" => shows_head = true,
                "-N" => is_endless = true,
                "-s" => {}
                other if other.starts_with(SHOWN) => url = Some(other[SHOWN.len()..].to_owned()),
                other => panic!("curl {other}"),
            }
        }
        let (target, method) =
            (url.expect("a target"), method.unwrap_or(if body.is_some() { "POST" } else { "GET" }.into()));
        let body = body.unwrap_or_default();
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("it reads");
        if is_endless {
            // Each line of the feed stands in a chunk with others or alone: what begins with `{` is one.
            let lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
            return lines.filter(|line| line.starts_with('{')).take(wanted).collect();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let body = if head.contains("chunked") { unchunked(body) } else { body.to_owned() };
        let head = head.lines().filter(|line| !line.starts_with("Connection: "));
        let head: Vec<String> =
            if shows_head { head.map(str::to_owned).chain([String::new()]).collect() } else { Vec::new() };
        head.into_iter().chain(body.lines().map(str::to_owned)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The demo removes its folder.
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        whole.push_str(&rest[..size]);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}

/// A line without what differs from run to run.
fn steady(line: &str) -> String {
    if line.starts_with("Date: ") {
        return "Date: …".to_owned();
    }
    if !LOOSE.iter().any(|prefix| line.starts_with(prefix)) {
        return without_uuids(line);
    }
    let line = line.replace("true", "0").replace("false", "0").replace("null", "0");
    let digits = |c: char| c.is_ascii_digit() || c == '.';
    line.split(digits).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("0")
}

/// A line with one text for each UUID of version 7.
fn without_uuids(line: &str) -> String {
    let is_uuid = |part: &str| part.len() == 36 && part.matches('-').count() == 4 && part.as_bytes()[14] == b'7';
    line.split('"').map(|part| if is_uuid(part) { "UUID" } else { part }).collect::<Vec<_>>().join("\"")
}

/// Whether a line is the one that a page shows.
fn is_line(found: &str, shown: &str) -> bool {
    if steady(found) == steady(shown) {
        return true;
    }
    let parts: Vec<&str> = shown.split('…').collect();
    let [first, middle @ .., last] = &parts[..] else { return false };
    let Some(rest) = found.strip_prefix(first) else { return false };
    let rest = middle.iter().try_fold(rest, |rest, part| Some(rest.split_once(part)?.1));
    rest.is_some_and(|rest| rest.ends_with(last))
}

/// Whether lines are those that a page shows.
fn is_shown(found: &[String], shown: &[String]) -> bool {
    match (found, shown) {
        (found, [dots]) if dots == "…" => !found.is_empty(),
        (found, [dots, rest @ ..]) if dots == "…" => (0..=found.len()).any(|from| is_shown(&found[from..], rest)),
        ([], []) => true,
        ([one, found @ ..], [other, shown @ ..]) => is_line(one, other) && is_shown(found, shown),
        _ => false,
    }
}

/// The blocks of TOML in a text.
fn blocks(text: &str) -> Vec<&str> {
    text.split("```toml\n").skip(1).map(|behind| behind.split("```").next().expect("a block")).collect()
}

/// A section's commands as they are run.
struct Runner {
    folder: tempfile::TempDir,
    server: Option<Server>,
    against: Against,
    /// What `serve` was last asked for.
    serve: Vec<String>,
}

impl Runner {
    fn new(page: &str, section: &str, against: Against) -> Runner {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
        write("goods.ndjson", GOODS);
        TABLES.iter().for_each(|(name, text)| write(name, text));
        let travels = text("apps/travels/travels.toml");
        let broken = travels.replace("unique = [\"email\"]", "unique = [\"emial\"]");
        write("broken.toml", &broken.replace("toDistance = \"integer\"", "toDistance = \"int\""));
        std::os::unix::fs::symlink(root().join("apps"), folder.path().join("apps")).expect("a link");
        let quick_start = text("docs/quick-start.md");
        let first = blocks(&quick_start)[0];
        match against {
            Against::OwnFile => write("shop.toml", blocks(section)[0]),
            Against::QuickStart => write("shop.toml", &format!("{first}{}", blocks(section).concat())),
            Against::Demo | Against::Commands => {}
        }
        let serve = ["serve", "shop.toml", "--data", "shop"].map(str::to_owned).to_vec();
        let mut runner = Runner { folder, server: None, against, serve };
        match page {
            // The page tells in words that the folder for backups is named, and shows the travels service.
            "docs/operations.md" => {
                runner.sapsan(&["generate", "travels", "travels.zip"]);
                runner.sapsan(&["import", "apps/travels/travels.toml", "--data", "data", "travels.zip"]);
                let serve = ["serve", "apps/travels/travels.toml", "--data", "data", "--backups", "backups"];
                runner.serve = serve.map(str::to_owned).to_vec();
            }
            // The file is changed while it is served.
            "docs/reload.md" => {
                runner.server();
                write_into(
                    &runner.folder,
                    "shop.toml",
                    &first.replace("[[\"shelf\", \"price\"]]", "[[\"shelf\", \"price\"], [\"price\"]]"),
                );
            }
            _ => {}
        }
        runner
    }

    /// The server, which is started where it does not run.
    fn server(&mut self) -> &Server {
        if self.server.is_none() {
            let arguments: Vec<&str> = match self.against {
                Against::Demo => vec!["demo"],
                _ => self.serve.iter().map(String::as_str).collect(),
            };
            let is_new = !self.folder.path().join("shop").exists();
            let server = Server::start(self.folder.path(), &arguments);
            if self.against == Against::QuickStart && is_new {
                for goods in STORED {
                    let words = ["-d", goods, &format!("{SHOWN}/goods")].map(str::to_owned);
                    assert_eq!(server.curl(self.folder.path(), &words, 0), ["{}"]);
                }
            }
            self.server = Some(server);
        }
        self.server.as_ref().expect("a server")
    }

    /// Runs the binary: what it prints, and what it says of mistakes.
    fn sapsan(&mut self, arguments: &[&str]) -> Vec<String> {
        let asks = arguments.iter().any(|argument| argument.starts_with(SHOWN));
        let address = if asks { format!("http://{}", self.server().address) } else { String::new() };
        // Commands that open a folder themselves want it for themselves.
        if !asks
            && self.against != Against::Demo
            && ["import", "export", "query", "stat", "verify", "backup", "compact"].contains(&arguments[0])
        {
            self.server = None;
        }
        let arguments = arguments.iter().map(|argument| argument.replace(SHOWN, &address));
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
        let output = command.current_dir(self.folder.path()).args(arguments).output().expect("the binary runs");
        let said = if output.status.success() { output.stdout } else { [output.stdout, output.stderr].concat() };
        String::from_utf8_lossy(&said).lines().map(str::to_owned).collect()
    }

    /// Runs one command: the lines that it prints; of a server that is started none.
    fn run(&mut self, command: &str, wanted: usize) -> Option<Vec<String>> {
        // What its output is given to is run by the shell.
        let (command, filter) = match command.split_once(" | ") {
            Some((command, filter)) => (command, Some(filter)),
            None => (command, None),
        };
        let words = words(command);
        let arguments: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        let found = match (words.first().map(String::as_str), &arguments[..]) {
            (Some("sapsan"), ["demo", ..]) => {
                self.server();
                return None;
            }
            (Some("sapsan"), ["serve", ..]) => {
                self.serve = words[1..].to_vec();
                self.server = None;
                self.server();
                return None;
            }
            (Some("sapsan"), arguments) => self.sapsan(arguments),
            (Some("curl"), _) => {
                let folder = self.folder.path().to_owned();
                self.server().curl(&folder, &words[1..], wanted)
            }
            _ => panic!("{command}: neither curl nor sapsan"),
        };
        Some(match filter {
            Some(filter) => filtered(filter, &found),
            None => found,
        })
    }
}

fn write_into(folder: &tempfile::TempDir, name: &str, text: &str) {
    std::fs::write(folder.path().join(name), text).expect("a file");
}

/// What a pipe of a shell makes of lines.
fn filtered(filter: &str, lines: &[String]) -> Vec<String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", filter]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = shell.spawn().expect("a shell");
    // It may have enough before the end.
    let _ = child.stdin.take().expect("its input").write_all((lines.join("\n") + "\n").as_bytes());
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Runs a section's commands and notes what is not as it is shown; how many there are.
fn check((page, heading, against, expected): (&str, &str, Against, usize), wrong: &mut Vec<String>) -> usize {
    let section = section(page, heading);
    let all = shown(&section);
    let is_run = |shown: &&Shown| !NOT_RUN.iter().any(|(beginning, _)| shown.command.starts_with(beginning));
    let (count, listed) = (all.len(), all.iter().filter(|shown| !is_run(shown)).count());
    assert_eq!(count - listed, expected, "{page}, {heading}: commands that are run");
    if expected == 0 {
        return count;
    }
    let mut runner = Runner::new(page, &section, against);
    for Shown { command, answer } in all.iter().filter(is_run) {
        let Some(found) = runner.run(command, answer.len()) else { continue };
        if !answer.is_empty() && !is_shown(&found, answer) {
            wrong.push(format!("{page}: {command}\n shown:\n{}\n found:\n{}", answer.join("\n"), found.join("\n")));
        }
    }
    count
}

/// The pages for users.
fn pages() -> Vec<String> {
    let folder = std::fs::read_dir(root().join("docs")).expect("a folder").map(|entry| entry.expect("an entry"));
    let names = folder.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let pages = names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"));
    let more = ["README.md", "apps/shop/README.md", "apps/travels/README.md"].map(str::to_owned);
    pages.chain(more).collect()
}

#[test]
fn what_the_pages_show_is_what_happens() {
    let (mut run, mut wrong): (BTreeMap<&str, usize>, Vec<String>) = Default::default();
    for section in PAGES {
        *run.entry(section.0).or_default() += check(section, &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    for page in pages() {
        let all = shown(&text(&page)).len();
        assert_eq!(
            run.get(page.as_str()).copied().unwrap_or(0),
            all,
            "{page}: a command stands in no section of PAGES"
        );
    }
}

#[test]
fn what_the_pages_declare_is_without_mistakes() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(["example.org".to_owned()]).expect("a certificate");
    for (name, pem) in [("fullchain.pem", made.cert.pem()), ("privkey.pem", made.signing_key.serialize_pem())] {
        std::fs::write(folder.path().join(name), pem).expect("a file");
    }
    std::fs::create_dir(folder.path().join("public")).expect("a folder");
    let mut checked = 0;
    for page in pages() {
        let text = text(&page);
        for block in blocks(&text) {
            let is_part = |(of, beginning, _): &&(&str, &str, &str)| *of == page && block.starts_with(beginning);
            let rest = REST.iter().find(is_part).map_or("", |(_, _, rest)| rest);
            let path = folder.path().join("service.toml");
            std::fs::write(&path, format!("{rest}{block}")).expect("a file");
            let output = Command::new(env!("CARGO_BIN_EXE_sapsan")).arg("check-config").arg(&path).output();
            let output = output.expect("the binary runs");
            assert!(output.status.success(), "{page}: {block}\n{}", String::from_utf8_lossy(&output.stderr));
            checked += 1;
        }
        let languages =
            text.lines().filter_map(|line| line.strip_prefix("```")).filter(|language| !language.is_empty());
        for language in languages.filter(|language| *language != "toml") {
            let is_listed = BLOCKS_NOT_RUN.iter().any(|(known, _)| *known == language);
            assert!(is_listed, "{page}: a block of `{language}` is neither run nor listed");
        }
    }
    assert!(checked >= 8, "{checked} blocks");
}

#[test]
fn lines_are_compared_but_for_what_differs_from_run_to_run() {
    for (found, shown, expected) in [
        ("{\"a\":1}", "{\"a\":1}", true),
        ("{\"a\":1}", "{\"a\":2}", false),
        ("imported 5 documents in 0.18 s", "imported 7 documents in 1.5 s", true),
        ("imported 5 documents in 0.18 s", "imported 7 records in 1.5 s", false),
        ("sha256 = \"6eb5\"", "sha256 = \"c1…\"", false),
        ("sha256 = \"c1b5\"", "sha256 = \"c1…\"", true),
        ("sha256 = \"c1b5\"", "…", true),
        ("a b c", "a … c", true),
        ("a b d", "a … c", false),
    ] {
        assert_eq!(is_line(found, shown), expected, "{found} {shown}");
    }
    let id = |uuid: &str| format!("{{\"id\":\"{uuid}\",\"total\":7}}");
    assert!(is_line(&id("01a202f1-d7cb-7371-975a-d26f58a97f90"), &id("01a202f2-0000-7371-975a-d26f58a97f91")));
    assert!(!is_line(&id("01a202f1-d7cb-4371-975a-d26f58a97f90"), &id("01a202f2-0000-7371-975a-d26f58a97f91")));
}
