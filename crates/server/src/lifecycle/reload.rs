//! Change of the configuration without a restart: `POST /_/config/reload`, and SIGHUP.
//!
//! The file is read and checked as a whole; if it has a mistake, nothing changes. Otherwise the collections are adapted beside
//! writes ([`docs::DocumentDatabase::reopen`]) and the endpoints are prepared again, and requests that begin afterwards use them
//! ([`crate::routing::switch`]). `[server]` stays as it was: settings that differ are reported by name, and need a restart. Only
//! the certificate is read again, so that it can be renewed.
//!
//! A file that would drop collections with documents, indexes, rules or views is refused with their list, unless the request
//! permits it (`?allow-drop=true`). A signal permits nothing.
//!
//! One thread reloads, one request at a time. It also reopens the same configuration when announced rules have come into force:
//! then queries use them. If that fails, for example because a statement runs for long, it is tried again.

use super::preparing::{ServerStartError, complete, log_dropped, routes};
use crate::access::token::Permit;
use crate::changes::Feed;
use crate::config::memory::Division;
use crate::config::{ConfigError, ServiceConfig, TlsConfig};
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::general::schema;
use crate::maintenance::reload_requests::{ReloadTask, WAITING_MAX};
use crate::replies::media::JSON;
use crate::routing::routes::Routing;
use crate::service::Service;
use crate::threads::panics::caught;

