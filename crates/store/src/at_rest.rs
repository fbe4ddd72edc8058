//! A store that is not open: whether one is there, and how it is kept from being opened while somebody looks at it.

use std::io;
use std::path::Path;

use crate::disk::{Disk, SystemDisk};
use crate::engine::limits::{LOCK_NAME, TREE_NAME};
use crate::error::Error;
use crate::folder::{FolderLock, lock};

/// Whether a store was made in this directory.
pub(crate) fn is_store(dir: &Path) -> bool {
    dir.join(TREE_NAME).is_file()
}

/// Refuses a folder without a store.
pub(crate) fn refuse_unless_store(dir: &Path) -> Result<(), Error> {
    if is_store(dir) {
        return Ok(());
    }
    let source = io::Error::new(io::ErrorKind::NotFound, "no store in this folder");
    Err(Error::io(format!("open {}", dir.display()), source))
}

/// A folder as a disk; made where it is not there.
pub(crate) fn open_disk(dir: &Path) -> Result<SystemDisk, Error> {
    SystemDisk::new(dir).map_err(|error| Error::io(format!("make the directory {}", dir.display()), error))
}

/// Keeps the source from being opened meanwhile. One that was never opened has no file for it, and gets none: there, and
/// where nothing can be written, the tree file's own lock does it.
pub(crate) fn lock_source(from: &dyn Disk) -> Result<FolderLock, Error> {
    let names = from.list().map_err(|error| Error::io("list the store's files", error))?;
    if !names.iter().any(|name| name == LOCK_NAME) {
        return FolderLock::of_tree(from);
    }
    match lock(from) {
        Err(Error::Io { source, .. })
            if matches!(source.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) =>
        {
            FolderLock::of_tree(from)
        }
        locked => locked,
    }
}
