//! The moments and results of each request of a run, written once by the thread that ends the request; and the timelines
//! made from them.
//!
//! Moments are nanoseconds since the run began. For a request with several waits the trace keeps only the longest, so the
//! timelines of such mixes show only that one.

use crate::control::Control;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of points of a timeline.
pub(crate) const POINTS: usize = 240;

/// The moments of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moments {
    /// The request was submitted to the executor; it may have waited there for room.
    pub(crate) submitted: u64,
    /// It was first resumed.
    pub(crate) began: u64,
    /// Its longest wait began and ended; both are 0 for a request without one.
    pub(crate) wait_began: u64,
    pub(crate) wait_ended: u64,
    /// Its reply was complete.
    pub(crate) ended: u64,
}

/// The outcome of one request. The executor's drain orders the writes before the reads.
#[derive(Default)]
struct Slot {
    moments: [AtomicU64; 5],
    result_bits: AtomicU64,
    waits_ns: AtomicU64,
    yields: AtomicU64,
    /// How often the request has ended; more than once is an error.
    ends: AtomicU64,
}

/// The outcomes of all requests of a run.
pub struct Trace {
    origin: Instant,
    slots: Vec<Slot>,
}

/// Mean numbers of tasks in equal intervals of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timeline {
    /// Length of an interval, in seconds.
    pub step: f64,
    /// Tasks between a resumption and the next wait: computing, or ready to compute.
    pub running: Vec<f64>,
    /// Tasks that wait: their threads are blocked, or they are suspended.
    pub waiting: Vec<f64>,
}

impl Trace {
    /// A trace for `requests` ids. The run begins now.
    pub(crate) fn new(requests: u32) -> Self {
        let slots = (0..requests).map(|_| Slot::default()).collect();
        Self { origin: Instant::now(), slots }
    }

    /// Nanoseconds since the run began.
    pub(crate) fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Records the outcome of a request.
    pub(crate) fn end(&self, id: u32, moments: Moments, result: f64, (waits, yields): (Duration, u32)) {
        let Some(slot) = self.slots.get(id as usize) else { return };
        let Moments { submitted, began, wait_began, wait_ended, ended } = moments;
        for (place, moment) in slot.moments.iter().zip([submitted, began, wait_began, wait_ended, ended]) {
            place.store(moment, Ordering::Relaxed);
        }
        slot.result_bits.store(result.to_bits(), Ordering::Relaxed);
        slot.waits_ns.store(waits.as_nanos() as u64, Ordering::Relaxed);
        slot.yields.store(u64::from(yields), Ordering::Relaxed);
        // One thread at a time owns a request, so this needs no atomic addition, which would wait for the slot's cache line.
        slot.ends.store(slot.ends.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// The control values of the requests, added in the order of their ids.
    pub(crate) fn control(&self) -> Control {
        let mut control = Control { requests: 0, result_sum: 0.0, waits_ms: 0.0, yields: 0 };
        let mut waits = Duration::ZERO;
        for slot in &self.slots {
            control.requests += slot.ends.load(Ordering::Relaxed);
            control.result_sum += f64::from_bits(slot.result_bits.load(Ordering::Relaxed));
            waits += Duration::from_nanos(slot.waits_ns.load(Ordering::Relaxed));
            control.yields += slot.yields.load(Ordering::Relaxed);
        }
        control.waits_ms = waits.as_secs_f64() * 1e3;
        control
    }

    fn moments(&self) -> impl Iterator<Item = Moments> + '_ {
        self.slots.iter().map(|slot| {
            let at = |index: usize| slot.moments[index].load(Ordering::Relaxed);
            Moments { submitted: at(0), began: at(1), wait_began: at(2), wait_ended: at(3), ended: at(4) }
        })
    }

    /// Time from the submission of each request to its reply, in nanoseconds, ascending.
    pub(crate) fn latencies(&self) -> Vec<u64> {
        let mut latencies: Vec<u64> = self.moments().map(|one| one.ended.saturating_sub(one.submitted)).collect();
        latencies.sort_unstable();
        latencies
    }

    /// The run's timelines; `wall` is its length.
    pub(crate) fn timeline(&self, wall: Duration) -> Timeline {
        let step_ns = (wall.as_nanos() as f64 / POINTS as f64).max(1.0);
        let (mut running, mut waiting) = (vec![0.0; POINTS], vec![0.0; POINTS]);
        for one in self.moments() {
            if one.wait_ended == 0 {
                add_interval(&mut running, step_ns, (one.began, one.ended));
            } else {
                add_interval(&mut running, step_ns, (one.began, one.wait_began));
                add_interval(&mut waiting, step_ns, (one.wait_began, one.wait_ended));
                add_interval(&mut running, step_ns, (one.wait_ended, one.ended));
            }
        }
        Timeline { step: step_ns / 1e9, running, waiting }
    }
}

/// Adds to each interval its overlap with the range.
fn add_interval(parts: &mut [f64], step_ns: f64, (from, to): (u64, u64)) {
    let (from, to) = (from as f64 / step_ns, to as f64 / step_ns);
    let last = (to.ceil() as usize).min(parts.len());
    for (index, part) in parts.iter_mut().enumerate().take(last).skip(from as usize) {
        let (begin, end) = (from.max(index as f64), to.min(index as f64 + 1.0));
        *part += (end - begin).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_shared_out_over_the_parts_that_it_touches() {
        let mut parts = [0.0; 4];
        add_interval(&mut parts, 10.0, (5, 25));
        add_interval(&mut parts, 10.0, (12, 14));
        add_interval(&mut parts, 10.0, (38, 90));
        let rounded = parts.map(|part: f64| (part * 100.0).round() / 100.0);
        assert_eq!(rounded, [0.5, 1.2, 0.5, 0.2]);
    }

    #[test]
    fn a_trace_gives_sums_latencies_and_timelines() {
        let trace = Trace::new(2);
        let waits = Moments { submitted: 0, began: 10, wait_began: 20, wait_ended: 80, ended: 100 };
        let goes_on = Moments { submitted: 40, began: 50, wait_began: 0, wait_ended: 0, ended: 60 };
        trace.end(0, waits, 1.5, (Duration::from_millis(7), 0));
        trace.end(1, goes_on, 2.0, (Duration::ZERO, 3));
        let control = Control { requests: 2, result_sum: 3.5, waits_ms: 7.0, yields: 3 };
        assert_eq!(trace.control(), control);
        assert_eq!(trace.latencies(), [20, 100]);
        let timeline = trace.timeline(Duration::from_nanos(POINTS as u64));
        assert_eq!(
            (timeline.running[9], timeline.running[15], timeline.running[55], timeline.running[99]),
            (0.0, 1.0, 1.0, 1.0)
        );
        assert_eq!(
            (timeline.waiting[19], timeline.waiting[20], timeline.waiting[79], timeline.waiting[80]),
            (0.0, 1.0, 1.0, 0.0)
        );
    }
}
