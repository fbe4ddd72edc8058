//! Follows the source's changes until its clients may be switched to the nodes.
//!
//! First all keys are copied, then repeatedly the keys that have changed since, by the source's replication stream ([`super::replication`]).
//! Once `stop` is set, the cut-over:
//!
//! ```text
//! keys that have changed are copied, until few are left            clients write to the source
//! ── the source refuses writes (fence.rs) ─────────────────────    clients' writes fail: NOREPLICAS
//! its position is read; the stream is read to that position
//! the keys that have changed are copied
//! the servers are still the same ── end, nothing is written any more ──  clients are switched to the nodes
//! ```
//!
//! **Guarantee:** when [`Reshard::follow`] ends without an error, every write that the source has ever acknowledged is on the nodes, and
//! the source acknowledges none from then on. If it ends with an error, the source accepts writes again, unless it cannot be reached.
//!
//! Why: the position is read after the last acknowledged write, so the stream to that position names the key of each write; a key's value
//! is read after its name, so it is the last one. After the end nothing is written to nodes: what expires in the source, or is removed
//! from it, does not reach them. Changes of different keys reach the nodes in any order, so a read from the nodes before the end may
//! see one change without an earlier change of another key.
//!
//! A lost connection to the source continues the stream where it was lost; if the source does not have it any more, or too many keys
//! have changed ([`CHANGED_KEYS_MAX`]), all keys are copied again, and keys that the source does not have are removed from the nodes. So
//! after FLUSHDB, FLUSHALL and SWAPDB.
//!
//! A node that was restarted may have lost what was copied to it. `run_id` of INFO shows it ([`super::servers`]): everything is copied
//! again, as after a lost connection to a node; after the stop it is an error instead. A source that was restarted is an error too: it
//! may have lost its keys and its settings. No key is removed from a node because a restarted source does not have it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::ServerRole;
use super::fence::Fence;
use super::replication::{Change, Position, Replication};
use super::servers::{Server, Servers};
use super::verify::Expiring;
use super::{Connections, CopyPlan, Reshard, ReshardError, ReshardProgress};

/// Largest number of changed keys that wait to be copied.
const CHANGED_KEYS_MAX: usize = 1_000_000;
/// The source refuses writes once no more changed keys wait to be copied: its clients then see errors for a moment only.
const CUT_KEYS_MAX: usize = 1_000;
/// Or once the changed keys have been copied so often since the stop: the clients write faster than keys are copied.
const CUT_ROUNDS_MAX: u32 = 10;
/// Pause if nothing has changed.
const PAUSE: Duration = Duration::from_millis(20);
/// Interval of the checks that the servers are still the same processes.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Interruptions of the copy of all keys before their reason is an error: it does not pass by itself.
const INTERRUPTIONS_MAX: u32 = 10;
/// Pause before another attempt after a lost connection.
const INTERRUPTION_PAUSE: Duration = Duration::from_millis(200);

/// How far the nodes lag behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Following {
    /// The source has commands that change keys without naming them. If it executes one of these, following ends with an error.
    Unfollowed(Vec<String>),
    /// All keys are being copied: at the beginning, or after changes were lost.
    Copying(ReshardProgress),
    /// This many changed keys wait to be copied.
    Behind(u64),
    /// A connection broke, or a node was restarted, for this reason: everything is copied again, as soon as all servers can be reached.
    Interrupted(String),
    /// The source refuses writes from now on.
    Fenced {
        /// The command that lets it execute them again.
        lifted_by: String,
    },
}

/// The end of following: the nodes have everything, and the source refuses writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Number of keys that were copied again.
    pub copied_again: u64,
    /// The command that lets the source execute writes again.
    pub lifted_by: String,
    /// Whether the source still executes the writes of scripts, as before Redis 7.
    pub scripts_may_write: bool,
}

/// What the source has changed, as far as its stream was read.
#[derive(Default)]
struct Changes {
    /// The keys by their database; none: of any.
    keys: HashMap<Option<u32>, HashSet<Vec<u8>>>,
    count: usize,
    /// Whether all keys must be copied.
    is_everything: bool,
    has_functions: bool,
    /// How far the stream was read.
    offset: u64,
    /// Behind this position, which the source had when it refused writes, only removals come: of expired keys.
    end: Option<u64>,
    failure: Option<ReshardError>,
}

impl Changes {
    fn add(&mut self, plan: &CopyPlan, command: String, change: Change) {
        let is_write = !matches!(change, Change::Nothing | Change::Keys { is_removal: true, .. });
        match change {
            Change::Keys { database, keys, .. } => {
                let is_other = !plan.all_databases && database.is_some_and(|number| number != plan.source.database);
                for key in keys.into_iter().filter(|key| !is_other && plan.has(key)) {
                    self.count += usize::from(self.keys.entry(database).or_default().insert(key));
                }
            }
            Change::Everything => self.is_everything = true,
            Change::Functions => self.has_functions = true,
            Change::Nothing => {}
            Change::Unknown => self.failure = Some(ReshardError::NotFollowed { command: command.clone() }),
        }
        if self.count >= CHANGED_KEYS_MAX {
            self.is_everything = true;
        }
        if self.is_everything {
            self.keys.clear();
            self.count = 0;
        }
        if is_write && self.end.is_some_and(|end| self.offset >= end) {
            self.failure = Some(ReshardError::LateWrite { command });
        }
    }

