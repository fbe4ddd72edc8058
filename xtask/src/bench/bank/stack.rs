//! The other side: nginx in front of an application, Redis and MariaDB, set as the published fast solutions set them.
//!
//! - nginx: a worker for each core; it serves the static files, and the login page to clients without a cookie, from open descriptors; it keeps
//!   connections to the application.
//! - MariaDB: `innodb_flush_log_at_trx_commit=0`, which writes its log once a second, and a buffer pool for all data. A
//!   crash loses about a second of attempts.
//! - Redis: its default persistence, a snapshot when enough keys have changed. A crash loses the counters since then.
//!
//! The application is started in its own folder with the contest's variables of the environment (`ISU4_DB_HOST` and so on) and with `LISTEN`
//! and `REDIS`, both `ADDRESS:PORT`. MariaDB holds the contest's two tables, with an index for each of the questions of an attempt.

use super::programs::Programs;
use super::reply;
use crate::bench::Cores;
use crate::bench::setup::process::{Server, free_address};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// The database of the contest.
const DATABASE: &str = "isu4_qualifier";
const BUFFER_POOL: &str = "1G";
/// Connections that nginx keeps to the application: one for each of the load.
const UPSTREAM_CONNECTIONS: u32 = super::CONNECTIONS;

/// Files with which a side begins.
pub(super) struct Data<'d> {
    pub(super) users: &'d Path,
    pub(super) log: &'d Path,
    pub(super) assets: &'d Path,
}

/// The running programs; ended when dropped, nginx first.
pub(super) struct Stack {
    /// Absent only while it is dropped.
    nginx: Option<Server>,
    address: SocketAddr,
    behind: [Server; 3],
}

impl Stack {
    /// Starts all programs on the cores of the server, with their data in a folder.
    pub(super) fn start(
        programs: &Programs,
        application: &Path,
        data: &Data<'_>,
        folder: &Path,
        cores: &Cores,
    ) -> Result<Stack, String> {
        let mariadb = start_mariadb(&programs.mariadbd, data, folder, cores)?;
        let redis = start_redis(&programs.redis, folder, cores)?;
        let application = start_application(application, mariadb.address, redis.address, cores)?;
        let page = data.assets.join("index.html");
        write(&page, &reply::body(application.address, "/")?)?;
        let nginx = start_nginx(&programs.nginx, application.address, data.assets, folder, cores)?;
        Ok(Stack { address: nginx.address, nginx: Some(nginx), behind: [application, redis, mariadb] })
    }

    /// Where nginx listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// CPU time of all programs so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.behind.iter().chain(&self.nginx).map(Server::cpu_seconds_with_children).sum()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // By SIGTERM: if its first process were killed, the workers would go on.
        if let Some(Err(error)) = self.nginx.take().map(Server::terminate) {
            eprintln!("xtask: nginx: {error}");
        }
    }
}

fn start_mariadb(program: &Path, data: &Data<'_>, folder: &Path, cores: &Cores) -> Result<Server, String> {
    let (files, script, address) = (folder.join("mariadb"), folder.join("mariadb.sql"), free_address()?);
    std::fs::create_dir_all(&files).map_err(|error| format!("{}: {error}", files.display()))?;
    write(&script, &tables(data.users, data.log))?;
    let at = folder.display();
    let mut arguments = vec![
        "--no-defaults".to_owned(),
        format!("--datadir={}", files.display()),
        format!("--socket={at}/mariadb.socket"),
        format!("--pid-file={at}/mariadb.pid"),
        format!("--log-error={at}/mariadb.log"),
        format!("--init-file={}", script.display()),
        format!("--bind-address={}", address.ip()),
        format!("--port={}", address.port()),
        format!("--innodb-buffer-pool-size={BUFFER_POOL}"),
        "--innodb-flush-log-at-trx-commit=0".to_owned(),
        "--innodb-flush-method=O_DIRECT".to_owned(),
        "--skip-name-resolve".to_owned(),
        // The folder has no tables of users: whoever reaches the loopback interface may log in.
        "--skip-grant-tables".to_owned(),
    ];
    if is_root() {
        // Else it refuses to run.
        arguments.push("--user=root".to_owned());
    }
    Server::start(&cores.server, program, &arguments, address)
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.starts_with(b"0\n"))
}

/// The statements with which MariaDB begins, a line each.
fn tables(users: &Path, log: &Path) -> String {
    format!(
        "CREATE DATABASE {DATABASE};\n\
         USE {DATABASE};\n\
         CREATE TABLE users (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, login VARCHAR(255) NOT NULL UNIQUE, \
         password_hash VARCHAR(255) NOT NULL, salt VARCHAR(255) NOT NULL);\n\
         CREATE TABLE login_log (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, created_at DATETIME NOT NULL, user_id INT, \
         login VARCHAR(255) NOT NULL, ip VARCHAR(255) NOT NULL, succeeded TINYINT NOT NULL, \
         INDEX of_address (ip, succeeded), INDEX of_user (user_id, succeeded));\n\
         LOAD DATA INFILE '{}' INTO TABLE users (id, login, @password, salt, password_hash);\n\
         LOAD DATA INFILE '{}' INTO TABLE login_log (created_at, @user, login, ip, succeeded) SET user_id = NULLIF(@user, '');\n",
        users.display(),
        log.display()
    )
}

