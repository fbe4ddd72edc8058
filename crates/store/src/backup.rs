//! Backup, restore and compaction of whole stores.
//!
//! A backup is a folder that is a store: it can be opened, verified and asked as it is. Restoring one is a checked copy.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::at_rest::{lock_source, open_disk, refuse_unless_store};
use crate::disk::{Access, Disk, DiskFile};
use crate::engine::limits::TREE_NAME;
use crate::error::Error;
use crate::examine::{Examination, look};
use crate::folder::{PART_NAME, Unfinished};
use crate::key::Version;
use crate::log;
use crate::options::Options;
use crate::store::Store;
use crate::tree::{Copied, given_up};

/// Bytes of a file copied at once, and between two reports.
const PIECE_BYTES: usize = 1 << 20;

/// How far a restore is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreProgress {
    /// Bytes copied.
    pub bytes: u64,
    /// Bytes there are.
    pub bytes_total: u64,
    /// All is copied, and is being read back.
    pub is_verifying: bool,
}

/// What was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restored {
    /// The last commit in it.
    pub version: Version,
    /// Entries of all trees, those of the log apart.
    pub entries: u64,
    /// Bytes copied.
    pub bytes: u64,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Bytes of the tree file before.
    pub bytes_before: u64,
    /// Bytes of a new one.
    pub bytes_anew: u64,
    /// Entries of all trees.
    pub entries: u64,
    /// Whether the new one has taken the old one's place: it is smaller.
    pub is_replaced: bool,
}

/// Told how far a restore is, and asked whether it shall go on.
pub type WatchRestore<'w> = dyn FnMut(RestoreProgress) -> ControlFlow<()> + 'w;

impl Store {
    /// Copies the store, at work, into a folder that is empty or not there: one version, with everything that was
    /// acknowledged before the call and every transaction whole. Writers go on; the tree file grows by what checkpoints
    /// replace while the copy is made.
    ///
    /// The folder is a store when this returns, read back and found sound, and not before: not after a crash either.
    pub fn backup(&self, to: &Path, watch: &mut crate::tree::Watch<'_>) -> Result<Copied, Error> {
        self.backup_on(&open_disk(to)?, watch)
    }

    /// The same on any disk.
    pub fn backup_on(&self, to: &dyn Disk, watch: &mut crate::tree::Watch<'_>) -> Result<Copied, Error> {
        self.engine().backup(to, watch)
    }

    /// Writes the tree file of a store that is not open anew, as small as it goes, and puts it in the old one's place. An old
    /// one that is as small already stays. Takes as much space as the live data; a crash at any moment leaves the old file or the new one.
    pub fn compact(dir: &Path, options: Options, watch: &mut crate::tree::Watch<'_>) -> Result<Compacted, Error> {
        refuse_unless_store(dir)?;
        Store::compact_on(Arc::new(open_disk(dir)?), options, watch)
    }

    /// The same on any disk.
    pub fn compact_on(
        disk: Arc<dyn Disk>,
        options: Options,
        watch: &mut crate::tree::Watch<'_>,
    ) -> Result<Compacted, Error> {
        let (store, _) = Store::open_on(disk, options)?;
        // The store is closed behind the new file's back: it takes no writes any more, and writes no checkpoint.
        store.engine().compact(watch)
    }

    /// Bytes of the tree file of the store in a folder.
    pub fn tree_bytes(dir: &Path) -> Result<u64, Error> {
        refuse_unless_store(dir)?;
        let context = |error| Error::io(format!("open {TREE_NAME}"), error);
        let file = open_disk(dir)?.open(TREE_NAME, false, Access::ReadOnly).map_err(context)?;
        file.len().map_err(context)
    }

    /// Copies a backup, or any store that is not open, into a folder that is empty or not there. The backup is only
    /// read. The folder is a store when this returns, read back and found sound, and not before.
    pub fn restore(from: &Path, to: &Path, watch: &mut WatchRestore<'_>) -> Result<Restored, Error> {
        refuse_unless_store(from)?;
        Store::restore_on(&open_disk(from)?, &open_disk(to)?, watch)
    }

