//! A disk under a process that is killed.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "these are tests")]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use store::disk::{Access, DirectoryLock, Disk, DiskFile, Map, SystemDisk};

/// Simulates a killed process: after so many operations no further change to a file takes effect. Earlier changes stay, because
/// the kernel keeps what a killed process has written.
pub struct Dying {
    disk: SystemDisk,
    left: Arc<AtomicI64>,
}

struct DyingFile {
    file: Arc<dyn DiskFile>,
    left: Arc<AtomicI64>,
}

fn alive(left: &AtomicI64) -> io::Result<()> {
    if left.fetch_sub(1, Ordering::AcqRel) > 0 { Ok(()) } else { Err(io::Error::other("the process is killed")) }
}

impl Disk for Dying {
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(name, create, access)?;
        Ok(Arc::new(DyingFile { file, left: Arc::clone(&self.left) }))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        alive(&self.left)?;
        self.disk.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        alive(&self.left)?;
        self.disk.rename(from, to)
    }
    fn sync_dir(&self) -> io::Result<()> {
        alive(&self.left)?;
        self.disk.sync_dir()
    }
    fn lock(&self, name: &str) -> io::Result<DirectoryLock> {
        self.disk.lock(name)
    }
}

impl DiskFile for DyingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        alive(&self.left)?;
        self.file.write_at(bytes, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        alive(&self.left)?;
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        alive(&self.left)?;
        self.file.sync_data()
    }
    fn sync_range(&self, start: u64, len: u64) -> io::Result<()> {
        self.file.sync_range(start, len)
    }
    fn map(&self, reserve: u64) -> io::Result<Map> {
        self.file.map(reserve)
    }
}

impl Dying {
    /// A disk over the folder that dies after `left` more operations.
    pub fn new(folder: &Path, left: &Arc<AtomicI64>) -> Dying {
        Dying { disk: SystemDisk::new(folder).unwrap(), left: Arc::clone(left) }
    }
}
