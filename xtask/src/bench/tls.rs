//! `cargo xtask bench tls`: HTTPS of the server compared with nginx, and the memory of idle TLS connections.
//!
//! Both sides have the same certificate (ECDSA, P-256), and wrk offers one version and one cipher, so that both do the same
//! cryptography; a connection of `openssl s_client` checks this. nginx serves one file of the size of a user, its descriptor kept
//! open, in one process without a log; the server looks up a random user for each request. Both run on one exclusive core, in
//! turns.
//!
//! An example of the reactor opens the idle connections, after one request on each. A row divides the growth of the server's
//! anonymous memory by their number.

use super::http::spread;
use super::setup::process::{Server, free_address};
use super::setup::results::{Row, record};
use super::setup::stage::{Stage, TRAIN};
use super::setup::wrk;
use super::setup::wrk::{Carrier, Load, Outcome};
use super::{Effort, median};
use crate::{dist, nginx, tools};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Largest permitted server CPU per request, relative to nginx's.
const CPU_MOST: f64 = 1.3;
const CONNECTIONS: u32 = 64;
/// Number of idle connections, and the largest permitted memory of one.
const IDLE: usize = 10_000;
const IDLE_BYTES_MOST: f64 = 16.0 * 1024.0;
/// Descriptor limit of a process with so many connections: only the soft limit is set.
const DESCRIPTORS: &str = "--nofile=11000:";
/// Settings of a server for so many connections. The memory is a bound, of which it allocates what it needs.
const ROOM: &str = "connections_max = 10100\nmemory = \"3GB\"\n";
/// The users whose mean size is that of nginx's file.
const SAMPLE: [u32; 5] = [17, 444, 1234, 5000, 9999];
const MAKE: &str = "function make() return wrk.format('GET', '/users/' .. math.random(1, 10057)) end";
/// Configuration of openssl for the certificate: not an issuer's, which rustls refuses as a server certificate.
const CERTIFICATE: &str = "[req]\nprompt = no\ndistinguished_name = name\nx509_extensions = extensions\n[name]\nCN = bench\n\
    [extensions]\nbasicConstraints = critical, CA:FALSE\nsubjectAltName = IP:127.0.0.1\n";

/// A protocol version, and the only cipher that is offered.
struct Version {
    name: &'static str,
    cipher: &'static str,
    /// The cipher's key in OpenSSL's configuration: TLS 1.3 has a separate one.
    cipher_key: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version { name: "TLSv1.3", cipher: "TLS_AES_128_GCM_SHA256", cipher_key: "Ciphersuites" },
    Version { name: "TLSv1.2", cipher: "ECDHE-ECDSA-AES128-GCM-SHA256", cipher_key: "CipherString" },
];

impl Version {
    /// Writes an OpenSSL configuration that offers only this.
    fn config(&self, folder: &Path) -> Result<PathBuf, String> {
        let Version { name, cipher, cipher_key } = self;
        let text = format!(
            "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = default\n\
             [default]\nMinProtocol = {name}\nMaxProtocol = {name}\n{cipher_key} = {cipher}\n"
        );
        write(folder, &format!("{name}.cnf"), &text)
    }
}

/// Both servers, and their files.
struct Pair<'s> {
    stage: &'s Stage,
    files: Files,
    ours: Server,
    theirs: Server,
}

/// Certificate and key, in PEM.
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

pub(super) fn run(effort: Effort) -> Result<(), String> {
    for (program, package) in [("openssl", "openssl"), ("curl", "curl"), ("prlimit", "util-linux")] {
        tools::require(program, package)?;
    }
    // The servers inherit this limit.
    tools::run("prlimit", &["--pid", &std::process::id().to_string(), DESCRIPTORS])?;
    let (nginx, client) = (nginx::program()?, idle_client()?);
    let stage = Stage::set(effort)?;
    let pair = Pair::start(&stage, &nginx)?;
    let mut rows = Vec::new();
    for version in &VERSIONS {
        rows.push(pair.compare(version)?);
    }
    rows.push(pair.idle(&client)?);
    rows.iter().for_each(Row::print);
    if effort.record { record("cargo xtask bench tls", &rows) } else { Ok(()) }
}

