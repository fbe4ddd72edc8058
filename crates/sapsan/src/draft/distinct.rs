//! Whether the values of a field repeat, and how many there are: by 64-bit hashes, of which all fields together keep a bounded number.
//!
//! Two values with one hash count as the same one: then a field that is distinct is taken for one that is not, which loses
//! a suggestion. A value that repeats is always noticed.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};

/// Most hashes that all fields together keep.
const HASHES_MAX: usize = 4 << 20;

/// How many more hashes can be kept.
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
    /// There was no space for all of them.
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

    /// How many values there are; `None`: too many to know.
    pub(super) fn count(&self) -> Option<u64> {
        (!self.is_cut).then_some(self.hashes.len() as u64)
    }

    /// Whether no value came twice, as far as all are known.
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
