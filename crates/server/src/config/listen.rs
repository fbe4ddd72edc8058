//! Reading of `[server]`: its keys, their allowed values, and their defaults. Threads and sizes depend on the memory setting, so
//! they are checked by its division.

use super::cors;
use super::memory::{BODY_BYTES_DEFAULT, Division, Shortage};
use super::server::{Acknowledgement, AdminListener, BlockingModel, ServerConfig};
use super::{size, tls};
use docs::config::{ConfigTable, Item};
use http::{ProxyEntryError, TrustedProxies};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

const KEYS: [&str; 33] = [
    "http",
    "admin",
    "hosts",
    "trusted_proxies",
    "cors",
    "tls",
    "threads",
    "memory",
    "connections_max",
    "connections_per_address_max",
    "head_bytes_max",
    "body_bytes_max",
    "head_seconds",
    "body_seconds",
    "body_rate_min",
    "send_seconds",
    "send_rate_min",
    "idle_seconds",
    "drain_seconds",
    "date",
    "access_log",
    "slow_log_seconds",
    "durability",
    "cold_model",
    "changes_kept_bytes",
    "changes_kept_seconds",
    "scan_rows_max",
    "query_model",
    "query_threads",
    "query_seconds",
    "query_log_rows",
    "query_spill",
    "backups",
];

/// At least one segment of the log; at most what a store keeps.
const CHANGES_KEPT_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=64 << 30;
/// Default of threads of one query, on machines with more cores.
const QUERY_THREADS_DEFAULT_MAX: usize = 8;
/// Bytes on disk for sorting and grouping beyond a query's memory; 0: such a query fails.
const QUERY_SPILL_BYTES: std::ops::RangeInclusive<u64> = 0..=1 << 40;
/// Bytes a second.
const RATES: std::ops::RangeInclusive<u64> = 1..=1 << 30;
/// Limit of names of this machine.
const HOSTS_MAX: usize = 64;
/// Range of the time from which on a request is slow.
const SLOW_LOG_SECONDS: std::ops::RangeInclusive<f64> = 0.001..=86_400.0;
/// A year.
const CHANGES_KEPT_SECONDS_MAX: i64 = 366 * 86_400;

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        let config = ServerConfig {
            statement_bytes: 0,
            series_bytes: 0,
            http: SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080)),
            admin: AdminListener::Http,
            hosts: Vec::new(),
            trusted_proxies: TrustedProxies::default(),
            cors: None,
            tls: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            has_threads: false,
            memory_bytes: 1_000_000_000,
            connections_max: None,
            connections_per_address_max: 10_000,
            head_bytes_max: 16 * 1024,
            body_bytes_max: BODY_BYTES_DEFAULT,
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            body_rate_min: 64 << 10,
            send: Duration::from_secs(30),
            send_rate_min: 1 << 10,
            idle: Duration::from_secs(75),
            drain: Duration::from_secs(10),
            date: true,
            access_log: false,
            slow_log: None,
            durability: Acknowledgement::Commit,
            cold_model: BlockingModel::Pool,
            changes_kept_bytes: 0,
            changes_kept: None,
            scan_rows_max: 10_000_000,
            query_model: BlockingModel::Pool,
            query_threads: std::thread::available_parallelism().map_or(1, usize::from).min(QUERY_THREADS_DEFAULT_MAX),
            query: Duration::from_secs(30),
            query_log_rows: 1_000_000,
            query_spill_bytes: 1_000_000_000,
            backups: None,
            read_ahead: None,
        };
        ServerConfig { threads: Division::threads_that_fit(&config), ..config }
    }
}

impl ServerConfig {
    /// Sets the number of event loops, checked against the memory like that of the file; on an error nothing changes.
    pub fn set_threads(&mut self, threads: u16) -> Result<(), String> {
        let changed = ServerConfig { threads: usize::from(threads.max(1)), has_threads: true, ..self.clone() };
        Division::check(&changed).map_err(|shortage| format!("{}; allowed: {}", shortage.what, shortage.allowed))?;
        *self = changed;
        Ok(())
    }

