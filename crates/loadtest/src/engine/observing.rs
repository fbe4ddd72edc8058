//! Requests that have ended, for the observer and the log: copied into batches on the loop, examined on a separate thread.
//!
//! The sending path pays for one copy of each body, and only if there is an observer. The queue is bounded by [`QUEUED_BATCHES`]; if
//! it is full, a batch is dropped and counted, because the plan must not wait. Verdicts that differ from the status alone are
//! [`Correction`]s, added up by row and part, and by tag, until the run is over.

use super::ended::{Correction, Ended, Judged};
use super::request_log::RequestLog;
use crate::reply::BodyReceiver;
use crate::source::{Described, OBSERVED_BODY_BYTES_MAX, Observed, ObservedReply, Observer, ReplyVerdict};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// A batch is handed over at this number of requests, at this size, or at the next check for timeouts: waking the observer for
/// each reply would cost the sending path a system call.
const BATCH_REPLIES: usize = 256;
const BATCH_BYTES: usize = 256 << 10;
/// Largest number of batches of all loops that wait for the observer: 80 MB with bodies of the largest size.
const QUEUED_BATCHES: usize = 64;
/// The number without bodies: 24 MB.
const QUEUED_BATCHES_BODILESS: usize = 1024;

/// The reply kept for the observer and for the user of a scenario: its body, up to a bound.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The head, if it is kept.
    head: Option<Vec<u8>>,
    bytes: Vec<u8>,
    is_cut: bool,
}

impl BodyReceiver for Gathered {
    fn push(&mut self, bytes: &[u8]) {
        let room = OBSERVED_BODY_BYTES_MAX - self.bytes.len();
        self.is_cut |= bytes.len() > room;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn head(&mut self, bytes: &[u8]) {
        if let Some(head) = &mut self.head {
            head.clear();
            head.extend_from_slice(bytes);
        }
    }
}

impl Gathered {
    pub(super) fn new(keeps_head: bool) -> Self {
        Self { head: keeps_head.then(Vec::new), ..Self::default() }
    }

    /// Head and body.
    pub(super) fn parts(&self) -> (&[u8], &[u8]) {
        (self.head.as_deref().unwrap_or_default(), &self.bytes)
    }

    /// Prepares for the next reply. Releases the storage of an unusually large body.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BATCH_BYTES);
        self.is_cut = false;
    }
}

#[derive(Debug, Default)]
struct Batch {
    loop_index: usize,
    bodies: Vec<u8>,
    /// Each with the end of its body, and whether that was cut.
    ended: Vec<(Ended, usize, bool)>,
}

/// The loop's side.
pub(super) struct Observing {
    loop_index: usize,
    batch: Batch,
    queue: SyncSender<Batch>,
    emptied: Receiver<Batch>,
    /// Whether there is an observer, which examines bodies.
    pub(super) has_observer: bool,
    /// Replies that the observer did not get.
    pub(super) unchecked: u64,
    /// Requests that the log did not get.
    pub(super) unlogged: u64,
}

impl Observing {
    /// Adds a request that has ended; `body` is that of its reply.
    pub(super) fn note(&mut self, ended: Ended, body: Option<&Gathered>) {
        let is_cut = body.filter(|_| self.has_observer).is_some_and(|body| {
            self.batch.bodies.extend_from_slice(&body.bytes);
            body.is_cut
        });
        self.batch.ended.push((ended, self.batch.bodies.len(), is_cut));
        if self.batch.ended.len() >= BATCH_REPLIES || self.batch.bodies.len() >= BATCH_BYTES {
            self.flush();
        }
    }

