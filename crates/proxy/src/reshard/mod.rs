//! Resharding: every key of one Redis, with its time to live, to the nodes that a placement gives them.
//!
//! ```text
//! source   SCAN ─► PTTL, DUMP of a chunk of keys in one pipeline ─► by node, at most two chunks wait ─► RESTORE … REPLACE   node 1
//!                                                                                                    └► RESTORE … REPLACE   node 2 …
//! ```
//!
//! - A key that is copied again replaces itself, so a run that was stopped is run again from its beginning.
//! - Where a node refuses what the source has dumped (the formats of their versions differ), the value is copied by the commands of its
//!   type ([`by_type`]).
//! - [`Reshard::verify`] compares every key, and finds keys that the source does not have; it ends at a stop, too.
//! - [`Reshard::follow`] copies what changes meanwhile, and says in its text which guarantee that gives.
//!
//! Memory: chunks aim at [`CHUNK_BYTES`], three for each node at most; a single value may be larger.

mod by_type;
mod error;
mod live;
mod source;
mod verify;
mod writer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use resp::Settings;

use crate::placement::Placement;
pub use error::ReshardError;
pub use live::Following;
use source::{Change, Source};
pub use verify::{Differing, Verified};
use writer::Writers;

/// Bytes of dumps that one chunk aims at.
const CHUNK_BYTES: usize = 4 << 20;
/// Keys of one chunk at most.
const CHUNK_KEYS_MAX: usize = 1_000;

/// What is to be copied where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the keys are, with the number of the database.
    pub source: Settings,
    /// Where they go. All have a database of the source's number.
    pub nodes: Vec<Settings>,
    /// Which key goes to which node, by its place in `nodes`.
    pub placement: Placement,
    /// Copy all values by the commands of their types, not by DUMP and RESTORE.
    pub by_type: bool,
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Keys of the source when the copy began.
    pub keys: u64,
    /// Keys that were read.
    pub read: u64,
    /// Bytes of their dumps.
    pub bytes: u64,
}

/// A resharding under way.
#[derive(Debug)]
pub struct Reshard<'s> {
    plan: Plan,
    /// Set from outside: ends what runs, between two chunks.
    stop: &'s AtomicBool,
}

impl<'s> Reshard<'s> {
    /// Connects to nobody yet.
    pub fn new(plan: Plan, stop: &'s AtomicBool) -> Reshard<'s> {
        Reshard { plan, stop }
    }

    /// Removes all keys of the database on every node.
    ///
    /// # Errors
    /// A node is not reached, or refuses.
    pub fn flush(&self) -> Result<(), ReshardError> {
        for settings in &self.plan.nodes {
            let mut node = resp::Client::new(settings.clone());
            node.command::<()>("FLUSHDB").map_err(|error| ReshardError::of_node(settings, error))?;
        }
        Ok(())
    }

    /// Copies every key that is there from the beginning to the end of the copy; of one that comes, changes or goes meanwhile this
    /// says nothing. Gives the number of keys.
    ///
    /// # Errors
    /// The source or a node is not reached, or refuses; [`ReshardError::Stopped`]. What was copied stays.
    pub fn copy(&self, told: &mut dyn FnMut(Progress)) -> Result<u64, ReshardError> {
        let mut source = Source::new(&self.plan.source);
        let mut progress = Progress { keys: source.count()?, ..Progress::default() };
        self.with_writers(|writers| {
            let mut cursor = Some(0);
            while let Some(at) = cursor {
                let (next, keys) = source.scan(at)?;
                cursor = (next != 0).then_some(next);
                self.copy_keys(&mut source, keys, writers, &mut |read, bytes| {
                    progress.read += read;
                    progress.bytes += bytes;
                    told(progress);
                })?;
            }
            Ok(())
        })?;
        Ok(progress.read)
    }

    /// Reads these keys and hands each to its node's writer, chunk by chunk. A key that is not there is removed from its node.
    fn copy_keys(
        &self,
        source: &mut Source,
        keys: Vec<Vec<u8>>,
        writers: &Writers,
        told: &mut dyn FnMut(u64, u64),
    ) -> Result<(), ReshardError> {
        let mut keys = keys.into_iter().peekable();
        while keys.peek().is_some() {
            self.check_stop()?;
            let chunk: Vec<Vec<u8>> = keys.by_ref().take(source.chunk_keys()).collect();
            let read = chunk.len() as u64;
            let changes = if self.plan.by_type { Change::by_type(chunk) } else { source.dump(chunk)? };
            let bytes = changes.iter().map(|change| change.bytes() as u64).sum();
            writers.hand_over(changes, |key| self.plan.placement.node(key, 0))?;
            told(read, bytes);
        }
        Ok(())
    }

    /// [`ReshardError::Stopped`] once the stop is set.
    fn check_stop(&self) -> Result<(), ReshardError> {
        if self.stop.load(Ordering::Relaxed) { Err(ReshardError::Stopped) } else { Ok(()) }
    }

    /// Runs `work` with a writer for each node; ends when all that was handed over is written.
    fn with_writers(&self, work: impl FnOnce(&Writers) -> Result<(), ReshardError>) -> Result<(), ReshardError> {
        std::thread::scope(|scope| {
            let (senders, threads): (Vec<SyncSender<Vec<Change>>>, Vec<_>) = self
                .plan
                .nodes
                .iter()
                .map(|node| {
                    let (sender, receiver) = std::sync::mpsc::sync_channel(1);
                    (sender, scope.spawn(|| writer::write(node, &self.plan.source, receiver)))
                })
                .unzip();
            let read = work(&Writers::new(senders));
            // The writers end when their senders are gone. A writer's error goes first: it is why handing over failed.
            for thread in threads {
                thread.join().unwrap_or(Err(ReshardError::Panicked))?;
            }
            read
        })
    }
}