fn start_redis(program: &Path, folder: &Path, cores: &Cores) -> Result<Server, String> {
    let address = free_address()?;
    let (host, port, folder) = (address.ip().to_string(), address.port().to_string(), folder.display().to_string());
    let words = ["--bind", &host, "--port", &port, "--dir", &folder, "--logfile", "redis.log"];
    Server::start(&cores.server, program, &words.map(str::to_owned), address)
}

fn start_application(program: &Path, mariadb: SocketAddr, redis: SocketAddr, cores: &Cores) -> Result<Server, String> {
    let address = free_address()?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let mut words = vec!["--chdir".to_owned(), folder.display().to_string()];
    words.extend(environment(address, mariadb, redis));
    words.push(program.display().to_string());
    Server::start(&cores.server, Path::new("env"), &words, address)
}

/// The application's settings.
fn environment(address: SocketAddr, mariadb: SocketAddr, redis: SocketAddr) -> [String; 7] {
    [
        format!("LISTEN={address}"),
        format!("REDIS={redis}"),
        format!("ISU4_DB_HOST={}", mariadb.ip()),
        format!("ISU4_DB_PORT={}", mariadb.port()),
        "ISU4_DB_USER=root".to_owned(),
        "ISU4_DB_PASSWORD=".to_owned(),
        format!("ISU4_DB_NAME={DATABASE}"),
    ]
}

fn start_nginx(
    program: &Path,
    application: SocketAddr,
    assets: &Path,
    folder: &Path,
    cores: &Cores,
) -> Result<Server, String> {
    let (file, address) = (folder.join("nginx.conf"), free_address()?);
    write(&file, &nginx_file(address, application, assets, folder, cores.threads))?;
    let log = folder.join("nginx.log");
    let words = ["-e", &log.display().to_string(), "-c", &file.display().to_string()].map(str::to_owned);
    Server::start(&cores.server, program, &words, address)
}

fn nginx_file(address: SocketAddr, application: SocketAddr, assets: &Path, folder: &Path, workers: usize) -> String {
    let at = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {at}/nginx_{name};\n"))
        .concat();
    format!(
        "daemon off;\n{user}worker_processes {workers};\nworker_rlimit_nofile 16384;\npid {at}/nginx.pid;\n\
         error_log {at}/nginx.log crit;\nevents {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n{temporary}  sendfile on;\n  tcp_nopush on;\n  tcp_nodelay on;\n  etag off;\n  \
         types {{ text/html html; text/css css; image/png png; }}\n  \
         open_file_cache max=100 inactive=1h;\n  open_file_cache_valid 1h;\n  \
         keepalive_requests 1000000000;\n  keepalive_timeout 1h;\n  \
         upstream application {{ server {application}; keepalive {UPSTREAM_CONNECTIONS}; keepalive_requests 1000000000; }}\n  \
         server {{\n    listen {address} backlog=4096;\n    root {assets};\n    \
         proxy_http_version 1.1;\n    proxy_set_header Connection '';\n    \
         location = / {{\n      if ($http_cookie = '') {{ rewrite ^ /index.html last; }}\n      proxy_pass http://application;\n    }}\n    \
         location = /index.html {{ }}\n    location /stylesheets/ {{ }}\n    location /images/ {{ }}\n    \
         location / {{ proxy_pass http://application; }}\n  }}\n}}\n",
        // The workers of an administrator's nginx would be another user's, who cannot read the folder.
        user = if is_root() { "user root;\n" } else { "" },
        assets = assets.display(),
    )
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn mariadb_reads_each_statement_from_a_line_of_its_own() {
        let text = tables(Path::new("/data/users.tsv"), Path::new("/data/log.tsv"));
        assert!(text.lines().count() == 6 && text.lines().all(|line| line.ends_with(';')), "{text}");
        assert!(text.contains("INFILE '/data/users.tsv' INTO TABLE users"), "{text}");
        assert!(text.contains("INFILE '/data/log.tsv' INTO TABLE login_log"), "{text}");
    }

    #[test]
    fn the_application_is_told_the_addresses_of_all_programs() {
        let settings = environment(address(1), address(2), address(3)).join(" ");
        assert!(
            settings.starts_with("LISTEN=127.0.0.1:1 REDIS=127.0.0.1:3 ISU4_DB_HOST=127.0.0.1 ISU4_DB_PORT=2 "),
            "{settings}"
        );
    }

    #[test]
    fn nginx_has_a_worker_for_each_core_and_keeps_connections_to_the_application() {
        let text = nginx_file(address(1), address(2), Path::new("/www"), Path::new("/run"), 2);
        for part in ["worker_processes 2;", "server 127.0.0.1:2; keepalive 64;", "listen 127.0.0.1:1 ", "root /www;"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
