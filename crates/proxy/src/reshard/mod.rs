//! Resharding: copies every key of one Redis, with its time to live, to the nodes that a placement chooses.
//!
//! ```text
//! source   SCAN ─► expiry, DUMP of a chunk of keys in one pipeline ─► by node, at most two chunks wait ─► RESTORE … REPLACE   node 1
//!                                                                                                      └► RESTORE … REPLACE   node 2 …
//! ```
//!
//! - A key that is copied again is overwritten, so a run that was stopped is repeated from its beginning.
//! - If a node refuses the source's dump (versions differ in their formats), the value is copied with the commands of its type
//!   ([`by_type`]).
//! - A node that is the source, or a part of it, is refused before anything is written ([`servers`]): a copy would overwrite newer values,
//!   and FLUSHDB would remove what is to be copied.
//! - [`Reshard::verify`] compares every key, and finds keys that the source does not have; it also ends at a stop.
//! - [`Reshard::follow`] copies changes that happen meanwhile, until the source refuses writes; see there for its guarantee.
//! - A server that does not answer within [`ClientSettings::timeout`] ends an operation with an error that names it.
//!
//! Memory: chunks have about [`CHUNK_BYTES`], and there are at most three for each node; a single value may be larger.

mod by_type;
mod cluster;
mod error;
mod fence;
mod groups;
mod live;
mod pattern;
mod reader;
mod replication;
mod servers;
mod verify;
mod writer;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use resp::{ClientSettings, ReplyValue};

use crate::placement::Placement;
pub use cluster::masters;
pub use error::{ReshardError, ServerRole};
pub use live::{Followed, Following};
use reader::{Change, Content, Reader};
pub use servers::check_answers;
use servers::{Origin, Server, Servers};
pub use verify::{Differing, Verified};
use writer::Writers;

/// Target size of the dumps of one chunk, in bytes.
const CHUNK_BYTES: usize = 4 << 20;
/// Largest number of keys in one chunk.
const CHUNK_KEYS_MAX: usize = 1_000;
/// Longest pause before it is checked whether a rate permits the next chunk, or a stop is set.
const RATE_PAUSE_MAX: Duration = Duration::from_millis(100);
/// A chunk has at most this part of the keys of a second, if a rate is set.
const RATE_PART: usize = 10;

/// Source, destination and placement of a copy.
#[derive(Clone, Debug)]
pub struct CopyPlan {
    /// The source, with the number of the database.
    pub source: ClientSettings,
    /// The destinations. All use the same database number as the source.
    pub nodes: Vec<ClientSettings>,
    /// Maps a key to its node, by the position in `nodes`.
    pub placement: Placement,
    /// Whether all values are copied with the commands of their types instead of DUMP and RESTORE.
    pub by_type: bool,
    /// Whether all databases are copied, each to the same number, instead of one.
    pub all_databases: bool,
    /// Only the keys that match it, as KEYS matches them, are copied, compared and removed.
    pub pattern: Option<Vec<u8>>,
    /// Largest number of keys that are copied in a second. Changes that are followed are copied without this bound.
    pub keys_per_second: Option<u32>,
}

impl CopyPlan {
    /// A plan for all keys of a database.
    pub fn new(source: ClientSettings, nodes: Vec<ClientSettings>, placement: Placement) -> CopyPlan {
        let (by_type, all_databases, pattern, keys_per_second) = (false, false, None, None);
        CopyPlan { source, nodes, placement, by_type, all_databases, pattern, keys_per_second }
    }

    /// Whether a key belongs to the plan.
    fn has(&self, key: &[u8]) -> bool {
        self.pattern.as_deref().is_none_or(|pattern| pattern::matches(pattern, key))
    }
}

/// Progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReshardProgress {
    /// Keys of the source when the copy began.
    pub keys: u64,
    /// Keys whose names were read, whether they match the plan's pattern or not.
    pub scanned: u64,
    /// Keys that were read.
    pub read: u64,
    /// Bytes of their dumps.
    pub bytes: u64,
}

/// The connections of a copy.
struct Connections {
    source: Reader,
    /// To each node, and to the source for values that are copied by type.
    targets: Vec<(Server, Reader)>,
}

