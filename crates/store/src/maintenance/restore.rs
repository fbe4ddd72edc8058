//! Restore: a verified copy of a backup, or of any closed store.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use super::examine::{Examination, look};
use crate::base::error::StoreError;
use crate::base::key::Version;
use crate::base::limits::TREE_NAME;
use crate::disk::{Access, Disk, DiskFile};
use crate::engine::lifecycle::at_rest::{lock_source, refuse_unless_store};
use crate::engine::lifecycle::folder::{self, FolderLock, PART_NAME, Unfinished, open_disk};
use crate::engine::lifecycle::recovery::usable_metas;
use crate::engine::options::StoreOptions;
use crate::log;
use crate::store::Store;
use crate::tree::{Copied, TreeFile, given_up};

/// Bytes copied at once, between two progress reports.
const PIECE_BYTES: usize = 1 << 20;

/// Progress of a restore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RestoreProgress {
    /// Bytes copied.
    pub bytes: u64,
    /// Bytes to copy in all.
    pub bytes_total: u64,
    /// Everything is copied and is being read back.
    pub is_verifying: bool,
}

/// Receives the progress of a restore. `Break` cancels it.
pub type WatchRestore<'w> = dyn FnMut(RestoreProgress) -> ControlFlow<()> + 'w;

impl Store {
    /// Copies a backup, or any closed store, into a folder that is empty or missing. The source is only read. The
    /// folder becomes a store only when this returns, after the copy was read back and verified.
    pub fn restore(from: &Path, to: &Path, watch: &mut WatchRestore<'_>) -> Result<Copied, StoreError> {
        refuse_unless_store(from)?;
        let from = open_disk(from)?;
        folder::make(to, |to| restore(&from, to, watch))
    }

    /// The same between any two disks.
    pub fn restore_on(from: &dyn Disk, to: &dyn Disk, watch: &mut WatchRestore<'_>) -> Result<Copied, StoreError> {
        Ok(restore(from, to, watch)?.0)
    }
}

fn restore(from: &dyn Disk, to: &dyn Disk, watch: &mut WatchRestore<'_>) -> Result<(Copied, FolderLock), StoreError> {
    let _lock = lock_source(from)?;
    let unfinished = Unfinished::begin(to)?;
    let mut copying = Copying { from, to, progress: RestoreProgress::default(), watch };
    let names = from.list().map_err(|error| StoreError::io("list the backup", error))?;
    // The tree file comes first: its unfinished name marks the folder as incomplete.
    for SourceFile { name, file } in copying.open_all(&names)? {
        copying.file(&name, &*file)?;
    }
    let bytes = copying.progress.bytes;
    copying.progress.is_verifying = true;
    copying.report()?;
    let (version, entries) = check(to)?;
    begin_history(to, version)?;
    Ok((Copied { version, entries, bytes }, unfinished.finish()?))
}

/// A restore in progress.
struct Copying<'c, 'w> {
    from: &'c dyn Disk,
    to: &'c dyn Disk,
    progress: RestoreProgress,
    watch: &'c mut WatchRestore<'w>,
}

/// A file to copy, with its name in the new folder.
struct SourceFile {
    name: String,
    file: Arc<dyn DiskFile>,
}

impl Copying<'_, '_> {
    /// The store's files among these names, the tree file first.
    fn open_all(&mut self, names: &[String]) -> Result<Vec<SourceFile>, StoreError> {
        let logs = names.iter().filter(|name| log::is_segment(name)).map(String::as_str);
        let mut files = Vec::new();
        for name in std::iter::once(TREE_NAME).chain(logs) {
            let context = |error| StoreError::io(format!("open {name}"), error);
            let file = self.from.open(name, false, Access::ReadOnly).map_err(context)?;
            self.progress.bytes_total += file.len().map_err(context)?;
            let new_name = if name == TREE_NAME { PART_NAME } else { name };
            files.push(SourceFile { name: new_name.to_string(), file });
        }
        Ok(files)
    }

    fn file(&mut self, name: &str, source: &dyn DiskFile) -> Result<(), StoreError> {
        let context = |error| StoreError::io(format!("copy {name}"), error);
        let target = self.to.open(name, true, Access::Buffered).map_err(context)?;
        self.to.sync_dir().map_err(context)?;
        let (mut at, len) = (0, source.len().map_err(context)?);
        let mut piece = vec![0; PIECE_BYTES];
        while at < len {
            let count = (len - at).min(PIECE_BYTES as u64);
            let piece = &mut piece[..count as usize];
            source.read_exact_at(piece, at).map_err(context)?;
            target.write_all_at(piece, at).map_err(context)?;
            // Otherwise the last sync would write gigabytes at once and delay all other writers of this disk.
            target.sync_range(at, count).map_err(context)?;
            at += count;
            self.progress.bytes += count;
            self.report()?;
        }
        target.sync_data().map_err(context)
    }

    fn report(&mut self) -> Result<(), StoreError> {
        match (self.watch)(self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(given_up()),
        }
    }
}

/// Clients know versions that the source gave after the backup, as positions in its changes and as ETags. The copy must not give them
/// again to other changes: it goes on at the microseconds since 1970, which no store counts up to whose commits are fewer than a
/// million a second. If its log holds changes, it is no backup but a store at rest, and keeps its versions.
fn begin_history(disk: &dyn Disk, version: Version) -> Result<(), StoreError> {
    let opening = TreeFile::open(disk, PART_NAME, StoreOptions::default().map_bytes)?;
    let (index, _) = usable_metas(disk, &opening)?;
    let file = opening.kept_small().choose(index)?;
    let (in_tree, log_start) = (file.view().meta().version, file.view().meta().log_start);
    if in_tree == version {
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_micros() as u64);
        // Both meta pages: without the newer one, versions would be missing between the trees and the log.
        for _ in 0..2 {
            file.begin(Box::new(|_, _, _| Ok(())))?.finish(Version(now.max(version.0 + 1)), log_start)?;
        }
    }
    Ok(())
}

/// Reads back a folder before it becomes a store. Returns the last version and the number of entries in the tree.
fn check(disk: &dyn Disk) -> Result<(Version, u64), StoreError> {
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
