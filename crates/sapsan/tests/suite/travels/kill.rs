//! `kill -9` hundreds of times: of a server under load, of one that is just starting, of imports. Clients keep a list of what they were
//! told, and after each kill all of it is there, whole, and nothing that was never sent.
//!
//! `cargo xtask campaign kill --times 500`; `crash.rs` and `import_kill.rs` are the short forms.

use super::client::{Client, request_bytes};
use super::import_kill::{counts, generate, leftovers, verify};
use super::process::{Server, sapsan, serve, travels_toml};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const CLIENTS: u32 = 8;
/// Documents of each client: few, so that most writes are changes and the folder stays small.
const DOCUMENTS: usize = 60;
/// `sapsan verify` looks at the folder after so many kills.
const VERIFY_EVERY: u32 = 20;
/// What an import that is killed would bring.
const IMPORTED: [u64; 3] = [3_000, 2_000, 20_000];
/// So little memory that a checkpoint begins several times a second.
const MEMORY: &str = "64MB";

/// What a client knows of one of its documents.
#[derive(Clone, Copy, Default)]
struct Known {
    acknowledged: u64,
    sent: u64,
}

/// A client over all lives of the server.
struct Writer {
    number: u32,
    documents: Vec<Known>,
    random: ChaCha8Rng,
}

fn id(writer: u32, document: usize) -> usize {
    1 + writer as usize * DOCUMENTS + document
}

/// The document as of one change: all its fields follow from the number.
fn place(number: u64) -> String {
    "п".repeat((number * 37 % 900) as usize)
}