    /// Approximate bytes of memory of the file's endpoints, with their statements and counters.
    pub fn declared_bytes(&self) -> usize {
        self.statement_bytes + self.series_bytes * self.threads
    }

    /// Checks the division of the memory, once the file's endpoints are known; a shortage is a mistake. If the file does not set
    /// the threads, it gets as many as fit.
    pub(crate) fn divide_memory(&mut self, root: &ConfigTable<'_>) {
        if !self.has_threads {
            self.threads = Division::threads_that_fit(self);
        }
        let Err(shortage) = Division::check(self) else { return };
        let section = root.get("server").and_then(|item| item.table());
        let given = match shortage.key {
            Shortage::ENDPOINTS => root.get(shortage.key),
            key => section.as_ref().and_then(|section| section.get(key)),
        };
        let whole = || section.as_ref().map_or_else(|| root.span(), |section| section.span());
        let at = given.map_or_else(whole, |item| item.span());
        root.source().mistake(at, shortage.what, shortage.allowed);
    }

    /// Reads the section; missing keys keep their defaults. The memory is divided later ([`ServerConfig::divide_memory`]).
    pub(crate) fn read(table: &ConfigTable<'_>) -> ServerConfig {
        table.check_keys(&KEYS, &["redis"]);
        let mut config = ServerConfig::default();
        let set = |name: &str, range: std::ops::RangeInclusive<i64>, to: &mut usize| {
            let given = table.get(name).and_then(|item| item.integer(range));
            *to = given.and_then(|number| usize::try_from(number).ok()).unwrap_or(*to);
        };
        set("threads", 1..=256, &mut config.threads);
        set("query_threads", 1..=256, &mut config.query_threads);
        set("connections_per_address_max", 1..=1_000_000, &mut config.connections_per_address_max);
        let seconds = |name: &str, to: &mut Duration| {
            let given = table.get(name).and_then(|item| item.integer(1..=86_400));
            *to = given.and_then(|number| u64::try_from(number).ok()).map_or(*to, Duration::from_secs);
        };
        seconds("head_seconds", &mut config.head);
        seconds("body_seconds", &mut config.body);
        seconds("send_seconds", &mut config.send);
        seconds("idle_seconds", &mut config.idle);
        seconds("drain_seconds", &mut config.drain);
        seconds("query_seconds", &mut config.query);
        let bytes = |name: &str, range: std::ops::RangeInclusive<u64>, to: &mut usize| {
            let given = table.get(name).and_then(|item| size::read(&item, range));
            *to = given.and_then(|number| usize::try_from(number).ok()).unwrap_or(*to);
        };
        bytes("head_bytes_max", 1024..=1 << 20, &mut config.head_bytes_max);
        bytes("body_bytes_max", 1024..=64 << 20, &mut config.body_bytes_max);
        let flag = |name: &str, to: &mut bool| *to = table.get(name).and_then(|item| item.boolean()).unwrap_or(*to);
        flag("date", &mut config.date);
        flag("access_log", &mut config.access_log);
        config.slow_log = table.get("slow_log_seconds").and_then(|item| slow_log(&item));
        let connections = table.get("connections_max").and_then(|item| item.integer(1..=1_000_000));
        config.connections_max = connections.and_then(|number| usize::try_from(number).ok());
        if let Some(bytes) = table.get("memory").and_then(|item| size::read(&item, 32 << 20..=1 << 40)) {
            config.memory_bytes = bytes;
        }
        if let Some(rate) = table.get("body_rate_min").and_then(|item| size::read(&item, RATES)) {
            config.body_rate_min = rate;
        }
        if let Some(rate) = table.get("send_rate_min").and_then(|item| size::read(&item, RATES)) {
            config.send_rate_min = rate;
        }
        if let Some(rows) = table.get("scan_rows_max").and_then(|item| item.integer(1..=i64::MAX)) {
            config.scan_rows_max = rows.unsigned_abs();
        }
        if let Some(rows) = table.get("query_log_rows").and_then(|item| item.integer(1..=i64::MAX)) {
            config.query_log_rows = rows.unsigned_abs();
        }
        if let Some(bytes) = table.get("query_spill").and_then(|item| size::read(&item, QUERY_SPILL_BYTES)) {
            config.query_spill_bytes = bytes;
        }
        if let Some(folder) = table.get("backups").and_then(|item| item.text()) {
            config.backups = Some(table.source().relative(folder));
        }
        if let Some(address) = table.get("http").and_then(|item| address(&item)) {
            config.http = address;
        }
        if let Some(admin) = table.get("admin").and_then(|item| admin(&item)) {
            if admin == AdminListener::Address(config.http) && config.http.port() != 0 {
                table.mistake("`admin` and `http` are one address", "another port, or no `admin`");
            }
            config.admin = admin;
        }
        if let Some(hosts) = table.get("hosts").and_then(|item| hosts(&item)) {
            config.hosts = hosts;
        }
        if let Some(proxies) = table.get("trusted_proxies").and_then(|item| trusted_proxies(&item)) {
            config.trusted_proxies = proxies;
        }
        config.cors = table.get("cors").and_then(|item| cors::read(&item));
        config.tls = table.get("tls").and_then(|item| tls::read(&item));
        if let Some(durability) = table.get("durability").and_then(|item| durability(&item)) {
            config.durability = durability;
        }
        if let Some(model) = table.get("cold_model").and_then(|item| blocking_model(&item)) {
            config.cold_model = model;
        }
        if let Some(model) = table.get("query_model").and_then(|item| blocking_model(&item)) {
            config.query_model = model;
        }
        if let Some(bytes) = table.get("changes_kept_bytes").and_then(|item| size::read(&item, CHANGES_KEPT_BYTES)) {
            config.changes_kept_bytes = bytes;
        }
        config.changes_kept = changes_kept(table);
        config.has_threads = table.get("threads").is_some();
        config
    }
}

