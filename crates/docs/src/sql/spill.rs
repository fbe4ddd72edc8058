//! The room on disk for what executions sort and group beyond their memory.
//!
//! Files have no name from their creation on (`O_TMPFILE`, or where the file system has none, unlinked at once): whatever
//! ends the process, nothing of them stays. All executions share one bound; what a file took is given back when it is
//! closed. Nothing here is ever synced: what is written is read again by the same execution or by nobody.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::{QueryError, SPILLED};

/// A folder for files of executions, and how much all of them may take. Shared by those that may spill ([`super::Budget::spill`]).
#[derive(Debug)]
pub struct SpillSpace {
    folder: PathBuf,
    bytes_max: u64,
    used: AtomicU64,
    written: AtomicU64,
}

impl SpillSpace {
    /// Up to so many bytes in a folder that is there.
    pub fn new(folder: impl Into<PathBuf>, bytes_max: u64) -> SpillSpace {
        SpillSpace { folder: folder.into(), bytes_max, used: AtomicU64::new(0), written: AtomicU64::new(0) }
    }

    /// Bytes that files take now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// All that is left, for one who gives back what it does not need.
    pub(crate) fn take_rest(self: &Arc<Self>) -> SpaceTaken {
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |_| Some(self.bytes_max));
        let used = taken.unwrap_or(self.bytes_max);
        SpaceTaken { space: Arc::clone(self), bytes: self.bytes_max.saturating_sub(used) }
    }

    /// A new file.
    pub(super) fn file(self: &Arc<Self>) -> Result<SpillFile, QueryError> {
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

/// Space that somebody has, until it is dropped.
#[derive(Debug)]
pub(crate) struct SpaceTaken {
    space: Arc<SpillSpace>,
    bytes: u64,
}

impl SpaceTaken {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back what is more than this.
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

/// A file without a name, written at its end and read anywhere.
#[derive(Debug)]
pub(super) struct SpillFile {
    space: Arc<SpillSpace>,
    file: File,
    /// Only what was counted is written, so it is what is given back too.
    end: AtomicU64,
}

impl SpillFile {
    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Appends. One writer at a time.
    pub(super) fn append(&self, bytes: &[u8]) -> Result<(), QueryError> {
        self.space.take(bytes.len() as u64)?;
        let at = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(self.file.write_all_at(bytes, at)?)
    }

    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), QueryError> {
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
        assert_eq!(refused, "the query exceeds its limit of 10 bytes on disk for what queries sort and group");
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
        let told = "what the query sorts and groups has no room on disk: No space left on device (os error 28)";
        assert_eq!(error.to_string(), told);
        drop(file);
        assert_eq!(space.used(), 0);
    }
}
