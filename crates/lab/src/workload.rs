//! The steps of requests: those of the classic experiment, or those of a mix.
//!
//! A workload is divided at the waits of its requests, so that each model can run it: [`Workload::advance`] computes from one
//! wait to the next.

use crate::mix::{Mix, Step};
use crate::request::{TEXT_BYTES, Wait, fill, result, wait_of, write_result};
use crate::unit::{ROUNDS, compute, timed, units_per_us};
use executor::CoroutineProgress;
use serde::Serialize;
use std::hint::black_box;
use std::time::Duration;

/// Number of requests that are computed to measure their cost: about 10 ms of computing. Their ids are spread evenly over those of the
/// run, because a larger id has a longer result to format.
const SAMPLE: u32 = 4000;

/// A reply in progress.
#[derive(Debug, Default)]
pub struct SimulatedReply {
    /// The reply's text.
    pub buffer: Vec<u8>,
    /// The number in it; 0 for mixes.
    pub result: f64,
}

/// Requests by id.
#[derive(Debug, Clone)]
pub struct Workload {
    work: Work,
    /// Waits are multiplied by this.
    scale: f64,
    /// How often the second part of a request, or a mix's computing, is repeated.
    repeats: u32,
}

#[derive(Debug, Clone)]
enum Work {
    /// The classic experiment.
    Source,
    /// A mix, and the number of work units that fill a microsecond.
    Mix { mix: Mix, units_per_us: f64 },
}

/// The cost of a request without any delay by others.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Shape {
    /// Computing before the first wait or yield, in seconds; all of it if the request never waits.
    pub(crate) first: f64,
    /// All its computing, in seconds.
    pub(crate) cpu: f64,
    /// All its waits, in seconds.
    pub(crate) waits: f64,
}

/// Cost of the two parts of a classic request on one thread, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Costs {
    /// Arithmetic, allocating the buffer and writing the number into it.
    pub first: f64,
    /// Copying and changing the text, and freeing the buffer.
    pub rest: f64,
}