    /// Takes all changes out; how far they reach stays.
    fn take(&mut self) -> Result<Changes, ReshardError> {
        let rest = Changes { offset: self.offset, end: self.end, ..Changes::default() };
        let taken = std::mem::replace(self, rest);
        match taken.failure {
            Some(failure) => Err(failure),
            None => Ok(taken),
        }
    }
}

/// A run of [`Reshard::follow`].
struct Run<'r> {
    servers: Servers,
    source: Server,
    changes: &'r Mutex<Changes>,
    /// Those that copy changed keys, by the number of the database.
    connections: HashMap<u32, Connections>,
    copied_again: u64,
    /// Interruptions, after a check of the servers, since all keys were copied.
    interruptions: u32,
    /// Whether all keys were copied once.
    is_copied: bool,
    /// When the servers were found to be the same the last time.
    checked: Option<Instant>,
    /// Since when all attempts have failed.
    failing_since: Option<Instant>,
}

impl Run<'_> {
    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&mut self) -> Result<(), ReshardError> {
        self.servers.check()?;
        (self.checked, self.failing_since) = (Some(Instant::now()), None);
        Ok(())
    }
}

/// The cut-over, once the source refuses writes.
struct Cut {
    fence: Fence,
    /// The position behind the last write.
    end: u64,
    began: Instant,
}