/// A resharding.
#[derive(Debug)]
pub struct Reshard<'s> {
    plan: CopyPlan,
    /// Set by the caller: ends the running operation between two chunks.
    stop: &'s AtomicBool,
}

impl<'s> Reshard<'s> {
    /// Creates a resharding; no connection is made yet.
    pub fn new(plan: CopyPlan, stop: &'s AtomicBool) -> Reshard<'s> {
        Reshard { plan, stop }
    }

    /// Removes all keys of the database, or of all databases, on every node.
    ///
    /// # Errors
    /// A server is unreachable, or refuses the command; a node is the source, or two nodes are one server: then none is flushed.
    pub fn flush(&self) -> Result<(), ReshardError> {
        Servers::ask(&self.plan)?;
        let command = if self.plan.all_databases { "FLUSHALL" } else { "FLUSHDB" };
        for settings in &self.plan.nodes {
            Server::new(settings, ServerRole::Node).command::<()>(command)?;
        }
        Ok(())
    }

    /// Copies every key that exists from the beginning to the end of the copy, and all libraries of functions; a key that is created,
    /// changed or deleted meanwhile may or may not be copied. Returns the number of keys.
    ///
    /// # Errors
    /// The source or a node is unreachable, or refuses a command; a node is the source, or two nodes are one server; a
    /// server was restarted meanwhile; [`ReshardError::Stopped`]. Copied keys stay.
    pub fn copy(&self, on_progress: &mut dyn FnMut(ReshardProgress)) -> Result<u64, ReshardError> {
        let mut servers = Servers::ask(&self.plan)?;
        self.copy_functions(false)?;
        let read = self.copy_all(&servers.origin(), on_progress)?;
        servers.check()?;
        Ok(read)
    }

    /// The databases of the plan: if all, those in which a server has keys.
    fn databases(&self) -> Result<BTreeSet<u32>, ReshardError> {
        if !self.plan.all_databases {
            return Ok(BTreeSet::from([self.plan.source.database]));
        }
        let mut found = BTreeSet::new();
        let source = std::iter::once((&self.plan.source, ServerRole::Source));
        for (settings, role) in source.chain(self.plan.nodes.iter().map(|node| (node, ServerRole::Node))) {
            let info: String = Server::new(settings, role).command(("INFO", "keyspace"))?;
            found.extend(
                info.lines().filter_map(|line| line.strip_prefix("db")?.split(':').next()?.parse::<u32>().ok()),
            );
        }
        Ok(found)
    }

    /// This resharding in one database.
    fn in_database(&self, database: u32) -> Reshard<'s> {
        let mut plan = self.plan.clone();
        plan.nodes.iter_mut().chain([&mut plan.source]).for_each(|server| server.database = database);
        Reshard { plan, stop: self.stop }
    }

