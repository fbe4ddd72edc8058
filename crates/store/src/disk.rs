//! The disk seam: every file operation of the crate goes through [`Disk`] and [`DiskFile`].
//!
//! Two reasons. Tests put a simulated disk under the engine (unsynced writes lost, torn, refused), and the list of
//! kernel promises we lean on stands in one place:
//!
//! - A `write_at` is durable after a later `sync_data` of the same file returned, and not before; after a failed
//!   `sync_data` nobody knows which of the writes before it are on the platter, and a second one proves nothing
//!   (the kernel may have dropped the dirty pages: fsync(2), "ERRORS").
//! - A new, renamed or removed name is durable after [`Disk::sync_dir`].
//! - A write through a file opened as [`Access::Direct`] is durable when it returns, as far as it did not grow the file.
//! - `sync_range` only starts or paces writing; it promises nothing about durability (sync_file_range(2), "WARNING").
//! - A map sees what `write_at` wrote: both go through the page cache.
//! - So does a read past the page cache: what is dirty there of its range is written first (open(2), "O_DIRECT").
//!
//! A name is one file in the store's directory; there are no sub-directories. [`SystemDisk`] is the real one, [`MemoryDisk`]
//! one for tools that see memory and no files.

use std::any::Any;
use std::io;
use std::sync::Arc;

mod bits;
mod lost;
mod map;
mod memory;
mod reads;
mod residency;
mod ring;
mod system;

pub(crate) use bits::Bits;
pub use map::Map;
pub use memory::MemoryDisk;
pub use reads::ReadQueue;
pub use residency::major_faults;
pub(crate) use residency::memory_bytes;
pub use system::SystemDisk;
pub(crate) use system::end_sleeps_in_time;

/// Alignment of buffer address, offset and length that a file of [`Access::Direct`] wants: the largest logical block
/// size in use.
pub const DIRECT_ALIGN: usize = 4096;

/// Zeros are written in pieces of this size, so that preparing a file never needs a large buffer.
const ZERO_CHUNK: usize = 256 * 1024;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Through the page cache; durable after `sync_data`.
    Buffered,
    /// The same, for reading alone: a backup may lie where nothing can be written.
    ReadOnly,
    /// Past the page cache, each write durable when it returns (`O_DIRECT | O_DSYNC`). Only where the file system can:
    /// else `open` fails with `InvalidInput`, and the caller takes `Buffered`.
    Direct,
}

/// Keeps the directory to this process until it is dropped.
pub type DirectoryLock = Box<dyn Any + Send + Sync>;

/// A directory of files.
pub trait Disk: Send + Sync {
    /// Opens a file for reading and (unless [`Access::ReadOnly`]) writing; with `create` it is made when it is not there (`sync_dir` makes that durable).
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>>;
    /// The names of all files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file, over an existing one if there is one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes creations, renames and removals so far durable. After an error nobody knows which are, and a later call need not be
    /// told of it again.
    ///
    /// Unlike those of the tree file these syncs have no owner, for nobody builds on another thread's. In a store at work one thread
    /// changes names that count, the log's keeper, and after an error it makes the segment and its name anew. Opening and copying end
    /// with the error, and the next start names anew what one that ended so has made. Compaction syncs beside the keeper, but leaves
    /// the log alone: it goes on from either tree file.
    fn sync_dir(&self) -> io::Result<()>;
    /// A file of so many bytes for work that ends with the process, all of its space taken; `None` where there are no such
    /// files, and memory has to do.
    fn scratch(&self, _bytes: u64) -> io::Result<Option<ScratchFile>> {
        Ok(None)
    }
    /// Bytes that files of this directory can still take; `None` where that is not known.
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
    /// Locks the directory against other processes through a file of this name: `WouldBlock` when another holds it.
    fn lock(&self, name: &str) -> io::Result<DirectoryLock>;
    /// Locks a file that is there, and is neither made nor changed, against other processes: `WouldBlock` when another holds it,
    /// `None` where there is no such file. A disk of one process locks nothing.
    fn lock_file(&self, _name: &str) -> io::Result<Option<DirectoryLock>> {
        Ok(None)
    }
}

/// A file of zeros without a name: who has it is the only one. Its space is taken, for memory that is mapped from it cannot be
/// told of a full disk.
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

/// An open file. All calls take `&self`: positions are given, never kept.
pub trait DiskFile: Send + Sync {
    /// Reads up to `buffer.len()` bytes; may be short, 0 at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes up to `bytes.len()` bytes; may be short.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Length of the file.
    fn len(&self) -> io::Result<u64>;
    /// Cuts the file or grows it by a hole.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes all writes before it durable, and what metadata is needed to read them (fdatasync).
    fn sync_data(&self) -> io::Result<()>;
    /// Writes the range's dirty pages out and waits for them (no barrier, no metadata): pacing, not durability.
    fn sync_range(&self, start: u64, len: u64) -> io::Result<()>;
    /// Maps the file for reading, with `reserve` bytes of address space; see [`Map`].
    fn map(&self, reserve: u64) -> io::Result<Map>;

    /// Reads past the page cache, up to `places` of `place_bytes` at once; to be made on the thread that uses them. `Unsupported`, or what the
    /// system says, where that cannot be had: then all is read through the map.
    fn read_queue(&self, _places: usize, _place_bytes: usize) -> io::Result<Box<dyn ReadQueue>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer`; `UnexpectedEof` where the file ends first.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read_at(buffer, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    buffer = buffer.get_mut(count..).unwrap_or_default();
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all bytes, going on after short writes and interrupts.
    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    bytes = bytes.get(count..).unwrap_or_default();
                    offset += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes zeros: the only way of taking space after which an overwrite needs no metadata (fallocate leaves unwritten
    /// extents, and a sync over them was measured at six times an overwrite's).
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
