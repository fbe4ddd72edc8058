//! A growing byte buffer aligned to the disk's block size, as direct writes require.

use crate::disk::DIRECT_ALIGN;

/// Kept between batches; a larger buffer, after a huge transaction, is freed.
const KEPT_BYTES: usize = 4 * 1024 * 1024;

/// Bytes at an aligned address.
pub(crate) struct AlignedBuffer {
    /// Always filled with initialised bytes; the aligned part starts at `start`.
    storage: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    pub(crate) fn with_capacity(capacity: usize) -> AlignedBuffer {
        let storage = vec![0; capacity + DIRECT_ALIGN];
        let start = storage.as_ptr().align_offset(DIRECT_ALIGN);
        assert!(start < DIRECT_ALIGN, "align_offset is exact for bytes");
        AlignedBuffer { storage, start, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.storage.len()
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
        if self.storage.len() > KEPT_BYTES + DIRECT_ALIGN {
            *self = AlignedBuffer::with_capacity(KEPT_BYTES);
        }
    }

    #[inline]
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        let at = self.grow(bytes.len());
        self.storage[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Sets the length, for a read to fill; the previous content is meaningless. A much larger buffer is freed.
    pub(crate) fn restart_with(&mut self, len: usize) -> &mut [u8] {
        self.clear();
        self.grow(len);
        self.as_mut_slice()
    }

    /// Adds zeros until the length is a multiple of the block size.
    pub(crate) fn pad_to_block(&mut self) {
        let count = self.len.next_multiple_of(DIRECT_ALIGN) - self.len;
        let at = self.grow(count);
        self.storage[at..at + count].fill(0);
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.storage[self.start..self.start + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.start + self.len]
    }

    /// Lengthens by `count`; returns the offset of the new bytes in `storage`.
    #[inline]
    fn grow(&mut self, count: usize) -> usize {
        let at = self.start + self.len;
        if at + count > self.storage.len() {
            return self.move_to_larger(count);
        }
        self.len += count;
        at
    }

    #[cold]
    fn move_to_larger(&mut self, count: usize) -> usize {
        let mut larger = AlignedBuffer::with_capacity((self.len + count).max(self.storage.len() * 2));
        larger.storage[larger.start..larger.start + self.len].copy_from_slice(self.as_slice());
        let at = larger.start + self.len;
        larger.len = self.len + count;
        *self = larger;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_aligned_and_keeps_its_bytes_while_it_grows() {
        let mut buffer = AlignedBuffer::with_capacity(100);
        let mut plain = Vec::new();
        for round in 0..2000u32 {
            buffer.extend(&round.to_le_bytes());
            plain.extend_from_slice(&round.to_le_bytes());
        }
        assert_eq!(buffer.as_slice(), plain);
        buffer.pad_to_block();
        assert_eq!(buffer.len() % DIRECT_ALIGN, 0);
        assert_eq!(buffer.as_slice().as_ptr().align_offset(DIRECT_ALIGN), 0);
        assert!(buffer.as_slice()[plain.len()..].iter().all(|byte| *byte == 0));
    }
}
