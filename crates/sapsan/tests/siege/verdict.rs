//! What a siege must hold, judged over all that was measured.

use crate::STOP_SLACK;
use crate::honest::{Asked, Honest, Writer};
use crate::lag::{Lag, Span};
use crate::service::DRAIN;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// In which health answers, beside what the machine takes.
const HEALTH_MAX: Duration = Duration::from_millis(100);
/// A health check that takes longer is a server that has stopped answering, on any machine and in any build.
const HEALTH_STALLED: Duration = Duration::from_secs(5);
/// How much slower the 99th percentile of a GET may be than alone.
const GET_FACTOR: u32 = 10;
/// Of so many GETs one may be refused.
const GETS_OF_A_REFUSAL: usize = 100;

#[derive(Default)]
pub(crate) struct Verdict {
    /// Whether late replies count, beside wrong ones.
    pub(crate) times_count: bool,
    pub(crate) memory_bytes: u64,
    /// From then on other processes were busy.
    pub(crate) busy_from: Option<Instant>,
    pub(crate) attacked_from: Option<Instant>,
    pub(crate) attacked_to: Option<Instant>,
    pub(crate) rss_bytes: u64,
    /// How long the process took to end, and whether it ended well.
    pub(crate) stop: Option<(Duration, bool)>,
    pub(crate) lost: Vec<String>,
    pub(crate) log: String,
    pub(crate) attacks: String,
    /// What did not hold.
    pub(crate) faults: Vec<String>,
    /// All figures.
    pub(crate) told: String,
}