use crate::routing::switch::Switch;
use docs::catalog::CollectionInfo;
use docs::{DatabaseOpenError, Differences, DocumentDatabase};
use http::{LateReply, Status};
use reactor::TlsServer;
use serde_json::{Map, Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an answer waits for the check of rules, indexes and unique fields against stored documents: with few documents it
/// reports the result. The second is the interval of checks.
const SETTLE: Duration = Duration::from_millis(500);
const LOOK_FOR_RULES: Duration = Duration::from_millis(2);
/// Interval at which it checks whether rules came into force.
const LOOK: Duration = Duration::from_millis(500);
/// Longest pause after reopening the same configuration has failed; the first is `LOOK`, and each further one twice as long.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Interval at which it checks whether an old configuration is still held.
const LOOK_FOR_HOLDERS: Duration = Duration::from_millis(20);

/// The thread; ends when it is dropped.
pub(crate) struct ReloadThread {
    tasks: SyncSender<ReloadTask>,
    thread: Option<JoinHandle<()>>,
}

impl ReloadThread {
    pub(crate) fn start(
        switch: &Arc<Switch>,
        (config, data): (ServiceConfig, &Path),
        tls: Option<TlsServer>,
    ) -> std::io::Result<ReloadThread> {
        let (tasks, asked) = sync_channel(WAITING_MAX);
        let (switch_of_thread, data) = (Arc::clone(switch), data.to_owned());
        let mut reloader = Reloader { switch: switch_of_thread, config, data, tls, failed: None, retired: Vec::new() };
        // The permission to drop was only for the start.
        reloader.config.docs.may_drop = false;
        let thread = std::thread::Builder::new().name("reload".to_owned()).spawn(move || reloader.run(&asked))?;
        // Set only here.
        let _ = switch.current().service.reloads.tasks.set(tasks.clone());
        Ok(ReloadThread { tasks, thread: Some(thread) })
    }
}

impl Drop for ReloadThread {
    fn drop(&mut self) {
        // It does the waiting work first.
        let _ = self.tasks.send(ReloadTask::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by itself.
            let _ = thread.join();
        }
    }
}

/// Why the file is refused.
enum Refused {
    Config(ConfigError),
    Start(ServerStartError),
    /// Its endpoints do not fit beside those that are served.
    TooLarge {
        bytes: usize,
        most: usize,
    },
    /// The certificate or its key cannot be used any more, since the file was checked a moment ago.
    Tls(String),
    /// The reload panicked.
    Panicked(String),
}

impl Refused {
    fn failure(&self) -> Failure {
        match self {
            Refused::Config(error) => Failure::new(FailureKind::Invalid, error.to_string()),
            Refused::Start(error @ ServerStartError::Config(_)) => {
                Failure::new(FailureKind::Invalid, error.to_string())
            }
            Refused::Start(ServerStartError::Open(DatabaseOpenError::WouldDrop(lost))) => {
                let report =
                    format!("the file no longer declares what the folder holds. This would be dropped: {lost}");
                Failure::new(
                    FailureKind::Conflict,
                    format!("{report}. Declare it again, or POST /_/config/reload?allow-drop=true"),
                )
            }
            Refused::Start(error @ ServerStartError::Open(DatabaseOpenError::OtherService { .. })) => {
                Failure::new(FailureKind::Conflict, format!("{error}. Start it with a folder of its own"))
            }
            Refused::Start(
                error @ ServerStartError::Open(DatabaseOpenError::Mismatch(_) | DatabaseOpenError::Config(_)),
            ) => Failure::new(FailureKind::Conflict, error.to_string()),
            Refused::TooLarge { bytes, most } => {
                let report =
                    format!("the endpoints take {bytes} bytes of memory; allowed beside those that are served: {most}");
                Failure::new(FailureKind::Conflict, format!("{report}. Restart: then the memory is divided anew"))
            }
            Refused::Tls(problem) => Failure::new(FailureKind::Invalid, format!("`[server] tls`: {problem}")),
            Refused::Start(error) => Failure::new(FailureKind::Unavailable, error.to_string()),
            Refused::Panicked(text) => {
                Failure::new(FailureKind::Internal, format!("a panic, which is a bug of Sapsan: {text}"))
            }
        }
    }

    /// Further members of the answer.
    fn members(&self) -> Map<String, Json> {
        let mut members = Map::new();
        if let Refused::Start(ServerStartError::Open(DatabaseOpenError::WouldDrop(lost))) = self {
            members.insert("would_drop".to_owned(), listed(lost));
        }
        members
    }
}

/// A list for an answer.
fn listed(differences: &Differences) -> Json {
    let mut report = differences.listed.clone();
    report.extend((differences.more > 0).then(|| format!("and {} more", differences.more)));
    report.into()
}

/// Whether indexes, rules or views are still being built. Refused ones are not.
fn is_building(service: &Service) -> bool {
    schema::counts(service).0 > 0 || service.database.views().iter().any(|view| view.state.is_pending())
}

struct Reloader {
    switch: Arc<Switch>,
    /// The served configuration.
    config: ServiceConfig,
    /// The folder of the database.
    data: PathBuf,
    /// The TLS setting of its addresses.
    tls: Option<TlsServer>,
    /// When reopening the same configuration has failed last, and the pause before it is tried again.
    failed: Option<(Instant, Duration)>,
    /// Old configurations, until nothing else holds them. The end of a database waits for its threads: an event loop, or the
    /// committing thread, must not be its last owner.
    retired: Vec<Arc<Routing>>,
}

impl Reloader {
    fn run(mut self, asked: &Receiver<ReloadTask>) {
        use std::sync::mpsc::RecvTimeoutError::Timeout;
        loop {
            let wait = if self.retired.is_empty() { LOOK } else { LOOK_FOR_HOLDERS };
            match asked.recv_timeout(wait) {
                Ok(ReloadTask::Reload { late, permit, may_drop }) => self.answer(late, &permit, may_drop),
                Err(Timeout) => self.look(),
                Ok(ReloadTask::Stop) | Err(_) => return,
            }
            self.retired.retain(|routing| Arc::strong_count(routing) > 1 || !routing.service.database.is_last_handle());
        }
    }

    fn answer(&mut self, late: Option<LateReply>, permit: &Permit, may_drop: bool) {
        if let Err(failure) = permit.check() {
            late.into_iter().for_each(|late| refusal::refuse(&ErrorRules::default(), late, &failure));
            return;
        }
        let outcome = self.watched(|reloader| reloader.reload(may_drop));
        let current = self.switch.current();
        let reloads = &current.service.reloads;
        let failure = match &outcome {
            Ok((Status(200), report)) => {
                reloads.done.fetch_add(1, Ordering::Relaxed);
                tracing::info!(%report, "the configuration is reloaded");
                None
            }
            Ok((_, report)) => {
                reloads.refused.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%report, "the configuration is reloaded, except for parts that stored documents violate");
                None
            }
            Err(refused) => {
                reloads.refused.fetch_add(1, Ordering::Relaxed);
                let failure = refused.failure();
                tracing::error!(why = %failure.detail, "the configuration is not reloaded: the previous one stays in force");
                Some((failure, refused.members()))
            }
        };
        match (late, outcome, failure) {
            (Some(late), _, Some((failure, members))) => refusal::refuse_with(late, &failure, members),
            (Some(late), Ok((status, report)), None) => late.send(status, JSON, report.to_string().into_bytes()),
            _ => {}
        }
    }

    /// Runs some work. After a panic the served configuration stays, with its tokens, and its expiry is started again: a reload stops it first.
    fn watched<T>(&mut self, work: impl FnOnce(&mut Reloader) -> Result<T, Refused>) -> Result<T, Refused> {
        let done = caught(|| work(self));
        let service = &self.switch.current().service;
        service.panics.note("reload", done.as_ref().err().cloned());
        done.unwrap_or_else(|text| {
            // The file's tokens were taken first.
            service.tokens.replace(&self.config.tokens);
            service.expiry.stop();
            start_expiry(service);
            Err(Refused::Panicked(text))
        })
    }

    /// Reads the file and applies it. Returns the answer.
    fn reload(&mut self, may_drop: bool) -> Result<(Status, Json), Refused> {
        let mut config = ServiceConfig::load(&self.config.path, &self.config.set).map_err(Refused::Config)?;
        let restart = self.config.file_server.differences(&config.file_server);
        // Loops stay as many as they are.
        config.server.threads = self.config.server.threads;
        let (bytes, most) = (config.server.declared_bytes(), Division::endpoint_bytes_of_reload(&self.config.server));
        if bytes > most {
            return Err(Refused::TooLarge { bytes, most });
        }
        // Settings that need a restart are reported until there was one.
        config.file_server = self.config.file_server.clone();
        let certificate = config.server.tls.take();
        config.server = self.config.server.clone();
        config.docs.may_drop = may_drop;
        let waited = self.take(config).map_err(Refused::Start)?;
        self.failed = None;
        self.renew_certificate(certificate)?;
        let refused = self.wait_for_rules();
        let building = is_building(&self.switch.current().service);
        let mut report = json!({
            "reloaded": refused.is_empty(),
            "needs_restart": restart,
            "is_building": building,
            "writes_waited_ms": waited.as_secs_f64() * 1000.0,
        });
        let current = self.switch.current();
        let dropped = current.service.database.dropped();
        if !dropped.is_empty() {
            report["dropped"] = listed(dropped);
        }
        if refused.is_empty() {
            return Ok((Status(200), report));
        }
        report["refused"] = refused.into();
        report["detail"] = "stored documents violate these parts; the rest of the file is in force".into();
        Ok((Status(409), report))
    }

    /// Makes later handshakes use the file's certificate with its present content. Adding or removing TLS needs a restart.
    fn renew_certificate(&mut self, given: Option<TlsConfig>) -> Result<(), Refused> {
        let (Some(server), Some(given)) = (&self.tls, given) else { return Ok(()) };
        given.replace(server).map_err(Refused::Tls)?;
        self.config.server.tls = Some(given);
        Ok(())
    }

    /// Waits a while until everything new in the file has been checked against stored documents; returns the refused parts.
    fn wait_for_rules(&self) -> Vec<Json> {
        let (current, began) = (self.switch.current(), Instant::now());
        while schema::counts(&current.service).0 > 0 && began.elapsed() < SETTLE {
            std::thread::sleep(LOOK_FOR_RULES);
        }
        schema::refused(&current.service)
    }

    /// Applies the same configuration again if queries benefit, or if a change that was refused late has stopped the builds of
    /// views: they begin anew.
    fn look(&mut self) {
        let database = self.switch.current().service.database.clone();
        let is_early = self.failed.is_some_and(|(at, pause)| at.elapsed() < pause);
        let gains = database.has_stopped_builds() || database.gains_by_reopening() && database.is_settled();
        if is_early || !gains {
            return;
        }
        match self.watched(|reloader| reloader.take(reloader.config.clone()).map_err(Refused::Start)) {
            Ok(waited) => {
                self.failed = None;
                tracing::info!(?waited, "rules that came into force are known to all queries");
            }
            Err(refused) => {
                let pause = self.failed.map_or(LOOK, |(_, pause)| (2 * pause).min(PAUSE_MAX));
                self.failed = Some((Instant::now(), pause));
                let why = refused.failure().detail;
                tracing::warn!(%why, ?pause, "rules that came into force are not known to queries yet");
            }
        }
    }

    fn take(&mut self, config: ServiceConfig) -> Result<Duration, ServerStartError> {
        #[cfg(test)]
        tests::panic_if_armed();
        let before = self.switch.current();
        let old = &before.service;
        let mut documents = complete(&config)?;
        documents.builds_indexes_later = true;
        // The served and the new configuration share one bound.
        documents.plans = old.database.catalog().plans.clone();
        let (division, mut new_feed) = (Division::of(&config.server), false);
        // Before anything of the file is in force.
        old.database.check_reopen(&documents)?;
        old.expiry.stop();
        // Because the change waits for writing statements: those of a revoked token end.
        old.tokens.replace(&config.tokens);
        let reopened = old.database.reopen::<ServerStartError>(&documents, |database| {
            let (endpoints, openapi) = routes(&config, database, Some(&self.data))?;
            new_feed = !has_same_collections(&old.database, database);
            let feed = if new_feed {
                let feed = Feed::new(old.replies.clone(), &division, &old.panics);
                feed.start(database).map_err(ServerStartError::System)?;
                Arc::new(feed)
            } else {
                Arc::clone(&old.feed)
            };
            let shared = Arc::clone(&old.shared);
            let service = Service::new(config.errors.clone(), openapi, database.clone(), shared, feed);
            self.switch.put(Routing::new(service, endpoints));
            Ok(())
        });
        let current = self.switch.current();
        let current = &current.service;
        start_expiry(current);
        if reopened.is_err() {
            old.tokens.replace(&self.config.tokens);
        }
        let (_, waited) = reopened?;
        current.pool_sessions.let_go();
        current.cold.let_go();
        self.retired.push(Arc::clone(&before));
        self.config = config;
        // The permission counts once.
        self.config.docs.may_drop = false;
        log_dropped(&current.database);
        if new_feed {
            // Consumers continue with the new feed, from the number that they were sent last.
            old.feed.end();
        } else {
            current.feed.move_on(&current.database);
        }
        Ok(waited)
    }
}