    /// Hands over the current batch.
    pub(super) fn flush(&mut self) {
        if self.batch.ended.is_empty() {
            return;
        }
        let fresh = self.emptied.try_recv().unwrap_or_default();
        let mut full = std::mem::replace(&mut self.batch, fresh);
        full.loop_index = self.loop_index;
        if let Err(refused) = self.queue.try_send(full) {
            let (std::sync::mpsc::TrySendError::Full(mut batch)
            | std::sync::mpsc::TrySendError::Disconnected(mut batch)) = refused;
            if self.has_observer {
                self.unchecked += batch.ended.iter().filter(|(ended, ..)| ended.reply.is_some()).count() as u64;
            }
            self.unlogged += batch.ended.len() as u64;
            batch.clear();
            self.batch = batch;
        }
    }
}

impl Batch {
    fn clear(&mut self) {
        self.ended.clear();
        self.bodies.clear();
        self.bodies.shrink_to(2 * BATCH_BYTES);
    }
}

/// By row of time and part of the profile. Bounded by the number of rows and parts.
pub(super) type Corrections = BTreeMap<(u32, u32), Correction>;

/// What the observer's thread has found when it ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) corrections: Corrections,
    /// Corrections by tag.
    pub(super) by_tag: BTreeMap<u32, Correction>,
    /// Why the log is incomplete.
    pub(super) log_failure: Option<String>,
}

/// The loops' ends of the queue, and the thread, which ends when they are dropped.
pub(super) type Started = (Vec<Observing>, JoinHandle<Found>);

/// Starts the observer's thread. `None`: there is neither an observer nor a log.
pub(super) fn start(
    observer: Option<Box<dyn Observer>>,
    log: Option<RequestLog>,
    loops: usize,
) -> std::io::Result<Option<Started>> {
    if observer.is_none() && log.is_none() {
        return Ok(None);
    }
    let has_observer = observer.is_some();
    let queued = if has_observer { QUEUED_BATCHES } else { QUEUED_BATCHES_BODILESS };
    let (queue, batches) = sync_channel(queued);
    let (mut ends, mut returns) = (Vec::new(), Vec::new());
    for loop_index in 0..loops {
        let (give_back, emptied) = sync_channel(QUEUED_BATCHES);
        let (batch, queue) = (Batch::default(), queue.clone());
        ends.push(Observing { loop_index, batch, queue, emptied, has_observer, unchecked: 0, unlogged: 0 });
        returns.push(give_back);
    }
    let run = move || observe(observer, log, &batches, &returns);
    Ok(Some((ends, std::thread::Builder::new().name("answers".to_owned()).spawn(run)?)))
}

fn observe(
    mut observer: Option<Box<dyn Observer>>,
    mut log: Option<RequestLog>,
    batches: &Receiver<Batch>,
    returns: &[SyncSender<Batch>],
) -> Found {
    let mut found = Found::default();
    while let Ok(mut batch) = batches.recv() {
        let mut at = 0;
        for (ended, end, is_cut) in &batch.ended {
            let body = &batch.bodies[at..*end];
            at = *end;
            let verdict = match (&mut observer, ended.described) {
                (Some(observer), Some(Described { index, tag, .. })) => {
                    let reply = ended.reply.map(|(status, _)| ObservedReply { status, body, is_cut: *is_cut });
                    observer.observe(&Observed { index, tag, reply })
                }
                _ => ReplyVerdict::Unknown,
            };
            correct(&mut found.corrections, ended.place, ended, verdict);
            if let Some(described) = ended.described {
                correct(&mut found.by_tag, described.tag, ended, verdict);
            }
            if let Some(log) = &mut log {
                log.write(ended, verdict);
            }
        }
        batch.clear();
        // It is dropped if the loop has ended or has enough.
        let _ = returns[batch.loop_index].try_send(batch);
    }
    found.log_failure = log.and_then(RequestLog::end);
    found
}

