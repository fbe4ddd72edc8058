//! The disk interface: every file operation of the crate goes through [`Disk`] and [`DiskFile`].
//!
//! There are two reasons for it. Tests run the engine on a simulated disk that loses or tears unsynced writes, or
//! refuses them. And the kernel guarantees that the engine relies on are listed in one place:
//!
//! - A `write_at` is durable after a later `sync_data` of the same file has returned, and not before. After a failed
//!   `sync_data` it is unknown which earlier writes are on the disk, and the success of a second one proves nothing
//!   (the kernel may have dropped the dirty pages: fsync(2), "ERRORS").
//! - A new, renamed or removed name is durable after [`Disk::sync_dir`].
//! - A write through a file opened as [`Access::Direct`] is durable when it returns, unless it grew the file.
//! - `sync_range` writes a range and waits for it, but does not make it durable: the device may keep it in its cache
//!   (sync_file_range(2), "WARNING").
//! - A map sees what `write_at` wrote: both go through the page cache.
//! - A read past the page cache sees it too: dirty pages in its range are written first (open(2), "O_DIRECT").
//!
//! Of this crate it imports only `base::sync`, and it must not know what the files mean.
//!
//! A name is one file in the store's directory; there are no sub-directories. [`SystemDisk`] is the real disk;
//! [`MemoryDisk`] is for tools that check memory accesses.

use std::io;
use std::sync::Arc;

mod bits;
mod fixed_memory;
mod lost;
mod map;
mod memory;
mod reads;
mod residency;
mod ring;
mod system;

pub(crate) use bits::Bits;
pub(crate) use lost::Watched;
pub use map::Map;
pub use memory::MemoryDisk;
pub use reads::ReadQueue;
pub use residency::major_faults;
pub(crate) use residency::memory_bytes;
pub use system::SystemDisk;
pub(crate) use system::end_sleeps_in_time;

/// Alignment of buffer address, offset and length for files of [`Access::Direct`]: the largest logical block size in use.
pub const DIRECT_ALIGN: usize = 4096;

/// Zeros are written in pieces of this size, so that preparing a file never needs a large buffer.
const ZERO_CHUNK: usize = 256 * 1024;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the page cache; durable after `sync_data`.
    Buffered,
    /// The same, for reading only: a backup may be on a read-only file system.
    ReadOnly,
    /// Past the page cache, each write durable when it returns (`O_DIRECT | O_DSYNC`). If the file system does not
    /// support it, `open` fails with `InvalidInput`, and the caller uses `Buffered`.
    Direct,
}

/// Locks the directory for this process until it is dropped.
pub type DirectoryLock = Box<dyn HeldLock>;

