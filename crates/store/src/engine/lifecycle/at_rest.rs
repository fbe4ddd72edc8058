//! Access to a store that is not open: whether it exists, and the lock that keeps other processes from opening it while
//! it is read.

use std::io;
use std::path::Path;

use super::folder::{FolderLock, lock};
use crate::base::error::StoreError;
use crate::base::limits::{LOCK_NAME, TREE_NAME};
use crate::disk::Disk;

/// Whether this directory holds a store.
pub(crate) fn is_store(dir: &Path) -> bool {
    dir.join(TREE_NAME).is_file()
}

/// Returns an error if the folder holds no store.
pub(crate) fn refuse_unless_store(dir: &Path) -> Result<(), StoreError> {
    if is_store(dir) {
        return Ok(());
    }
    let source = io::Error::new(io::ErrorKind::NotFound, "no store in this folder");
    Err(StoreError::io(format!("open {}", dir.display()), source))
}

/// Keeps other processes from opening the source. A source that was never opened has no lock file, and none is created.
/// In this case, and on a read-only file system, the tree file itself is locked.
pub(crate) fn lock_source(from: &dyn Disk) -> Result<FolderLock, StoreError> {
    let names = from.list().map_err(|error| StoreError::io("list the store's files", error))?;
    if !names.iter().any(|name| name == LOCK_NAME) {
        return FolderLock::of_tree(from);
    }
    match lock(from) {
        Err(StoreError::Io { source, .. })
            if matches!(source.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) =>
        {
            FolderLock::of_tree(from)
        }
        locked => locked,
    }
}
