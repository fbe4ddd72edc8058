//! What was answered is on disk: the process is killed, and the folder opened again.

use super::client::{Client, with_body};
use super::database::{CONFIG, app};
use sapsan::Database;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Names the folder in which the process that is killed serves.
const FOLDER: &str = "SAPSAN_WEB_TEST_FOLDER";
/// The file there that tells the address.
const ADDRESS: &str = "address";
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test by itself: the one below runs it in a process of its own.
#[test]
#[ignore = "serves until it is killed"]
fn serves() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let database = Database::open(folder.join("data"), CONFIG).unwrap_or_else(|error| panic!("{error}"));
    let running = app(database).threads(1).start("127.0.0.1:0").unwrap();
    let made = folder.join("address.new");
    std::fs::write(&made, running.address().to_string()).unwrap();
    std::fs::rename(made, folder.join(ADDRESS)).unwrap();
    std::thread::sleep(PATIENCE);
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let mut served = Command::new(program);
    served.args(["web::durability::serves", "--exact", "--ignored"]).env(FOLDER, folder.path());
    let mut served = served.stdout(std::process::Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let address = loop {
        match std::fs::read_to_string(folder.path().join(ADDRESS)) {
            Ok(address) => break address.parse().unwrap(),
            Err(_) => assert!(begun.elapsed() < PATIENCE, "the process serves"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut client = Client::to(address);
    for id in 1..=20 {
        let body = format!(r#"{{"id":{id},"owner":"ann","amount":{id}}}"#);
        assert_eq!(client.ask(&with_body("POST", "/accounts", "application/json", &body)).status, 201);
    }
    served.kill().unwrap();
    served.wait().unwrap();
    let database = Database::open(folder.path().join("data"), CONFIG).unwrap_or_else(|error| panic!("{error}"));
    let rows: Vec<serde_json::Value> = database.query("SELECT id FROM accounts", ()).unwrap();
    assert_eq!(rows.len(), 20);
}
