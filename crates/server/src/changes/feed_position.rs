//! Position of a consumer in the feed of changes: the `id:` of events, and the value of `since`.
//!
//! A transaction of several changes has one change number. A consumer that is disconnected within a transaction must still get
//! each change once, so only the last change of a transaction has the bare number; the k-th change of transaction N, from 1, has `N.k`.

use docs::changes::ChangeEvent;

/// Everything up to this position was sent. Ordered as the feed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FeedPosition {
    pub(crate) change_number: u64,
    /// Number of its changes that were sent, from 1; [`WHOLE`]: all.
    part: u32,
}

const WHOLE: u32 = u32::MAX;

impl FeedPosition {
    /// After a whole transaction.
    pub(crate) fn after(change_number: u64) -> FeedPosition {
        FeedPosition { change_number, part: WHOLE }
    }

    /// After the change with this number, from 0, of a transaction; it is not the last one.
    pub(crate) fn within(change_number: u64, number: u32) -> FeedPosition {
        FeedPosition { change_number, part: number.saturating_add(1).min(WHOLE - 1) }
    }

    /// After this change.
    pub(crate) fn of(event: &ChangeEvent<'_>) -> FeedPosition {
        match event.is_last {
            true => FeedPosition::after(event.change_number),
            false => FeedPosition::within(event.change_number, event.number),
        }
    }

    /// How many of the transaction's changes were sent, if not all.
    pub(crate) fn part(self) -> Option<u32> {
        (self.part != WHOLE).then_some(self.part)
    }

    /// The newest transaction that was sent whole: a reader begins after it.
    pub(crate) fn whole(self) -> u64 {
        if self.part == WHOLE { self.change_number } else { self.change_number - 1 }
    }

    /// Reads `N` or `N.k`.
    pub(crate) fn read(text: &str) -> Option<FeedPosition> {
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
        let Some((number, part)) = text.split_once('.') else { return digits(text).map(FeedPosition::after) };
        let part = u32::try_from(digits(part)?).ok().filter(|part| (1..WHOLE).contains(part))?;
        let change_number = digits(number).filter(|number| *number > 0)?;
        Some(FeedPosition { change_number, part })
    }
}

impl std::fmt::Display for FeedPosition {
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
        let positions: Vec<FeedPosition> = texts.iter().filter_map(|text| FeedPosition::read(text)).collect();
        assert!(positions.len() == texts.len() && positions.is_sorted(), "{positions:?}");
        assert!(positions.iter().zip(texts).all(|(position, text)| position.to_string() == text));
        assert_eq!(positions.iter().map(|position| position.whole()).collect::<Vec<_>>(), [0, 1, 1, 1, 2, 2, u64::MAX]);
        assert_eq!((FeedPosition::within(2, 0), FeedPosition::within(2, 1)), (positions[2], positions[3]));
        for text in
            ["", ".", "1.", ".1", "1.0", "0.1", "+1", "-1", "1.1.1", "18446744073709551616", "1.4294967295", "x"]
        {
            assert_eq!(FeedPosition::read(text), None, "{text}");
        }
    }
}
