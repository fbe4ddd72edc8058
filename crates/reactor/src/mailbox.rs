//! Mailbox: mail from any thread to a loop. Many producers, one consumer, at most one wake-up for each sleep. The kinds of mail
//! are in `fleet`.
//!
//! Mail is pushed under a mutex that is held for a push or a swap of two vectors. Beside it stands one atomic word of
//! two bits, which decides whether a producer must wake the loop:
//!
//! ```text
//!  bit           set by                                       cleared by
//!  MAIL          a producer, after its push                   the loop, before it takes the mail
//!  SLEEPING      the loop, only from a word of 0, before it   the loop, after its wait
//!                waits without a timeout
//! ```
//!
//! A producer sets MAIL and wakes the loop exactly when the word was SLEEPING alone: it is the first since the loop went
//! to sleep. All changes of the word are read-modify-write operations on one atomic, so they stand in one order:
//!
//! - MAIL before the loop's attempt to sleep: the attempt fails, the loop takes the mail.
//! - MAIL after it: that producer saw SLEEPING and wakes; later ones saw MAIL too and do not.
//! - A producer that finds MAIL already set leaves the word alone. The loop clears MAIL before it locks the queue: if it had
//!   locked before this producer's push, the producer would see MAIL cleared, through the lock.
//!
//! Bound: the mailbox has none of its own, since a reply must never be dropped and a loop must never block on another loop. Its
//! producers are bounded: a late reply answers a request that its connection admitted (connections × requests in flight), a
//! connection handed over counts against `connections_max`, and a stream of bytes between connections stops at the receiver's
//! high-water mark. `LoopMetrics::mailbox_messages` counts the messages.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::metrics::Counter;

const MAIL: u32 = 1;
const SLEEPING: u32 = 2;
/// A queue that grew longer than this in a burst is freed.
const KEPT_MAIL_MAX: usize = 4096;

struct Queue<M> {
    mail: Vec<M>,
    closed: bool,
}

/// One loop's incoming mail. On cache lines of its own: producers write it, and the loop reads it once a tick.
#[repr(align(128))]
pub(crate) struct Mailbox<M> {
    state: AtomicU32,
    queue: Mutex<Queue<M>>,
    waker: mio::Waker,
    /// Wake-ups requested from the kernel.
    pub(crate) wakes: Counter,
}

impl<M> Mailbox<M> {
    pub(crate) fn new(waker: mio::Waker) -> Self {
        Self {
            state: AtomicU32::new(0),
            queue: Mutex::new(Queue { mail: Vec::new(), closed: false }),
            waker,
            wakes: Counter::default(),
        }
    }

    /// Queues `mail` for the loop, or returns it if the loop has ended.
    pub(crate) fn push(&self, mail: M) -> Result<(), M> {
        {
            let mut queue = self.lock();
            if queue.closed {
                return Err(mail);
            }
            queue.mail.push(mail);
        }
        between_steps();
        if self.state.load(Ordering::Acquire) & MAIL == 0 && self.state.fetch_or(MAIL, Ordering::AcqRel) == SLEEPING {
            self.wakes.add_shared(1);
            // Fails only when the eventfd is full, which means that a wake-up is pending anyway.
            let _ = self.waker.wake();
        }
        Ok(())
    }