/// The value below which so much of a sorted list lies.
fn quantile(sorted: &[Duration], part: f64) -> Duration {
    let place = (sorted.len() as f64 * part) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn sorted(times: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times
}

fn figures(sorted: &[Duration]) -> String {
    let of = |part| quantile(sorted, part).as_secs_f64() * 1000.0;
    format!(
        "{} times, ms: p50 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2}",
        sorted.len(),
        of(0.5),
        of(0.99),
        of(0.999),
        of(1.0)
    )
}

impl Verdict {
    pub(crate) fn judge(&mut self, honest: &Honest, writers: &[Writer], lag: &Lag) {
        let (Some(busy), Some(from), Some(to)) = (self.busy_from, self.attacked_from, self.attacked_to) else { return };
        let _ = writeln!(self.told, "== siege at {} bytes of memory", self.memory_bytes);
        let attacked = |asked: &&Asked| asked.span.from >= from;
        let alone = |asked: &&Asked| asked.span.from >= busy && asked.span.to < from;
        let machine = |from, to| sorted(lag.within(from, to).iter().map(Span::took));
        let _ = writeln!(self.told, "machine alone: {}", figures(&machine(from - (to - from), from)));
        let machine = machine(from, to);
        let _ = writeln!(self.told, "machine: {}", figures(&machine));
        self.judge_health(honest.health.iter().filter(attacked), lag, from);
        let idle = honest.gets.iter().filter(|asked| asked.span.to < busy).map(|asked| asked.span.took());
        let _ = writeln!(self.told, "GET on an idle machine: {}", figures(&sorted(idle)));
        let quiet: Vec<&Asked> = honest.gets.iter().filter(alone).collect();
        let loud: Vec<&Asked> = honest.gets.iter().filter(attacked).collect();
        self.judge_gets(&quiet, &loud, quantile(&machine, 0.99));
        self.judge_writes(writers, from);
        let rss = format!("anonymous memory: {} bytes of {}", self.rss_bytes, self.memory_bytes);
        self.hold(self.rss_bytes <= self.memory_bytes, rss);
        let (took, is_well) = self.stop.unwrap_or_default();
        self.hold_time(took <= DRAIN + STOP_SLACK, format!("SIGTERM: ended after {took:?} (drain_seconds: {DRAIN:?})"));
        self.hold(is_well, format!("SIGTERM: ended with status 0: {is_well}"));
        let lost = self.lost.clone();
        self.hold(lost.is_empty(), format!("acknowledged and lost: {}: {}", lost.len(), lost.join("; ")));
        let panics = self.log.matches("panicked").count();
        self.hold(panics == 0, format!("panics in the log: {panics}"));
        let attacks = std::mem::take(&mut self.attacks);
        let _ = writeln!(self.told, "{attacks}");
    }

    fn judge_health<'a>(&mut self, health: impl Iterator<Item = &'a Asked>, lag: &Lag, from: Instant) {
        let health: Vec<&Asked> = health.collect();
        let of_status = |status| health.iter().filter(|asked| asked.status == status).count();
        let told = figures(&sorted(health.iter().map(|asked| asked.span.took())));
        let beyond: Vec<(Duration, &&Asked)> = health.iter().map(|asked| (lag.beyond(&asked.span), asked)).collect();
        let late: Vec<String> = beyond
            .iter()
            .filter(|(beyond, asked)| *beyond > HEALTH_MAX || asked.status != 200)
            .map(|(beyond, asked)| format!("{} after {beyond:?} at {:?}", asked.status, asked.span.from - from))
            .collect();
        let beside = figures(&sorted(beyond.iter().map(|(beyond, _)| *beyond)));
        let _ = writeln!(self.told, "health: {told}\n  beside the machine: {beside}");
        let (ok, none) = (of_status(200), of_status(0));
        let shown = late[..late.len().min(8)].join(", ");
        let count = late.len();
        let slowest = beyond.iter().map(|(beyond, _)| *beyond).max().unwrap_or_default();
        self.hold(
            slowest < HEALTH_STALLED,
            format!("health: never silent for {HEALTH_STALLED:?}, at most {slowest:?}"),
        );
        self.hold(ok == health.len() && ok > 0, format!("health: {ok} of {} were 200", health.len()));
        self.hold_time(
            count == 0,
            format!("health within {HEALTH_MAX:?}: {ok} were 200, {none} without an answer, {count} late or not 200: {shown}"),
        );
    }

    fn judge_gets(&mut self, alone: &[&Asked], attacked: &[&Asked], machine: Duration) {
        let times = |asked: &[&Asked]| sorted(asked.iter().map(|asked| asked.span.took()));
        let (quiet, loud) = (times(alone), times(attacked));
        let _ = writeln!(self.told, "GET beside busy processes: {}\nGET: {}", figures(&quiet), figures(&loud));
        let (quiet, loud) = (quantile(&quiet, 0.99), quantile(&loud, 0.99));
        let most = quiet * GET_FACTOR + machine;
        self.hold_time(
            loud <= most,
            format!(
                "p99 of GET: {loud:?}, at most {most:?} ({GET_FACTOR} times {quiet:?}, and the machine's {machine:?})"
            ),
        );
        let refused = attacked.iter().filter(|asked| asked.status != 200).count();
        let count = attacked.len();
        self.hold(
            refused * GETS_OF_A_REFUSAL <= count && count > 0,
            format!("GETs refused or broken: {refused} of {count}"),
        );
    }

    fn judge_writes(&mut self, writers: &[Writer], from: Instant) {
        let mut times: Vec<Instant> = writers.iter().flat_map(|writer| writer.acknowledged.iter().copied()).collect();
        times.sort_unstable();
        let attacked: Vec<Instant> = times.iter().copied().filter(|time| *time >= from).collect();
        let gap = attacked.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
        let (refused, broken) = writers.iter().fold((0, 0), |(r, b), w| (r + w.refused, b + w.broken));
        let before = times.len() - attacked.len();
        let told = format!(
            "writes acknowledged: {before} alone, {} in the siege, longest pause {gap:?}, {refused} refused, {broken} broken",
            attacked.len()
        );
        self.hold(!attacked.is_empty(), told);
    }

    /// The same of a time.
    fn hold_time(&mut self, holds: bool, told: String) {
        if self.times_count {
            self.hold(holds, told);
        } else {
            let _ = writeln!(self.told, "{}{told}", if holds { "" } else { "late: " });
        }
    }

    /// Tells something, and that it does not hold where it does not.
    fn hold(&mut self, holds: bool, told: String) {
        let _ = writeln!(self.told, "{}{told}", if holds { "" } else { "NOT HELD: " });
        if !holds {
            self.fault(told);
        }
    }

    /// Notes what did not hold.
    pub(crate) fn fault(&mut self, fault: String) {
        self.faults.push(format!("at {} bytes of memory: {fault}", self.memory_bytes));
    }
}
