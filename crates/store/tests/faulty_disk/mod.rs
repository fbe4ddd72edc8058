//! A disk whose faults are switched on and off while a store runs on it.

#![allow(clippy::unwrap_used, dead_code)] // Shared by several tests, none of which uses all of it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use store::disk::{Access, Disk, DiskFile, SystemDisk};

use super::hooked_disk::{HookedDisk, Hooks};

/// The faults, which can be switched while the store runs.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) log_writes_fail: AtomicBool,
    pub(crate) log_syncs_fail: AtomicBool,
    pub(crate) tree_syncs_fail: AtomicBool,
    /// Syncs of the tree file fail with "no space": delayed allocation, or a quota.
    pub(crate) tree_syncs_want_space: AtomicBool,
    /// Bytes by which files may still grow in total.
    pub(crate) room: AtomicI64,
    /// The disk says how much room it has.
    pub(crate) tells_room: AtomicBool,
    /// Every other write is short, every fourth interrupted.
    pub(crate) is_stuttering: AtomicBool,
    writes: AtomicU64,
}

pub(crate) type FaultyDisk = HookedDisk<Faults>;

/// A disk without faults and with unlimited space.
pub(crate) fn faulty(directory: &Path) -> (FaultyDisk, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    faults.room.store(i64::MAX / 2, Ordering::Relaxed);
    (HookedDisk::new(directory, &faults), faults)
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

fn is_log(name: &str) -> bool {
    name.ends_with(".log") || name.ends_with(".new") && name.starts_with('0')
}

impl Faults {
    fn grow(&self, file: &dyn DiskFile, to: u64) -> io::Result<()> {
        // Space that another file freed, or this file when it was truncated, is available again.
        let growth = to as i64 - file.len()? as i64;
        if growth > 0 && self.room.fetch_sub(growth, Ordering::Relaxed) < growth {
            self.room.fetch_add(growth, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl Hooks for Faults {
    fn open(&self, _name: &str, access: Access) -> io::Result<()> {
        // As a file system without direct access: these tests cover buffered I/O, other tests direct I/O.
        if access == Access::Direct { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(()) }
    }
    fn remove(&self, disk: &SystemDisk, name: &str) -> io::Result<()> {
        let len = disk.open(name, false, Access::Buffered)?.len()?;
        self.room.fetch_add(len as i64, Ordering::Relaxed);
        disk.remove(name)
    }
    fn free_bytes(&self, _disk: &SystemDisk) -> io::Result<Option<u64>> {
        let room = self.tells_room.load(Ordering::Relaxed).then(|| self.room.load(Ordering::Relaxed).max(0) as u64);
        Ok(room)
    }
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let count = self.writes.fetch_add(1, Ordering::Relaxed);
        if is_log(name) && self.log_writes_fail.load(Ordering::Relaxed) {
            return Err(eio());
        }
        self.grow(file, offset + bytes.len() as u64)?;
        let is_stuttering = self.is_stuttering.load(Ordering::Relaxed);
        match count % 4 {
            0 if is_stuttering => Err(io::ErrorKind::Interrupted.into()),
            1 | 3 if is_stuttering => file.write_at(&bytes[..bytes.len().div_ceil(3)], offset),
            _ => file.write_at(bytes, offset),
        }
    }
    fn set_len(&self, _name: &str, file: &dyn DiskFile, len: u64) -> io::Result<()> {
        self.grow(file, len)?;
        file.set_len(len)
    }
    fn allocate(&self, _name: &str, file: &dyn DiskFile, start: u64, len: u64) -> io::Result<()> {
        self.grow(file, start + len)?;
        file.allocate(start, len)
    }
    fn sync_data(&self, name: &str, file: &dyn DiskFile) -> io::Result<()> {
        if !is_log(name) && self.tree_syncs_want_space.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let fails = if is_log(name) { &self.log_syncs_fail } else { &self.tree_syncs_fail };
        if fails.load(Ordering::Relaxed) { Err(eio()) } else { file.sync_data() }
    }
}
