//! The queue of transactions on their way to the writer: many push, one takes all that wait.
//!
//! A mutex around a vector, not a lock-free list: a push holds it for some 20 ns, the writer swaps the whole vector out
//! once per group, and the bound and the sleeper's flag come for free. A sleeping writer is woken once, by the push that
//! finds it asleep; pushes to a writer that is awake make no system call.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the module's text.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    /// Pushed and not yet [`Queue::settle`]d: waiting here or taken and not yet in a batch.
    depth: AtomicUsize,
    depth_max: usize,
}

struct State<T> {
    waiting: Vec<T>,
    is_taker_asleep: bool,
    is_closed: bool,
}

/// Why a push was refused; the item comes back.
pub(crate) enum Refused<T> {
    Full(T),
    Closed(T),
}

impl<T> Queue<T> {
    pub(crate) fn new(depth_max: usize) -> Queue<T> {
        let state = State { waiting: Vec::new(), is_taker_asleep: false, is_closed: false };
        Queue { state: Mutex::new(state), filled: Condvar::new(), depth: AtomicUsize::new(0), depth_max }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // No code of others runs under the lock, so a panic cannot leave it half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, item: T) -> Result<(), Refused<T>> {
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
        let wake = std::mem::take(&mut state.is_taker_asleep);
        drop(state);
        if wake {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Moves all that wait behind `taken`.
    pub(crate) fn take_into(&self, taken: &mut Vec<T>) {
        let mut state = self.state();
        if taken.is_empty() {
            std::mem::swap(taken, &mut state.waiting);
        } else {
            taken.append(&mut state.waiting);
        }
    }

    /// Sleeps until something waits; false once the queue is closed and empty. One taker at a time.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state();
        while state.waiting.is_empty() {
            if state.is_closed {
                return false;
            }
            state.is_taker_asleep = true;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_taker_asleep = false;
        true
    }

    /// So many items have left the writer's hands.
    pub(crate) fn settle(&self, count: usize) {
        self.depth.fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// Refuses pushes from now on; what waits can still be taken.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.is_taker_asleep = false;
        drop(state);
        self.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

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
