//! The interface of reads past the page cache.

use std::io;
use std::os::fd::RawFd;

/// Reads of one file past the page cache, several in flight at once, for one thread. Created by
/// [`DiskFile::read_queue`](super::DiskFile::read_queue).
///
/// Each read has a slot (a `place`) with a buffer. A slot is idle, then noted ([`ReadQueue::note`]), in flight
/// ([`ReadQueue::begin`]), and ended ([`ReadQueue::next_ended`]), which makes it idle with the bytes in its buffer.
/// Every noted read ends, even if it could not be submitted.
pub trait ReadQueue {
    /// An edge-triggered descriptor that becomes readable when reads have ended.
    fn completions(&self) -> RawFd;
    /// Notes a read in an idle slot. Offset and length are multiples of [`DIRECT_ALIGN`](super::DIRECT_ALIGN), the
    /// length at most a slot's bytes. Otherwise returns `false`, and nothing is noted.
    fn note(&mut self, place: usize, offset: u64, len: usize) -> bool;
    /// Submits the noted reads to the kernel, all at once.
    fn begin(&mut self);
    /// Collects the reads that have ended so far. [`ReadQueue::completions`] then signals later ones.
    fn gather(&mut self);
    /// The next collected read, or one that could not be submitted: its slot, and the number of bytes read.
    fn next_ended(&mut self) -> Option<(usize, io::Result<usize>)>;
    /// The buffer of an idle slot; empty for any other slot.
    fn bytes(&self, place: usize) -> &[u8];
}
