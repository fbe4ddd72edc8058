//! Where a consumer of changes is: what a feed's `id:` says, and what `since` takes.
//!
//! A transaction of several changes is one change number. So that a consumer which was cut off between two of them gets each
//! once, the number stands alone at the last of them only; the k-th before it is `N.k`.

/// All up to this one was given. In the order of the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) change_number: u64,
    /// So many of its changes, from 1; [`WHOLE`]: all.
    part: u32,
}

const WHOLE: u32 = u32::MAX;

impl Place {
    /// After a whole transaction.
    pub(crate) fn after(change_number: u64) -> Place {
        Place { change_number, part: WHOLE }
    }

    /// After the change of a transaction at this number, from 0, which is not its last.
    pub(crate) fn within(change_number: u64, number: u32) -> Place {
        Place { change_number, part: number.saturating_add(1).min(WHOLE - 1) }
    }

    /// How many of the transaction's changes, where it is not all.
    pub(crate) fn part(self) -> Option<u32> {
        (self.part != WHOLE).then_some(self.part)
    }

    /// The newest transaction that was given whole, which is where a reader has to begin.
    pub(crate) fn whole(self) -> u64 {
        if self.part == WHOLE { self.change_number } else { self.change_number - 1 }
    }

    /// Reads `N` or `N.k`.
    pub(crate) fn read(text: &str) -> Option<Place> {
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
        let Some((number, part)) = text.split_once('.') else { return digits(text).map(Place::after) };
        let part = u32::try_from(digits(part)?).ok().filter(|part| (1..WHOLE).contains(part))?;
        let change_number = digits(number).filter(|number| *number > 0)?;
        Some(Place { change_number, part })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.part() {
            None => write!(out, "{}", self.change_number),
            Some(part) => write!(out, "{}.{part}", self.change_number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_and_stands_in_the_feeds_order() {
        let texts = ["0", "1", "2.1", "2.2", "2", "3.1", "18446744073709551615"];
        let places: Vec<Place> = texts.iter().filter_map(|text| Place::read(text)).collect();
        assert!(places.len() == texts.len() && places.is_sorted(), "{places:?}");
        assert!(places.iter().zip(texts).all(|(place, text)| place.to_string() == text));
        assert_eq!(places.iter().map(|place| place.whole()).collect::<Vec<_>>(), [0, 1, 1, 1, 2, 2, u64::MAX]);
        assert_eq!((Place::within(2, 0), Place::within(2, 1)), (places[2], places[3]));
        for text in
            ["", ".", "1.", ".1", "1.0", "0.1", "+1", "-1", "1.1.1", "18446744073709551616", "1.4294967295", "x"]
        {
            assert_eq!(Place::read(text), None, "{text}");
        }
    }
}
