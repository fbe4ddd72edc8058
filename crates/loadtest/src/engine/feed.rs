//! Requests from the source's thread to the loops: in batches, through bounded queues, without a lock.
//!
//! ```text
//!              reader thread                         loop 0: Feed
//!  Source ---> fills a batch for each loop ---+---> [queue] ---> requests one by one
//!                   ^                         +---> [queue] ---> …
//!                   |                                                 |
//!                   +---------------- emptied batches <---------------+
//! ```
//!
//! A batch is the concatenated bytes of some requests. Loops return emptied batches, so that in steady state nothing is
//! allocated. Waiting requests are bounded: [`QUEUED_BATCHES`] batches for each loop, each of [`BATCH_REQUESTS`] requests and,
//! except for its last request, [`BATCH_BYTES`]. A file of any length is therefore never in memory.
//!
//! In the open model requests are distributed in turn: request `k` belongs to loop `k mod loops`, which plans the moment `k`. In
//! the closed model a batch goes to any loop that has room. A request that is always the same needs neither thread nor queue.

use crate::source::{Described, REQUEST_BYTES_MAX, RequestSource, SourceError};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Largest number of requests in a batch.
const BATCH_REQUESTS: usize = 256;
/// Size in bytes at which a batch is full.
const BATCH_BYTES: usize = 64 << 10;
/// Largest number of batches that wait for a loop.
const QUEUED_BATCHES: usize = 4;
/// Age at which a batch is sent although it is not full: a source may be slower than the plan (standard input).
const BATCH_AGE_MAX: Duration = Duration::from_millis(5);
/// Pause of the reader if all loops are full.
const FULL_PAUSE: Duration = Duration::from_micros(200);

/// Some requests.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Each with the end of its bytes.
    requests: Vec<(usize, Described)>,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.requests.len() >= BATCH_REQUESTS || self.bytes.len() >= BATCH_BYTES
    }

    fn clear(&mut self) {
        self.requests.clear();
        self.bytes.clear();
        // One large request must not keep its memory allocated.
        self.bytes.shrink_to(2 * BATCH_BYTES);
    }
}

/// How requests are distributed over loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    /// Request `k` to loop `k mod loops`.
    InTurn,
    /// A batch to a loop that has room.
    WhereRoomIs,
}

/// The source's error, if it had one, once the run is over.
pub(super) type Failure = Arc<Mutex<Option<SourceError>>>;

/// The requests of one loop.
#[derive(Debug)]
pub(super) struct Feed {
    origin: Origin,
    /// Number of requests that must be skipped when they arrive.
    skips_owed: u64,
}

#[derive(Debug)]
enum Origin {
    Constant { bytes: Vec<u8>, described: Described },
    Batches(Batches),
}

#[derive(Debug)]
struct Batches {
    queue: Receiver<Batch>,
    emptied: SyncSender<Batch>,
    current: Batch,
    /// Requests taken from `current`, and the end of their bytes.
    taken: usize,
    at: usize,
}

/// Result of asking a feed for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// A request.
    One(Described),
    /// The source is behind.
    NotYet,
    /// The user of a scenario thinks.
    Thinking,
    /// There are no more.
    Ended,
}

impl Feed {
    /// Appends the next request's bytes.
    #[inline]
    pub(super) fn append_next(&mut self, output: &mut Vec<u8>) -> Fed {
        match &mut self.origin {
            Origin::Constant { bytes, described } => {
                output.extend_from_slice(bytes);
                Fed::One(*described)
            }
            Origin::Batches(batches) => {
                while self.skips_owed > 0 {
                    match batches.next() {
                        Ok(_) => self.skips_owed -= 1,
                        Err(none) => return none,
                    }
                }
                batches.next().map_or_else(
                    |none| none,
                    |(bytes, described)| {
                        output.extend_from_slice(bytes);
                        Fed::One(described)
                    },
                )
            }
        }
    }

    /// Skips the next request, which will not be sent. `None`: it has not arrived, and is skipped when it does.
    pub(super) fn skip(&mut self) -> Option<Described> {
        match &mut self.origin {
            Origin::Constant { described, .. } => Some(*described),
            Origin::Batches(batches) if self.skips_owed == 0 => {
                if let Ok((_, described)) = batches.next() {
                    return Some(described);
                }
                self.skips_owed += 1;
                None
            }
            Origin::Batches(_) => {
                self.skips_owed += 1;
                None
            }
        }
    }
}

impl Batches {
    #[inline]
    fn next(&mut self) -> Result<(&[u8], Described), Fed> {
        if self.taken == self.current.requests.len() {
            self.exchange()?;
        }
        let (end, described) = self.current.requests[self.taken];
        let bytes = &self.current.bytes[self.at..end];
        (self.taken, self.at) = (self.taken + 1, end);
        Ok((bytes, described))
    }