impl Reshard<'_> {
    /// Copies all keys, then changed keys. When `stop` is set, makes the source refuse writes and copies its last changes; for the
    /// guarantee see the module. A stop before all keys are copied ends it with [`ReshardError::Stopped`].
    ///
    /// # Errors
    /// The source or a node is unreachable, or refuses a command, for as long as a command may take; a node is the source, or two nodes
    /// are one server; the source gives no replication stream, cannot be made to refuse writes, or was restarted; it has executed a
    /// command that cannot be followed; a node was restarted after the stop.
    pub fn follow(&self, on_progress: &mut dyn FnMut(Following)) -> Result<Followed, ReshardError> {
        let servers = Servers::ask(&self.plan)?;
        let mut source = Server::new(&self.plan.source, ServerRole::Source);
        Fence::check(&mut source)?;
        let stream = Replication::open(&self.plan.source)?;
        let unfollowed = stream.unfollowed();
        if !unfollowed.is_empty() {
            on_progress(Following::Unfollowed(unfollowed));
        }
        let changes = Mutex::new(Changes { is_everything: true, offset: stream.offset(), ..Changes::default() });
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| self.listen(stream, &changes, &is_over));
            let mut run = Run {
                servers,
                source,
                changes: &changes,
                connections: HashMap::new(),
                copied_again: 0,
                interruptions: 0,
                is_copied: false,
                checked: None,
                failing_since: None,
            };
            let followed = self.copy_changes(&mut run, on_progress);
            is_over.store(true, Ordering::Release);
            followed
        })
    }

    /// Collects the changes that the stream names, until `is_over` is set or the stream cannot be read.
    fn listen(&self, mut stream: Replication, changes: &Mutex<Changes>, is_over: &AtomicBool) {
        let changes = || changes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lost_since: Option<Instant> = None;
        while !is_over.load(Ordering::Acquire) {
            match stream.next(PAUSE) {
                Ok(None) => {}
                Ok(Some((command, change))) => {
                    let mut changes = changes();
                    changes.add(&self.plan, command, change);
                    changes.offset = stream.offset();
                }
                Err(_) => match stream.resume() {
                    Ok(is_complete) => {
                        lost_since = None;
                        let mut changes = changes();
                        changes.is_everything |= !is_complete;
                        changes.offset = stream.offset();
                    }
                    Err(error) => {
                        let since = *lost_since.get_or_insert_with(Instant::now);
                        if !error.is_lost_connection() || since.elapsed() >= self.plan.source.timeout {
                            changes().failure = Some(error);
                            return;
                        }
                        std::thread::sleep(INTERRUPTION_PAUSE);
                    }
                },
            }
        }
    }

    /// Copies changes until the cut-over is complete. After a lost connection or the restart of a node, everything is copied again.
    fn copy_changes(
        &self,
        run: &mut Run<'_>,
        on_progress: &mut dyn FnMut(Following),
    ) -> Result<Followed, ReshardError> {
        loop {
            let mut cut = None;
            let error = match (self.copy_connected(run, &mut cut, on_progress), &cut) {
                (Ok(()), Some(Cut { fence, .. })) => {
                    return Ok(Followed {
                        copied_again: run.copied_again,
                        lifted_by: fence.lifted_by(),
                        scripts_may_write: fence.scripts_may_write,
                    });
                }
                (Ok(()), None) => continue,
                (Err(error), _) => error,
            };
            if let Some(Cut { fence, .. }) = cut {
                fence.lift(&self.plan.source);
            }
            run.interruptions += u32::from(run.failing_since.is_none());
            let since = *run.failing_since.get_or_insert_with(Instant::now);
            let may_pass = error.is_lost_connection() || matches!(error, ReshardError::NodeRestarted { .. });
            let is_over = self.stop.load(Ordering::Relaxed)
                || since.elapsed() >= self.plan.source.timeout
                || run.interruptions > INTERRUPTIONS_MAX;
            if !may_pass || is_over {
                return Err(error);
            }
            on_progress(Following::Interrupted(error.to_string()));
            run.source = Server::new(&self.plan.source, ServerRole::Source);
            run.connections.clear();
            let mut changes = run.changes();
            (changes.is_everything, changes.end) = (true, None);
            drop(changes);
            std::thread::sleep(INTERRUPTION_PAUSE);
        }
    }

    /// Copies changes until the cut-over is complete, while all servers can be reached.
    fn copy_connected(
        &self,
        run: &mut Run<'_>,
        cut: &mut Option<Cut>,
        on_progress: &mut dyn FnMut(Following),
    ) -> Result<(), ReshardError> {
        let never = AtomicBool::new(false);
        let unstoppable = Reshard { plan: self.plan.clone(), stop: &never };
        let mut rounds_after_stop = 0;
        loop {
            let changes = run.changes().take()?;
            if changes.is_everything || run.checked.is_none_or(|checked| checked.elapsed() >= CHECK_EVERY) {
                run.check()?;
            }
            // Once all keys were copied, only this loop obeys `stop`.
            let inside = if run.is_copied { &unstoppable } else { self };
            if changes.is_everything {
                inside.copy_everything(run, on_progress)?;
                continue;
            }
            on_progress(Following::Behind(changes.count as u64));
            if changes.has_functions {
                inside.copy_functions(true)?;
            }
            inside.copy_again(run, &changes)?;
            match cut {
                Some(Cut { end, .. }) if changes.offset >= *end => {
                    // What was copied before is there only if no node has been restarted.
                    return run.check();
                }
                Some(Cut { end, began, .. })
                    if began.elapsed() >= self.plan.source.timeout && run.changes().offset < *end =>
                {
                    let silent = format!("it did not reach its own position in {} s", began.elapsed().as_secs());
                    return Err(ReshardError::NoStream(silent));
                }
                None if self.stop.load(Ordering::Relaxed) => {
                    rounds_after_stop += 1;
                    if changes.count <= CUT_KEYS_MAX || rounds_after_stop > CUT_ROUNDS_MAX {
                        *cut = Some(self.begin_cut(run, on_progress)?);
                    }
                }
                _ if changes.count == 0 => std::thread::sleep(PAUSE),
                _ => {}
            }
        }
    }

    /// Makes the source refuse writes, and reads the position behind the last one.
    fn begin_cut(&self, run: &mut Run<'_>, on_progress: &mut dyn FnMut(Following)) -> Result<Cut, ReshardError> {
        let (fence, began) = (Fence::raise(&mut run.source)?, Instant::now());
        on_progress(Following::Fenced { lifted_by: fence.lifted_by() });
        match Position::of(&mut run.source) {
            Ok(position) => {
                run.changes().end = Some(position.offset);
                Ok(Cut { fence, end: position.offset, began })
            }
            Err(error) => {
                fence.lift(&self.plan.source);
                Err(error)
            }
        }
    }

    /// Copies all keys and functions, and removes keys from the nodes that the source does not have.
    fn copy_everything(&self, run: &mut Run<'_>, on_progress: &mut dyn FnMut(Following)) -> Result<(), ReshardError> {
        let origin = run.servers.origin();
        self.copy_functions(run.is_copied)?;
        self.copy_all(&origin, &mut |progress| on_progress(Following::Copying(progress)))?;
        run.check()?;
        for one in self.each_database()? {
            let mut source = Server::new(&one.plan.source, ServerRole::Source);
            one.each_extra_key(Expiring::Extra, |node, keys| {
                origin.check(&mut source)?;
                node.command::<()>(("DEL", keys))
            })?;
        }
        (run.is_copied, run.interruptions) = (true, 0);
        Ok(())
    }

    /// Copies changed keys.
    fn copy_again(&self, run: &mut Run<'_>, changes: &Changes) -> Result<(), ReshardError> {
        if changes.keys.is_empty() {
            return Ok(());
        }
        let origin = run.servers.origin();
        let any = changes.keys.get(&None);
        let mut databases: BTreeSet<u32> = changes.keys.keys().flatten().copied().collect();
        if any.is_some() {
            databases.extend(self.databases()?);
        }
        for database in databases {
            let one = self.in_database(database);
            let known = changes.keys.get(&Some(database));
            let keys: Vec<Vec<u8>> = known.into_iter().chain(any).flatten().cloned().collect();
            run.copied_again += keys.len() as u64;
            let connections = run.connections.entry(database).or_insert_with(|| one.connections());
            one.with_writers(&origin, connections, |source, writers| {
                one.copy_keys(source, &origin, keys, writers, &mut |_, _| Ok(()))
            })?;
        }
        Ok(())
    }
}