    /// This resharding in each of its databases.
    fn each_database(&self) -> Result<Vec<Reshard<'s>>, ReshardError> {
        Ok(self.databases()?.into_iter().map(|database| self.in_database(database)).collect())
    }

    /// [`Reshard::copy`] of the keys, between servers that have been checked.
    fn copy_all(&self, origin: &Origin, on_progress: &mut dyn FnMut(ReshardProgress)) -> Result<u64, ReshardError> {
        let (all, mut progress, began) = (self.each_database()?, ReshardProgress::default(), Instant::now());
        for one in &all {
            progress.keys += Reader::new(&one.plan.source, ServerRole::Source).count()?;
        }
        for one in &all {
            one.with_writers(origin, &mut one.connections(), |source, writers| {
                let mut cursor = Some(0);
                while let Some(at) = cursor {
                    let (next, mut keys) = source.scan(at)?;
                    cursor = (next != 0).then_some(next);
                    let scanned = progress.scanned + keys.len() as u64;
                    keys.retain(|key| one.plan.has(key));
                    one.copy_keys(source, origin, keys, writers, &mut |read, bytes| {
                        progress.read += read;
                        progress.scanned += read;
                        progress.bytes += bytes;
                        on_progress(progress);
                        one.keep_rate(progress.read, began)
                    })?;
                    progress.scanned = scanned;
                    on_progress(progress);
                }
                Ok(())
            })?;
        }
        Ok(progress.read)
    }

    /// Waits until this number of keys may have been copied since `began`.
    fn keep_rate(&self, keys: u64, began: Instant) -> Result<(), ReshardError> {
        let Some(rate) = self.plan.keys_per_second else { return Ok(()) };
        let due = Duration::from_secs_f64(keys as f64 / f64::from(rate.max(1)));
        while let Some(left) = due.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
            self.check_stop()?;
            std::thread::sleep(left.min(RATE_PAUSE_MAX));
        }
        Ok(())
    }

    /// Copies the source's libraries of functions. `is_exact`: the nodes then have no other ones.
    fn copy_functions(&self, is_exact: bool) -> Result<(), ReshardError> {
        let mut source = Server::new(&self.plan.source, ServerRole::Source);
        // A server before Redis 7 has none.
        let Ok(libraries) = source.ask::<Vec<ReplyValue>>(("FUNCTION", "LIST"))? else { return Ok(()) };
        if libraries.is_empty() && !is_exact {
            return Ok(());
        }
        let (dump, policy) =
            (source.command::<Vec<u8>>(("FUNCTION", "DUMP"))?, if is_exact { "FLUSH" } else { "REPLACE" });
        for node in &self.plan.nodes {
            Server::new(node, ServerRole::Node).command::<()>(("FUNCTION", "RESTORE", &dump, policy))?;
        }
        Ok(())
    }

    /// Reads these keys and passes each to its node's writer, chunk by chunk. A missing key is removed from its node.
    fn copy_keys(
        &self,
        source: &mut Reader,
        origin: &Origin,
        keys: Vec<Vec<u8>>,
        writers: &Writers,
        on_progress: &mut dyn FnMut(u64, u64) -> Result<(), ReshardError>,
    ) -> Result<(), ReshardError> {
        let chunk_keys_max = self.plan.keys_per_second.map_or(CHUNK_KEYS_MAX, |rate| rate as usize / RATE_PART).max(1);
        let mut keys = keys.into_iter().peekable();
        while keys.peek().is_some() {
            self.check_stop()?;
            let chunk: Vec<Vec<u8>> = keys.by_ref().take(source.chunk_keys().min(chunk_keys_max)).collect();
            let read = chunk.len() as u64;
            let changes = if self.plan.by_type { Change::by_type(chunk) } else { source.dump(chunk)? };
            if changes.iter().any(|change| matches!(change.content, Content::Gone)) {
                source.check(origin)?;
            }
            let bytes = changes.iter().map(|change| change.bytes() as u64).sum();
            writers.hand_over(changes, |key| self.plan.placement.node(key, 0))?;
            on_progress(read, bytes)?;
        }
        Ok(())
    }

    /// [`ReshardError::Stopped`] once the stop is set.
    fn check_stop(&self) -> Result<(), ReshardError> {
        if self.stop.load(Ordering::Relaxed) { Err(ReshardError::Stopped) } else { Ok(()) }
    }

    /// Connections for copying, which are opened at their first use.
    fn connections(&self) -> Connections {
        let source = || Reader::new(&self.plan.source, ServerRole::Source);
        let targets = self.plan.nodes.iter().map(|node| (Server::new(node, ServerRole::Node), source())).collect();
        Connections { source: source(), targets }
    }

    /// Runs `work` with a writer for each node; returns when all changes are written.
    fn with_writers(
        &self,
        origin: &Origin,
        connections: &mut Connections,
        work: impl FnOnce(&mut Reader, &Writers) -> Result<(), ReshardError>,
    ) -> Result<(), ReshardError> {
        let Connections { source, targets } = connections;
        std::thread::scope(|scope| {
            let (mut senders, mut threads): (Vec<SyncSender<Vec<Change>>>, Vec<_>) = (Vec::new(), Vec::new());
            for (place, (target, reader)) in targets.iter_mut().enumerate() {
                let (sender, receiver) = std::sync::mpsc::sync_channel(1);
                let clock_offset = origin.clock_offset(place);
                senders.push(sender);
                threads.push(scope.spawn(move || writer::write(target, clock_offset, reader, origin, receiver)));
            }
            let read = work(source, &Writers::new(senders));
            // The writers end when their senders are dropped. A writer's error takes precedence: it is why passing changes on
            // failed.
            for thread in threads {
                thread.join().unwrap_or(Err(ReshardError::Panicked))?;
            }
            read
        })
    }
}
