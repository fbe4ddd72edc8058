//! The queue of transactions for the writer: many threads push, one takes everything that waits.
//!
//! It is a mutex around a vector, not a lock-free list: a push holds the mutex for about 20 ns, the writer swaps the
//! vector out once for each group, and the bound and the consumer's state are protected too. A sleeping consumer is
//! woken once, by the push that meets its condition. Pushes to an awake consumer make no system call. A quiet push leaves an
//! idle consumer asleep; the pusher wakes it later ([`Queue::wake_idle`]).

use crate::base::sync::PoisonError;
use crate::base::sync::atomic::Ordering;
use crate::base::sync::modelled::{Condvar, Mutex, MutexGuard, atomic::AtomicUsize};

/// See the module's text.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    /// Items pushed and not yet [`Queue::settle`]d: waiting here, or taken and not yet in a batch.
    depth: AtomicUsize,
    depth_max: usize,
}

struct State<T> {
    waiting: Vec<T>,
    taker: Taker,
    /// See [`Queue::nudge`].
    is_nudged: bool,
    is_closed: bool,
}

/// State of the consumer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taker {
    Awake,
    /// Sleeps until an item waits.
    Idle,
    /// Sleeps until this many items wait, or until it is nudged.
    Gathering(usize),
}

/// Why a push was refused; returns the item.
pub(crate) enum Refused<T> {
    Full(T),
    Closed(T),
}

impl<T> Queue<T> {
    pub(crate) fn new(depth_max: usize) -> Queue<T> {
        let state = State { waiting: Vec::new(), taker: Taker::Awake, is_nudged: false, is_closed: false };
        Queue { state: Mutex::new(state), filled: Condvar::new(), depth: AtomicUsize::new(0), depth_max }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // No foreign code runs under the lock, so a panic cannot leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, item: T) -> Result<(), Refused<T>> {
        self.push_quietly(item, 1).map(drop)
    }

