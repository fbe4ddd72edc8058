//! Counts the different values of a field by their 64-bit hashes. All fields together keep a bounded number of hashes.
//!
//! A repeated value is always noticed. Two values with the same hash count as a repeated one: then a field whose values are distinct
//! is not suggested as unique, and no wrong suggestion is made.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};

/// Most hashes that all fields together keep.
const HASHES_MAX: usize = 4 << 20;

/// Room for hashes, shared by all fields.
pub(super) struct ValueSpace {
    left: usize,
}

impl Default for ValueSpace {
    fn default() -> ValueSpace {
        ValueSpace { left: HASHES_MAX }
    }
}

/// The values of one field.
#[derive(Default)]
pub(super) struct Distinct {
    hashes: HashSet<u64>,
    repeats: bool,
    /// Some values were not counted, because there was no room for their hashes.
    is_cut: bool,
}

impl Distinct {
    /// Notes a value by its text.
    pub(super) fn add(&mut self, value: &[u8], space: &mut ValueSpace) {
        let mut hasher = DefaultHasher::new();
        hasher.write(value);
        let hash = hasher.finish();
        if self.hashes.contains(&hash) {
            self.repeats = true;
        } else if space.left > 0 {
            space.left -= 1;
            self.hashes.insert(hash);
        } else {
            self.is_cut = true;
        }
    }

    /// Number of different values. `None`: not all were counted.
    pub(super) fn count(&self) -> Option<u64> {
        (!self.is_cut).then_some(self.hashes.len() as u64)
    }

    /// Whether all values were counted and none was repeated.
    pub(super) fn is_distinct(&self) -> bool {
        !self.repeats && !self.is_cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_repeats_is_noticed_and_what_had_no_space_is_not_called_distinct() {
        let mut space = ValueSpace { left: 3 };
        let (mut first, mut second) = (Distinct::default(), Distinct::default());
        first.add(b"a", &mut space);
        first.add(b"b", &mut space);
        assert!(first.is_distinct() && first.count() == Some(2));
        first.add(b"a", &mut space);
        assert!(!first.is_distinct() && first.count() == Some(2));
        second.add(b"a", &mut space);
        second.add(b"b", &mut space);
        assert!(!second.is_distinct() && second.count().is_none());
    }
}
