//! `cargo xtask bench query [--documents=N] [--quick] [--indexed]`: millions of generated users are loaded and kept in views.
//!
//! - The speed of loading them from a file, with the index over their ids, durable at the end; compared with the disk's
//!   sequential durable writes in the same run. The file is in the kernel's cache, if there is memory for it: it was just
//!   written.
//! - The time of the first build of a view over them, with four threads and with two. The pages are in the kernel's cache
//!   after the import.
//! - The cost of views for durable writes of single documents (`crates/docs/examples/view_writes.rs`).
//! - The largest anonymous memory of all this.
//! - The cost over HTTP of a declared query for one row by an index (`indexed.rs`); with `--indexed` only this.

use super::setup::process::{Server, anonymous_bytes, exchange, free_address};
use super::setup::results::{Row, record};
use super::setup::stage::{Stage, require_room};
use super::{Effort, indexed, median, spread, store};
use crate::{dist, tools};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DOCUMENTS: u64 = 5_900_000;
const QUICK_DOCUMENTS: u64 = 590_000;
/// Average size of a document in bytes.
const DOCUMENT_BYTES: u64 = 850;
/// Disk space for a load: the file, the trees, and space allocated in advance.
const ROOM_PER_DOCUMENT: u64 = 2 * DOCUMENT_BYTES + 300;
const LOAD_RATE: f64 = 300_000.0;
const LOAD_SHARE: f64 = 0.7;
const ANONYMOUS_MOST: u64 = 1_000_000_000;
/// Threads of a first build, and its largest permitted seconds.
const BUILDS: [(usize, f64); 2] = [(4, 5.0), (2, 10.0)];
const BUILD_LIMIT: Duration = Duration::from_secs(120);

const USERS: &str = "[collections.users]\nkey = { field = \"Id\", type = \"u32\" }\n";
const BY_MONTH: &str =
    "SELECT strftime('%Y-%m', CreationDate) AS month, COUNT(*) AS registrations FROM users GROUP BY month";

pub(super) fn run(arguments: &[String]) -> Result<(), String> {
    let (mut documents, mut is_recorded, mut only_indexed) = (None, true, false);
    for argument in arguments {
        match argument.strip_prefix("--documents=").map(str::parse) {
            Some(Ok(number)) if number > 0 => documents = Some(number),
            None if argument == "--quick" => is_recorded = false,
            None if argument == "--indexed" => only_indexed = true,
            _ => return Err(format!("`{argument}` is not known; allowed: --documents=N, --quick, --indexed")),
        }
    }
    let stage = Stage::set(Effort { rounds: 3, seconds: if is_recorded { 2 } else { 1 }, record: is_recorded })?;
    if only_indexed {
        let row = indexed::one_row(&stage)?;
        row.print();
        return if is_recorded { record("cargo xtask bench query --indexed", &[row]) } else { Ok(()) };
    }
    let documents = documents.unwrap_or(if is_recorded { DOCUMENTS } else { QUICK_DOCUMENTS });
    require_room(stage.folder.path(), documents * ROOM_PER_DOCUMENT)?;
    let mut rows = Vec::new();
    let mut add = |row: Row| {
        row.print();
        rows.push(row);
    };
    add(load(&stage, documents)?);
    for (threads, most) in BUILDS {
        add(first_build(&stage, documents, threads, most)?);
    }
    rows.extend(view_writes(&stage)?);
    rows.push(indexed::one_row(&stage)?);
    if is_recorded { record(&format!("cargo xtask bench query --documents={documents}"), &rows) } else { Ok(()) }
}

fn config(stage: &Stage, name: &str, text: &str) -> Result<String, String> {
    let path = stage.folder.path().join(name);
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path.display().to_string())
}

/// Imports the generated file, and before it makes the disk write as many bytes in large pieces; in turns, because on a
/// shared machine equal imports differ by a factor of three, mostly in the kernel's time for new pages.
fn load(stage: &Stage, documents: u64) -> Result<Row, String> {
    let failed = |error: std::io::Error| format!("the import: {error}");
    let users = stage.folder.path().join("users.ndjson");
    let generate = ["generate", "stackoverflow-users", "--seed", "1", "--docs", &documents.to_string(), "--out"];
    tools::run_with(Command::new(&stage.sapsan).args(generate).arg(&users))?;
    File::open(&users).and_then(|file| file.sync_all()).map_err(failed)?;
    let (mut disks, mut rates, mut shares, mut anonymous) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for round in 0..stage.effort.rounds {
        if round > 0 {
            std::fs::remove_dir_all(stage.folder.path().join("users")).map_err(failed)?;
        }
        // As many bytes: of one gigabyte alone, the disk's cache may absorb the writes.
        let disk = sequential_rate(stage.folder.path(), documents * DOCUMENT_BYTES)? / DOCUMENT_BYTES as f64;
        let (seconds, most) = import(stage, &users)?;
        let rate = documents as f64 / seconds;
        disks.push(disk);
        rates.push(rate);
        shares.push(rate / disk);
        anonymous = anonymous.max(most);
    }
    // It must not take the space of later steps.
    let _ = std::fs::remove_file(&users);
    let noise = format!("{:.0} %", spread(&rates) * 100.0);
    let [disk, rate, share] = [disks, rates, shares].map(median);
    Ok(Row {
        work: format!("load of {documents} generated users of {DOCUMENT_BYTES} bytes from a file, durable; its memory"),
        other: format!("sequential durable writes of as many bytes each: {:.0}k/s", disk / 1e3),
        ours: format!("{:.0}k documents/s, anonymous {:.0} MB", rate / 1e3, anonymous as f64 / 1e6),
        figure: format!("{:.0}k/s, {share:.2} × the disk, {:.0} MB", rate / 1e3, anonymous as f64 / 1e6),
        bound: "≥ 300k/s or 0.70 × the disk; < 1000 MB".to_owned(),
        reached: (rate >= LOAD_RATE || share >= LOAD_SHARE) && anonymous < ANONYMOUS_MOST,
        noise,
    })
}

