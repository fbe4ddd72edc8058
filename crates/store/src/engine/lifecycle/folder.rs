//! A store's folder during its creation. It must not be mistaken for a store before it is complete.
//!
//! 1. The lock is taken and the folder checked: it must be empty, or hold the remains of an unfinished copy.
//! 2. [`PART_NAME`] is created before anything else. A folder with this file and without a tree file cannot be opened:
//!    it would become a new, empty store in place of the copy.
//! 3. Everything is written and synced, names included.
//! 4. [`PART_NAME`] is renamed to the tree file, and the directory is synced. This step makes the folder a store.
//!
//! A failure before step 4 removes what was written. A crash leaves it, and the next copy into the same folder removes it.
//!
//! All this happens in a hidden folder that is renamed at the end ([`make`]), so a killed copy leaves nothing under the name of
//! the folder. The steps remain for a folder that exists and is empty: it may be a mount point, which cannot be renamed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use crate::base::error::StoreError;
use crate::base::limits::{LOCK_NAME, TREE_NAME};
use crate::disk::{DirectoryLock, Disk, SystemDisk};
use crate::log;

/// The tree file of an unfinished copy.
pub(crate) const PART_NAME: &str = "tree.part";

/// See the module's text.
pub(crate) struct Unfinished<'d> {
    disk: &'d dyn Disk,
    is_finished: bool,
    lock: FolderLock,
}

impl<'d> Unfinished<'d> {
    /// Step 1.
    pub(crate) fn begin(disk: &'d dyn Disk) -> Result<Unfinished<'d>, StoreError> {
        // Checked before the lock file is created, so that a folder of another program stays unchanged.
        refuse_unless_empty(disk)?;
        let lock = lock(disk)?;
        refuse_unless_empty(disk)?;
        remove_remains(disk)?;
        Ok(Unfinished { disk, is_finished: false, lock })
    }

    /// Step 4. The folder stays locked.
    pub(crate) fn finish(mut self) -> Result<FolderLock, StoreError> {
        let context = |error| StoreError::io(format!("rename {PART_NAME}"), error);
        self.disk.sync_dir().map_err(context)?;
        self.disk.rename(PART_NAME, TREE_NAME).map_err(context)?;
        self.is_finished = true;
        self.disk.sync_dir().map_err(context)?;
        Ok(std::mem::take(&mut self.lock))
    }
}

/// A folder as a disk; created if missing.
pub(crate) fn open_disk(dir: &Path) -> Result<SystemDisk, StoreError> {
    SystemDisk::new(dir).map_err(|error| StoreError::io(format!("make the directory {}", dir.display()), error))
}

/// Makes a folder that gets its name when it is filled. One that exists is filled in place.
pub(crate) fn make<R>(
    to: &Path,
    fill: impl FnOnce(&dyn Disk) -> Result<(R, FolderLock), StoreError>,
) -> Result<R, StoreError> {
    let (Some(parent), Some(name), false) = (to.parent(), to.file_name(), to.exists()) else {
        return Ok(fill(&open_disk(to)?)?.0);
    };
    let part = parent.join([OsStr::new("."), name, OsStr::new(".part")].into_iter().collect::<OsString>());
    let disk = open_disk(&part)?;
    let context = |error| StoreError::io(format!("rename {} to {}", part.display(), to.display()), error);
    let made = remove_unnamed(&disk).and_then(|()| fill(&disk)).and_then(|(filled, _lock)| {
        std::fs::rename(&part, to).map_err(context)?;
        open_disk(parent)?.sync_dir().map_err(context)?;
        Ok(filled)
    });
    if made.as_ref().is_err_and(|error| !matches!(error, StoreError::Locked)) {
        // If it holds anything else, it stays.
        let _ = disk.remove(LOCK_NAME).and_then(|()| std::fs::remove_dir(&part));
    }
    made
}

/// Removes a copy that was complete and was killed before it got its name.
fn remove_unnamed(disk: &dyn Disk) -> Result<(), StoreError> {
    let _lock = lock(disk)?;
    if !names(disk)?.iter().any(|name| name == TREE_NAME) {
        return Ok(());
    }
    // From here on it is an unfinished copy again, whose removal another attempt completes.
    disk.rename(TREE_NAME, PART_NAME).map_err(|error| StoreError::io("rename an unfinished copy", error))?;
    disk.sync_dir().map_err(|error| StoreError::io("rename an unfinished copy", error))?;
    remove_remains(disk)
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_finished
            && let Err(error) = remove_remains(self.disk)
        {
            tracing::warn!(%error, "cannot remove what an unfinished copy has written");
        }
    }
}

