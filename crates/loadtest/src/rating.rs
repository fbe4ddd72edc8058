//! The contest's rating of a run: the sum of the response times of right answers, plus the timeout for every other request. Lower
//! is better.
//!
//! Response times count from the planned moments, as latency does. Sums are integers of nanoseconds, so that the parts of a run
//! (loops, phases) add up to exactly the same rating in any order. They are converted to seconds as a float only for output.

use std::ops::AddAssign;
use std::time::Duration;

/// The contest's timeout, which is the penalty for a request without a right answer in time.
pub const CONTEST_TIMEOUT: Duration = Duration::from_secs(2);

/// The rating of some requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rating {
    /// Sum of the response times of right answers.
    right_ns: u128,
    /// Requests with a wrong answer, a late one, or none.
    penalties: u64,
}

impl Rating {
    /// A rating of right answers whose response times add up to `right_ns`, and `penalties` other requests.
    pub fn new(right_ns: u128, penalties: u64) -> Rating {
        Rating { right_ns, penalties }
    }

    /// Counts a right answer that arrived `latency_ns` after its planned moment, within the timeout.
    pub fn add_right(&mut self, latency_ns: u64) {
        self.right_ns += u128::from(latency_ns);
    }

    /// Counts `requests` without a right answer in time: wrong, late, failed, or never sent.
    pub fn add_penalties(&mut self, requests: u64) {
        self.penalties += requests;
    }

    /// Sum in nanoseconds, where each penalty is `timeout`.
    pub fn total_ns(&self, timeout: Duration) -> u128 {
        self.right_ns + u128::from(self.penalties) * timeout.as_nanos()
    }

    /// Sum in seconds, for output: exact to a nanosecond below 2^53 of them (104 days).
    pub fn seconds(&self, timeout: Duration) -> f64 {
        let total_ns = self.total_ns(timeout);
        (total_ns / 1_000_000_000) as f64 + (total_ns % 1_000_000_000) as f64 / 1e9
    }
}

impl AddAssign for Rating {
    fn add_assign(&mut self, other: Rating) {
        self.right_ns += other.right_ns;
        self.penalties += other.penalties;
    }
}

#[cfg(test)]
mod by_hand {
    use super::{CONTEST_TIMEOUT, Rating};
    use proptest::prelude::*;

    #[test]
    fn two_phases_add_up_to_the_rating_of_the_run() {
        // Phase 1: right after 1.5 ms and 0.25 ms; one wrong, one late. 0.00175 + 2 × 2.
        let mut first = Rating::default();
        first.add_right(1_500_000);
        first.add_right(250_000);
        first.add_penalties(2);
        assert_eq!(first.total_ns(CONTEST_TIMEOUT), 4_001_750_000);
        // Phase 2: right after 3 ns; one without a reply. 0.000000003 + 2.
        let second = Rating::new(3, 1);
        assert_eq!(second.seconds(CONTEST_TIMEOUT), 2.000000003);
        let mut run = first;
        run += second;
        assert_eq!(run.total_ns(CONTEST_TIMEOUT), 6_001_750_003);
        assert_eq!(run.seconds(CONTEST_TIMEOUT), 6.001750003);
    }

    #[test]
    fn the_first_perl_version_of_the_contest_had_mostly_penalties() {
        // 59,924 penalties and 0.439812 s of answers are the 119,848.439812 of its first run.
        let mut rating = Rating::default();
        rating.add_penalties(59_924);
        rating.add_right(439_812_000);
        assert_eq!(rating.seconds(CONTEST_TIMEOUT), 119_848.439812);
    }

    proptest! {
        #[test]
        fn the_order_of_parts_does_not_matter(parts in proptest::collection::vec((any::<u32>(), 0..1000u64), 0..20)) {
            let rating = |part: &(u32, u64)| {
                let mut rating = Rating::default();
                rating.add_right(u64::from(part.0));
                rating.add_penalties(part.1);
                rating
            };
            let sum = |parts: &mut dyn Iterator<Item = &(u32, u64)>| {
                parts.fold(Rating::default(), |mut sum, part| { sum += rating(part); sum })
            };
            prop_assert_eq!(sum(&mut parts.iter()), sum(&mut parts.iter().rev()));
        }
    }
}
