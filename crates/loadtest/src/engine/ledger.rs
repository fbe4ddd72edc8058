//! The records of one loop: slices by planned moment, the sending error, and a pulse each second for the live screen.

use super::by_tag::ByTag;
use super::ended::{Judged, Lost};
use super::report::{Pulse, Report};
use super::slice::{Slice, histogram};
use crate::recording::LONGEST_NS;
use hdrhistogram::Histogram;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

/// Significant digits of the live screen's times.
const LIVE_DIGITS: u8 = 2;
/// Largest number of slices kept for reuse.
const SPARE_SLICES_MAX: usize = 4;

/// The number of a slice of this loop; ascends with time.
pub(super) type SliceNo = u64;

/// A reply's figures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) latency_ns: u64,
    pub(super) service_ns: u64,
    pub(super) status: u16,
    pub(super) received_bytes: u64,
    pub(super) judged: Judged,
    pub(super) tag: u32,
}

/// How a ledger divides time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    /// Length of a row of time.
    pub(super) row_ns: u64,
    /// Whether there is a live screen.
    pub(super) has_pulse: bool,
    /// Whether requests have tags.
    pub(super) has_tags: bool,
}

/// See the module.
pub(super) struct Ledger {
    rows: Rows,
    loop_index: usize,
    start_ns: u64,
    /// Slices with pending requests, and the newest.
    open: VecDeque<Slice>,
    /// Number of the first of them.
    first_no: SliceNo,
    spare: Vec<Slice>,
    returned: Receiver<Slice>,
    reports: SyncSender<Report>,
    pub(super) sending_error: Histogram<u64>,
    /// Results by tag, if requests have tags.
    pub(super) by_tag: Option<ByTag>,
    pulse: Pulse,
    last_reply_ns: u64,
}

fn live_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, LIVE_DIGITS).expect("the bounds are in order, and the digits few")
}

impl Ledger {
    pub(super) fn new(loop_index: usize, rows: Rows, reports: SyncSender<Report>, returned: Receiver<Slice>) -> Self {
        Self {
            rows,
            loop_index,
            start_ns: 0,
            open: VecDeque::new(),
            first_no: 0,
            spare: Vec::new(),
            returned,
            reports,
            sending_error: histogram(),
            by_tag: rows.has_tags.then(ByTag::default),
            pulse: Pulse::new(live_histogram()),
            last_reply_ns: 0,
        }
    }

    /// Sets the run's first moment.
    pub(super) fn begin(&mut self, start_ns: u64) {
        (self.start_ns, self.last_reply_ns) = (start_ns, start_ns);
    }

    /// A moment as the time from the start of the run.
    pub(super) fn since_start(&self, moment_ns: u64) -> u64 {
        moment_ns.saturating_sub(self.start_ns)
    }

    /// Counts a planned request. Planned moments ascend; one that does not is counted with later ones.
    #[inline]
    pub(super) fn plan(&mut self, planned_ns: u64, part: u32) -> SliceNo {
        let row = (planned_ns.saturating_sub(self.start_ns) / self.rows.row_ns) as u32;
        match self.open.back_mut() {
            Some(newest) if newest.row >= row && newest.part >= part => newest.counts.planned += 1,
            _ => self.open_slice(row, part),
        }
        self.first_no + self.open.len() as u64 - 1
    }

    #[cold]
    fn open_slice(&mut self, row: u32, part: u32) {
        self.take_returned();
        let mut slice = match self.spare.pop() {
            Some(mut spare) => {
                spare.reuse(row, part);
                spare
            }
            None => Slice::new(row, part),
        };
        slice.counts.planned = 1;
        self.open.push_back(slice);
    }

    fn take_returned(&mut self) {
        while let Ok(slice) = self.returned.try_recv() {
            if self.spare.len() < SPARE_SLICES_MAX {
                self.spare.push(slice);
            }
        }
    }

    #[inline]
    fn slice(&mut self, number: SliceNo) -> &mut Slice {
        &mut self.open[(number - self.first_no) as usize]
    }

