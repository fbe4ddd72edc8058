//! A disk whose faults are switched on and off while a store runs on it.

#![allow(clippy::unwrap_used, dead_code)] // Shared by several tests, none of which uses all of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use store::disk::{Access, DirectoryLock, Disk, DiskFile, Map, SystemDisk};

/// What goes wrong, switched on and off while the store runs.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) log_writes_fail: AtomicBool,
    pub(crate) log_syncs_fail: AtomicBool,
    pub(crate) tree_syncs_fail: AtomicBool,
    /// Syncs of the tree file fail for want of space: delayed allocation, a quota.
    pub(crate) tree_syncs_want_space: AtomicBool,
    /// Bytes by which files may still grow.
    pub(crate) room: AtomicI64,
    /// Every other write is short, every fourth interrupted.
    pub(crate) is_stuttering: AtomicBool,
    writes: AtomicU64,
}

pub(crate) struct FaultyDisk {
    pub(crate) disk: SystemDisk,
    pub(crate) faults: Arc<Faults>,
}

struct FaultyFile {
    file: Arc<dyn DiskFile>,
    is_log: bool,
    faults: Arc<Faults>,
}

impl Disk for FaultyDisk {
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if access == Access::Direct {
            // As a file system without it; so the buffered way is under test here, the direct one elsewhere.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = self.disk.open(name, create, access)?;
        let is_log = name.ends_with(".log") || name.ends_with(".new") && name.starts_with('0');
        Ok(Arc::new(FaultyFile { file, is_log, faults: Arc::clone(&self.faults) }))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        let len = self.disk.open(name, false, Access::Buffered)?.len()?;
        self.faults.room.fetch_add(len as i64, Ordering::Relaxed);
        self.disk.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
    fn lock(&self, name: &str) -> io::Result<DirectoryLock> {
        self.disk.lock(name)
    }
}

impl FaultyDisk {
    /// A sound disk with all the room there is.
    pub(crate) fn new(disk: SystemDisk) -> FaultyDisk {
        let faults = Arc::new(Faults::default());
        faults.room.store(i64::MAX / 2, Ordering::Relaxed);
        FaultyDisk { disk, faults }
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl FaultyFile {
    fn grow(&self, to: u64) -> io::Result<()> {
        // What another file of the directory gives back, or this one by being cut, is there for the next.
        let growth = to as i64 - self.file.len()? as i64;
        if growth > 0 && self.faults.room.fetch_sub(growth, Ordering::Relaxed) < growth {
            self.faults.room.fetch_add(growth, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let count = self.faults.writes.fetch_add(1, Ordering::Relaxed);
        if self.is_log && self.faults.log_writes_fail.load(Ordering::Relaxed) {
            return Err(eio());
        }
        self.grow(offset + bytes.len() as u64)?;
        let is_stuttering = self.faults.is_stuttering.load(Ordering::Relaxed);
        match count % 4 {
            0 if is_stuttering => Err(io::ErrorKind::Interrupted.into()),
            1 | 3 if is_stuttering => self.file.write_at(&bytes[..bytes.len().div_ceil(3)], offset),
            _ => self.file.write_at(bytes, offset),
        }
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.grow(len)?;
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        if !self.is_log && self.faults.tree_syncs_want_space.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let fails = if self.is_log { &self.faults.log_syncs_fail } else { &self.faults.tree_syncs_fail };
        if fails.load(Ordering::Relaxed) { Err(eio()) } else { self.file.sync_data() }
    }
    fn sync_range(&self, start: u64, len: u64) -> io::Result<()> {
        self.file.sync_range(start, len)
    }
    fn map(&self, reserve: u64) -> io::Result<Map> {
        self.file.map(reserve)
    }
}