/// Notes a verdict that differs from the status alone. A late reply stays late, whatever its content.
fn correct<K: Ord>(corrections: &mut BTreeMap<K, Correction>, key: K, ended: &Ended, verdict: ReplyVerdict) {
    let latency_ns = i128::from(ended.latency_ns);
    match (ended.reply, verdict) {
        (Some((_, Judged::Right)), ReplyVerdict::Wrong) => {
            let correction = corrections.entry(key).or_default();
            correction.found_wrong += 1;
            correction.right_ns -= latency_ns;
        }
        (Some((_, Judged::Wrong)), ReplyVerdict::Right) => {
            let correction = corrections.entry(key).or_default();
            correction.found_right += 1;
            correction.right_ns += latency_ns;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// Judges replies with the body `right` as right; waits for a permit before each.
    struct Slow(mpsc::Receiver<()>);

    impl Observer for Slow {
        fn observe(&mut self, observed: &Observed<'_>) -> ReplyVerdict {
            self.0.recv_timeout(Duration::from_secs(20)).unwrap();
            match observed.reply {
                Some(reply) if reply.body == b"right" => ReplyVerdict::Right,
                Some(_) => ReplyVerdict::Wrong,
                None => ReplyVerdict::Unknown,
            }
        }
    }

    fn ended(row: u32, reply: Option<(u16, Judged)>) -> Ended {
        let described = Some(Described { tag: 5, ..Described::default() });
        let (planned_ns, latency_ns, service_ns, received_bytes) = (0, 10, 5, 1);
        Ended { described, place: (row, 0), planned_ns, latency_ns, service_ns, received_bytes, reply, cause: "" }
    }

    fn observed(observer: Slow) -> (Observing, JoinHandle<Found>) {
        let (mut ends, thread) = start(Some(Box::new(observer)), None, 1).unwrap().unwrap();
        (ends.pop().unwrap(), thread)
    }

    fn gathered(bytes: &[u8]) -> Gathered {
        Gathered { head: None, bytes: bytes.to_vec(), is_cut: false }
    }

    #[test]
    fn verdicts_that_differ_from_the_status_become_corrections() {
        let (permit, permits) = mpsc::channel();
        let (mut end, thread) = observed(Slow(permits));
        let (right, other) = (gathered(b"right"), gathered(b"other"));
        for (status, judged, body) in [
            (200, Judged::Right, &right),
            (200, Judged::Right, &other),
            (404, Judged::Wrong, &right),
            (404, Judged::Wrong, &other),
            (200, Judged::Late, &other),
        ] {
            end.note(ended(7, Some((status, judged))), Some(body));
            permit.send(()).unwrap();
        }
        end.note(ended(7, None), None);
        permit.send(()).unwrap();
        end.flush();
        drop(end);
        let expected = Correction { found_right: 1, found_wrong: 1, right_ns: 0 };
        let found = thread.join().unwrap();
        assert_eq!(found.corrections, Corrections::from([((7, 0), expected)]));
        assert_eq!(found.by_tag, BTreeMap::from([(5, expected)]));
    }

    #[test]
    fn replies_that_find_the_queue_full_are_counted_and_nothing_waits() {
        let (permit, permits) = mpsc::channel();
        let (mut end, thread) = observed(Slow(permits));
        let notes = (QUEUED_BATCHES + 10) * BATCH_REPLIES;
        for _ in 0..notes {
            end.note(ended(0, Some((200, Judged::Right))), Some(&gathered(b"right")));
        }
        // The observer may hold one more batch.
        let fits = (QUEUED_BATCHES + 1) * BATCH_REPLIES;
        assert!(end.unchecked as usize >= notes - fits, "{}", end.unchecked);
        (0..notes).for_each(|_| permit.send(()).unwrap());
        drop(end);
        assert_eq!(thread.join().unwrap(), Found::default());
    }

    #[test]
    fn a_large_body_is_cut_at_the_bound() {
        let mut body = Gathered::default();
        body.push(&vec![b'x'; OBSERVED_BODY_BYTES_MAX - 1]);
        assert!(!body.is_cut);
        body.push(b"yz");
        assert!(body.is_cut && body.bytes.len() == OBSERVED_BODY_BYTES_MAX);
    }
}