/// Keeps other processes out of a folder, by its lock file and by a lock on the tree file itself: the lock file may be
/// deleted, or be left behind when a store's files are copied by hand.
#[derive(Default)]
pub(crate) struct FolderLock {
    directory: Option<DirectoryLock>,
    tree: Option<DirectoryLock>,
}

impl FolderLock {
    /// For a store that is only read: locks the tree file alone.
    pub(crate) fn of_tree(disk: &dyn Disk) -> Result<FolderLock, StoreError> {
        let mut lock = FolderLock { directory: None, tree: None };
        lock.hold_tree(disk)?;
        Ok(lock)
    }

    /// Releases the lock before another file takes the tree file's name; that file is locked next.
    pub(crate) fn leave_tree(&mut self) {
        self.tree = None;
    }

    /// The locked files that were deleted since.
    pub(crate) fn deleted(&self) -> Vec<String> {
        let locked = [(LOCK_NAME, &self.directory), (TREE_NAME, &self.tree)];
        // If the system cannot say, the next operation of the file meets the error.
        let is_deleted =
            |lock: &Option<DirectoryLock>| lock.as_ref().is_some_and(|lock| matches!(lock.has_name(), Ok(false)));
        locked.into_iter().filter(|(_, lock)| is_deleted(lock)).map(|(name, _)| name.to_string()).collect()
    }

    /// Locks the tree file if there is one.
    pub(crate) fn hold_tree(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        if self.tree.is_none() {
            self.tree = disk.lock_file(TREE_NAME).map_err(|error| refused(TREE_NAME, error))?;
        }
        Ok(())
    }
}

pub(crate) fn lock(disk: &dyn Disk) -> Result<FolderLock, StoreError> {
    let directory = disk.lock(LOCK_NAME).map_err(|error| refused(LOCK_NAME, error))?;
    Ok(FolderLock { directory: Some(directory), ..FolderLock::of_tree(disk)? })
}

fn refused(name: &str, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::WouldBlock => StoreError::Locked,
        _ => StoreError::io(format!("lock the directory by its file `{name}`"), error),
    }
}

fn names(disk: &dyn Disk) -> Result<Vec<String>, StoreError> {
    disk.list().map_err(|error| StoreError::io("list the directory", error))
}

fn is_part(name: &str) -> bool {
    name.strip_prefix(PART_NAME).is_some_and(|rest| rest.is_empty() || rest == ".new")
}

/// Returns an error unless the folder is empty or holds the remains of an unfinished copy.
fn refuse_unless_empty(disk: &dyn Disk) -> Result<(), StoreError> {
    let names = names(disk)?;
    let is_unfinished = names.iter().any(|name| is_part(name));
    let is_ours = |name: &String| name == LOCK_NAME || is_unfinished && (is_part(name) || log::is_segment(name));
    if names.iter().all(is_ours) {
        return Ok(());
    }
    let message = "the folder is not empty; name one that is empty, or that does not exist yet";
    let source = io::Error::new(io::ErrorKind::DirectoryNotEmpty, message);
    Err(StoreError::Io { context: "make a data folder".to_string(), source: source.into() })
}

/// The file that marks the folder as unfinished is removed last.
fn remove_remains(disk: &dyn Disk) -> Result<(), StoreError> {
    let context = |error| StoreError::io("remove an unfinished copy", error);
    let names = names(disk)?;
    if !names.iter().any(|name| is_part(name)) {
        return Ok(());
    }
    for name in names.iter().filter(|name| log::is_segment(name)) {
        disk.remove(name).map_err(context)?;
    }
    disk.sync_dir().map_err(context)?;
    remove_part(disk)
}

/// Removes the unfinished tree file beside a whole one.
pub(crate) fn remove_part(disk: &dyn Disk) -> Result<(), StoreError> {
    let context = |error| StoreError::io("remove an unfinished copy", error);
    let parts: Vec<String> = names(disk)?.into_iter().filter(|name| is_part(name)).collect();
    if parts.is_empty() {
        return Ok(());
    }
    for name in parts {
        disk.remove(&name).map_err(context)?;
    }
    disk.sync_dir().map_err(context)
}

/// Returns an error for a folder that has no tree file but an unfinished copy.
pub(crate) fn refuse_unfinished(disk: &dyn Disk) -> Result<(), StoreError> {
    if names(disk)?.iter().any(|name| is_part(name)) {
        let what = "a backup or restore into this folder did not come to its end: do it again, or empty the folder";
        return Err(StoreError::corrupt(PART_NAME, 0, what));
    }
    Ok(())
}
