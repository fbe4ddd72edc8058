//! Memory of a mapped file of [`MemoryDisk`](super::MemoryDisk): at a fixed address, so that maps can point into it.

#![allow(unsafe_code)] // Slices of a map are in memory that file writes change.

use std::alloc::Layout;
use std::io;
use std::ptr::NonNull;

use crate::base::sync::atomic::{AtomicU64, Ordering};

/// Alignment: that of a map.
pub(super) const ALIGN: usize = 4096;

/// A mapped file's bytes, at a fixed address.
pub(super) struct FixedMemory {
    base: NonNull<u8>,
    bytes: usize,
    /// Length of the file. The bytes after it are zeros.
    len: AtomicU64,
}

// SAFETY: plain memory, freed with its last owner. Callers ensure which thread may access which byte when; the tools
// that this disk exists for check it.
unsafe impl Send for FixedMemory {}
// SAFETY: as above.
unsafe impl Sync for FixedMemory {}

impl FixedMemory {
    fn layout(bytes: usize) -> io::Result<Layout> {
        Layout::from_size_align(bytes, ALIGN).map_err(io::Error::other)
    }

    /// So many bytes of zeros, for a file of length 0.
    pub(super) fn zeroed(bytes: usize) -> io::Result<FixedMemory> {
        let layout = FixedMemory::layout(bytes)?;
        if layout.size() == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the size is not zero.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(FixedMemory { base, bytes, len: AtomicU64::new(0) })
    }

    pub(super) fn base(&self) -> *const u8 {
        self.base.as_ptr()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Reads up to `buffer.len()` bytes from `offset` on. The caller holds the lock of the file's content.
    pub(super) fn read(&self, buffer: &mut [u8], offset: usize) -> usize {
        let count = buffer.len().min((self.len() as usize).saturating_sub(offset));
        // SAFETY: `offset + count` is not above the file's length, so inside the memory (if `count` is 0 nothing is
        // read, wherever it points); `buffer` is exclusive, and writers hold the lock.
        unsafe { self.base.as_ptr().wrapping_add(offset).copy_to_nonoverlapping(buffer.as_mut_ptr(), count) };
        count
    }

    /// Under the same lock.
    pub(super) fn write(&self, bytes: &[u8], offset: usize) -> io::Result<()> {
        let end = offset.checked_add(bytes.len()).filter(|end| *end <= self.bytes);
        let end = end.ok_or(io::ErrorKind::StorageFull)?;
        // SAFETY: up to `end`, inside the memory. The copy-on-write rule of `map.rs` ensures that no slice of a map
        // holds these bytes; this is what the tools check here.
        unsafe { self.base.as_ptr().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        self.len.fetch_max(end as u64, Ordering::AcqRel);
        Ok(())
    }

    /// Under the same lock.
    pub(super) fn set_len(&self, len: usize) -> io::Result<()> {
        if len > self.bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let cut = (self.len() as usize).saturating_sub(len);
        // SAFETY: from the new end to the old one (or nothing), inside the memory; no reader reads the truncated part.
        unsafe { self.base.as_ptr().add(len).write_bytes(0, cut) };
        self.len.store(len as u64, Ordering::Release);
        Ok(())
    }
}

impl Drop for FixedMemory {
    fn drop(&mut self) {
        if let Ok(layout) = FixedMemory::layout(self.bytes) {
            // SAFETY: allocated with the same layout, freed once.
            unsafe { std::alloc::dealloc(self.base.as_ptr(), layout) }
        }
    }
}
