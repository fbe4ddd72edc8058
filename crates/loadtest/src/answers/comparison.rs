//! Expected answers of requests in flight, and the verdicts on their replies.
//!
//! Two threads meet here, neither of which sends: the ammo reader adds the expected answer of each request, in the order of
//! indexes; the engine's comparing thread removes it when the reply has arrived. Waiting answers are bounded. Beyond the bound
//! the oldest is dropped: its reply was not passed to the comparer (whose queue was full), and counted by its status alone.

use super::compare;
use super::difference::{AnswerDifferences, Difference, cut};
use super::expected::Expected;
use crate::source::{Observed, ObservedReply, Observer, ReplyVerdict};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest size of expected answers that wait for their replies, in bytes.
pub const PENDING_BYTES_MAX: usize = 32 << 20;

/// Largest number of requests without an expected answer between two with one. After a longer gap the waiting answers are
/// dropped.
const GAP_MAX: usize = 100_000;

/// The comparison of one run.
#[derive(Debug, Default)]
pub struct Comparison {
    pending: Mutex<Pending>,
    differences: Mutex<AnswerDifferences>,
}

/// A request in flight.
#[derive(Debug)]
struct Entry {
    /// The beginning of the request's bytes.
    request: Vec<u8>,
    expected: Expected,
}

impl Entry {
    fn bytes(&self) -> usize {
        let Expected { method, target, body, .. } = &self.expected;
        size_of::<Option<Entry>>()
            + self.request.len()
            + method.len()
            + target.len()
            + body.as_ref().map_or(0, Vec::len)
    }
}

/// Entries by index. A removed entry leaves a gap until those before it are removed.
#[derive(Debug, Default)]
struct Pending {
    /// Index of the first entry.
    first: u64,
    entries: VecDeque<Option<Entry>>,
    bytes: usize,
}

impl Pending {
    fn put(&mut self, index: u64, entry: Entry) {
        // Requests without an expected answer leave gaps.
        let next = self.first + self.entries.len() as u64;
        let gap = usize::try_from(index.saturating_sub(next)).unwrap_or(usize::MAX);
        if self.entries.is_empty() || gap > GAP_MAX {
            *self = Pending { first: index, ..Pending::default() };
        } else {
            self.entries.extend((0..gap).map(|_| None));
            self.bytes += gap * size_of::<Option<Entry>>();
        }
        self.bytes += entry.bytes();
        self.entries.push_back(Some(entry));
        while self.bytes > PENDING_BYTES_MAX && self.entries.len() > 1 {
            self.forget_first();
        }
    }

    fn take(&mut self, index: u64) -> Option<Entry> {
        let place = usize::try_from(index.checked_sub(self.first)?).ok()?;
        let entry = self.entries.get_mut(place)?.take()?;
        self.bytes -= entry.bytes() - size_of::<Option<Entry>>();
        while matches!(self.entries.front(), Some(None)) {
            self.forget_first();
        }
        Some(entry)
    }

    fn forget_first(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return };
        self.bytes -= entry.as_ref().map_or(size_of::<Option<Entry>>(), Entry::bytes);
        self.first += 1;
    }
}

impl Comparison {
    /// Records the expected answer of the request with this index and these bytes. Indexes ascend.
    pub fn expect(&self, index: u64, request: &[u8], expected: Expected) {
        lock(&self.pending).put(index, Entry { request: cut(request), expected });
    }

    /// The observer for the engine's comparing thread.
    pub fn comparer(self: &Arc<Self>) -> Comparer {
        Comparer { comparison: Arc::clone(self) }
    }

    /// The differences so far.
    pub fn differences(&self) -> AnswerDifferences {
        lock(&self.differences).clone()
    }

    fn judge(&self, index: u64, entry: &Entry, reply: &ObservedReply<'_>) -> ReplyVerdict {
        let mut differences = lock(&self.differences);
        let what = match check(&entry.expected, reply) {
            Check::Unknown => {
                differences.uncompared += 1;
                return ReplyVerdict::Unknown;
            }
            Check::Right => None,
            Check::Wrong(what) => Some(what),
        };
        differences.compared += 1;
        let Some(what) = what else { return ReplyVerdict::Right };
        differences.add(|| Difference {
            index,
            what,
            request: entry.request.clone(),
            expected: (entry.expected.status, entry.expected.body.as_deref().map(cut)),
            received: (reply.status, cut(reply.body)),
        });
        ReplyVerdict::Wrong
    }
}

/// Result of a comparison.
#[derive(Debug, PartialEq, Eq)]
enum Check {
    Right,
    Wrong(String),
    /// The body is longer than the engine keeps.
    Unknown,
}

fn check(expected: &Expected, reply: &ObservedReply<'_>) -> Check {
    if expected.status != reply.status {
        return Check::Wrong("the status differs".to_owned());
    }
    let Some(body) = &expected.body else { return Check::Right };
    if reply.is_cut {
        return Check::Unknown;
    }
    compare::difference(body, reply.body).map_or(Check::Right, Check::Wrong)
}