/// Imports into a new folder: its seconds, and the largest anonymous memory.
fn import(stage: &Stage, users: &Path) -> Result<(f64, u64), String> {
    let failed = |error: std::io::Error| format!("the import: {error}");
    let began = Instant::now();
    let mut import = Command::new(&stage.sapsan)
        .args(["import", &config(stage, "users.toml", USERS)?, "--collection", "users"])
        .arg(users)
        .arg("--data")
        .arg(stage.folder.path().join("users"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let mut anonymous = 0;
    let status = loop {
        anonymous = anonymous.max(anonymous_bytes(import.id()));
        if let Some(status) = import.try_wait().map_err(failed)? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    if status.success() {
        Ok((began.elapsed().as_secs_f64(), anonymous))
    } else {
        Err(format!("the import ended with {status}"))
    }
}

/// Bytes per second, synced at the end.
fn sequential_rate(folder: &Path, bytes: u64) -> Result<f64, String> {
    let path = folder.join("sequential");
    let write = || -> std::io::Result<f64> {
        let (mut file, piece, began) = (File::create(&path)?, vec![b'x'; 1 << 20], Instant::now());
        for _ in 0..bytes >> 20 {
            file.write_all(&piece)?;
        }
        file.sync_all()?;
        Ok(bytes as f64 / began.elapsed().as_secs_f64())
    };
    let rate = write().map_err(|error| format!("{}: {error}", path.display()));
    // It must not take the space of later steps.
    let _ = std::fs::remove_file(&path);
    rate
}

/// Serves the users with a view that does not exist yet, and waits for its build.
fn first_build(stage: &Stage, documents: u64, threads: usize, most: f64) -> Result<Row, String> {
    let name = format!("by_month_{threads}");
    let text = format!("{USERS}[views.{name}]\nquery = \"{BY_MONTH}\"\n");
    let config = config(stage, &format!("{name}.toml"), &text)?;
    let address = free_address()?;
    let data = stage.folder.path().join("users").display().to_string();
    let (http, count) = (address.to_string(), threads.to_string());
    // The view of the previous build is dropped.
    let arguments = ["serve", &config, "--data", &data, "--http", &http, "--threads", &count, "--allow-drop"];
    let arguments = arguments.map(str::to_owned);
    let server = Server::start("0-3", &stage.sapsan, &arguments, address)?;
    let (began, mut anonymous) = (Instant::now(), 0);
    let seconds = loop {
        anonymous = anonymous.max(server.anonymous_bytes());
        let request = format!("GET /_/views/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let reply = exchange(address, request.as_bytes())?;
        let reply = String::from_utf8_lossy(&reply).into_owned();
        if reply.contains("\"state\":\"ready\"") {
            break number(&reply, "\"seconds\":").ok_or_else(|| format!("no time in {reply}"))?;
        }
        if reply.contains("\"state\":\"failed\"") || began.elapsed() > BUILD_LIMIT {
            return Err(format!("the view is not built: {reply}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    server.terminate()?;
    Ok(Row {
        work: format!("view of registrations by month over {documents} users, first build, {threads} threads"),
        other: "—".to_owned(),
        ours: format!("{seconds:.2} s, anonymous {:.0} MB", anonymous as f64 / 1e6),
        figure: format!("{seconds:.2} s"),
        bound: format!("< {most:.0} s; < 1000 MB"),
        reached: seconds < most && anonymous < ANONYMOUS_MOST,
        noise: "—".to_owned(),
    })
}

/// The number after a name in JSON text.
fn number(text: &str, name: &str) -> Option<f64> {
    let rest = text.split_once(name)?.1;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == 'e' || c == '-'))?;
    rest[..end].parse().ok()
}

fn view_writes(stage: &Stage) -> Result<Vec<Row>, String> {
    let programs = dist::build(&["--package", "docs", "--example", "view_writes"])?;
    let mut command = Command::new(programs.join("examples/view_writes"));
    command.arg(format!("--dir={}", stage.folder.path().join("writes").display()));
    command.arg(format!("--rounds={}", stage.effort.rounds)).arg(format!("--seconds={}", stage.effort.seconds));
    store::rows_of(&mut command)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_number_is_found_behind_its_name() {
        assert_eq!(number("{\"a\":1,\"seconds\":0.25,\"b\":2}", "\"seconds\":"), Some(0.25));
        assert_eq!(number("{\"a\":1}", "\"seconds\":"), None);
    }
}