    #[cold]
    fn exchange(&mut self) -> Result<(), Fed> {
        let next = self.queue.try_recv().map_err(|none| match none {
            TryRecvError::Empty => Fed::NotYet,
            TryRecvError::Disconnected => Fed::Ended,
        })?;
        let mut emptied = std::mem::replace(&mut self.current, next);
        (self.taken, self.at) = (0, 0);
        emptied.clear();
        // If the queue is full, enough batches are under way.
        let _ = self.emptied.try_send(emptied);
        Ok(())
    }
}

/// Makes the feeds of all loops, and starts the reader if one is needed. The reader ends with its source, or when the loops have
/// ended.
pub(super) fn start(
    source: Box<dyn RequestSource>,
    loops: usize,
    spread: Spread,
) -> std::io::Result<(Vec<Feed>, Failure)> {
    let failure = Failure::default();
    if let Some((bytes, described)) = source.constant() {
        let one = || Feed { origin: Origin::Constant { bytes: bytes.clone(), described }, skips_owed: 0 };
        return Ok(((0..loops).map(|_| one()).collect(), failure));
    }
    let (emptied, returned) = sync_channel(loops * (QUEUED_BATCHES + 2));
    let (mut feeds, mut queues) = (Vec::new(), Vec::new());
    for _ in 0..loops {
        let (sender, queue) = sync_channel(QUEUED_BATCHES);
        let (emptied, current) = (emptied.clone(), Batch::default());
        let batches = Batches { queue, emptied, current, taken: 0, at: 0 };
        feeds.push(Feed { origin: Origin::Batches(batches), skips_owed: 0 });
        queues.push(sender);
    }
    let reader = Reader { source, returned, queues, next_queue: 0 };
    let of_reader = Arc::clone(&failure);
    std::thread::Builder::new().name("requests".to_owned()).spawn(move || {
        if let Err(error) = reader.run(spread) {
            *of_reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
    })?;
    Ok((feeds, failure))
}

/// The reader's thread.
struct Reader {
    source: Box<dyn RequestSource>,
    returned: Receiver<Batch>,
    queues: Vec<SyncSender<Batch>>,
    next_queue: usize,
}

/// The loops have ended: no more requests are needed.
struct Unwanted;

impl Reader {
    fn run(mut self, spread: Spread) -> Result<(), SourceError> {
        let lanes = if spread == Spread::InTurn { self.queues.len() } else { 1 };
        let mut batches: Vec<Batch> = (0..lanes).map(|_| Batch::default()).collect();
        let (mut lane, mut begun, mut error) = (0, Instant::now(), Ok(()));
        loop {
            match self.next(&mut batches[lane]) {
                Ok(true) => {}
                Ok(false) => break,
                Err(failed) => {
                    error = Err(failed);
                    break;
                }
            }
            let is_due = batches[lane].is_full() || begun.elapsed() > BATCH_AGE_MAX;
            lane = (lane + 1) % lanes;
            if is_due {
                if self.hand_over(&mut batches, spread).is_err() {
                    return Ok(());
                }
                begun = Instant::now();
            }
        }
        // The requests before a broken line are sent.
        let _ = self.hand_over(&mut batches, spread);
        error
    }

    /// Reads one request into a batch. `false`: the source has ended.
    fn next(&mut self, batch: &mut Batch) -> Result<bool, SourceError> {
        let before = batch.bytes.len();
        let Some(described) = self.source.next(&mut batch.bytes)? else { return Ok(false) };
        let bytes = batch.bytes.len() - before;
        if bytes > REQUEST_BYTES_MAX {
            return Err(SourceError(format!("a request has {bytes} bytes; at most {REQUEST_BYTES_MAX} are allowed")));
        }
        batch.requests.push((batch.bytes.len(), described));
        Ok(true)
    }

    /// Sends all batches that hold requests. In turn mode they are sent together: a loop's next request must not wait until
    /// another loop's batch is full.
    fn hand_over(&mut self, batches: &mut [Batch], spread: Spread) -> Result<(), Unwanted> {
        for (lane, batch) in batches.iter_mut().enumerate().filter(|(_, batch)| !batch.requests.is_empty()) {
            let fresh = self.returned.try_recv().unwrap_or_default();
            let full = std::mem::replace(batch, fresh);
            match spread {
                Spread::InTurn => self.queues[lane].send(full).map_err(|_| Unwanted)?,
                Spread::WhereRoomIs => self.send_to_any(full)?,
            }
        }
        Ok(())
    }

    fn send_to_any(&mut self, mut batch: Batch) -> Result<(), Unwanted> {
        loop {
            let mut gone = 0;
            for _ in 0..self.queues.len() {
                self.next_queue = (self.next_queue + 1) % self.queues.len();
                match self.queues[self.next_queue].try_send(batch) {
                    Ok(()) => return Ok(()),
                    Err(TrySendError::Full(back)) => batch = back,
                    Err(TrySendError::Disconnected(back)) => {
                        gone += 1;
                        batch = back;
                    }
                }
            }
            if gone == self.queues.len() {
                return Err(Unwanted);
            }
            std::thread::sleep(FULL_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source of the numbers from 0 on, followed by its end or an error.
    struct Numbers {
        next: u64,
        end: u64,
        fails: bool,
    }

    impl RequestSource for Numbers {
        fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Described>, SourceError> {
            if self.next == self.end {
                return if self.fails { Err(SourceError("line 7".to_owned())) } else { Ok(None) };
            }
            bytes.extend_from_slice(self.next.to_string().as_bytes());
            self.next += 1;
            Ok(Some(Described { index: self.next - 1, ..Described::default() }))
        }
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Waits for the next request.
    fn next(feed: &mut Feed) -> Option<(u64, String)> {
        let begun = Instant::now();
        let mut bytes = Vec::new();
        loop {
            match feed.append_next(&mut bytes) {
                Fed::One(described) => return Some((described.index, String::from_utf8(bytes).unwrap())),
                Fed::Ended | Fed::Thinking => return None,
                Fed::NotYet => assert!(begun.elapsed() < PATIENCE, "no request came"),
            }
            std::thread::yield_now();
        }
    }

    fn feeds(end: u64, fails: bool, loops: usize, spread: Spread) -> (Vec<Feed>, Failure) {
        start(Box::new(Numbers { next: 0, end, fails }), loops, spread).unwrap()
    }

    #[test]
    fn requests_are_dealt_to_loops_in_turn_with_their_bytes() {
        let (mut feeds, _) = feeds(100_000, false, 3, Spread::InTurn);
        for number in 0..100_000_u64 {
            let got = next(&mut feeds[number as usize % 3]);
            assert_eq!(got, Some((number, number.to_string())));
        }
        assert_eq!(next(&mut feeds[1]), None);
    }

    #[test]
    fn in_the_closed_model_one_loop_may_take_them_all() {
        let (mut feeds, _) = feeds(10_000, false, 2, Spread::WhereRoomIs);
        let mut idle = feeds.pop().unwrap();
        let mut seen: Vec<u64> = std::iter::from_fn(|| next(&mut feeds[0])).map(|(index, _)| index).collect();
        seen.extend(std::iter::from_fn(|| next(&mut idle)).map(|(index, _)| index));
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..10_000));
    }

    #[test]
    fn a_request_passed_over_before_it_arrived_is_not_sent_later() {
        let (sender, queue) = sync_channel(1);
        let (emptied, _returned) = sync_channel(1);
        let batches = Batches { queue, emptied, current: Batch::default(), taken: 0, at: 0 };
        let mut feed = Feed { origin: Origin::Batches(batches), skips_owed: 0 };
        assert_eq!(feed.skip(), None);
        let requests = [(1, 0), (2, 1)].map(|(end, index)| (end, Described { index, ..Described::default() })).to_vec();
        sender.send(Batch { bytes: b"ab".to_vec(), requests }).unwrap();
        assert_eq!(next(&mut feed), Some((1, "b".to_owned())));
        assert_eq!(feed.append_next(&mut Vec::new()), Fed::NotYet);
    }

    #[test]
    fn what_stands_before_a_failure_is_given_and_the_failure_told() {
        let (mut feeds, failure) = feeds(5, true, 1, Spread::InTurn);
        assert_eq!(std::iter::from_fn(|| next(&mut feeds[0])).count(), 5);
        let begun = Instant::now();
        while failure.lock().unwrap().is_none() {
            assert!(begun.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        assert_eq!(failure.lock().unwrap().clone(), Some(SourceError("line 7".to_owned())));
    }

    #[test]
    fn a_constant_request_is_given_for_ever_and_needs_no_thread() {
        let parts = crate::request::RequestParts { method: "GET", path: "/", authority: "h", headers: &[], body: None };
        let source = crate::request::Constant::new(&parts).unwrap();
        let (mut feeds, _) = start(Box::new(source), 2, Spread::InTurn).unwrap();
        for _ in 0..3 {
            assert_eq!(next(&mut feeds[1]), Some((0, "GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned())));
        }
        assert!(feeds[1].skip().is_some());
    }
}
