//! The running verification of a view: one at a time, with a time limit.
//!
//! A verification reads a whole collection as of one moment. While it runs, it takes a thread of the pool, and the data file
//! grows by everything written meanwhile, because the pages of its moment are kept. So it ends after [`TIME_MAX`], when the
//! server drains, and with its client ([`crate::threads::client`]).

use crate::failure::{Failure, FailureKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time limit, counted from the first document. It is enough for some billions of documents.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// Whether a verification is running, and whether it may continue.
#[derive(Debug, Default)]
pub(crate) struct Verifications {
    is_under_way: AtomicBool,
    is_ending: AtomicBool,
}

impl Verifications {
    /// The server drains: ends the running verification.
    pub(crate) fn give_up(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Permission to verify a view: two at a time would take all threads of the pool.
    pub(crate) fn take_turn(self: &Arc<Self>) -> Result<VerificationPermit, Failure> {
        match self.is_under_way.swap(true, Ordering::AcqRel) {
            true => Err(Failure::new(FailureKind::Busy, "another verification is under way: one at a time")),
            false => Ok(VerificationPermit { all: Arc::clone(self) }),
        }
    }
}

/// Permission to verify a view; returned when it is dropped.
#[derive(Debug)]
pub(crate) struct VerificationPermit {
    all: Arc<Verifications>,
}

impl Drop for VerificationPermit {
    fn drop(&mut self) {
        self.all.is_under_way.store(false, Ordering::Release);
    }
}

impl VerificationPermit {
    /// Begins the verification.
    pub(crate) fn begin(&self) -> Run<'_> {
        Run { turn: self, ends: Instant::now() + TIME_MAX }
    }
}

/// A running verification.
pub(crate) struct Run<'t> {
    turn: &'t VerificationPermit,
    ends: Instant,
}

impl Run<'_> {
    /// Why it must end, for its client; `None` while it may continue.
    pub(crate) fn end(&self, now: Instant) -> Option<Failure> {
        if self.turn.all.is_ending.load(Ordering::Relaxed) {
            return Some(Failure::new(
                FailureKind::Busy,
                "the server stops: verify the view again once it has started",
            ));
        }
        (now >= self.ends).then(out_of_time)
    }
}

fn out_of_time() -> Failure {
    let detail = format!(
        "the view was not verified within {} minutes, the most on a server: run `sapsan verify DIR --config FILE --views` on its folder when \
         it has stopped, or on a restored backup",
        TIME_MAX.as_secs() / 60
    );
    Failure::new(FailureKind::OutOfTime, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_its_turn_until_it_is_dropped_and_ends_by_its_time_and_with_the_server() {
        let all = Arc::new(Verifications::default());
        let turn = all.take_turn().unwrap();
        assert_eq!(all.take_turn().unwrap_err().kind, FailureKind::Busy);
        let (run, now) = (turn.begin(), Instant::now());
        assert!(run.end(now).is_none());
        let late = run.end(now + TIME_MAX).expect("its end");
        assert!(late.kind == FailureKind::OutOfTime && late.detail.contains("`sapsan verify DIR"), "{}", late.detail);
        drop(turn);
        let turn = all.take_turn().unwrap();
        all.give_up();
        let stopped = turn.begin().end(now).expect("its end");
        assert!(
            stopped.kind == FailureKind::Busy && stopped.detail.contains("once it has started"),
            "{}",
            stopped.detail
        );
    }
}
