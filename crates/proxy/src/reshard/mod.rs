//! Resharding: copies every key of one Redis, with its time to live, to the nodes that a placement chooses.
//!
//! ```text
//! source   SCAN ─► PTTL, DUMP of a chunk of keys in one pipeline ─► by node, at most two chunks wait ─► RESTORE … REPLACE   node 1
//!                                                                                                    └► RESTORE … REPLACE   node 2 …
//! ```
//!
//! - A key that is copied again is overwritten, so a run that was stopped is repeated from its beginning.
//! - If a node refuses the source's dump (versions differ in their formats), the value is copied with the commands of its type
//!   ([`by_type`]).
//! - A node that is the source, or a part of it, is refused before anything is written ([`servers`]): a copy would overwrite newer values,
//!   and FLUSHDB would remove what is to be copied.
//! - [`Reshard::verify`] compares every key, and finds keys that the source does not have; it also ends at a stop.
//! - [`Reshard::follow`] copies changes that happen meanwhile; see there for its guarantee.
//!
//! Memory: chunks have about [`CHUNK_BYTES`], and there are at most three for each node; a single value may be larger.

mod by_type;
mod error;
mod live;
mod servers;
mod source;
mod verify;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use resp::ClientSettings;

use crate::placement::Placement;
pub use error::ReshardError;
pub use live::Following;
pub use servers::check_answers;
use servers::{Servers, SourceIdentity};
use source::{Change, Content, Source};
pub use verify::{Differing, Verified};
use writer::Writers;

/// Target size of the dumps of one chunk, in bytes.
const CHUNK_BYTES: usize = 4 << 20;
/// Largest number of keys in one chunk.
const CHUNK_KEYS_MAX: usize = 1_000;

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
}

/// Progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReshardProgress {
    /// Keys of the source when the copy began.
    pub keys: u64,
    /// Keys that were read.
    pub read: u64,
    /// Bytes of their dumps.
    pub bytes: u64,
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

    /// Removes all keys of the database on every node.
    ///
    /// # Errors
    /// A server is unreachable, or refuses the command; a node is the source, or two nodes are one server: then none is flushed.
    pub fn flush(&self) -> Result<(), ReshardError> {
        Servers::ask(&self.plan)?;
        for settings in &self.plan.nodes {
            let mut node = servers::client(settings);
            node.command::<()>("FLUSHDB").map_err(|error| ReshardError::of_node(settings, error))?;
        }
        Ok(())
    }

    /// Copies every key that exists from the beginning to the end of the copy; a key that is created, changed or deleted
    /// meanwhile may or may not be copied. Returns the number of keys.
    ///
    /// # Errors
    /// The source or a node is unreachable, or refuses a command; a node is the source, or two nodes are one server; a
    /// server was restarted meanwhile; [`ReshardError::Stopped`]. Copied keys stay.
    pub fn copy(&self, on_progress: &mut dyn FnMut(ReshardProgress)) -> Result<u64, ReshardError> {
        let mut servers = Servers::ask(&self.plan)?;
        let read = self.copy_all(&servers.source(), on_progress)?;
        servers.check()?;
        Ok(read)
    }

    /// [`Reshard::copy`] between servers that have been checked.
    fn copy_all(
        &self,
        identity: &SourceIdentity,
        on_progress: &mut dyn FnMut(ReshardProgress),
    ) -> Result<u64, ReshardError> {
        let mut source = Source::new(&self.plan.source);
        let mut progress = ReshardProgress { keys: source.count()?, ..ReshardProgress::default() };
        self.with_writers(identity, |writers| {
            let mut cursor = Some(0);
            while let Some(at) = cursor {
                let (next, keys) = source.scan(at)?;
                cursor = (next != 0).then_some(next);
                self.copy_keys((&mut source, identity), keys, writers, &mut |read, bytes| {
                    progress.read += read;
                    progress.bytes += bytes;
                    on_progress(progress);
                })?;
            }
            Ok(())
        })?;
        Ok(progress.read)
    }

    /// Reads these keys and passes each to its node's writer, chunk by chunk. A missing key is removed from its node.
    fn copy_keys(
        &self,
        (source, identity): (&mut Source, &SourceIdentity),
        keys: Vec<Vec<u8>>,
        writers: &Writers,
        on_progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), ReshardError> {
        let mut keys = keys.into_iter().peekable();
        while keys.peek().is_some() {
            self.check_stop()?;
            let chunk: Vec<Vec<u8>> = keys.by_ref().take(source.chunk_keys()).collect();
            let read = chunk.len() as u64;
            let changes = if self.plan.by_type { Change::by_type(chunk) } else { source.dump(chunk)? };
            if changes.iter().any(|change| matches!(change.content, Content::Gone)) {
                source.check(identity)?;
            }
            let bytes = changes.iter().map(|change| change.bytes() as u64).sum();
            writers.hand_over(changes, |key| self.plan.placement.node(key, 0))?;
            on_progress(read, bytes);
        }
        Ok(())
    }

    /// [`ReshardError::Stopped`] once the stop is set.
    fn check_stop(&self) -> Result<(), ReshardError> {
        if self.stop.load(Ordering::Relaxed) { Err(ReshardError::Stopped) } else { Ok(()) }
    }

    /// Runs `work` with a writer for each node; returns when all changes are written.
    fn with_writers(
        &self,
        identity: &SourceIdentity,
        work: impl FnOnce(&Writers) -> Result<(), ReshardError>,
    ) -> Result<(), ReshardError> {
        std::thread::scope(|scope| {
            let (senders, threads): (Vec<SyncSender<Vec<Change>>>, Vec<_>) = self
                .plan
                .nodes
                .iter()
                .map(|node| {
                    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
                    (sender, scope.spawn(|| writer::write(node, (&self.plan.source, identity), receiver)))
                })
                .unzip();
            let read = work(&Writers::new(senders));
            // The writers end when their senders are dropped. A writer's error takes precedence: it is why passing changes on
            // failed.
            for thread in threads {
                thread.join().unwrap_or(Err(ReshardError::Panicked))?;
            }
            read
        })
    }
}