/// Builds the client of idle connections.
fn idle_client() -> Result<PathBuf, String> {
    Ok(dist::build(&["--package", "reactor", "--example", "idle_tls"])?.join("examples/idle_tls"))
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, String> {
    let path = folder.join(name);
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

impl Files {
    fn make(folder: &Path) -> Result<Files, String> {
        let config = write(folder, "certificate.cnf", CERTIFICATE)?;
        let files = Files { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        let mut openssl = Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]);
        openssl.arg("-config").arg(config).arg("-out").arg(&files.cert).arg("-keyout").arg(&files.key);
        let output = openssl.output().map_err(|error| format!("openssl: {error}"))?;
        let output_text = || format!("openssl req: {}", String::from_utf8_lossy(&output.stderr));
        if output.status.success() { Ok(files) } else { Err(output_text()) }
    }
}

impl Pair<'_> {
    fn start<'s>(stage: &'s Stage, nginx: &Path) -> Result<Pair<'s>, String> {
        let folder = stage.folder.path();
        let files = Files::make(folder)?;
        let ours = start_ours(stage, &files)?;
        let theirs = start_nginx(stage, nginx, &files, mean_size(&ours)?)?;
        Ok(Pair { stage, files, ours, theirs })
    }

    /// Server CPU per request, in turns.
    fn compare(&self, version: &Version) -> Result<Row, String> {
        let (stage, folder) = (self.stage, self.stage.folder.path());
        let config = version.config(folder)?;
        for server in [&self.ours, &self.theirs] {
            check_version(server, &config, version)?;
        }
        let carrier = Carrier::Tls(config);
        let load = Load { connections: CONNECTIONS, pipeline: 1, make: MAKE.to_owned(), fresh: false };
        let single =
            Load { make: "function make() return wrk.format('GET', '/users/user') end".to_owned(), ..load.clone() };
        let go =
            |server, load: &Load, seed| wrk::run_over(&carrier, server, load, &stage.cores, stage.effort, folder, seed);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..2 * stage.effort.rounds as u64 + 1 {
            theirs.push(go(&self.theirs, &single, round)?);
            ours.push(go(&self.ours, &load, round)?);
        }
        Ok(row(version, &theirs, &ours))
    }

    /// Memory of idle connections on either side.
    fn idle(&self, client: &Path) -> Result<Row, String> {
        let theirs = self.idle_bytes(client, &self.theirs, "/users/user")?;
        let ours = self.idle_bytes(client, &self.ours, "/users/17")?;
        let kilobytes = |bytes: f64| format!("{:.1} KB each", bytes / 1024.0);
        Ok(Row {
            work: format!("{IDLE} idle TLS 1.3 connections, anonymous memory"),
            other: kilobytes(theirs),
            ours: kilobytes(ours),
            figure: kilobytes(ours),
            bound: kilobytes(IDLE_BYTES_MOST),
            reached: ours <= IDLE_BYTES_MOST,
            noise: "—".to_owned(),
        })
    }

    fn idle_bytes(&self, client: &Path, server: &Server, target: &str) -> Result<f64, String> {
        let before = server.anonymous_bytes();
        let mut process = Command::new(client)
            .args([&server.address.to_string(), &IDLE.to_string(), target])
            .arg(&self.files.cert)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", client.display()))?;
        let line = process.stdout.take().and_then(|stdout| BufReader::new(stdout).lines().next());
        let after = server.anonymous_bytes();
        let _ = process.kill();
        let _ = process.wait();
        match line {
            Some(Ok(line)) if line == "ready" => Ok(after.saturating_sub(before) as f64 / IDLE as f64),
            other => Err(format!("{}: {other:?} and not ready", client.display())),
        }
    }
}

