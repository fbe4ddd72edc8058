//! A loop's spare buffers, for connections that have bytes waiting between turns.

/// A buffer that grew beyond this is freed instead of being kept.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Spare buffers, last used first (the warmest in the cache). Bounded by count, by the size of each and by their sum.
pub(crate) struct Pool {
    spare: Vec<Vec<u8>>,
    bytes: usize,
    buffers_max: usize,
    bytes_max: usize,
}

impl Pool {
    pub(crate) fn new(buffers_max: usize, bytes_max: usize) -> Self {
        Self { spare: Vec::new(), bytes: 0, buffers_max, bytes_max }
    }

    /// A spare buffer as it was given back, or an empty one without storage.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let buffer = self.spare.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }

    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        let fits = self.spare.len() < self.buffers_max && self.bytes + buffer.capacity() <= self.bytes_max;
        if fits && (1..=KEPT_BYTES_MAX).contains(&buffer.capacity()) {
            self.bytes += buffer.capacity();
            self.spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_exceed_a_bound_is_not_kept_and_what_is_taken_makes_room() {
        let mut pool = Pool::new(2, 1000);
        for bytes in [600, 600, 300, 100] {
            pool.give(Vec::with_capacity(bytes));
        }
        // 600 and 300: the second 600 broke the sum, 100 the count.
        assert_eq!((pool.take().capacity(), pool.bytes), (300, 600));
        pool.give(Vec::with_capacity(400));
        assert_eq!(pool.bytes, 1000);
        assert_eq!([pool.take(), pool.take(), pool.take()].map(|buffer| buffer.capacity()), [400, 600, 0]);
        assert_eq!(pool.bytes, 0);
    }
}
