//! Pages of other origins in a real browser: requests that `[server] cors` permits work there, and no others.
//!
//! The browser is Chromium without a window, which `cargo xtask browser` installs; without it the test is skipped with a message.
//! Each page makes permitted and forbidden requests, and sends the results to the server that it came from.

use crate::harness::TestServer;
use serde_json::{Value as Json, json};
use server::token::NewToken;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Limit of waiting for a page; it is not reached if all is well.
const PATIENCE: Duration = Duration::from_secs(60);

const ENDPOINTS: &str = r#"
[[endpoints]]
route = "GET /items/{id}"
get = "items/{id}"
[[endpoints]]
route = "PUT /items/{id}"
replace = "items/{id}"
allow = "token"
[[endpoints]]
route = "GET /mine"
query = "SELECT id, note FROM items WHERE note = :session"
params = { session = { type = "string", from = "cookie:session" } }
"#;

/// The requests of a page. A request that the browser refuses, or whose reply it hides, is reported as `refused`.
const PAGE: &str = r#"<!doctype html><title>t</title><script>
const server = "SERVER", seen = {};
async function ask(name, target, options) {
    try {
        const reply = await fetch(server + target, options);
        seen[name] = { status: reply.status, text: await reply.text(), tag: reply.headers.has("ETag") };
    } catch (error) {
        seen[name] = "refused";
    }
}
async function all() {
    document.cookie = "session=s1";
    const put = (id) => JSON.stringify({ id, group: "g", price: 5 });
    const fields = { "Content-Type": "application/json", "Authorization": "Bearer TOKEN" };
    await ask("get", "/items/1", {});
    await ask("put", "/items/2", { method: "PUT", headers: fields, body: put(2) });
    await ask("put without a token", "/items/2", { method: "PUT", body: put(2) });
    await ask("put with another field", "/items/2", { method: "PUT", headers: { "X-Other": "1", ...fields }, body: put(2) });
    await ask("with cookies", "/mine", { credentials: "include" });
    await ask("without cookies", "/mine", { credentials: "omit" });
    await ask("schema", "/_/schema", {});
    await ask("schema by token", "/_/schema", { headers: fields });
    await ask("insert", "/_/collections/items", { method: "POST", headers: { "Content-Type": "text/plain" }, body: put(3) });
    await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
}
all();
</script>"#;

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join("chromium")).find(|program| program.is_file())
}

/// A browser with one page; ended when it is dropped.
struct Browser(Child);

impl Browser {
    fn show(program: &Path, folder: &Path, url: &str) -> Browser {
        let mut command = Command::new(program);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--disable-dev-shm-usage", "--remote-debugging-port=0"]);
        command.arg(format!("--user-data-dir={}", folder.display())).arg(url);
        Browser(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Serves the page until it has sent its results.
fn serve(pages: &TcpListener, page: &str) -> Json {
    pages.set_nonblocking(true).unwrap();
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < PATIENCE, "the page says nothing");
        let Ok((stream, _)) = pages.accept() else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        // A browser opens connections that it may never use.
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        if let Some(seen) = answer(stream, page) {
            return seen;
        }
    }
}

/// Answers one request of the page's own origin; returns the page's results once it sends them.
fn answer(stream: TcpStream, page: &str) -> Option<Json> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length, mut first) = (String::new(), 0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if first.is_empty() {
            first.clone_from(&line);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (media, text) = if first.starts_with("GET / ") { ("text/html", page) } else { ("text/plain", "") };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    let _ = reader.get_mut().write_all(format!("{head}{text}").as_bytes());
    first.starts_with("POST /seen ").then(|| serde_json::from_slice(&body).unwrap())
}

#[test]
fn a_page_of_an_origin_that_may_uses_declared_endpoints_and_no_other_page_does() {
    let Some(program) = browser() else {
        // Not by `println!`, which libtest hides in passing tests: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: chromium is not there (cargo xtask browser installs it)\n";
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        return;
    };
    let (may, may_not) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let origin = format!("http://{}", may.local_addr().unwrap());
    let token = NewToken::new(&[7; 32]);
    let tokens = format!("[tokens.page]\nsha256 = \"{}\"\nallow = [\"read\", \"write\"]\n", token.sha256);
    let cors = format!("cors = {{ origins = [\"{origin}\"], credentials = true }}");
    let server = TestServer::start(&cors, &[ENDPOINTS, &tokens].concat());
    let item = br#"{"id":1,"group":"g","price":1,"note":"s1"}"#;
    assert_eq!(server.ask("PUT", "/_/collections/items/1", "", item).status, 201);
    assert_eq!(server.ask("PUT", "/_/collections/items/2", "", br#"{"id":2,"group":"g","price":1}"#).status, 201);
    let page = PAGE.replace("SERVER", &format!("http://{}", server.address())).replace("TOKEN", &token.text);
    let price = || server.get("/_/collections/items/2").json()["price"].clone();
    for (pages, is_allowed) in [(&may_not, false), (&may, true)] {
        let folder = tempfile::tempdir().unwrap();
        let _browser = Browser::show(&program, folder.path(), &format!("http://{}/", pages.local_addr().unwrap()));
        let seen = serve(pages, &page);
        // The general API answers no page of another origin, with or without a token.
        for name in ["schema", "schema by token", "insert"] {
            assert_eq!(seen[name], "refused", "{name}: {seen}");
        }
        assert_eq!(server.get("/_/collections/items/3").status, 404);
        if !is_allowed {
            assert!(seen.as_object().unwrap().values().all(|seen| seen == "refused"), "{seen}");
            assert_eq!(price(), 1, "a request that was to be asked for first was made");
            continue;
        }
        assert_eq!((&seen["get"]["status"], &seen["get"]["tag"]), (&json!(200), &json!(true)), "{seen}");
        assert_eq!(seen["put"]["status"], 200, "{seen}");
        assert_eq!(seen["put without a token"]["status"], 401, "{seen}");
        assert_eq!(seen["put with another field"], "refused", "{seen}");
        assert_eq!(price(), 5);
        assert!(seen["with cookies"]["text"].as_str().unwrap().contains("\"id\":1"), "{seen}");
        assert!(!seen["without cookies"]["text"].as_str().unwrap().contains("\"id\":1"), "{seen}");
    }
}