    /// The row of time and the part of the profile in which a request counts.
    pub(super) fn place(&mut self, number: SliceNo) -> (u32, u32) {
        let slice = self.slice(number);
        (slice.row, slice.part)
    }

    /// Counts a request that was passed to its socket.
    #[inline]
    pub(super) fn sent(&mut self, number: SliceNo, bytes: u64) {
        self.slice(number).counts.sent_bytes += bytes;
        self.pulse.sent += 1;
    }

    /// Records how late a request was sent although a connection was free.
    #[inline]
    pub(super) fn note_sending_error(&mut self, late_ns: u64) {
        self.sending_error.saturating_record(late_ns.max(1));
    }

    /// Counts a complete reply.
    #[inline]
    pub(super) fn answered(&mut self, number: SliceNo, answered: Answered, now_ns: u64) {
        self.last_reply_ns = now_ns;
        let slice = self.slice(number);
        let counts = &mut slice.counts;
        counts.statuses.add(answered.status, 1);
        counts.received_bytes += answered.received_bytes;
        match answered.judged {
            Judged::Right => {
                counts.right += 1;
                counts.right_ns += u128::from(answered.latency_ns);
            }
            Judged::Wrong => counts.wrong += 1,
            Judged::Late => counts.late += 1,
        }
        slice.latency.saturating_record(answered.latency_ns.max(1));
        slice.service.saturating_record(answered.service_ns.max(1));
        if let Some(by_tag) = &mut self.by_tag {
            by_tag.answered(answered.tag, answered.latency_ns, answered.judged);
        }
        self.pulse.answered += 1;
        self.pulse.errors += u64::from(answered.judged != Judged::Right);
        if self.rows.has_pulse {
            self.pulse.latency.saturating_record(answered.latency_ns.max(1));
        }
    }

    /// Counts a request that ended without a reply. A request that timed out is included in the latencies with its waiting time,
    /// so that a server cannot improve its percentiles by losing requests.
    pub(super) fn lost(&mut self, number: SliceNo, tag: Option<u32>, waited_ns: u64, lost: &Lost) {
        if let (Some(by_tag), Some(tag)) = (&mut self.by_tag, tag) {
            by_tag.lost(tag, waited_ns, lost);
        }
        self.pulse.errors += 1;
        self.pulse.lost += 1;
        let slice = self.slice(number);
        let failures = &mut slice.counts.failures;
        match lost {
            Lost::Connect(reason) => match failures.connect.get_mut(reason) {
                Some(count) => *count += 1,
                None => drop(failures.connect.insert(reason.clone(), 1)),
            },
            Lost::Closed => failures.closed += 1,
            Lost::Malformed => failures.malformed += 1,
            Lost::Surplus => failures.surplus += 1,
            Lost::Timeout => failures.timeout += 1,
            Lost::Unsent => failures.unsent += 1,
        }
        if lost.is_given_up() {
            slice.latency.saturating_record(waited_ns.max(1));
        }
    }

    /// Hands over slices whose requests have all ended: those before the newest, or with `all` that one too. `true`: no slice is
    /// left. Never waits: if the collector is behind, the next call continues.
    #[inline]
    pub(super) fn hand_over(&mut self, all: bool) -> bool {
        let kept = usize::from(!all);
        while self.open.len() > kept && self.open.front().is_some_and(Slice::is_done) {
            let Some(slice) = self.open.pop_front() else { break };
            match self.reports.try_send(Report::Slice { loop_index: self.loop_index, slice: Box::new(slice) }) {
                Ok(()) => self.first_no += 1,
                Err(TrySendError::Full(Report::Slice { slice, .. })) => {
                    self.open.push_front(*slice);
                    break;
                }
                // The collector has ended.
                Err(_) => self.first_no += 1,
            }
        }
        self.open.is_empty()
    }

    /// Ends a second: reports it to the live screen, if there is one.
    pub(super) fn beat(&mut self, in_flight: u64) {
        if !self.rows.has_pulse {
            return;
        }
        let mut pulse = std::mem::replace(&mut self.pulse, Pulse::new(live_histogram()));
        pulse.in_flight = in_flight;
        // A screen that is behind misses a second.
        let _ = self.reports.try_send(Report::Pulse(Box::new(pulse)));
    }

