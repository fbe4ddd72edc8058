//! Pauses between the attempts of a checkpoint that fails again and again, and between the lines of the log about it.

use std::time::Duration;

use crate::base::limits::{LOG_AGAIN_AFTER, LOG_AGAIN_AFTER_MAX, RETRY_AFTER, RETRY_AFTER_MAX};
use crate::base::sync::Instant;

/// Failures since the last checkpoint that succeeded.
#[derive(Debug, Default)]
pub(super) struct Retries {
    failures: u32,
    last: Option<Instant>,
    /// Time of the last line of the log, and the pause before the next one.
    logged: Option<(Instant, Duration)>,
}

impl Retries {
    /// Records a failure; true if it should be logged.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        self.failures = self.failures.saturating_add(1);
        self.last = Some(now);
        let pause = match self.logged {
            None => LOG_AGAIN_AFTER,
            Some((at, pause)) if now.saturating_duration_since(at) >= pause => (pause * 2).min(LOG_AGAIN_AFTER_MAX),
            Some(_) => return false,
        };
        self.logged = Some((now, pause));
        true
    }

    /// Records that an attempt had to wait for readers. It says nothing about the disk, so the pauses do not grow.
    pub(super) fn waited(&mut self, now: Instant) {
        self.last = Some(now);
    }

    /// Records a success; returns the number of failures before it.
    pub(super) fn succeeded(&mut self) -> u32 {
        std::mem::take(self).failures
    }

    /// Number of failures.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// Whether the next attempt may begin. The pause does not grow while a writer waits for it.
    pub(super) fn may_try(&self, now: Instant, is_awaited: bool) -> bool {
        let doublings = if is_awaited { 0 } else { self.failures.saturating_sub(1).min(16) };
        let pause = (RETRY_AFTER * (1 << doublings)).min(RETRY_AFTER_MAX);
        self.last.is_none_or(|last| now.saturating_duration_since(last) >= pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attempts as often as they may be made during this time: how many, and how many of them are logged.
    fn attempts(retries: &mut Retries, seconds: u64, is_awaited: bool) -> (u32, u32) {
        let (began, mut logged, mut made) = (Instant::now(), 0, 0);
        for tick in 0..seconds * 10 {
            let now = began + tick as u32 * Duration::from_millis(100);
            if retries.may_try(now, is_awaited) {
                made += 1;
                logged += u32::from(retries.failed(now));
            }
        }
        (made, logged)
    }

    #[test]
    fn pauses_grow_to_their_bounds_and_begin_anew_after_a_success() {
        let mut retries = Retries::default();
        let (made, logged) = attempts(&mut retries, 600, false);
        assert!((120..130).contains(&made), "{made} attempts, one each 5 s");
        assert!((14..17).contains(&logged), "{logged} lines, in the end one a minute");
        assert_eq!(retries.succeeded(), made);
        assert_eq!(retries.succeeded(), 0);
        assert!(retries.may_try(Instant::now(), false) && retries.failed(Instant::now()));
    }

    #[test]
    fn an_attempt_that_a_writer_waits_for_is_made_soon_and_logged_no_more_often() {
        let (made, logged) = attempts(&mut Retries::default(), 60, true);
        assert_eq!(made, 200, "one each 300 ms, as the ticks fall");
        assert!((6..8).contains(&logged), "{logged}");
    }
}