/// Locks, ignoring a panic of the other thread: the state is consistent between calls.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Judges the replies of one run.
#[derive(Debug)]
pub struct Comparer {
    comparison: Arc<Comparison>,
}

impl Observer for Comparer {
    fn observe(&mut self, observed: &Observed<'_>) -> ReplyVerdict {
        let entry = lock(&self.comparison.pending).take(observed.index);
        match (entry, &observed.reply) {
            (Some(entry), Some(reply)) => self.comparison.judge(observed.index, &entry, reply),
            _ => ReplyVerdict::Unknown,
        }
    }
}

#[cfg(test)]
mod verdicts {
    use super::{Comparison, Expected, PENDING_BYTES_MAX, lock};
    use crate::source::{Observed, ObservedReply, Observer, ReplyVerdict};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn expected(status: u16, body: Option<&str>) -> Expected {
        let body = body.map(|body| body.as_bytes().to_vec());
        Expected { method: "GET".to_owned(), target: "/a".to_owned(), status, body }
    }

    fn observed(index: u64, status: u16, body: &str) -> Observed<'_> {
        Observed { index, tag: 0, reply: Some(ObservedReply { status, body: body.as_bytes(), is_cut: false }) }
    }

    #[test]
    fn status_and_body_decide_and_differences_are_kept() {
        let comparison = Arc::new(Comparison::default());
        for index in 0..5 {
            let body = if index == 3 { None } else { Some(r#"{"a": 1}"#) };
            comparison.expect(index, b"GET /a HTTP/1.1\r\n\r\n", expected(200, body));
        }
        let mut comparer = comparison.comparer();
        let mut verdict = |observed: Observed<'_>| comparer.observe(&observed);
        assert_eq!(verdict(observed(2, 200, r#"{"a":2}"#)), ReplyVerdict::Wrong);
        assert_eq!(verdict(observed(0, 200, r#"{"a":1.0}"#)), ReplyVerdict::Right);
        assert_eq!(verdict(observed(1, 404, r#"{"a":1}"#)), ReplyVerdict::Wrong);
        assert_eq!(verdict(observed(3, 200, "anything")), ReplyVerdict::Right);
        assert_eq!(verdict(observed(0, 200, "")), ReplyVerdict::Unknown, "a reply is judged once");
        assert_eq!(verdict(Observed { index: 4, tag: 0, reply: None }), ReplyVerdict::Unknown);
        let differences = comparison.differences();
        assert_eq!((differences.count, differences.compared), (2, 4));
        let what: Vec<_> = differences.kept.iter().map(|kept| (kept.index, kept.what.as_str())).collect();
        assert_eq!(what, [(2, "the bodies differ at $.a"), (1, "the status differs")]);
        assert!(lock(&comparison.pending).entries.is_empty() && lock(&comparison.pending).bytes == 0);
    }

    #[test]
    fn a_body_that_was_cut_is_not_compared() {
        let comparison = Arc::new(Comparison::default());
        comparison.expect(0, b"", expected(200, Some("a")));
        let reply = ObservedReply { status: 200, body: b"b", is_cut: true };
        let verdict = comparison.comparer().observe(&Observed { index: 0, tag: 0, reply: Some(reply) });
        assert_eq!((verdict, comparison.differences().uncompared), (ReplyVerdict::Unknown, 1));
    }

    #[test]
    fn replies_that_are_never_seen_do_not_fill_the_memory() {
        let comparison = Arc::new(Comparison::default());
        let body = "x".repeat(1 << 20);
        let count = PENDING_BYTES_MAX as u64 / (1 << 20) + 10;
        (0..count).for_each(|index| comparison.expect(index, b"", expected(200, Some(&body))));
        assert!(lock(&comparison.pending).bytes <= PENDING_BYTES_MAX);
        let mut comparer = comparison.comparer();
        assert_eq!(comparer.observe(&observed(0, 200, &body)), ReplyVerdict::Unknown);
        assert_eq!(comparer.observe(&observed(count - 1, 200, &body)), ReplyVerdict::Right);
    }

    proptest! {
        /// Compared with a map: whatever the order of replies, each is judged by the expected answer of its own request.
        #[test]
        fn each_reply_meets_its_own_expectation(steps in proptest::collection::vec((any::<bool>(), 0u64..20), 0..80)) {
            let comparison = Arc::new(Comparison::default());
            let mut comparer = comparison.comparer();
            let mut model = std::collections::BTreeMap::new();
            let mut next = 0;
            for (put, index) in steps {
                if put {
                    // Every third request has no expected answer.
                    if next % 3 != 2 {
                        let status = 200 + (next % 100) as u16;
                        comparison.expect(next, b"", expected(status, None));
                        model.insert(next, status);
                    }
                    next += 1;
                } else {
                    let index = next.saturating_sub(index);
                    let verdict = comparer.observe(&observed(index, 200, ""));
                    let right = model.remove(&index).map_or(ReplyVerdict::Unknown, |status| {
                        if status == 200 { ReplyVerdict::Right } else { ReplyVerdict::Wrong }
                    });
                    prop_assert_eq!(verdict, right);
                }
            }
        }
    }
}
