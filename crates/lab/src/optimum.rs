//! What no schedule can beat: lower bounds of the time that a workload takes on P cores.
//!
//! 1. **Work.** All computing shared out evenly: the sum of the requests' computing, divided by P.
//! 2. **Chain.** A request's own computing and waits follow one another: the longest request.
//! 3. **Arrival.** Requests are begun in the order of their ids, and a request is not interrupted while it computes. So before request i
//!    begins, each earlier one has computed until its first wait, on P cores; then request i has its whole chain before it. At most
//!    P - 1 earlier ones may still be at it, which is subtracted.
//!
//! The optimum is the largest of the three. It counts the requests' own computing alone, measured on one thread with nothing else going
//! on: whatever a model adds (threads, queues, context switches) is above it. `docs/lab.md` derives the bounds.

use crate::usage::thread_cpu;
use crate::workload::{Reply, Workload, compute, first_part};
use serde::Serialize;
use std::time::Duration;

/// Requests that are computed for measuring their cost.
const SAMPLE: u32 = 4000;
/// The cheapest of so many measurements counts: the others were disturbed.
const ROUNDS: usize = 5;
/// Units of work in one measurement of a unit.
const UNITS: u64 = 8000;

/// What the two parts of a classic request cost on one thread, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Costs {
    /// Arithmetic, the buffer and the number in it.
    pub first: f64,
    /// The text, and giving the buffer back.
    pub rest: f64,
}

impl Costs {
    /// Measures them, in the order in which a model would run them: many requests, each at once.
    pub fn measure(workload: &Workload) -> Self {
        let parts = (0..ROUNDS).map(|_| {
            let first = timed(|| (0..SAMPLE).for_each(|id| first_part(id, &mut Reply::default())));
            let both = timed(|| {
                for id in 0..SAMPLE {
                    let mut reply = Reply::default();
                    first_part(id, &mut reply);
                    workload.second_part(&mut reply);
                }
            });
            (first / f64::from(SAMPLE), both / f64::from(SAMPLE))
        });
        let (first, both) =
            parts.fold((f64::INFINITY, f64::INFINITY), |(first, both), one| (one.0.min(first), one.1.min(both)));
        Self { first, rest: (both - first).max(0.0) }
    }
}

/// Processor time of this thread, in seconds.
fn timed(work: impl FnOnce()) -> f64 {
    let before = thread_cpu();
    work();
    (thread_cpu() - before).as_secs_f64()
}

/// Units of work that fill a microsecond on this machine.
pub(crate) fn units_per_us() -> f64 {
    let mut buffer = Vec::new();
    let seconds = (0..ROUNDS).map(|_| timed(|| compute(UNITS, &mut buffer))).fold(f64::INFINITY, f64::min);
    // A clock that does not move would give infinity.
    UNITS as f64 / (seconds * 1e6).max(Duration::from_nanos(1).as_secs_f64())
}

/// The bounds of a workload, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Optimum {
    /// All computing, over the cores.
    pub work: f64,
    /// The longest request.
    pub chain: f64,
    /// The latest end of a request that begins in its turn.
    pub arrival: f64,
}

impl Optimum {
    /// The bounds of ids 0 to `requests` - 1 on so many cores.
    pub fn of(workload: &Workload, requests: u32, cores: usize, costs: &Costs) -> Self {
        let (mut cpu, mut chain, mut arrival) = (0.0, 0.0_f64, 0.0_f64);
        let (mut begun, mut longest_first) = (0.0, 0.0_f64);
        let cores = cores as f64;
        for id in 0..requests {
            let shape = workload.shape(id, costs);
            let own = shape.cpu + shape.waits;
            let start = ((begun - (cores - 1.0) * longest_first) / cores).max(0.0);
            chain = chain.max(own);
            arrival = arrival.max(start + own);
            cpu += shape.cpu;
            begun += shape.first;
            longest_first = longest_first.max(shape.first);
        }
        Self { work: cpu / cores, chain, arrival }
    }

    /// The largest bound: no model that begins requests in their order is faster.
    pub fn seconds(&self) -> f64 {
        self.work.max(self.chain).max(self.arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Mix;

    const COSTS: Costs = Costs { first: 1e-6, rest: 3e-6 };

    fn of(requests: u32, cores: usize) -> Optimum {
        Optimum::of(&Workload::source(1.0, 1), requests, cores, &COSTS)
    }

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn the_last_long_wait_decides_where_work_is_short() {
        let optimum = of(100_000, 2);
        near(optimum.work, 0.2);
        near(optimum.chain, 1.000_004);
        // Before id 90,000: 45,000 odd ones with 4 µs, 45,000 others with 1 µs, less one that may still compute.
        near(optimum.arrival, (45_000.0 * 5e-6 - 4e-6) / 2.0 + 1.000_004);
        near(optimum.seconds(), optimum.arrival);
    }

    #[test]
    fn work_decides_on_few_cores() {
        let mix = Mix::parse("[[kinds]]\nsteps = [\"cpu 2ms\", \"wait 1ms\"]").unwrap();
        let workload = Workload::of_mix(mix, 1.0, 1);
        let optimum = Optimum::of(&workload, 10, 1, &COSTS);
        near(optimum.work, 0.02);
        near(optimum.seconds(), 0.021);
        let optimum = Optimum::of(&workload, 10, 4, &COSTS);
        near(optimum.work, 0.005);
        // Nine before the last one, three of which may still compute.
        near(optimum.arrival, 6.0 * 0.002 / 4.0 + 0.003);
    }

    #[test]
    fn costs_are_measured_and_a_repeated_part_costs_more() {
        let [once, often] = [1, 8].map(|repeats| Costs::measure(&Workload::source(1.0, repeats)));
        assert!(once.first > 0.0 && once.rest > 0.0, "{once:?}");
        assert!(often.rest > 2.0 * once.rest, "{once:?} {often:?}");
        assert!(units_per_us() > 0.0);
    }
}
