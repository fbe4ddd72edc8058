//! Lower bounds of the time that any schedule needs for a workload on P cores.
//!
//! 1. **Work.** All computing is divided evenly: the sum of the requests' computing, divided by P.
//! 2. **Chain.** A request's own computing and waits are sequential: the longest request.
//! 3. **Arrival.** Requests begin in the order of their ids, a request is not interrupted while it computes, and at most L are in
//!    progress at the same time, since each holds memory. So before request i begins, each earlier one has computed up to its
//!    first wait, and all but L of them to their end; then request i needs its whole chain. The L unfinished ones are assumed to
//!    be those with the most computing left. At most P - 1 earlier ones may still be computing, which is subtracted.
//!
//! The optimum is the largest of the three. It includes only the requests' own computing, measured on one otherwise idle thread:
//! all overhead of a model (threads, queues, context switches) is above it. `docs/lab.md` derives the bounds.

use crate::run::RunPlan;
use crate::workload::{Costs, Shape};
use executor::THREADS_MAX;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The bounds of a workload, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Optimum {
    /// All computing, divided by the cores.
    pub work: f64,
    /// The longest request.
    pub chain: f64,
    /// The latest end of a request that begins in order.
    pub arrival: f64,
}

impl Optimum {
    /// The bounds of a plan on this number of cores.
    pub fn of(plan: &RunPlan, cores: usize, costs: &Costs) -> Self {
        let (mut work, mut chain, mut arrival) = (0.0, 0.0_f64, 0.0_f64);
        let mut before = Before::new(under_way_max(plan), cores);
        for id in 0..plan.requests {
            let shape = plan.workload.shape(id, costs);
            let own = shape.cpu + shape.waits;
            chain = chain.max(own);
            arrival = arrival.max(before.start() + own);
            work += shape.cpu;
            before.add(&shape);
        }
        Self { work: work / cores as f64, chain, arrival }
    }

    /// The largest bound: no model that begins requests in order is faster, if at most L are in progress. (Only a thread for each
    /// request may have more.)
    pub fn seconds(&self) -> f64 {
        self.work.max(self.chain).max(self.arrival)
    }
}

/// L: the number of tasks that a queue, or the threads of a pool, permit to be in progress.
fn under_way_max(plan: &RunPlan) -> usize {
    plan.queue_max.max(THREADS_MAX)
}

/// Computing that must be done before the next request can begin.
struct Before {
    cores: f64,
    under_way_max: usize,
    /// All computing of the requests so far.
    all: f64,
    /// Computing after the first wait of the unfinished requests: the largest values, as bits, which sort like the positive
    /// numbers.
    spared: BinaryHeap<Reverse<u64>>,
    spared_sum: f64,
    /// The longest uninterrupted piece of computing.
    longest: f64,
}

impl Before {
    fn new(under_way_max: usize, cores: usize) -> Self {
        let spared = BinaryHeap::new();
        Self { cores: cores as f64, under_way_max, all: 0.0, spared, spared_sum: 0.0, longest: 0.0 }
    }

    /// The earliest moment at which the next request can begin.
    fn start(&self) -> f64 {
        let done = self.all - self.spared_sum - (self.cores - 1.0) * self.longest;
        (done / self.cores).max(0.0)
    }

    fn add(&mut self, shape: &Shape) {
        let left = shape.cpu - shape.first;
        self.all += shape.cpu;
        self.longest = self.longest.max(shape.first).max(left);
        self.spared.push(Reverse(left.to_bits()));
        self.spared_sum += left;
        if self.spared.len() > self.under_way_max
            && let Some(Reverse(least)) = self.spared.pop()
        {
            self.spared_sum -= f64::from_bits(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Mix;
    use crate::workload::Workload;
    use std::sync::Arc;

    const COSTS: Costs = Costs { first: 1e-6, rest: 3e-6 };

    fn plan(workload: Workload, requests: u32, queue_max: usize) -> RunPlan {
        RunPlan { workload: Arc::new(workload), requests, queue_max }
    }

    fn of(queue_max: usize, cores: usize) -> Optimum {
        Optimum::of(&plan(Workload::source(1.0, 1), 100_000, queue_max), cores, &COSTS)
    }

    #[track_caller]
    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn the_last_long_wait_decides_where_work_is_short() {
        // As many in progress as there are requests.
        let optimum = of(100_000, 2);
        near(optimum.work, 0.2);
        near(optimum.chain, 1.000_004);
        // Before id 90,000: 45,000 odd ones with 4 µs, 45,000 others with 1 µs, minus one that may still compute.
        near(optimum.arrival, (45_000.0 * 5e-6 - 4e-6) / 2.0 + 1.000_004);
        near(optimum.seconds(), optimum.arrival);
    }

    #[test]
    fn a_bound_of_requests_under_way_has_the_others_ended_before() {
        // All but 4096 have computed their 4 µs; those 4096 have 3 µs left each.
        near(of(4096, 2).arrival, (90_000.0 * 4e-6 - 4096.0 * 3e-6 - 4e-6) / 2.0 + 1.000_004);
        assert_eq!(of(1, 2), of(THREADS_MAX, 2), "as many threads may be under way");
    }

    #[test]
    fn work_decides_on_few_cores() {
        let mix = Mix::parse("[[kinds]]\nsteps = [\"cpu 2ms\", \"wait 1ms\"]").unwrap();
        let plan = plan(Workload::of_mix(mix, 1.0, 1), 10, 4096);
        let optimum = Optimum::of(&plan, 1, &COSTS);
        near(optimum.work, 0.02);
        near(optimum.seconds(), 0.021);
        let optimum = Optimum::of(&plan, 4, &COSTS);
        near(optimum.work, 0.005);
        // Nine before the last one, three of which may still compute.
        near(optimum.arrival, 6.0 * 0.002 / 4.0 + 0.003);
    }
}
