//! Reads past the page cache: the seam.

use std::io;
use std::os::fd::RawFd;

/// Reads of one file past the page cache, several under way at once; one thread's. Made by
/// [`DiskFile::read_queue`](super::DiskFile::read_queue).
///
/// Each has a place with a buffer of its own. A place is idle, then noted ([`ReadQueue::note`]), under way
/// ([`ReadQueue::begin`]), and ended ([`ReadQueue::next_ended`]), which makes it idle with its bytes in it. Every read that
/// was noted ends, also where it could not be begun.
pub trait ReadQueue {
    /// Becomes readable (an edge each time) when reads have ended.
    fn completions(&self) -> RawFd;
    /// Notes a read into an idle place; offset and length are multiples of [`DIRECT_ALIGN`](super::DIRECT_ALIGN), the length at most
    /// a place's bytes. `false`, and nothing is noted, where that does not hold.
    fn note(&mut self, place: usize, offset: u64, len: usize) -> bool;
    /// Hands what was noted over to the kernel, all at once.
    fn begin(&mut self);
    /// Takes in what has ended so far. After it, [`ReadQueue::completions`] tells of what ends later.
    fn gather(&mut self);
    /// Of what was taken in, or could not be begun, the next: its place, and how many bytes it gave.
    fn next_ended(&mut self) -> Option<(usize, io::Result<usize>)>;
    /// The buffer of an idle place; of one that is not, nothing.
    fn bytes(&self, place: usize) -> &[u8];
}
