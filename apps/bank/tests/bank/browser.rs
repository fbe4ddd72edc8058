//! The pages in a real browser: headless Chromium, controlled over a pipe (the DevTools protocol).
//!
//! `cargo xtask browser` installs it; without it the test is skipped with a message.

use crate::server::Server;
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A page that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("chromium")).find(|program| program.is_file());
    if found.is_none() {
        // Not `println!`, which libtest captures in a passing test: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: chromium is not there (cargo xtask browser installs it)\n";
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
    found
}

/// A browser with one page; ended when it is dropped.
struct Browser {
    child: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
    number: u64,
    /// The session of the page.
    page: Option<String>,
    _folder: TempDir,
}

impl Browser {
    fn start(program: PathBuf) -> Browser {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // The browser reads commands from descriptor 3 and writes replies to 4.
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 >/dev/null 2>&1 </dev/null"]).arg(program);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.args(["--disable-dev-shm-usage", "--remote-debugging-pipe"]);
        command.arg(format!("--user-data-dir={}", folder.path().display())).arg("about:blank");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, replies) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Browser { child, commands, replies, number: 0, page: None, _folder: folder };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached =
            browser.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        browser.page = Some(attached["sessionId"].as_str().unwrap().to_owned());
        browser.call("Network.enable", json!({}));
        browser
    }

    /// Sends a command and waits for its result.
    fn call(&mut self, method: &str, params: Json) -> Json {
        self.try_call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(&mut self, method: &str, params: Json) -> Result<Json, Json> {
        self.number += 1;
        let mut command = json!({ "id": self.number, "method": method, "params": params });
        if let Some(page) = &self.page {
            command["sessionId"] = page.as_str().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.replies.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser has ended");
            let mut message: Json = serde_json::from_slice(&bytes).unwrap();
            // Events have no number.
            if message["id"].as_u64() == Some(self.number) {
                return if message["error"].is_null() {
                    Ok(message["result"].take())
                } else {
                    Err(message["error"].take())
                };
            }
        }
    }

    /// The value of an expression in the page; null if it has none.
    fn value(&mut self, expression: &str) -> Json {
        let params = json!({ "expression": expression, "returnByValue": true });
        // While the page changes, the evaluation fails.
        let Ok(mut outcome) = self.try_call("Runtime.evaluate", params) else { return Json::Null };
        outcome["result"]["value"].take()
    }

    /// Evaluates an expression that leads to another page, and waits until that page is loaded.
    fn go(&mut self, expression: &str) {
        self.value(&format!("window.isOld = true; {expression}; 1"));
        let began = Instant::now();
        while self.value("window.isOld === undefined && document.readyState === 'complete'") != json!(true) {
            assert!(began.elapsed() < PATIENCE, "no page behind {expression}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn open(&mut self, server: &Server, path: &str) {
        self.go(&format!("location.href = 'http://{}{path}'", server.address));
    }

    fn path(&mut self) -> String {
        self.value("location.pathname").as_str().unwrap().to_owned()
    }

    /// The text of the element with this id.
    fn text(&mut self, id: &str) -> Option<String> {
        let text = self.value(&format!("document.getElementById('{id}')?.innerText"));
        text.as_str().map(|text| text.trim().to_owned())
    }

    /// Fills in the login form and submits it.
    fn log_in(&mut self, login: &str, password: &str) {
        let fill = |name: &str, value: &str| format!("document.querySelector('input[name={name}]').value = '{value}';");
        let (login, password) = (fill("login", login), fill("password", password));
        self.go(&format!("{login} {password} document.querySelector('[type=submit]').click()"));
    }

    /// Makes the requests appear forwarded from another address.
    fn move_to(&mut self, address: &str) {
        self.call("Network.setExtraHTTPHeaders", json!({ "headers": { "X-Forwarded-For": address } }));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_customer_logs_in_and_out_and_guessers_are_locked_and_banned_in_a_browser() {
    let Some(program) = program() else { return };
    let server = Server::embedded();
    let mut browser = Browser::start(program);
    browser.move_to("192.0.2.1");
    browser.open(&server, "/mypage");
    assert_eq!(
        (browser.path().as_str(), browser.text("notice-message").as_deref()),
        ("/", Some("You must be logged in"))
    );
    assert_eq!(browser.value("getComputedStyle(document.querySelector('.container')).maxWidth"), json!("630px"));
    assert_eq!(browser.value("document.images[0].naturalWidth"), json!(200));

    browser.log_in("user1", "password1");
    assert_eq!(browser.path(), "/mypage");
    assert_eq!(browser.text("last-logined-ip").as_deref(), Some("192.0.2.1"));
    let first = browser.text("last-logined-at").unwrap();
    assert!(bank::clock::seconds(&first).is_some(), "{first}");
    browser.go("document.querySelector('[action=\"/logout\"] button').click()");
    assert_eq!(browser.path(), "/");
    browser.open(&server, "/mypage");
    assert_eq!(browser.path(), "/");

    browser.move_to("192.0.2.2");
    browser.log_in("user1", "password1");
    let shown = (browser.text("last-logined-at"), browser.text("last-logined-ip"));
    assert_eq!(shown, (Some(first), Some("192.0.2.1".to_owned())));

    browser.move_to("192.0.2.3");
    browser.open(&server, "/");
    for _ in 0..3 {
        browser.log_in("user2", "guess");
        assert_eq!(browser.text("notice-message").as_deref(), Some("Wrong username or password"));
    }
    browser.go("location.reload()");
    assert_eq!(browser.text("notice-message"), None);
    browser.log_in("user2", "password2");
    assert_eq!(browser.text("notice-message").as_deref(), Some("This account is locked."));
    for guess in 0..6 {
        browser.log_in(&format!("nobody{guess}"), "guess");
    }
    browser.log_in("user3", "password3");
    assert_eq!(browser.text("notice-message").as_deref(), Some("You're banned."));
    browser.open(&server, "/report");
    let report: Json = serde_json::from_str(browser.value("document.body.innerText").as_str().unwrap()).unwrap();
    assert_eq!(report, json!({ "banned_ips": ["192.0.2.3"], "locked_users": ["user2"] }));
}