impl Costs {
    /// Measures them with a sample of the ids from 0 to `requests` - 1, in the order in which a model would run them: each without a
    /// break.
    pub fn measure(workload: &Workload, requests: u32) -> Self {
        let parts = (0..ROUNDS).map(|_| {
            let first = timed(|| sample(requests).for_each(|id| first_part(id, &mut SimulatedReply::default())));
            let both = timed(|| {
                for id in sample(requests) {
                    let mut reply = SimulatedReply::default();
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

/// [`SAMPLE`] ids at equal distances.
fn sample(requests: u32) -> impl Iterator<Item = u32> {
    (0..u64::from(SAMPLE)).map(move |index| (index * u64::from(requests) / u64::from(SAMPLE)) as u32)
}

impl Workload {
    /// The requests of the classic experiment, with waits multiplied by `scale` and the second part repeated `repeats` times.
    pub fn source(scale: f64, repeats: u32) -> Self {
        Self { work: Work::Source, scale, repeats }
    }

    /// The requests of a mix, with waits multiplied by `scale` and computing by `repeats`. Measures the unit of work, which takes
    /// about 20 ms.
    pub fn of_mix(mix: Mix, scale: f64, repeats: u32) -> Self {
        Self { work: Work::Mix { mix, units_per_us: units_per_us() }, scale, repeats }
    }

    /// Whether these are the classic experiment's requests.
    pub fn is_source(&self) -> bool {
        matches!(self.work, Work::Source)
    }

    /// The requested wait of a request before scaling, and its number of yields.
    pub(crate) fn asked(&self, id: u32) -> (Duration, u32) {
        match &self.work {
            Work::Source => match wait_of(id) {
                Wait::Nothing => (Duration::ZERO, 0),
                Wait::Yield => (Duration::ZERO, 1),
                Wait::For(wait) => (wait, 0),
            },
            Work::Mix { mix, .. } => {
                let steps = mix.steps(id).iter();
                steps.fold((Duration::ZERO, 0), |(wait, yields), step| match step {
                    Step::Wait(more) => (wait + *more, yields),
                    Step::Yield => (wait, yields + 1),
                    Step::Cpu(_) => (wait, yields),
                })
            }
        }
    }

    /// The wait that [`Workload::advance`] has just returned, before scaling.
    pub(crate) fn asked_at(&self, id: u32, place: usize) -> Duration {
        match &self.work {
            Work::Source => self.asked(id).0,
            Work::Mix { mix, .. } => match place.checked_sub(1).and_then(|last| mix.steps(id).get(last)) {
                Some(Step::Wait(wait)) => *wait,
                _ => Duration::ZERO,
            },
        }
    }

    /// Scales a wait.
    pub(crate) fn scaled(&self, wait: Duration) -> Duration {
        wait.mul_f64(self.scale)
    }

    /// Computes until the request waits, yields or ends. `place` is the position in the request's steps, 0 at first.
    pub fn advance(&self, id: u32, place: &mut usize, reply: &mut SimulatedReply) -> CoroutineProgress {
        match &self.work {
            Work::Source => self.advance_source(id, place, reply),
            Work::Mix { mix, units_per_us } => self.advance_mix(mix.steps(id), *units_per_us, place, reply),
        }
    }

    fn advance_source(&self, id: u32, place: &mut usize, reply: &mut SimulatedReply) -> CoroutineProgress {
        if *place == 0 {
            *place = 1;
            first_part(id, reply);
            match wait_of(id) {
                Wait::Nothing => {}
                Wait::Yield => return CoroutineProgress::Yield,
                Wait::For(wait) => return CoroutineProgress::Wait(self.scaled(wait)),
            }
        }
        self.second_part(reply);
        CoroutineProgress::Done
    }

    /// The second part of a classic request.
    pub(crate) fn second_part(&self, reply: &mut SimulatedReply) {
        for _ in 0..self.repeats {
            fill(&mut reply.buffer);
            // The reply is not used; without this the compiler would remove its computation.
            black_box(&mut reply.buffer);
        }
    }

    fn advance_mix(
        &self,
        steps: &[Step],
        units_per_us: f64,
        place: &mut usize,
        reply: &mut SimulatedReply,
    ) -> CoroutineProgress {
        while let Some(step) = steps.get(*place) {
            *place += 1;
            match step {
                Step::Wait(wait) => return CoroutineProgress::Wait(self.scaled(*wait)),
                Step::Yield => return CoroutineProgress::Yield,
                Step::Cpu(time) => {
                    let units = time.as_secs_f64() * 1e6 * units_per_us * f64::from(self.repeats);
                    compute(units.round() as u64, &mut reply.buffer);
                }
            }
        }
        CoroutineProgress::Done
    }

    /// The cost of a request, for the bounds of [`crate::optimum`].
    pub(crate) fn shape(&self, id: u32, costs: &Costs) -> Shape {
        let waits = self.scaled(self.asked(id).0).as_secs_f64();
        match &self.work {
            Work::Source => {
                let cpu = costs.first + costs.rest;
                let first = if wait_of(id) == Wait::Nothing { cpu } else { costs.first };
                Shape { first, cpu, waits }
            }
            Work::Mix { mix, .. } => {
                let steps = mix.steps(id);
                let computing = |steps: &[Step]| -> f64 {
                    let times =
                        steps.iter().map(|step| if let Step::Cpu(time) = step { time.as_secs_f64() } else { 0.0 });
                    times.sum::<f64>() * f64::from(self.repeats)
                };
                let until = steps.iter().position(|step| !matches!(step, Step::Cpu(_))).unwrap_or(steps.len());
                Shape { first: computing(&steps[..until]), cpu: computing(steps), waits }
            }
        }
    }
}

/// The first part of a classic request.
pub(crate) fn first_part(id: u32, reply: &mut SimulatedReply) {
    reply.result = result(id);
    reply.buffer = Vec::with_capacity(TEXT_BYTES);
    write_result(&mut reply.buffer, reply.result);
    black_box(&mut reply.buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_classic_request_stops_at_its_wait_and_ends_with_its_text() {
        let workload = Workload::source(0.01, 1);
        let (mut place, mut reply) = (0, SimulatedReply::default());
        let waits = CoroutineProgress::Wait(Duration::from_micros(880));
        assert_eq!(workload.advance(3000, &mut place, &mut reply), waits);
        assert_eq!(String::from_utf8(reply.buffer.clone()).unwrap(), format!("Resp: {:.6}", result(3000)));
        assert_eq!(workload.advance(3000, &mut place, &mut reply), CoroutineProgress::Done);
        assert_eq!((reply.buffer.len(), reply.result), (TEXT_BYTES, result(3000)));
        assert_eq!(workload.advance(7, &mut 0, &mut reply), CoroutineProgress::Done);
        assert_eq!(workload.advance(8, &mut 0, &mut reply), CoroutineProgress::Yield);
    }

    #[test]
    fn a_mix_goes_through_its_steps() {
        let mix = Mix::parse("[[kinds]]\nsteps = [\"yield\", \"cpu 1us\", \"wait 2ms\", \"wait 4ms\"]").unwrap();
        let workload = Workload::of_mix(mix, 0.5, 3);
        let (mut place, mut reply) = (0, SimulatedReply::default());
        let steps: Vec<CoroutineProgress> = (0..4).map(|_| workload.advance(9, &mut place, &mut reply)).collect();
        let wait = |ms| CoroutineProgress::Wait(Duration::from_millis(ms));
        assert_eq!(steps, [CoroutineProgress::Yield, wait(1), wait(2), CoroutineProgress::Done]);
        assert_eq!(workload.asked(9), (Duration::from_millis(6), 1));
        let costs = Costs { first: 0.0, rest: 0.0 };
        let shape = workload.shape(9, &costs);
        assert_eq!((shape.first, shape.waits), (0.0, 0.003));
        assert!((shape.cpu - 3e-6).abs() < 1e-12, "{shape:?}");
    }

    #[test]
    fn a_classic_request_without_a_wait_is_one_piece() {
        let (workload, costs) = (Workload::source(0.5, 1), Costs { first: 1.0, rest: 2.0 });
        assert_eq!(workload.shape(1, &costs), Shape { first: 3.0, cpu: 3.0, waits: 0.0 });
        assert_eq!(workload.shape(2, &costs), Shape { first: 1.0, cpu: 3.0, waits: 0.0 });
        assert_eq!(workload.shape(10_000, &costs), Shape { first: 1.0, cpu: 3.0, waits: 0.5 });
    }

    #[test]
    fn the_sample_is_spread_over_all_ids() {
        let ids: Vec<u32> = sample(100_000).collect();
        assert_eq!((ids.len(), ids[0], ids[1], ids[3999]), (4000, 0, 25, 99_975));
        assert_eq!(sample(2).collect::<Vec<_>>(), [vec![0; 2000], vec![1; 2000]].concat());
    }

    #[test]
    fn costs_are_measured_and_a_repeated_part_costs_more() {
        let [once, often] = [1, 8].map(|repeats| Costs::measure(&Workload::source(1.0, repeats), 100_000));
        assert!(once.first > 0.0 && once.rest > 0.0, "{once:?}");
        assert!(often.rest > 2.0 * once.rest, "{once:?} {often:?}");
    }
}
