//! The progress of a run, once a second, for the live screen.

use super::report::Pulse;
use crate::live::RunProgress;
use crate::profile::Profile;
use crate::recording::{LONGEST_NS, Percentiles};
use hdrhistogram::Histogram;
use std::sync::Arc;

/// Adds up the pulses of all loops.
pub(super) struct Pulses {
    loops: usize,
    profile: Option<Arc<Profile>>,
    planned_seconds: f64,
    /// Current second: the number of loops that have reported, and their sum.
    loops_reported: usize,
    second: Pulse,
    seconds: u64,
    latency: Histogram<u64>,
    requests: u64,
    errors: u64,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("the bounds are in order, and the digits few")
}

impl Pulses {
    pub(super) fn new(loops: usize, profile: Option<Arc<Profile>>, planned_seconds: f64) -> Self {
        let second = Pulse::new(histogram());
        let latency = histogram();
        Self { loops, profile, planned_seconds, loops_reported: 0, second, seconds: 0, latency, requests: 0, errors: 0 }
    }

    /// Adds a loop's report of a second. Returns the progress once all loops have reported.
    pub(super) fn add(&mut self, pulse: &Pulse) -> Option<RunProgress> {
        let second = &mut self.second;
        second.sent += pulse.sent;
        second.answered += pulse.answered;
        second.in_flight += pulse.in_flight;
        second.latency.add(&pulse.latency).expect("the same bounds");
        self.requests += pulse.answered + pulse.lost;
        self.errors += pulse.errors;
        self.loops_reported += 1;
        (self.loops_reported == self.loops).then(|| self.progress())
    }

    fn progress(&mut self) -> RunProgress {
        self.loops_reported = 0;
        self.seconds += 1;
        let second = std::mem::replace(&mut self.second, Pulse::new(histogram()));
        self.latency.add(&second.latency).expect("the same bounds");
        let elapsed = self.seconds as f64;
        let profile = self.profile.as_ref();
        let parts = profile.map(|profile| profile.parts()).unwrap_or_default();
        let part = parts.iter().filter(|_| parts.len() > 1).find(|part| elapsed <= part.to);
        RunProgress {
            elapsed,
            planned_seconds: Some(self.planned_seconds),
            phase: part.map(|part| part.name.clone()),
            planned_rate: profile.map(|profile| profile.rate(elapsed - 0.5)),
            sent_rate: second.sent as f64,
            answered_rate: second.answered as f64,
            in_flight: second.in_flight,
            second_latency: Percentiles::of(&second.latency),
            latency: Percentiles::of(&self.latency),
            requests: self.requests,
            errors: self.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_told_once_all_loops_have_told_it() {
        let profile = Arc::new(Profile::parse("line(0,10,1s) const(10,9s)").unwrap());
        let mut pulses = Pulses::new(2, Some(profile), 10.0);
        let pulse = |sent, errors| Pulse { sent, answered: 3, errors, in_flight: 1, ..Pulse::new(histogram()) };
        assert_eq!(pulses.add(&pulse(4, 0)), None);
        let first = pulses.add(&pulse(5, 1)).unwrap();
        assert_eq!((first.sent_rate, first.answered_rate, first.requests, first.errors), (9.0, 6.0, 6, 1));
        assert_eq!((first.planned_rate, first.phase.as_deref()), (Some(5.0), Some("line(0,10,1s)")));
        pulses.add(&pulse(1, 1));
        let second = pulses.add(&pulse(1, 1)).unwrap();
        assert_eq!((second.elapsed, second.requests, second.errors), (2.0, 12, 3));
        assert_eq!(second.phase.as_deref(), Some("const(10,9s)"));
    }
}
