//! A disk in memory, whose maps are plain memory: for tools that check memory accesses and not files.
//!
//! On a real disk a checkpoint's writes reach a reader's slices through the kernel, where no tool sees them. Here they
//! are copies from memory to memory. So the thread sanitizer and Miri report a page that is written while a slice of it
//! lives, or before its last reader is certain to be gone. Miri has no mapped files at all.
//!
//! Nothing is ever durable.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use super::fixed_memory::{ALIGN, FixedMemory};
use super::{Access, DirectoryLock, Disk, DiskFile, HeldLock, Map};
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Mutex, MutexGuard, PoisonError};

/// Free space reported.
const FREE_BYTES: u64 = 1 << 40;

/// See the module's text.
pub struct MemoryDisk {
    map_bytes: usize,
    names: Mutex<BTreeMap<String, Arc<MemoryFile>>>,
    is_locked: Arc<AtomicBool>,
}

impl MemoryDisk {
    /// An empty disk. A mapped file has at most this many bytes, all allocated when it is mapped.
    pub fn new(map_bytes: usize) -> MemoryDisk {
        let map_bytes = map_bytes.next_multiple_of(ALIGN).max(ALIGN);
        MemoryDisk { map_bytes, names: Mutex::default(), is_locked: Arc::default() }
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Arc<MemoryFile>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Releases the lock when it is dropped.
struct Lock(Arc<AtomicBool>);

impl HeldLock for Lock {}

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Disk for MemoryDisk {
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if access == Access::Direct {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut names = self.names();
        if let Some(file) = names.get(name) {
            return Ok(file.clone());
        }
        if !create {
            return Err(io::ErrorKind::NotFound.into());
        }
        let file = Arc::new(MemoryFile { map_bytes: self.map_bytes, content: Mutex::new(Content::Alone(Vec::new())) });
        names.insert(name.to_string(), file.clone());
        Ok(file)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names().keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.names().remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut names = self.names();
        let file = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        names.insert(to.to_string(), file);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(Some(FREE_BYTES))
    }

    fn lock(&self, _name: &str) -> io::Result<DirectoryLock> {
        if self.is_locked.swap(true, Ordering::Acquire) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(Lock(Arc::clone(&self.is_locked))))
    }
}

struct MemoryFile {
    map_bytes: usize,
    /// Locked by reads and writes, not by reads through a map.
    content: Mutex<Content>,
}

enum Content {
    Alone(Vec<u8>),
    Mapped(Arc<FixedMemory>),
}

impl MemoryFile {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let offset = offset as usize;
        Ok(match &*self.content() {
            Content::Mapped(memory) => memory.read(buffer, offset),
            Content::Alone(bytes) => {
                let there = bytes.get(offset..).unwrap_or_default();
                let count = buffer.len().min(there.len());
                buffer[..count].copy_from_slice(&there[..count]);
                count
            }
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let offset = offset as usize;
        match &mut *self.content() {
            Content::Mapped(memory) => memory.write(bytes, offset)?,
            Content::Alone(content) => {
                let end = offset + bytes.len();
                content.resize(content.len().max(end), 0);
                content[offset..end].copy_from_slice(bytes);
            }
        }
        Ok(bytes.len())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(match &*self.content() {
            Content::Mapped(memory) => memory.len(),
            Content::Alone(bytes) => bytes.len() as u64,
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match &mut *self.content() {
            Content::Mapped(memory) => memory.set_len(len as usize),
            Content::Alone(bytes) => {
                bytes.resize(len as usize, 0);
                Ok(())
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_range(&self, _start: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn map(&self, reserve: u64) -> io::Result<Map> {
        let mut content = self.content();
        if let Content::Alone(bytes) = &*content {
            let memory = FixedMemory::zeroed(self.map_bytes)?;
            memory.write(bytes, 0)?;
            *content = Content::Mapped(Arc::new(memory));
        }
        match &*content {
            Content::Mapped(memory) => Ok(Map::of_memory(Arc::clone(memory), reserve)),
            Content::Alone(_) => Err(io::ErrorKind::Other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is_mapped: bool) {
        let disk = MemoryDisk::new(10_000);
        assert_eq!(
            disk.open("a", false, Access::Buffered).err().map(|error| error.kind()),
            Some(io::ErrorKind::NotFound)
        );
        let file = disk.open("a", true, Access::Buffered).unwrap();
        let map = is_mapped.then(|| file.map(1 << 30).unwrap());
        file.write_all_at(b"hello", 4094).unwrap();
        if let Some(map) = map {
            assert_eq!((map.bytes(0, 1), map.reserve()), (None, 12_288));
            assert_eq!((map.cover().unwrap(), map.bytes(4093, 6)), (4099, Some(&b"\0hello"[..])));
            assert_eq!(map.bytes(4093, 7), None);
            let full = file.write_all_at(b"hello", 12_285).unwrap_err();
            assert_eq!((full.kind(), file.len().unwrap()), (io::ErrorKind::StorageFull, 4099));
        }
        file.set_len(4096).unwrap();
        file.set_len(5000).unwrap();
        let mut bytes = [1; 3];
        file.read_exact_at(&mut bytes, 4095).unwrap();
        assert_eq!(bytes, *b"e\0\0");
        assert_eq!((file.read_at(&mut bytes, 4998).unwrap(), file.read_at(&mut bytes, 9000).unwrap()), (2, 0));
        assert_eq!(file.map(1 << 30).unwrap().bytes(4094, 2), Some(&b"he"[..]));
    }

    #[test]
    fn files_grow_and_are_cut_mapped_or_not() {
        check(false);
        check(true);
    }
}