    /// Time of the last reply, on the loop's clock.
    pub(super) fn last_reply_ns(&self) -> u64 {
        self.last_reply_ns
    }

    /// Sends the last report of this loop; may wait for room.
    pub(super) fn report_done(&self, report: Report) {
        // The collector is gone if the run was abandoned.
        let _ = self.reports.send(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    const SECOND: u64 = 1_000_000_000;

    fn ledger(queue: usize) -> (Ledger, Receiver<Report>, SyncSender<Slice>) {
        let (reports, received) = sync_channel(queue);
        let (give_back, returned) = sync_channel(4);
        let mut ledger = Ledger::new(0, Rows { row_ns: SECOND, has_pulse: false, has_tags: false }, reports, returned);
        ledger.begin(100);
        (ledger, received, give_back)
    }

    fn answered(latency_ns: u64) -> Answered {
        Answered { latency_ns, service_ns: 5, status: 200, received_bytes: 9, judged: Judged::Right, tag: 0 }
    }

    fn slices(received: &Receiver<Report>) -> Vec<(u32, u32, u64)> {
        let slice = |report| match report {
            Report::Slice { slice, .. } => (slice.row, slice.part, slice.counts.planned),
            other => panic!("{other:?}"),
        };
        received.try_iter().map(slice).collect()
    }

    #[test]
    fn a_request_counts_where_it_was_planned_however_late_its_reply_comes() {
        let (mut ledger, received, _give_back) = ledger(8);
        let first = ledger.plan(100, 0);
        let second = ledger.plan(100 + SECOND, 0);
        ledger.answered(second, answered(1), 5 * SECOND);
        assert!(!ledger.hand_over(true), "the first one's request is in flight");
        assert_eq!(slices(&received), []);
        ledger.answered(first, answered(4 * SECOND), 5 * SECOND);
        assert!(ledger.hand_over(true));
        assert_eq!(slices(&received), [(0, 0, 1), (1, 0, 1)]);
    }

    #[test]
    fn a_part_of_the_profile_begins_a_slice_and_an_earlier_moment_does_not() {
        let (mut ledger, received, _give_back) = ledger(8);
        for (planned_ns, part) in [(100, 0), (200, 1), (150, 0), (300, 1)] {
            let number = ledger.plan(planned_ns, part);
            ledger.answered(number, answered(1), 400);
        }
        ledger.hand_over(true);
        assert_eq!(slices(&received), [(0, 0, 1), (0, 1, 3)]);
    }

    #[test]
    fn a_collector_that_is_behind_loses_no_slice() {
        let (mut ledger, received, _give_back) = ledger(1);
        for second in 0..3 {
            let number = ledger.plan(100 + second * SECOND, 0);
            ledger.lost(number, None, 7, &Lost::Timeout);
        }
        assert!(!ledger.hand_over(true));
        let mut seen = slices(&received);
        while !ledger.hand_over(true) {
            seen.extend(slices(&received));
        }
        seen.extend(slices(&received));
        assert_eq!(seen, [(0, 0, 1), (1, 0, 1), (2, 0, 1)]);
    }

    #[test]
    fn requests_given_up_after_the_timeout_are_in_the_latencies_and_others_are_not() {
        let (mut ledger, received, _give_back) = ledger(8);
        let all = [Lost::Timeout, Lost::Unsent, Lost::Closed, Lost::Malformed, Lost::Connect("refused".to_owned())];
        for lost in &all {
            let number = ledger.plan(100, 0);
            ledger.lost(number, None, 2 * SECOND, lost);
        }
        ledger.hand_over(true);
        let Ok(Report::Slice { slice, .. }) = received.try_recv() else { panic!("no slice") };
        assert_eq!((slice.latency.len(), slice.service.len(), slice.counts.failures.total()), (2, 0, 5));
    }
}
