//! The disk space for spilled sorts and groups.
//!
//! Files never have a name (`O_TMPFILE`; if the file system does not support it, they are unlinked at once), so no file
//! remains, however the process ends. All executions share one limit; a file's bytes are released when it is closed. Files are
//! never synced: only the execution that wrote a file reads it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::{QueryError, SPILLED};

/// A folder for spill files, and the limit of their total size. Shared by all executions that may spill
/// ([`crate::sql::Budget::spill`]).
#[derive(Debug)]
pub struct SpillSpace {
    folder: PathBuf,
    bytes_max: u64,
    used: AtomicU64,
    written: AtomicU64,
}

impl SpillSpace {
    /// Up to `bytes_max` bytes in an existing folder.
    pub fn new(folder: impl Into<PathBuf>, bytes_max: u64) -> SpillSpace {
        SpillSpace { folder: folder.into(), bytes_max, used: AtomicU64::new(0), written: AtomicU64::new(0) }
    }

    /// Bytes of all current files.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Reserves all remaining space; the holder releases what it does not need.
    pub(crate) fn take_rest(self: &Arc<Self>) -> SpaceTaken {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |_| Some(self.bytes_max));
        let used = taken.unwrap_or(self.bytes_max);
        SpaceTaken { space: Arc::clone(self), bytes: self.bytes_max.saturating_sub(used) }
    }

    /// A new file.
    pub(in crate::sql) fn file(self: &Arc<Self>) -> Result<SpillFile, QueryError> {
        Ok(SpillFile { space: Arc::clone(self), file: tempfile::tempfile_in(&self.folder)?, end: AtomicU64::new(0) })
    }

    fn take(&self, bytes: u64) -> Result<(), QueryError> {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.bytes_max)
        });
        self.written.fetch_add(bytes, Ordering::Relaxed);
        taken.map(drop).map_err(|_| QueryError::Limit { what: SPILLED, limit: self.bytes_max })
    }
}

/// Reserved space, released when dropped.
#[derive(Debug)]
pub(crate) struct SpaceTaken {
    space: Arc<SpillSpace>,
    bytes: u64,
}

impl SpaceTaken {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Releases what exceeds `bytes`.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        self.space.used.fetch_sub(self.bytes.saturating_sub(bytes), Ordering::Relaxed);
        self.bytes = self.bytes.min(bytes);
    }
}

impl Drop for SpaceTaken {
    fn drop(&mut self) {
        self.space.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A file without a name, appended to and read at any place.
#[derive(Debug)]
pub(in crate::sql) struct SpillFile {
    space: Arc<SpillSpace>,
    file: File,
    /// Its length. That many bytes were reserved for it, and are released with it.
    end: AtomicU64,
}

impl SpillFile {
    pub(in crate::sql) fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Appends bytes. Only one writer at a time.
    pub(in crate::sql) fn append(&self, bytes: &[u8]) -> Result<(), QueryError> {
        self.space.take(bytes.len() as u64)?;
        let at = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(self.file.write_all_at(bytes, at)?)
    }

    pub(in crate::sql) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), QueryError> {
        Ok(self.file.read_exact_at(bytes, at)?)
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        self.space.used.fetch_sub(self.end(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_no_name_and_give_back_what_they_took() {
        let folder = tempfile::tempdir().unwrap();
        let space = Arc::new(SpillSpace::new(folder.path(), 10));
        let (first, second) = (space.file().unwrap(), space.file().unwrap());
        first.append(b"abcdef").unwrap();
        second.append(b"gh").unwrap();
        first.append(b"ij").unwrap();
        let mut read = [0; 3];
        first.read(5, &mut read).unwrap();
        assert_eq!((&read, space.used()), (b"fij", 10));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let refused = second.append(b"k").expect_err("the space is full").to_string();
        assert_eq!(
            refused,
            "the query exceeds its limit of 10 bytes on disk, shared by all queries that sort or group"
        );
        drop(first);
        assert_eq!(space.used(), 2);
        second.append(b"kl").unwrap();
        drop(second);
        assert_eq!(space.used(), 0);
    }

    #[test]
    fn a_full_disk_is_told_with_its_reason() {
        let space = Arc::new(SpillSpace::new("/dev", 1 << 20));
        let file = File::options().write(true).open("/dev/full").unwrap();
        let file = SpillFile { space: Arc::clone(&space), file, end: AtomicU64::new(0) };
        let error = file.append(b"x").expect_err("the disk is full");
        assert!(matches!(&error, QueryError::Spill(error) if error.kind() == std::io::ErrorKind::StorageFull));
        let told = "no disk space for the rows that the query sorts and groups: No space left on device (os error 28)";
        assert_eq!(error.to_string(), told);
        drop(file);
        assert_eq!(space.used(), 0);
    }
}