    /// The same between any two disks.
    pub fn restore_on(from: &dyn Disk, to: &dyn Disk, watch: &mut WatchRestore<'_>) -> Result<Restored, Error> {
        let _lock = lock_source(from)?;
        let unfinished = Unfinished::begin(to)?;
        let mut copying = Copying { from, to, progress: RestoreProgress::default(), watch };
        let names = from.list().map_err(|error| Error::io("list the backup", error))?;
        // The tree file is the first: its unfinished name marks the folder.
        for SourceFile { name, file } in copying.open_all(&names)? {
            copying.file(&name, &*file)?;
        }
        let bytes = copying.progress.bytes;
        copying.progress.is_verifying = true;
        copying.tell()?;
        let (version, entries) = check(to)?;
        unfinished.finish()?;
        Ok(Restored { version, entries, bytes })
    }
}

/// One restore on its way.
struct Copying<'c, 'w> {
    from: &'c dyn Disk,
    to: &'c dyn Disk,
    progress: RestoreProgress,
    watch: &'c mut WatchRestore<'w>,
}

/// A file to be copied, and its name in the new folder.
struct SourceFile {
    name: String,
    file: Arc<dyn DiskFile>,
}

impl Copying<'_, '_> {
    /// The files of a store among these names, the tree file first.
    fn open_all(&mut self, names: &[String]) -> Result<Vec<SourceFile>, Error> {
        let logs = names.iter().filter(|name| log::is_segment(name)).map(String::as_str);
        let mut files = Vec::new();
        for name in std::iter::once(TREE_NAME).chain(logs) {
            let context = |error| Error::io(format!("open {name}"), error);
            let file = self.from.open(name, false, Access::ReadOnly).map_err(context)?;
            self.progress.bytes_total += file.len().map_err(context)?;
            let new_name = if name == TREE_NAME { PART_NAME } else { name };
            files.push(SourceFile { name: new_name.to_string(), file });
        }
        Ok(files)
    }

    fn file(&mut self, name: &str, source: &dyn DiskFile) -> Result<(), Error> {
        let context = |error| Error::io(format!("copy {name}"), error);
        let target = self.to.open(name, true, Access::Buffered).map_err(context)?;
        self.to.sync_dir().map_err(context)?;
        let (mut at, len) = (0, source.len().map_err(context)?);
        let mut piece = vec![0; PIECE_BYTES];
        while at < len {
            let count = (len - at).min(PIECE_BYTES as u64);
            let piece = &mut piece[..count as usize];
            source.read_exact_at(piece, at).map_err(context)?;
            target.write_all_at(piece, at).map_err(context)?;
            // Left to the last sync, gigabytes would hold up whoever else writes to this disk.
            target.sync_range(at, count).map_err(context)?;
            at += count;
            self.progress.bytes += count;
            self.tell()?;
        }
        target.sync_data().map_err(context)
    }

    fn tell(&mut self) -> Result<(), Error> {
        match (self.watch)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(given_up()),
        }
    }
}

/// Reads back a folder that is about to be a store. The last version, and the tree's entries.
fn check(disk: &dyn Disk) -> Result<(Version, u64), Error> {
    let Examination { newest, older, log_fault, version, torn_meta, .. } = look(Access::Buffered, disk, PART_NAME)?;
    if let Some(fault) = torn_meta {
        tracing::warn!(%fault, "one of the two meta pages is damaged; going on from the other");
    }
    let entries = newest.trees.iter().map(|tree| tree.info.entries).sum();
    let older_faults = older.map(|older| older.faults).unwrap_or_default();
    match newest.faults.into_iter().chain(older_faults).chain(log_fault).next() {
        Some(fault) => Err(fault),
        None => Ok((version, entries)),
    }
}