    /// Called before a wait without a timeout. `false`: there is mail to take instead.
    pub(crate) fn may_sleep(&self) -> bool {
        self.state.compare_exchange(0, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The wait is over. Called after each `may_sleep` that returned `true`.
    pub(crate) fn awake(&self) {
        self.state.fetch_and(!SLEEPING, Ordering::AcqRel);
    }

    /// Whether the loop waits for events and has not been woken for mail.
    pub(crate) fn is_asleep(&self) -> bool {
        self.state.load(Ordering::Relaxed) == SLEEPING
    }

    pub(crate) fn has_mail(&self) -> bool {
        self.state.load(Ordering::Acquire) & MAIL != 0
    }

    /// Takes all mail, in the order of arrival, into `taken` (empty before).
    pub(crate) fn take(&self, taken: &mut Vec<M>) {
        debug_assert!(taken.is_empty());
        if taken.capacity() > KEPT_MAIL_MAX {
            *taken = Vec::new();
        }
        self.state.fetch_and(!MAIL, Ordering::AcqRel);
        between_steps();
        std::mem::swap(&mut self.lock().mail, taken);
    }

    /// Refuses all later mail, if none waits. `false`: some waits.
    pub(crate) fn try_close(&self) -> bool {
        let mut queue = self.lock();
        queue.closed = queue.mail.is_empty();
        queue.closed
    }

    /// Refuses all later mail and drops the mail that waits: the loop reads no more.
    pub(crate) fn close(&self) {
        let mut queue = self.lock();
        queue.closed = true;
        let waiting = std::mem::take(&mut queue.mail);
        drop(queue);
        // Outside the lock: dropping mail runs foreign code, which may send mail itself.
        drop(waiting);
    }

    fn lock(&self) -> MutexGuard<'_, Queue<M>> {
        // Nothing under the lock can panic half-way, so the queue is whole even if the lock is poisoned.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place where another thread may interleave. Does nothing, except that a test may run the other thread's operation here: the
/// windows are a few nanoseconds wide, and no number of threads hits them reliably.
#[inline]
fn between_steps() {
    #[cfg(test)]
    tests::come_in_between();
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    thread_local! {
        static DEED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    }

    pub(super) fn come_in_between() {
        if let Some(deed) = DEED.take() {
            deed();
        }
    }

    /// The content of mail does not matter here.
    type TestMailbox = Mailbox<u8>;

    fn new_mailbox() -> (Arc<TestMailbox>, mio::Poll) {
        let poll = mio::Poll::new().expect("descriptors");
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).expect("descriptors");
        (Arc::new(Mailbox::new(waker)), poll)
    }

    fn push(mailbox: &TestMailbox) {
        assert!(mailbox.push(0).is_ok());
    }

    /// Holds whenever no call is running: waiting mail is announced, or its wake-up was requested.
    #[track_caller]
    fn check_nothing_is_forgotten(mailbox: &TestMailbox) {
        let waits = !mailbox.lock().mail.is_empty();
        assert!(!waits || mailbox.has_mail(), "mail waits unannounced");
        let asleep = mailbox.state.load(Ordering::SeqCst) & SLEEPING != 0;
        assert!(!waits || !asleep || mailbox.wakes.get() > 0, "mail waits for a loop that sleeps");
    }

    /// Runs `first` with `deed` between its two steps, and checks the state after each.
    #[track_caller]
    fn check_between(first: fn(&TestMailbox), deed: fn(&TestMailbox)) {
        for mail_before in [0, 1] {
            let (mailbox, _poll) = new_mailbox();
            (0..mail_before).for_each(|_| push(&mailbox));
            let inner = Arc::clone(&mailbox);
            DEED.set(Some(Box::new(move || deed(&inner))));
            first(&mailbox);
            assert!(DEED.take().is_none(), "the interleaved step has run");
            check_nothing_is_forgotten(&mailbox);
        }
    }

    fn take(mailbox: &TestMailbox) {
        mailbox.take(&mut Vec::new());
    }

    fn take_and_sleep(mailbox: &TestMailbox) {
        take(mailbox);
        mailbox.may_sleep();
    }

    #[test]
    fn steps_of_two_threads_may_mix() {
        check_between(take, push);
        check_between(take_and_sleep, push);
        check_between(push, take);
        check_between(push, push);
        check_between(push, take_and_sleep);
        check_between(push, |mailbox| {
            mailbox.may_sleep();
        });
    }

    const ROUNDS: usize = 10_000;

    /// The consumer's half of the protocol, as the loop follows it. Its wait has a timeout, so that a lost wake-up fails the
    /// test.
    fn consume(mailbox: &TestMailbox, poll: &mut mio::Poll, taken_count: &AtomicUsize) {
        let mut events = mio::Events::with_capacity(1);
        let mut taken = Vec::new();
        while taken_count.load(Ordering::SeqCst) < 2 * ROUNDS {
            if mailbox.may_sleep() {
                poll.poll(&mut events, Some(Duration::from_secs(10))).expect("a sound epoll");
                mailbox.awake();
                assert!(!events.is_empty(), "slept through a wake-up");
            }
            if mailbox.has_mail() {
                mailbox.take(&mut taken);
                taken_count.fetch_add(taken.drain(..).count(), Ordering::SeqCst);
            }
        }
    }

    /// Two pushes a round, the second while the consumer wakes, takes, and falls asleep again. No third push could hide a lost
    /// wake-up.
    #[test]
    fn a_push_at_any_moment_is_taken() {
        let (mailbox, mut poll) = new_mailbox();
        let taken_count = Arc::new(AtomicUsize::new(0));
        let (of_consumer, count) = (Arc::clone(&mailbox), Arc::clone(&taken_count));
        let consumer = std::thread::spawn(move || consume(&of_consumer, &mut poll, &count));
        for round in 0..ROUNDS {
            push(&mailbox);
            (0..round % 300).for_each(|_| std::hint::spin_loop());
            push(&mailbox);
            while taken_count.load(Ordering::SeqCst) < 2 * (round + 1) && !consumer.is_finished() {
                std::hint::spin_loop();
            }
        }
        assert!(consumer.join().is_ok());
        assert!(mailbox.wakes.get() <= 2 * ROUNDS as u64);
    }

    #[test]
    fn a_mailbox_closes_only_when_it_is_empty() {
        let (mailbox, _poll) = new_mailbox();
        push(&mailbox);
        assert!(!mailbox.try_close());
        mailbox.take(&mut Vec::new());
        assert!(mailbox.try_close());
        assert!(mailbox.push(0).is_err());
    }
}
