//! The commands and answers that the pages for users show are true: they are run, in their order, against the demo or the file that the
//! page shows, and the answers are compared.
//!
//! A command is a line `    $ …` of an indented block; what follows it until the next one is its answer, in which a line `…` stands for any
//! number of lines, and the value of `Date` for any. `curl` is played by this program, so that none is needed. Not run are commands with a
//! pipe, those that make gigabytes, and those of pages that [`SECTIONS`] does not name.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What a section's commands talk to.
#[derive(Clone, Copy, PartialEq)]
enum Against {
    Demo,
    /// The first block of TOML in the section, saved as `shop.toml`.
    OwnFile,
}

/// Page, heading of the section (to the next `##`, or to the end of the page), and how many commands of it are run.
const SECTIONS: [(&str, &str, Against, usize); 5] = [
    ("README.md", "## Five minutes with the demo", Against::Demo, 5),
    ("README.md", "## Your own data", Against::OwnFile, 3),
    ("docs/quick-start.md", "## The demo", Against::Demo, 10),
    ("docs/quick-start.md", "## Your own data", Against::OwnFile, 2),
    ("docs/endpoints.md", "# Endpoints", Against::OwnFile, 5),
];

/// Where the pages say that the server is.
const SHOWN: &str = "http://127.0.0.1:8080";
/// What `sapsan import` of a page finds.
const GOODS: &str = "{\"sku\":\"tea-9\",\"shelf\":\"tea\",\"price\":9}\n";

/// A command, and the lines of its answer.
struct Shown {
    command: String,
    answer: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn section(page: &str, heading: &str) -> String {
    let text = std::fs::read_to_string(root().join(page)).expect("a page");
    let behind = text.split_once(&format!("{heading}\n")).unwrap_or_else(|| panic!("{page} has no {heading}")).1;
    behind.split("\n## ").next().expect("a section").to_owned()
}

fn shown(section: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let mut is_open = false;
    for line in section.lines() {
        match line.strip_prefix("    ") {
            Some(code) => match code.strip_prefix("$ ") {
                Some(command) => {
                    all.push(Shown { command: command.to_owned(), answer: Vec::new() });
                    is_open = true;
                }
                None if is_open => all.last_mut().expect("a command").answer.push(code.to_owned()),
                None => {}
            },
            // An empty line may stand inside of an answer.
            None if line.is_empty() && is_open => all.last_mut().expect("a command").answer.push(String::new()),
            None => is_open = false,
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
            (None, ' ') => words.extend(word.take()),
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
        command.current_dir(folder).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("the binary runs");
        let lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let mut lines = lines.map(|line| line.expect("text"));
        let line = lines.find(|line| line.contains("listening on http://")).expect("it says where it listens");
        let address = line.split("http://").nth(1).expect("an address").trim().to_owned();
        // What it says later is read, so that it never waits for that.
        std::thread::spawn(move || lines.for_each(drop));
        Server { process, address }
    }

    /// Plays `curl`: the lines that it would print.
    fn curl(&self, words: &[String]) -> Vec<String> {
        let (mut method, mut body, mut fields, mut shows_head, mut url) = (None, None, String::new(), false, None);
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "-X" => method = rest.next().cloned(),
                "-d" => body = rest.next().cloned(),
                "-H" => fields = format!("{fields}{}\r\n", rest.next().expect("a field")),
                "-i" => shows_head = true,
                "-s" => {}
                other if other.starts_with(SHOWN) => url = Some(other[SHOWN.len()..].to_owned()),
                other => panic!("curl {other}"),
            }
        }
        let (target, method) =
            (url.expect("a target"), method.unwrap_or(if body.is_some() { "POST" } else { "GET" }.into()));
        let body = body.unwrap_or_default();
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).expect("it reads");
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

/// Whether lines are those that a page shows.
fn is_shown(found: &[String], shown: &[String]) -> bool {
    match (found, shown) {
        (found, [dots]) if dots == "…" => !found.is_empty(),
        (found, [dots, rest @ ..]) if dots == "…" => (0..=found.len()).any(|from| is_shown(&found[from..], rest)),
        ([], []) => true,
        ([one, found @ ..], [other, shown @ ..]) => {
            let is_date = one.starts_with("Date: ") && other.starts_with("Date: ");
            (one == other || is_date) && is_shown(found, shown)
        }
        _ => false,
    }
}

fn check(page: &str, heading: &str, against: Against, expected: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let section = section(page, heading);
    std::fs::write(folder.path().join("goods.ndjson"), GOODS).expect("a file");
    if against == Against::OwnFile {
        let toml = section.split_once("```toml\n").expect("a file").1.split("```").next().expect("its text");
        std::fs::write(folder.path().join("shop.toml"), toml).expect("a file");
    }
    let mut server = match against {
        Against::Demo => Some(Server::start(folder.path(), &["demo", "--http", "127.0.0.1:0"])),
        Against::OwnFile => None,
    };
    let mut run = 0;
    for Shown { command, answer } in shown(&section) {
        let words = words(&command);
        let arguments: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        let found = match (words.first().map(String::as_str), &arguments[..]) {
            _ if command.contains(" | ") => continue,
            (Some("sapsan"), ["demo", ..] | ["check-config", "broken.toml"]) => continue,
            (Some("sapsan"), ["serve", rest @ ..]) => {
                let arguments = [&["serve"], rest, &["--http", "127.0.0.1:0"]].concat();
                server = Some(Server::start(folder.path(), &arguments));
                continue;
            }
            (Some("sapsan"), arguments) => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
                let output = command.current_dir(folder.path()).args(arguments).output().expect("the binary runs");
                assert!(output.status.success(), "{page}: {words:?}: {}", String::from_utf8_lossy(&output.stderr));
                String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
            }
            (Some("curl"), _) => {
                // A page that says in words how it is served.
                let server = server.get_or_insert_with(|| {
                    Server::start(folder.path(), &["serve", "shop.toml", "--data", "shop", "--http", "127.0.0.1:0"])
                });
                server.curl(&words[1..])
            }
            _ => panic!("{page}: {command}"),
        };
        run += 1;
        assert!(
            answer.is_empty() || is_shown(&found, &answer),
            "{page}: {command}\n shown: {answer:#?}\n found: {found:#?}"
        );
    }
    assert_eq!(run, expected, "{page}, {heading}: commands that were run");
}

#[test]
fn what_the_pages_show_is_what_happens() {
    for (page, heading, against, expected) in SECTIONS {
        check(page, heading, against, expected);
    }
}
