//! The real disk with hooks that replace single operations; operations without a hook are passed to the disk.
//!
//! It serves for a few faults at certain places. The disk that loses unsynced data is in `simulation/`.

#![allow(dead_code)] // Shared by several tests, none of which uses all of it.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use store::disk::{Access, DirectoryLock, Disk, DiskFile, Map, ReadQueue, SystemDisk};

/// Replaces operations of the disk. `name` is the name under which the file was opened.
pub(crate) trait Hooks: Send + Sync + 'static {
    /// Whether a file can be opened with this access.
    fn open(&self, _name: &str, _access: Access) -> io::Result<()> {
        Ok(())
    }
    fn remove(&self, disk: &SystemDisk, name: &str) -> io::Result<()> {
        disk.remove(name)
    }
    fn free_bytes(&self, disk: &SystemDisk) -> io::Result<Option<u64>> {
        disk.free_bytes()
    }
    fn read_at(&self, _name: &str, file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buffer, offset)
    }
    fn write_at(&self, _name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }
    fn set_len(&self, _name: &str, file: &dyn DiskFile, len: u64) -> io::Result<()> {
        file.set_len(len)
    }
    fn allocate(&self, _name: &str, file: &dyn DiskFile, start: u64, len: u64) -> io::Result<()> {
        file.allocate(start, len)
    }
    fn len(&self, _name: &str, file: &dyn DiskFile) -> io::Result<u64> {
        file.len()
    }
    fn len_max(&self, _name: &str) -> u64 {
        u64::MAX
    }
    fn sync_data(&self, _name: &str, file: &dyn DiskFile) -> io::Result<()> {
        file.sync_data()
    }
    fn sync_range(&self, _name: &str, file: &dyn DiskFile, start: u64, len: u64) -> io::Result<()> {
        file.sync_range(start, len)
    }
    fn read_queue(
        &self,
        _name: &str,
        file: &Arc<dyn DiskFile>,
        places: usize,
        place_bytes: usize,
    ) -> io::Result<Box<dyn ReadQueue>> {
        file.read_queue(places, place_bytes)
    }
}

/// Writes of batches to the log, which can be held, so that the committers gather the next batch meanwhile, and fail.
#[derive(Default)]
pub(crate) struct BatchWrites(Mutex<Held>);

#[derive(Default)]
struct Held {
    is_on: bool,
    /// Writes since they are held.
    count: u64,
    /// Number of the write that fails.
    fails: Option<u64>,
}

impl BatchWrites {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap()
    }

    /// Holds all writes; the one with the number `fails` will fail.
    pub(crate) fn hold(&self, fails: Option<u64>) {
        *self.held() = Held { is_on: true, count: 0, fails };
    }

    /// Waits until a write is held.
    pub(crate) fn wait_until_held(&self) {
        while self.held().count == 0 {
            std::thread::yield_now();
        }
    }

    pub(crate) fn release(&self) {
        self.held().is_on = false;
    }
}

impl Hooks for BatchWrites {
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        // Segments are prepared by a thread of their own.
        if name.ends_with(".log") && std::thread::current().name() != Some("store-log") {
            let number = {
                let mut held = self.held();
                held.count += 1;
                held.count - 1
            };
            while self.held().is_on {
                std::thread::yield_now();
            }
            if self.held().fails == Some(number) {
                return Err(io::Error::from_raw_os_error(5));
            }
        }
        file.write_at(bytes, offset)
    }
}

/// See the module documentation.
pub(crate) struct HookedDisk<H> {
    disk: SystemDisk,
    hooks: Arc<H>,
}

impl<H: Hooks> HookedDisk<H> {
    pub(crate) fn new(directory: &Path, hooks: &Arc<H>) -> HookedDisk<H> {
        HookedDisk { disk: SystemDisk::new(directory).unwrap(), hooks: Arc::clone(hooks) }
    }
}

struct HookedFile<H> {
    name: String,
    file: Arc<dyn DiskFile>,
    hooks: Arc<H>,
}

impl<H: Hooks> Disk for HookedDisk<H> {
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        self.hooks.open(name, access)?;
        let file = self.disk.open(name, create, access)?;
        Ok(Arc::new(HookedFile { name: name.to_string(), file, hooks: Arc::clone(&self.hooks) }))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.hooks.remove(&self.disk, name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.hooks.free_bytes(&self.disk)
    }
    fn lock(&self, name: &str) -> io::Result<DirectoryLock> {
        self.disk.lock(name)
    }
}

impl<H: Hooks> DiskFile for HookedFile<H> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.hooks.read_at(&self.name, &*self.file, buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.hooks.write_at(&self.name, &*self.file, bytes, offset)
    }
    fn len(&self) -> io::Result<u64> {
        self.hooks.len(&self.name, &*self.file)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.hooks.set_len(&self.name, &*self.file, len)
    }
    fn allocate(&self, start: u64, len: u64) -> io::Result<()> {
        self.hooks.allocate(&self.name, &*self.file, start, len)
    }
    fn len_max(&self) -> u64 {
        self.hooks.len_max(&self.name)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.hooks.sync_data(&self.name, &*self.file)
    }
    fn sync_range(&self, start: u64, len: u64) -> io::Result<()> {
        self.hooks.sync_range(&self.name, &*self.file, start, len)
    }
    fn map(&self, reserve: u64) -> io::Result<Map> {
        self.file.map(reserve)
    }
    fn read_queue(&self, places: usize, place_bytes: usize) -> io::Result<Box<dyn ReadQueue>> {
        self.hooks.read_queue(&self.name, &self.file, places, place_bytes)
    }
}