fn body(id: Option<usize>, number: u64) -> String {
    let id = id.map_or(String::new(), |id| format!("\"id\":{id},"));
    format!(r#"{{{id}"place":"{}","country":"c","city":"{number}","distance":{number}}}"#, place(number))
}

impl Writer {
    fn new(number: u32) -> Writer {
        let random = ChaCha8Rng::seed_from_u64(number.into());
        Writer { number, documents: vec![Known::default(); DOCUMENTS], random }
    }

    /// Creates and changes documents until the connection breaks.
    fn write_until_the_end(&mut self, address: SocketAddr) {
        let mut client = Client::new(address);
        loop {
            let document = self.random.random_range(0..DOCUMENTS);
            let (known, id) = (&mut self.documents[document], id(self.number, document));
            let is_new = known.acknowledged == 0;
            let number = known.sent + 1;
            let (path, body) = match is_new {
                true => ("/locations/new".to_owned(), body(Some(id), number)),
                false => (format!("/locations/{id}"), body(None, number)),
            };
            known.sent = number;
            let request = request_bytes("POST", &path, Some(body.as_bytes()));
            match client.send(&request).and_then(|()| client.receive()) {
                Ok(answer) => {
                    assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
                    known.acknowledged = number;
                }
                Err(_) => return,
            }
        }
    }

    /// Compares all documents; takes over which of the changes that were under way have been done.
    #[track_caller]
    fn check(&mut self, client: &mut Client, context: &str) {
        for (document, known) in self.documents.iter_mut().enumerate() {
            let id = id(self.number, document);
            let answer = client.request("GET", &format!("/locations/{id}"), None);
            let context = format!("{context}, location {id}: {} told, {} sent", known.acknowledged, known.sent);
            if answer.status == 404 {
                assert_eq!(known.acknowledged, 0, "{context}: it is gone");
                known.sent = 0;
                continue;
            }
            assert_eq!(answer.status, 200, "{context}");
            let found: Value = serde_json::from_slice(&answer.body).expect("a document");
            let number = found["distance"].as_u64().expect("its number");
            assert!((known.acknowledged..=known.sent).contains(&number), "{context}: {number} found");
            let expected: Value = serde_json::from_str(&body(Some(id), number)).expect("made as JSON");
            assert_eq!(found, expected, "{context}: in part");
            *known = Known { acknowledged: number, sent: number };
        }
    }
}

/// One life of the server under load, ended by the kill.
fn live_and_kill(file: &Path, data: &Path, writers: &mut [Writer], alive: Duration, context: &str) {
    let server = Server::start_service(file, data, 0, &[]);
    let mut client = Client::new(server.address);
    writers.iter_mut().for_each(|writer| writer.check(&mut client, context));
    drop(client);
    let address = server.address;
    std::thread::scope(|scope| {
        for writer in writers {
            scope.spawn(move || writer.write_until_the_end(address));
        }
        std::thread::sleep(alive);
        server.kill();
    });
}

/// Killed before, or just when, it listens.
fn kill_at_start(file: &Path, data: &Path, alive: Duration) {
    let mut child = serve(file, data, 0).stdout(Stdio::null()).spawn().expect("the sapsan binary starts");
    std::thread::sleep(alive);
    let _ = child.kill();
    child.wait().expect("the child can be waited for");
}

/// An import into a new folder, killed; all of it is there, or nothing.
fn kill_import(file: &Path, data: &Path, alive: Duration, context: &str) {
    let mut child = sapsan(&["import"])
        .arg(travels_toml())
        .arg("--data")
        .arg(data)
        .arg(file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the sapsan binary starts");
    std::thread::sleep(alive);
    let has_ended = child.try_wait().expect("the child can be waited for").is_some();
    let _ = child.kill();
    child.wait().expect("the child can be waited for");
    if data.join("tree").is_file() {
        verify(data);
        let found = counts(data);
        assert!(found == IMPORTED || (!has_ended && found == [0, 0, 0]), "{context}: {found:?}");
        assert_eq!(leftovers(data), Vec::<String>::new(), "{context}");
    }
}

/// The service file with little memory.
fn write_service(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("service.toml");
    let text = std::fs::read_to_string(travels_toml()).expect("the service file");
    let text = format!("{text}\n[server]\nmemory = \"{MEMORY}\"\n");
    std::fs::write(&file, text).expect("the folder can be written");
    file
}

#[test]
#[ignore = "long: cargo xtask campaign kill --times 500"]
fn every_acknowledged_change_survives_hundreds_of_kills() {
    let setting = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let times = setting("SAPSAN_KILLS").unwrap_or(500) as u32;
    let seed = setting("SAPSAN_KILL_SEED").unwrap_or(1);
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, data) = (write_service(folder.path()), folder.path().join("data"));
    let imported = folder.path().join("imported.zip");
    generate(&imported, IMPORTED);
    let mut writers: Vec<Writer> = (0..CLIENTS).map(Writer::new).collect();
    let (began, mut under_load, mut at_start, mut imports) = (Instant::now(), 0, 0, 0);
    for kill in 0..times {
        let context = format!("seed {seed}, kill {kill}");
        match random.random_range(0..20) {
            0..3 => {
                kill_at_start(&file, &data, Duration::from_millis(random.random_range(0..80)));
                at_start += 1;
            }
            3 => {
                let import = folder.path().join("import");
                kill_import(&imported, &import, Duration::from_millis(random.random_range(0..900)), &context);
                let _ = std::fs::remove_dir_all(&import);
                imports += 1;
            }
            _ => {
                let alive = Duration::from_millis(random.random_range(5..900));
                live_and_kill(&file, &data, &mut writers, alive, &context);
                under_load += 1;
            }
        }
        if kill % VERIFY_EVERY == VERIFY_EVERY - 1 && data.join("tree").is_file() {
            verify(&data);
            let seconds = began.elapsed().as_secs();
            println!(
                "{} kills: {under_load} under load, {at_start} at the start, {imports} of imports; {seconds} s",
                kill + 1
            );
        }
    }
    let server = Server::start_service(&file, &data, 0, &[]);
    let mut client = Client::new(server.address);
    writers.iter_mut().for_each(|writer| writer.check(&mut client, "at the end"));
    let changes: u64 = writers.iter().flat_map(|writer| &writer.documents).map(|known| known.acknowledged).sum();
    let metrics = client.request("GET", "/_/metrics", None).status;
    println!("{times} kills, {changes} changes acknowledged, metrics {metrics}");
    assert!(changes > u64::from(times), "hardly anything was written");
    server.stop();
}
