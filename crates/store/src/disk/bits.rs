//! A bit for each of many numbers, initially zero, set and cleared by any thread.
//!
//! The bits are in memory that the kernel allocates page by page on first touch. So there can be a bit for each number
//! up to a bound that is hardly ever reached, and reading one is a single load: nothing grows, moves, or is locked.

#![allow(unsafe_code)] // Words of a map of memory, shared among threads.

use std::io;

use memmap2::{Advice, MmapMut, MmapRaw};

use crate::base::sync::atomic::{AtomicU64, Ordering};

const WORD_BITS: u64 = u64::BITS as u64;

/// See the module's text.
pub(crate) struct Bits {
    /// `words` words, initially zero, and accessed only as atomics.
    memory: MmapRaw,
    words: usize,
}

impl Bits {
    /// Bits for the numbers below `count`.
    pub(crate) fn new(count: u64) -> io::Result<Bits> {
        let too_many = |_| io::Error::new(io::ErrorKind::InvalidInput, "too many bits for the address space");
        let words = usize::try_from(count.div_ceil(WORD_BITS).max(1)).map_err(too_many)?;
        let memory = MmapMut::map_anon(words * size_of::<u64>())?;
        // One small page covers 128 MB of a file; a huge page would take 2 MB for the first bit. Only advice.
        let _ = memory.advise(Advice::NoHugePage);
        Ok(Bits { memory: memory.into(), words })
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the map has `words` words, begins at a page's start, was zeros when it was made, lives as long as
        // `self`, and is written only through these atomics.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast::<AtomicU64>(), self.words) }
    }

    /// Whether the number's bit is set; false for a number without a bit.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> bool {
        let word = self.words().get((u64::from(number) / WORD_BITS) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (u64::from(number) % WORD_BITS) & 1 == 1)
    }

    pub(crate) fn set(&self, number: u32) {
        if let Some(word) = self.words().get((u64::from(number) / WORD_BITS) as usize) {
            word.fetch_or(1 << (u64::from(number) % WORD_BITS), Ordering::Relaxed);
        }
    }

    /// Clears the bits of `count` numbers from `start` on.
    pub(crate) fn clear(&self, start: u32, count: u32) {
        let (mut at, end) = (u64::from(start), u64::from(start) + u64::from(count));
        while at < end {
            let Some(word) = self.words().get((at / WORD_BITS) as usize) else { return };
            let shift = at % WORD_BITS;
            let taken = (WORD_BITS - shift).min(end - at);
            let mask = (u64::MAX >> (WORD_BITS - taken)) << shift;
            word.fetch_and(!mask, Ordering::Relaxed);
            at += taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_one_by_one_and_cleared_in_runs() {
        let bits = Bits::new(300).unwrap();
        assert!((0..400).all(|number| !bits.get(number)));
        for (start, count) in [(0, 1), (63, 1), (63, 2), (64, 64), (1, 0), (10, 200), (250, 1000)] {
            (0..300).for_each(|number| bits.set(number));
            bits.clear(start, count);
            for number in 0..300 {
                assert_eq!(bits.get(number), !(start..start + count).contains(&number), "{number} of {start} {count}");
            }
        }
    }

    #[test]
    fn a_number_without_a_bit_is_never_set() {
        let bits = Bits::new(1 << 28).unwrap();
        for number in [1 << 28, u32::MAX] {
            bits.set(number);
            bits.clear(number, 7);
            assert!(!bits.get(number));
        }
        bits.set((1 << 28) - 1);
        assert!(bits.get((1 << 28) - 1));
    }
}