/// How long changes are kept. Without `changes_kept_bytes` none are kept.
fn changes_kept(table: &ConfigTable<'_>) -> Option<Duration> {
    let item = table.get("changes_kept_seconds")?;
    if table.get("changes_kept_bytes").is_none() {
        item.mistake(
            format!("`{}` without `changes_kept_bytes`: nothing is kept", item.path()),
            "both, or the bytes alone",
        );
    }
    let seconds = item.integer(1..=CHANGES_KEPT_SECONDS_MAX)?;
    Some(Duration::from_secs(seconds.unsigned_abs()))
}

/// The time from which on a request is slow, in seconds.
fn slow_log(item: &Item<'_>) -> Option<Duration> {
    const ALLOWED: &str = "seconds from 0.001 to 86400, as in 0.5";
    let value = item.value();
    let number = value.as_float().map(|float| float.as_str()).or_else(|| value.as_integer().map(|int| int.as_str()));
    let Some(number) = number else {
        item.mismatch(ALLOWED);
        return None;
    };
    let seconds = number.replace('_', "").parse().ok().filter(|seconds| SLOW_LOG_SECONDS.contains(seconds));
    if seconds.is_none() {
        item.mistake(format!("`{}` is {number}", item.path()), ALLOWED);
    }
    seconds.map(Duration::from_secs_f64)
}

fn address(item: &Item<'_>) -> Option<SocketAddr> {
    let text = item.text()?;
    let parsed = listen_address(text);
    if let Err(allowed) = parsed {
        item.mistake(format!("`{}` is \"{text}\"", item.path()), allowed);
    }
    parsed.ok()
}

/// A listening address: an address with its port, or `localhost` for 127.0.0.1; no other name is resolved. The error describes
/// what is allowed.
pub fn listen_address(text: &str) -> Result<SocketAddr, &'static str> {
    let address = match text.strip_prefix("localhost:") {
        Some(port) => port.parse().ok().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        None => text.parse().ok(),
    };
    address.ok_or("ADDRESS:PORT, as in 127.0.0.1:8080, [::1]:8080 or localhost:8080")
}