    /// Pushes an item, and wakes an idle consumer only if `quiet_max` items wait. `true`: it sleeps although items wait, and
    /// [`Queue::wake_idle`] has to be called.
    pub(crate) fn push_quietly(&self, item: T, quiet_max: usize) -> Result<bool, Refused<T>> {
        if self.depth.fetch_add(1, Ordering::Relaxed) >= self.depth_max {
            self.depth.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused::Full(item));
        }
        let mut state = self.state();
        if state.is_closed {
            self.depth.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused::Closed(item));
        }
        state.waiting.push(item);
        let wake = match state.taker {
            Taker::Awake => false,
            Taker::Idle => state.waiting.len() >= quiet_max,
            Taker::Gathering(count) => state.waiting.len() >= count,
        };
        if wake {
            state.taker = Taker::Awake;
        }
        let is_asleep = state.taker == Taker::Idle;
        drop(state);
        if wake {
            self.filled.notify_one();
        }
        Ok(is_asleep)
    }

    /// Wakes an idle consumer if items wait.
    pub(crate) fn wake_idle(&self) {
        let mut state = self.state();
        let wake = state.taker == Taker::Idle && !state.waiting.is_empty();
        if wake {
            state.taker = Taker::Awake;
        }
        drop(state);
        if wake {
            self.filled.notify_one();
        }
    }

    /// Whether a quarter of its capacity is free.
    pub(crate) fn has_room(&self) -> bool {
        self.depth.load(Ordering::Relaxed) <= self.depth_max - self.depth_max / 4
    }

    /// Appends all waiting items to `taken`.
    pub(crate) fn take_into(&self, taken: &mut Vec<T>) {
        let mut state = self.state();
        if taken.is_empty() {
            std::mem::swap(taken, &mut state.waiting);
        } else {
            taken.append(&mut state.waiting);
        }
    }

    /// Sleeps until an item waits; false once the queue is closed and empty. One consumer at a time.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state();
        while state.waiting.is_empty() {
            if state.is_closed {
                return false;
            }
            state.taker = Taker::Idle;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taker = Taker::Awake;
        true
    }

    /// Sleeps until `count` items wait, or until it is nudged; an earlier nudge counts once. One consumer at a time.
    pub(crate) fn wait_for_more(&self, count: usize) {
        let mut state = self.state();
        while state.waiting.len() < count && !state.is_nudged {
            state.taker = Taker::Gathering(count);
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taker = Taker::Awake;
        state.is_nudged = false;
    }

    /// Ends the current [`Queue::wait_for_more`], or the next one.
    pub(crate) fn nudge(&self) {
        let mut state = self.state();
        state.is_nudged = true;
        let wake = matches!(state.taker, Taker::Gathering(_));
        drop(state);
        if wake {
            self.filled.notify_one();
        }
    }

    /// Reduces the depth by items that have left the writer.
    pub(crate) fn settle(&self, count: usize) {
        self.depth.fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// Refuses pushes from now on; waiting items can still be taken.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        drop(state);
        self.filled.notify_all();
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread::JoinHandle;

    #[test]
    fn nothing_pushed_by_many_threads_is_lost_and_each_threads_order_is_kept() {
        let queue = Arc::new(Queue::new(usize::MAX));
        let pushers: Vec<_> = (0..4u64)
            .map(|thread| {
                let queue = Arc::clone(&queue);
                std::thread::spawn(move || (0..5000).for_each(|i| assert!(queue.push((thread, i)).is_ok())))
            })
            .collect();
        let mut next = [0; 4];
        let mut taken = Vec::new();
        while next.iter().sum::<u64>() < 20_000 {
            assert!(queue.wait());
            queue.take_into(&mut taken);
            queue.settle(taken.len());
            for (thread, i) in taken.drain(..) {
                assert_eq!(i, next[thread as usize]);
                next[thread as usize] += 1;
            }
        }
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        assert_eq!(queue.depth(), 0);
    }

    #[test]
    fn a_full_queue_gives_the_item_back_until_items_are_settled() {
        let queue = Queue::new(2);
        assert!(queue.push(1).is_ok() && queue.push(2).is_ok());
        assert!(matches!(queue.push(3), Err(Refused::Full(3))));
        let mut taken = Vec::new();
        queue.take_into(&mut taken);
        assert!(matches!(queue.push(3), Err(Refused::Full(3))));
        queue.settle(1);
        assert!(queue.push(3).is_ok());
    }

    /// A thread that takes all items whenever it has waited successfully, and sends them.
    fn taker(
        queue: &Arc<Queue<i32>>,
        mut wait: impl FnMut(&Queue<i32>) -> bool + Send + 'static,
    ) -> (Receiver<Vec<i32>>, JoinHandle<()>) {
        let (queue, (sender, receiver)) = (Arc::clone(queue), channel());
        let run = move || {
            while wait(&queue) {
                let mut taken = Vec::new();
                queue.take_into(&mut taken);
                sender.send(taken).expect("the test receives");
            }
        };
        (receiver, std::thread::spawn(run))
    }

    #[test]
    fn who_gathers_sleeps_until_enough_wait_or_somebody_nudges() {
        let (queue, mut rounds) = (Arc::new(Queue::new(usize::MAX)), 0..3);
        let (receiver, taker) = taker(&queue, move |queue| rounds.next().map(|_| queue.wait_for_more(3)).is_some());
        (0..3).for_each(|i| assert!(queue.push(i).is_ok()));
        assert_eq!(receiver.recv().unwrap(), [0, 1, 2]);
        assert!(queue.push(3).is_ok());
        assert!(queue.push(4).is_ok());
        // Both items wait, so the nudge ends the sleep and is consumed.
        queue.nudge();
        assert_eq!(receiver.recv().unwrap(), [3, 4]);
        (5..8).for_each(|i| assert!(queue.push(i).is_ok()));
        assert_eq!(receiver.recv().unwrap(), [5, 6, 7]);
        taker.join().unwrap();
    }

    #[test]
    fn a_quiet_push_leaves_an_idle_consumer_asleep_until_enough_wait_or_it_is_woken() {
        let queue = Arc::new(Queue::new(usize::MAX));
        let (receiver, taker) = taker(&queue, Queue::wait);
        let sleeps = || {
            while queue.state().taker != Taker::Idle {
                std::thread::yield_now();
            }
        };
        sleeps();
        assert!(matches!(queue.push_quietly(0, 3), Ok(true)));
        assert!(matches!(queue.push_quietly(1, 3), Ok(true)));
        queue.wake_idle();
        assert_eq!(receiver.recv().unwrap(), [0, 1]);
        sleeps();
        for (item, is_asleep) in [(2, true), (3, true), (4, false)] {
            assert!(queue.push_quietly(item, 3).is_ok_and(|asleep| asleep == is_asleep), "{item}");
        }
        assert_eq!(receiver.recv().unwrap(), [2, 3, 4]);
        sleeps();
        assert!(matches!(queue.push_quietly(5, 3), Ok(true)));
        assert!(queue.push(6).is_ok());
        assert_eq!(receiver.recv().unwrap(), [5, 6]);
        sleeps();
        assert!(matches!(queue.push_quietly(7, 3), Ok(true)));
        queue.close();
        assert_eq!(receiver.recv().unwrap(), [7]);
        taker.join().unwrap();
    }

    #[test]
    fn a_closed_queue_gives_out_what_waits_and_then_ends() {
        let queue = Queue::new(9);
        assert!(queue.push(1).is_ok());
        queue.close();
        assert!(matches!(queue.push(2), Err(Refused::Closed(2))));
        assert!(queue.wait());
        let mut taken = Vec::new();
        queue.take_into(&mut taken);
        assert_eq!(taken, [1]);
        assert!(!queue.wait());
    }
}

/// Every interleaving of a pusher, a thread that releases the turn, and the consumer that gathers until it has the
/// turn, as in `commit.rs`. In none does the consumer sleep forever or an item get lost.
#[cfg(all(test, feature = "loom"))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::thread::spawn;

    /// Gathers until the turn is free, as a committer does; returns what it took.
    fn gather_until_turn(queue: &Queue<u32>, turn: &Mutex<()>, count: usize) -> Vec<u32> {
        let mut taken = Vec::new();
        loop {
            queue.take_into(&mut taken);
            if turn.try_lock().is_ok() {
                queue.take_into(&mut taken);
                return taken;
            }
            queue.wait_for_more(count);
        }
    }

    fn check(count: usize, pushes: u32) {
        loom::model(move || {
            let queue = Arc::new(Queue::new(9));
            let turn = Arc::new(Mutex::new(()));
            let sender = {
                let (queue, turn) = (Arc::clone(&queue), Arc::clone(&turn));
                spawn(move || {
                    let held = turn.lock().expect("no thread panics");
                    // The others can find the turn held only if something happens while it is held. Only one model does
                    // this: with more pushes it takes minutes.
                    if pushes == 1 {
                        queue.depth();
                    }
                    drop(held);
                    queue.nudge();
                })
            };
            let pusher = {
                let queue = Arc::clone(&queue);
                spawn(move || (0..pushes).for_each(|item| assert!(queue.push(item).is_ok())))
            };
            assert!(queue.wait());
            let mut all = gather_until_turn(&queue, &turn, count);
            pusher.join().expect("pushes are taken");
            sender.join().expect("the turn is given up");
            queue.take_into(&mut all);
            assert_eq!(all, (0..pushes).collect::<Vec<_>>());
        });
    }

    #[test]
    fn who_is_idle_hears_of_a_quiet_push() {
        loom::model(|| {
            let queue = Arc::new(Queue::new(9));
            let pusher = {
                let queue = Arc::clone(&queue);
                spawn(move || {
                    if queue.push_quietly(7, 2).is_ok_and(|is_asleep| is_asleep) {
                        queue.wake_idle();
                    }
                })
            };
            assert!(queue.wait());
            let mut taken = Vec::new();
            queue.take_into(&mut taken);
            assert_eq!(taken, [7]);
            pusher.join().expect("the push is taken");
        });
    }

    #[test]
    fn who_gathers_hears_of_a_free_turn_though_nothing_comes() {
        check(2, 1);
    }

    #[test]
    fn who_gathers_hears_of_a_free_turn_while_others_push() {
        check(1, 2);
    }
}
