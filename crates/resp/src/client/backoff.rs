//! When the next attempt to connect is due.

use super::settings::deadline;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// The pause doubles from the shortest to the longest; each pause is shortened by a random part, at most a half.
#[derive(Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    /// Pause before the random cut. None after a success.
    pause: Option<Duration>,
    due: Option<Instant>,
    random: RandomState,
    attempts: u64,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Backoff {
        Backoff { min, max: max.max(min), pause: None, due: None, random: RandomState::new(), attempts: 0 }
    }

    /// When the next attempt may be made.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(crate) fn succeeded(&mut self) {
        (self.pause, self.due) = (None, None);
    }

    /// Counts a failed attempt that ended now.
    pub(crate) fn failed(&mut self, now: Instant) {
        let pause = self.pause.map_or(self.min, |pause| pause.saturating_mul(2)).min(self.max);
        self.pause = Some(pause);
        // A pause without end is that of the longest timeout.
        self.due = Some(deadline(now, self.cut(pause)));
    }

    /// A random duration between half of the pause and the whole. The seed of a hasher is the standard library's
    /// source of randomness.
    fn cut(&mut self, pause: Duration) -> Duration {
        self.attempts += 1;
        let random = self.random.hash_one(self.attempts) as u32;
        pause - (pause / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_anew_after_a_success() {
        let (ms, now) = (Duration::from_millis, Instant::now());
        let mut backoff = Backoff::new(ms(10), ms(45));
        assert_eq!(backoff.due(), None);
        for longest in [10, 20, 40, 45, 45] {
            backoff.failed(now);
            let pause = backoff.due().unwrap() - now;
            assert!(pause >= ms(longest) / 2 && pause <= ms(longest), "{pause:?}, at most {longest} ms");
        }
        backoff.succeeded();
        assert_eq!(backoff.due(), None);
        backoff.failed(now);
        assert!(backoff.due().unwrap() - now <= ms(10));
    }

    #[test]
    fn a_pause_may_be_as_long_as_a_duration() {
        let now = Instant::now();
        let mut backoff = Backoff::new(Duration::MAX, Duration::MAX);
        backoff.failed(now);
        assert!(backoff.due() > Some(now));
    }

    #[test]
    fn clients_that_fail_at_the_same_moment_do_not_return_at_the_same_moment() {
        let now = Instant::now();
        let due = |_| {
            let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1));
            backoff.failed(now);
            backoff.due()
        };
        let moments: std::collections::HashSet<_> = (0..20).map(due).collect();
        assert!(moments.len() > 10);
    }
}
