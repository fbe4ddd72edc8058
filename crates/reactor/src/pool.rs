//! A loop's spare buffers: what a connection holds only while it has bytes waiting.

/// A buffer that grew beyond this is given back to the allocator instead of being kept.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Spare buffers, last used first (the warmest in the cache). Bounded by count and by the size of each.
pub(crate) struct Pool {
    spare: Vec<Vec<u8>>,
    buffers_max: usize,
}

impl Pool {
    pub(crate) fn new(buffers_max: usize) -> Self {
        Self { spare: Vec::new(), buffers_max }
    }

    /// A spare buffer as it was given back, or an empty one without storage.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < self.buffers_max && (1..=KEPT_BYTES_MAX).contains(&buffer.capacity()) {
            self.spare.push(buffer);
        }
    }
}