/// Starts expiry again: a reload stops it.
fn start_expiry(service: &Service) {
    if let Err(error) = service.expiry.start(&service.database) {
        tracing::error!(%error, "expired documents are not removed until a reload or the next start");
    }
}

/// Whether collection numbers and keys mean the same in both.
fn has_same_collections(a: &DocumentDatabase, b: &DocumentDatabase) -> bool {
    let (a, b) = (&a.catalog().collections, &b.catalog().collections);
    let is_same =
        |a: &CollectionInfo, b: &CollectionInfo| (&a.name, a.tree, a.key.kind) == (&b.name, b.tree, b.key.kind);
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU32;

    /// The configuration that panics: 1 is the next one that is taken, 2 the one after it.
    static ARMED: AtomicU32 = AtomicU32::new(0);
    /// Held by the test that uses `ARMED`.
    static ARMING: Mutex<()> = Mutex::new(());

    pub(super) fn panic_if_armed() {
        let armed = ARMED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |number| number.checked_sub(1));
        assert!(armed != Ok(1), "as a test wants it");
    }

    fn ask(running: &crate::RunningServer, request: &str) -> String {
        ask_with(running, request, "")
    }

    fn ask_with(running: &crate::RunningServer, request: &str, body: &str) -> String {
        let mut connection = std::net::TcpStream::connect(running.address()).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let head = format!("HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}", body.len());
        connection.write_all(format!("{request} {head}\r\n\r\n{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_reload_that_panics_is_answered_and_told_and_the_next_one_is_done() {
        let _arming = ARMING.lock().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("service.toml");
        let text = "[server]\nhttp = \"127.0.0.1:0\"\nthreads = 1\n[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
        std::fs::write(&path, text).unwrap();
        let config = ServiceConfig::load(&path, &[]).unwrap();
        let running = crate::start(&config, &folder.path().join("data")).unwrap();
        ARMED.store(1, Ordering::Relaxed);
        let refused = ask(&running, "POST /_/config/reload");
        assert!(refused.starts_with("HTTP/1.1 500") && refused.contains("as a test wants it"), "{refused}");
        let health = ask(&running, "GET /_/health");
        assert!(health.starts_with("HTTP/1.1 200") && health.contains("impaired"), "{health}");
        assert!(health.contains("as a test wants it"), "{health}");
        let done = ask(&running, "POST /_/config/reload");
        assert!(done.starts_with("HTTP/1.1 200"), "{done}");
        let health = ask(&running, "GET /_/health");
        assert!(health.contains("\"ok\"") && !health.contains("panics"), "{health}");
        running.drain();
        running.join().unwrap();
    }

    #[test]
    fn rules_that_came_into_force_are_known_to_queries_though_the_first_reopening_fails() {
        let _arming = ARMING.lock().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("service.toml");
        let text = "[server]\nhttp = \"127.0.0.1:0\"\nthreads = 1\n[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
        std::fs::write(&path, text).unwrap();
        let config = ServiceConfig::load(&path, &[]).unwrap();
        let running = crate::start(&config, &folder.path().join("data")).unwrap();
        let stored = ask_with(&running, "POST /_/collections/items", "{\"id\":1,\"until\":1}");
        assert!(stored.starts_with("HTTP/1.1 201"), "{stored}");
        std::fs::write(&path, format!("{text}expire = \"until\"\n")).unwrap();
        // The first is the reload, the second the reopening when stored documents are checked.
        ARMED.store(2, Ordering::Relaxed);
        let reloaded = ask(&running, "POST /_/config/reload");
        assert!(reloaded.starts_with("HTTP/1.1 200"), "{reloaded}");
        let began = Instant::now();
        while !ask(&running, "GET /_/schema").contains("after_seconds") {
            assert!(began.elapsed() < Duration::from_secs(60), "the rule is not known");
            std::thread::sleep(LOOK_FOR_RULES);
        }
        assert_eq!(ARMED.load(Ordering::Relaxed), 0);
        running.drain();
        running.join().unwrap();
    }
}