fn row(version: &Version, theirs: &[Outcome], ours: &[Outcome]) -> Row {
    let cpu = |runs: &[Outcome]| median(runs.iter().map(|run| run.cpu_microseconds).collect());
    let rate = |runs: &[Outcome]| median(runs.iter().map(|run| run.requests_per_second).collect()) / 1e3;
    let figures = |runs| format!("{:.0}k/s, {:.2} µs CPU", rate(runs), cpu(runs));
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a.cpu_microseconds / b.cpu_microseconds).collect();
    let failures: u64 = ours.iter().chain(theirs).map(|run| run.failures).sum();
    let (ratio, noise) = (median(ratios.clone()), spread(ratios));
    let name = format!("HTTPS GET /users/ID, {CONNECTIONS} connections, {} {}", version.name, version.cipher);
    Row {
        work: if failures == 0 { name } else { format!("{name} ({failures} failed)") },
        other: figures(theirs),
        ours: figures(ours),
        figure: format!("CPU {ratio:.2} ×"),
        bound: format!("≤ {CPU_MOST:.2} ×"),
        reached: ratio <= CPU_MOST && failures == 0,
        noise: format!("{:.0} %", noise * 100.0),
    }
}

/// Mean size of a user in bytes, as the server sends it.
fn mean_size(server: &Server) -> Result<usize, String> {
    let sizes = SAMPLE.iter().map(|user| {
        let url = format!("https://{}/users/{user}", server.address);
        let output = Command::new("curl").args(["--silent", "--insecure", "--fail", &url]).output();
        let output = output.map_err(|error| format!("curl: {error}"))?;
        if output.status.success() { Ok(output.stdout.len()) } else { Err(format!("curl {url}: {}", output.status)) }
    });
    Ok(sizes.sum::<Result<usize, String>>()? / SAMPLE.len())
}

/// Checks that a server uses this version and cipher with a client of this configuration.
fn check_version(server: &Server, config: &Path, version: &Version) -> Result<(), String> {
    let output = Command::new("openssl")
        .args(["s_client", "-brief", "-connect", &server.address.to_string()])
        .env("OPENSSL_CONF", config)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("openssl: {error}"))?;
    let output_text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if output_text.contains(version.name) && output_text.contains(version.cipher) {
        return Ok(());
    }
    Err(format!("{} does not speak {} with {}: {output_text}", server.address, version.name, version.cipher))
}

fn start_ours(stage: &Stage, files: &Files) -> Result<Server, String> {
    let config = Stage::config();
    let text = std::fs::read_to_string(&config).map_err(|error| format!("{}: {error}", config.display()))?;
    let [cert, key] = [&files.cert, &files.key].map(|file| file.display().to_string());
    let text = format!("{text}\n[server]\n{ROOM}tls = {{ cert = {cert:?}, key = {key:?} }}\n");
    let file = write(stage.folder.path(), "travels-tls.toml", &text)?;
    stage.serve_folder_by(&file, &stage.import(TRAIN)?)
}

/// nginx with the cheapest settings for this work.
fn start_nginx(stage: &Stage, program: &Path, files: &Files, body_bytes: usize) -> Result<Server, String> {
    let (address, folder) = (free_address()?, stage.folder.path());
    let users = folder.join("www/users");
    std::fs::create_dir_all(&users).map_err(|error| format!("{}: {error}", users.display()))?;
    write(&users, "user", &"x".repeat(body_bytes))?;
    let server = format!(
        "listen {address} ssl backlog=4096;\n    root {at}/www;\n    \
         ssl_certificate {cert};\n    ssl_certificate_key {key};\n    ssl_protocols TLSv1.2 TLSv1.3;",
        at = folder.display(),
        cert = files.cert.display(),
        key = files.key.display(),
    );
    let arguments = nginx::configure(folder, "default_type application/json;", &server)?;
    Server::start(&stage.cores.server, program, &arguments, address)
}