/// A held lock of a directory, or of one file of it.
pub trait HeldLock: Send + Sync {
    /// Whether the locked file still has a name; see [`DiskFile::has_name`].
    fn has_name(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// The lock of a disk that belongs to one process.
impl HeldLock for () {}

/// A directory of files.
pub trait Disk: Send + Sync {
    /// Opens a file for reading and, unless [`Access::ReadOnly`], writing. With `create` a missing file is created
    /// (`sync_dir` makes that durable).
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>>;
    /// The names of all files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file, replacing an existing one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes earlier creations, renames and removals durable. After an error it is unknown which are durable, and a
    /// later call need not report the error again.
    ///
    /// Unlike the syncs of the tree file, these need no owner, because no thread relies on another thread's sync. In an
    /// open store only the log's segment supply changes names that matter, and after an error it creates the segment and its
    /// name again. Opening and copying end with the error, and the next start creates the names again. Compaction syncs
    /// beside the segment supply, but does not touch the log, which works with the old and the new tree file.
    fn sync_dir(&self) -> io::Result<()>;
    /// A temporary file of this size with all its space allocated. `None` if such files are not supported; then memory
    /// is used.
    fn scratch(&self, _bytes: u64) -> io::Result<Option<ScratchFile>> {
        Ok(None)
    }
    /// Bytes by which files of this directory can still grow; `None` if unknown.
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
    /// Locks the directory against other processes through a file of this name: `WouldBlock` if another process holds it.
    fn lock(&self, name: &str) -> io::Result<DirectoryLock>;
    /// Locks an existing file, without changing it, against other processes: `WouldBlock` if another process holds it,
    /// `None` if the file does not exist, or if the disk belongs to one process and needs no locks.
    fn lock_file(&self, _name: &str) -> io::Result<Option<DirectoryLock>> {
        Ok(None)
    }
}

/// A file of zeros without a name, so no other process can open it. Its space is allocated, because a write to mapped memory
/// cannot report a full disk.
#[derive(Debug)]
pub struct ScratchFile {
    file: std::fs::File,
    bytes: usize,
}

impl ScratchFile {
    pub(crate) fn file(&self) -> &std::fs::File {
        &self.file
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// An open file. All calls take `&self`: positions are passed, never kept.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buffer.len()` bytes; may be short, 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes up to `bytes.len()` bytes; may be short.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Length of the file.
    fn len(&self) -> io::Result<u64>;
    /// Truncates the file, or grows it by a hole.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Allocates the space of a range, without a change of what is there; the file grows to its end, by zeros. After an error
    /// it may have grown by a part.
    fn allocate(&self, start: u64, len: u64) -> io::Result<()> {
        let (from, end) = (self.len()?.max(start), start + len);
        if from < end { self.write_zeros(from, end - from) } else { Ok(()) }
    }
    /// Length beyond which the process may not let the file grow, whatever space the disk has.
    fn len_max(&self) -> u64 {
        u64::MAX
    }
    /// Makes all earlier writes durable, with the metadata needed to read them (fdatasync).
    fn sync_data(&self) -> io::Result<()>;
    /// Writes the range's dirty pages and waits for them (no barrier, no metadata): pacing, not durability.
    fn sync_range(&self, start: u64, len: u64) -> io::Result<()>;
    /// Whether the file still has a name. One that was deleted can be read and written, and is lost when it is closed.
    fn has_name(&self) -> io::Result<bool> {
        Ok(true)
    }
    /// Maps the file for reading, with `reserve` bytes of address space; see [`Map`].
    fn map(&self, reserve: u64) -> io::Result<Map>;

    /// Reads past the page cache, up to `places` of `place_bytes` in flight; to be created on the thread that uses it.
    /// An error, such as `Unsupported`, means that all reads go through the map.
    fn read_queue(&self, _places: usize, _place_bytes: usize) -> io::Result<Box<dyn ReadQueue>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads until `buffer` is full; `UnexpectedEof` if the file ends first.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        in_full(buffer.len(), io::ErrorKind::UnexpectedEof, |done| {
            self.read_at(buffer.get_mut(done..).unwrap_or_default(), offset + done as u64)
        })
    }

    /// Writes all bytes, continuing after short writes and interrupts.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        in_full(bytes.len(), io::ErrorKind::WriteZero, |done| {
            self.write_at(bytes.get(done..).unwrap_or_default(), offset + done as u64)
        })
    }

    /// Writes zeros. This is the only way to allocate space so that an overwrite needs no metadata: fallocate leaves
    /// unwritten extents, and a sync over them was measured at six times that of an overwrite.
    fn write_zeros(&self, mut start: u64, len: u64) -> io::Result<()> {
        let end = start + len;
        let zeros = vec![0; ZERO_CHUNK.min(len as usize)];
        while start < end {
            let count = (end - start).min(ZERO_CHUNK as u64);
            self.write_all_at(&zeros[..count as usize], start)?;
            start += count;
        }
        Ok(())
    }
}

/// Repeats a transfer, which gets the number of bytes done and returns how many it has moved, until all are.
fn in_full(len: usize, none: io::ErrorKind, mut transfer: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        match transfer(done) {
            Ok(0) => return Err(none.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