/// Prefix of a Unix socket's path, which is relative to the file's folder.
const UNIX_SCHEME: &str = "unix:";
/// Bytes of such a path (unix(7), sun_path).
const UNIX_PATH_BYTES_MAX: usize = 107;

fn admin(item: &Item<'_>) -> Option<AdminListener> {
    let text = item.text()?;
    let parsed = match text.strip_prefix(UNIX_SCHEME) {
        Some(path) => {
            let path = item.source().relative(path);
            let fits = path.as_os_str().len() <= UNIX_PATH_BYTES_MAX && !text.ends_with(['/', ':']);
            fits.then_some(AdminListener::Unix(path))
        }
        None if text == "off" => Some(AdminListener::Off),
        None => listen_address(text).ok().map(AdminListener::Address),
    };
    if parsed.is_none() {
        let allowed =
            "ADDRESS:PORT, as in 127.0.0.1:9080, \"unix:PATH\" with the file's folder at most 107 bytes, or \"off\"";
        item.mistake(format!("`{}` is \"{text}\"", item.path()), allowed);
    }
    parsed
}

/// Names or addresses without a port.
fn hosts(item: &Item<'_>) -> Option<Vec<String>> {
    let mut texts = item.texts()?;
    if texts.len() > HOSTS_MAX {
        item.mistake(format!("{} hosts", texts.len()), format!("up to {HOSTS_MAX}"));
        texts.truncate(HOSTS_MAX);
    }
    let is_name = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_address = text.parse::<IpAddr>().is_ok();
        is_address || (!text.is_empty() && !text.starts_with('.') && !text.ends_with('.') && text.bytes().all(plain))
    };
    for (text, item) in &texts {
        if !is_name(text) {
            item.mistake(
                format!("`{}` is \"{text}\"", item.path()),
                "a host's name or address without a port, as in \"box.lan\"",
            );
        }
    }
    Some(texts.into_iter().map(|(text, _)| text).collect())
}

/// Addresses, networks and `unix`; the first invalid one is recorded.
fn trusted_proxies(item: &Item<'_>) -> Option<TrustedProxies> {
    let texts = item.texts()?;
    let entries: Vec<&str> = texts.iter().map(|(text, _)| text.as_str()).collect();
    match TrustedProxies::new(&entries) {
        Ok(proxies) => Some(proxies),
        Err((_, error @ ProxyEntryError::TooMany(_))) => {
            item.mistake(format!("{} trusted proxies", texts.len()), error.to_string());
            None
        }
        Err((place, error)) => {
            if let Some((text, item)) = texts.get(place) {
                item.mistake(format!("`{}` is \"{text}\"", item.path()), error.to_string());
            }
            None
        }
    }
}

fn blocking_model(item: &Item<'_>) -> Option<BlockingModel> {
    let text = item.text()?;
    let model = match text {
        "pool" => Some(BlockingModel::Pool),
        "io-aware" => Some(BlockingModel::IoAware),
        "work-stealing" => Some(BlockingModel::WorkStealing),
        _ => None,
    };
    if model.is_none() {
        item.mistake(format!("`{}` is \"{text}\"", item.path()), "\"pool\", \"io-aware\", \"work-stealing\"");
    }
    model
}

fn durability(item: &Item<'_>) -> Option<Acknowledgement> {
    const ALLOWED: &str = "\"commit\", \"none\", { interval_seconds = N }";
    match item.value().as_str() {
        Some("commit") => return Some(Acknowledgement::Commit),
        Some("none") => return Some(Acknowledgement::None),
        Some(other) => {
            item.mistake(format!("`{}` is \"{other}\"", item.path()), ALLOWED);
            return None;
        }
        None if !item.value().is_table() => {
            item.mismatch(ALLOWED);
            return None;
        }
        None => {}
    }
    let table = item.table()?;
    table.check_keys(&["interval_seconds"], &[]);
    let seconds = table.require("interval_seconds")?.integer(1..=3_600)?;
    Some(Acknowledgement::Interval(Duration::from_secs(seconds.unsigned_abs())))
}
