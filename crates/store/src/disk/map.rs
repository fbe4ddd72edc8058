//! A read-only map of a growing file.
//!
//! Address space is reserved once, far beyond the file's length, so that slices stay valid while the file grows inside
//! it. Only the part below [`Map::len`] may be accessed: an access beyond the end of the file is SIGBUS.
//!
//! Why `&[u8]` slices are sound although the file is written while it is mapped:
//!
//! - The directory lock keeps other stores' processes out. A page that the disk fails to read, or that another program has
//!   truncated, becomes zeros and is counted, see the module `lost`: a reader compares [`Map::lost`] before and after.
//! - The file never shrinks while it is mapped.
//! - The tree is copy-on-write: a page that a view reaches is not written again before the last such view is dropped,
//!   and slices are taken only from pages that a view reaches.

#![allow(unsafe_code)] // The crate's only place where the map's memory becomes a slice.

use std::fs::File;
use std::io;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use super::fixed_memory::FixedMemory;
use super::lost::Watched;
use super::residency;
use crate::base::sync::atomic::{AtomicU64, Ordering};

/// See the module's text.
///
/// Memory of a slice that no view protects may be written, so only this crate takes slices of it:
///
/// ```
/// fn length(map: &store::disk::Map) -> u64 {
///     map.len()
/// }
/// ```
///
/// ```compile_fail,E0624
/// fn first(map: &store::disk::Map) -> Option<&[u8]> {
///     map.bytes(0, 1)
/// }
/// ```
pub struct Map {
    /// Dropped before the memory it watches.
    watched: Watched,
    base: *const u8,
    reserve: u64,
    /// Bytes that may be accessed: at most the file's length, never falling.
    len: AtomicU64,
    backing: Backing,
}

/// Owner of the memory.
enum Backing {
    File { raw: MmapRaw, file: File },
    Memory(Arc<FixedMemory>),
}

// SAFETY: `base` is only the address of memory owned by `backing`, which may be used and dropped on any thread.
unsafe impl Send for Map {}
// SAFETY: as above; no method writes through it.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `file` (an ordinary file or a memfd) with `reserve` bytes of address space.
    pub fn of_file(file: &File, reserve: u64) -> io::Result<Map> {
        let reserve_bytes =
            usize::try_from(reserve).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "map too large"))?;
        let raw = MmapOptions::new().len(reserve_bytes).no_reserve_swap().map_raw_read_only(file);
        let raw = raw.map_err(|error| match error.kind() {
            io::ErrorKind::OutOfMemory => {
                let what = format!(
                    "{} GiB of address space are needed: raise its limit (`ulimit -v unlimited`)",
                    reserve >> 30
                );
                io::Error::new(error.kind(), what)
            }
            _ => error,
        })?;
        let watched = Watched::new(raw.as_ptr() as usize, reserve_bytes)?;
        let (base, backing) = (raw.as_ptr(), Backing::File { raw, file: file.try_clone()? });
        let map = Map { watched, base, reserve, len: AtomicU64::new(0), backing };
        map.cover()?;
        Ok(map)
    }

    /// The same for a file in memory, whose pages cannot be lost.
    pub(super) fn of_memory(memory: Arc<FixedMemory>, reserve: u64) -> Map {
        let (base, reserve) = (memory.base(), reserve.min(memory.bytes()));
        let len = AtomicU64::new(memory.len().min(reserve));
        Map { watched: Watched::nothing(), base, reserve, len, backing: Backing::Memory(memory) }
    }

    /// Bytes that can currently be read through the map.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Whether nothing can be read yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address space reserved: the maximum length of the file that can be read.
    pub fn reserve(&self) -> u64 {
        self.reserve
    }

    /// Includes what the file has grown by; returns the new length.
    pub fn cover(&self) -> io::Result<u64> {
        let len = match &self.backing {
            Backing::File { file, .. } => file.metadata()?.len(),
            Backing::Memory(memory) => memory.len(),
        };
        let len = len.min(self.reserve);
        self.len.fetch_max(len, Ordering::AcqRel);
        Ok(self.len())
    }

    /// The bytes at `offset`; `None` if they are not within the file, or lost. Only for pages that a view reaches, or
    /// that the caller has written and no other code writes: only this crate knows which these are.
    #[inline]
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let end = offset.checked_add(len as u64)?;
        if end > self.len() || (self.lost() != 0 && self.watched.holds_lost(offset, len)) {
            return None;
        }
        // SAFETY: offset + len <= self.len <= file length and <= the mapped reserve, so the range is mapped and backed
        // by the file (or lies in its memory), which does not shrink while the directory lock is held. The
        // copy-on-write rule of the module's text ensures that nothing writes to these bytes while the slice lives.
        Some(unsafe { std::slice::from_raw_parts(self.base.add(offset as usize), len) })
    }

    /// Number of pages that could not be read so far. If it has risen since before a read, that read may have returned zeros.
    #[inline]
    pub fn lost(&self) -> u64 {
        self.watched.lost()
    }

    /// Whether these bytes are in memory, so that an access does not wait for the disk. Costs a system call.
    pub fn is_resident(&self, offset: u64, len: usize) -> bool {
        matches!(self.backing, Backing::Memory(_)) || self.bytes(offset, len).is_none_or(residency::is_resident)
    }

    /// Starts reading these bytes from the disk in the background. Only a hint: errors are reported by the access itself.
    pub fn will_need(&self, offset: u64, len: u64) {
        if let Backing::File { raw, .. } = &self.backing
            && offset.saturating_add(len) <= self.len()
        {
            let _ = raw.advise_range(memmap2::Advice::WillNeed, offset as usize, len as usize);
        }
    }

    /// Tells the kernel that reads are random, so that a fault reads one page and not a window around it.
    pub fn advise_random(&self) -> io::Result<()> {
        match &self.backing {
            Backing::File { raw, .. } => raw.advise(memmap2::Advice::Random),
            Backing::Memory(_) => Ok(()),
        }
    }
}
