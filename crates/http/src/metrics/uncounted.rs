//! Replies whose latency is not counted yet: the clock is read once for several of them.
//!
//! Replies of one turn leave together at the turn's end, so one reading then is right for all of them. A reading for each reply
//! would cost a pipelined GET 3 % of its processor time.

use crate::metrics::latency::{Measure, Series};
use crate::status::Status;

/// Number of runs in a turn; before a further run the clock is read, and they are counted.
const RUNS_MAX: usize = 4;
const NO_MEASURE: Measure = Measure { began_ns: 0, method: None, series: Series::OTHER };
/// A run without a reply.
const NO_RUN: Run = Run { status: Status(0), measure: NO_MEASURE, replies: 0 };

/// Consecutive replies of one status, method and series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) status: Status,
    pub(crate) measure: Measure,
    pub(crate) replies: u64,
}

/// The replies of a turn, as runs.
#[derive(Debug)]
pub(crate) struct Uncounted {
    /// The run of the last reply: nearly every reply continues it.
    last: Run,
    earlier: [Run; RUNS_MAX - 1],
    earlier_len: usize,
}

impl Default for Uncounted {
    fn default() -> Uncounted {
        Uncounted { last: NO_RUN, earlier: [NO_RUN; RUNS_MAX - 1], earlier_len: 0 }
    }
}

impl Uncounted {
    /// Adds a reply. `false`: there is no room for another run.
    #[inline]
    pub(crate) fn add(&mut self, status: Status, measure: Measure) -> bool {
        // The status of `NO_RUN` is that of no reply.
        if self.last.status == status && self.last.measure == measure {
            self.last.replies += 1;
            return true;
        }
        self.begin(status, measure)
    }

    #[inline(never)]
    fn begin(&mut self, status: Status, measure: Measure) -> bool {
        if !self.is_empty() {
            let Some(place) = self.earlier.get_mut(self.earlier_len) else { return false };
            *place = self.last;
            self.earlier_len += 1;
        }
        self.last = Run { status, measure, replies: 1 };
        true
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.last.replies == 0
    }

    /// Passes on all runs, and forgets them.
    #[inline]
    pub(crate) fn drain(&mut self, mut count: impl FnMut(Run)) {
        for run in self.earlier.iter().take(std::mem::take(&mut self.earlier_len)) {
            count(*run);
        }
        if !self.is_empty() {
            count(self.last);
            self.last.replies = 0;
        }
    }
}

#[cfg(test)]
mod runs {
    use super::{RUNS_MAX, Uncounted};
    use crate::metrics::latency::{Measure, Series};
    use crate::status::Status;

    fn measure(series: u16) -> Measure {
        Measure { began_ns: 1, method: None, series: Series(series) }
    }

    #[test]
    fn equal_replies_are_one_run_and_a_kind_too_many_is_told() {
        let mut uncounted = Uncounted::default();
        assert!((0..3).all(|_| uncounted.add(Status(200), measure(1))));
        assert!((2..=RUNS_MAX as u16).all(|series| uncounted.add(Status(200), measure(series))));
        assert!(!uncounted.add(Status(404), measure(4)), "no room");
        assert!(uncounted.add(Status(200), measure(4)), "a kind that is there");
        let mut runs = Vec::new();
        uncounted.drain(|run| runs.push((run.measure.series.0, run.replies)));
        assert_eq!(runs, [(1, 3), (2, 1), (3, 1), (4, 2)]);
        assert!(uncounted.is_empty());
        uncounted.drain(|run| panic!("counted twice: {run:?}"));
        assert!(uncounted.add(Status(200), measure(4)), "equal to the last one that was counted");
        uncounted.drain(|run| assert_eq!(run.replies, 1));
    }
}
