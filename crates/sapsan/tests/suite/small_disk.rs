//! The real binary on a file system of its own that gets full, and on one that cannot be written. Where none can be mounted the
//! test says so and is skipped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const CONFIG: &str =
    "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n[server]\nhttp = \"127.0.0.1:0\"\n";
/// Room for the log and some thousand documents.
const SIZE: &str = "size=96m";

struct Mounted<'m>(&'m Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    let mounted = Command::new("mount").args(arguments).arg(at).stderr(Stdio::null()).status();
    mounted.is_ok_and(|status| status.success())
}

struct Server {
    process: Child,
    stream: BufReader<TcpStream>,
}

impl Server {
    fn start(folder: &Path, data: &Path) -> Server {
        Server::of(Command::new(env!("CARGO_BIN_EXE_sapsan")), folder, data)
    }

    fn of(mut command: Command, folder: &Path, data: &Path) -> Server {
        let mut process = command
            .arg("serve")
            .arg(folder.join("service.toml"))
            .arg("--data")
            .arg(data)
            .stderr(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("its output")).read_line(&mut line).expect("its address");
        let address = line.rsplit_once("http://").expect("an address").1.trim().to_owned();
        let stream = BufReader::new(TcpStream::connect(address).expect("it listens"));
        Server { process, stream }
    }

    fn ask(&mut self, method: &str, target: &str, body: &str) -> u16 {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        self.stream.get_mut().write_all((head + body).as_bytes()).expect("it reads");
        let (mut status, mut length) = (0, 0);
        for line in self.stream.by_ref().lines() {
            let line = line.expect("a line");
            match line.split_once(": ") {
                _ if line.is_empty() => break,
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().expect("a length")
                }
                None => status = line.split(' ').nth(1).expect("a status").parse().expect("a number"),
                _ => {}
            }
        }
        self.stream.read_exact(&mut vec![0; length]).expect("a body");
        status
    }

    fn create(&mut self, id: u32) -> u16 {
        let body = format!("{{\"id\":{id},\"note\":\"{}\"}}", "n".repeat(2_000));
        self.ask("POST", "/_/collections/items", &body)
    }

    /// Whether it is taken, now or after a while: a refusal tells to try again.
    fn create_in_the_end(&mut self, id: u32) -> bool {
        let began = Instant::now();
        while self.create(id) != 201 {
            if began.elapsed() > Duration::from_secs(1) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }

    fn end(mut self) {
        let asked = Command::new("kill").arg(self.process.id().to_string()).status().expect("kill runs");
        assert!(asked.success() && self.process.wait().expect("it ends").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn sapsan(arguments: &[&str], data: &Path) -> (bool, String) {
    let Output { status, stdout, stderr } =
        Command::new(env!("CARGO_BIN_EXE_sapsan")).args(arguments).arg(data).output().expect("the binary runs");
    let told = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (status.success(), told)
}

#[test]
fn a_full_disk_is_freed_by_deleting_and_a_read_only_one_can_be_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).expect("a folder");
    std::fs::write(folder.path().join("service.toml"), CONFIG).expect("a file");
    if !mount(&["-t", "tmpfs", "-o", SIZE, "tmpfs"], &disk) {
        // Past libtest, which keeps what a passing test prints: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: no file system can be mounted here\n";
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("a standard output");
        return;
    }
    let _mounted = Mounted(&disk);
    let data = disk.join("data");
    let mut server = Server::start(folder.path(), &data);
    let mut ids = 0..100_000;
    let refused = ids.by_ref().find_map(|id| Some(server.create(id)).filter(|status| *status != 201));
    assert_eq!(refused, Some(503));
    assert_eq!(server.ask("GET", "/_/health", ""), 503);
    let before = ids.start - 1;
    assert!(before > 2_000, "{before}");
    let gone: Vec<u32> = (0..before).filter(|id| id % 13 != 0).collect();
    for id in &gone {
        let status = server.ask("DELETE", &format!("/_/collections/items/{id}"), "");
        assert_eq!(status, 204, "{id} of {before}");
    }
    let began = Instant::now();
    while server.ask("GET", "/_/health", "") != 200 {
        assert!(began.elapsed() < Duration::from_secs(30), "it stays full");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.end();
    let mut server = Server::start(folder.path(), &data);
    let taken = gone.iter().take_while(|id| server.create_in_the_end(**id)).count();
    assert!(taken > gone.len() * 2 / 3, "{taken} of {}", gone.len());
    for id in &gone[..taken] {
        assert_eq!(server.ask("DELETE", &format!("/_/collections/items/{id}"), ""), 204, "{id}");
    }
    server.end();
    let (is_done, told) = sapsan(&["compact"], &data);
    assert!(is_done, "{told}");
    assert!(mount(&["-o", "remount,ro"], &disk), "it can be mounted anew");
    for look in ["verify", "stat"] {
        let (is_done, told) = sapsan(&[look], &data);
        assert!(is_done && told.contains("tree file: "), "{look}: {told}");
    }
}

#[test]
fn a_limit_on_file_sizes_refuses_writes_and_ends_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("service.toml"), CONFIG).expect("written");
    let mut command = Command::new("sh");
    // In blocks of 512 bytes, or of 1,024.
    command.args(["-c", "ulimit -f 40000 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_sapsan")]);
    let mut server = Server::of(command, folder.path(), &folder.path().join("data"));
    let body = |id: u32| format!("{{\"id\":{id},\"note\":\"{}\"}}", "n".repeat(900_000));
    let mut refused = None;
    for id in 0..400 {
        match server.ask("POST", "/_/collections/items", &body(id)) {
            201 => {}
            status => {
                refused = Some((id, status));
                break;
            }
        }
    }
    let Some((id, 503)) = refused else { panic!("{refused:?}") };
    assert!(id > 5, "{id}");
    for known in [0, id - 1] {
        assert_eq!(server.ask("GET", &format!("/_/collections/items/{known}"), ""), 200, "{known}");
    }
    assert_eq!(server.ask("GET", &format!("/_/collections/items/{id}"), ""), 404);
    // Deletions make room, without a restart.
    for known in 0..id {
        assert_eq!(server.ask("DELETE", &format!("/_/collections/items/{known}"), ""), 204, "{known} of {id}");
    }
    let began = Instant::now();
    while server.ask("POST", "/_/collections/items", &body(id)) != 201 {
        assert!(began.elapsed() < Duration::from_secs(30), "still refused after the deletion of {id} documents");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.end();
}
