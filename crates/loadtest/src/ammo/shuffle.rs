//! A window for shuffling requests.
//!
//! The window is filled; then each request that leaves it is drawn at random, and the next one takes its place. So each request
//! of a pass is sent once, the same seed gives the same order, and a pass that fits the window has a uniformly random order. In a
//! longer pass, a request is sent at most one window before its position in the file, and rarely much more than some windows
//! after it. Memory is bounded whatever the input's length, and standard input can be shuffled too; therefore there is no index
//! of the whole file.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Largest number of requests in the window.
pub const SHUFFLE_REQUESTS_MAX: usize = 65_536;
/// Largest size of the window's requests and expected answers, in bytes. The window holds at least one request.
pub const SHUFFLE_BYTES_MAX: usize = 32 << 20;

/// The window, for items of any type with a size.
pub(crate) struct Window<T> {
    random: ChaCha8Rng,
    items: Vec<(usize, T)>,
    bytes: usize,
}

impl<T> Window<T> {
    pub(crate) fn new(seed: u64) -> Window<T> {
        Window { random: ChaCha8Rng::seed_from_u64(seed), items: Vec::new(), bytes: 0 }
    }

    /// Whether an item must leave before another one may enter.
    pub(crate) fn is_full(&self) -> bool {
        self.items.len() >= SHUFFLE_REQUESTS_MAX || self.bytes >= SHUFFLE_BYTES_MAX
    }

    /// Adds an item of `bytes`.
    pub(crate) fn put(&mut self, bytes: usize, item: T) {
        self.bytes += bytes;
        self.items.push((bytes, item));
    }

    /// Removes an item, drawn at random. `None`: the window is empty.
    pub(crate) fn draw(&mut self) -> Option<T> {
        if self.items.is_empty() {
            return None;
        }
        let drawn = self.random.random_range(0..self.items.len());
        let (bytes, item) = self.items.swap_remove(drawn);
        self.bytes -= bytes;
        Some(item)
    }
}

#[cfg(test)]
mod order {
    use super::{SHUFFLE_BYTES_MAX, SHUFFLE_REQUESTS_MAX, Window};

    fn shuffled(seed: u64, count: usize, bytes: usize) -> Vec<usize> {
        let mut window = Window::new(seed);
        let mut out = Vec::new();
        for item in 0..count {
            while window.is_full() {
                out.extend(window.draw());
            }
            window.put(bytes, item);
        }
        out.extend(std::iter::from_fn(|| window.draw()));
        out
    }

    #[test]
    fn each_item_leaves_once_and_a_seed_decides_the_order() {
        let order = shuffled(1, 1000, 10);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        assert_ne!(order, sorted);
        assert_eq!(order, shuffled(1, 1000, 10));
        assert_ne!(order, shuffled(2, 1000, 10));
    }

    #[test]
    fn an_item_leaves_at_most_a_window_early() {
        let count = SHUFFLE_REQUESTS_MAX * 2;
        let order = shuffled(1, count, 10);
        assert!(order.iter().enumerate().all(|(place, item)| *item < place + SHUFFLE_REQUESTS_MAX));
        // Four items of this size fill the window.
        let order = shuffled(1, 100, SHUFFLE_BYTES_MAX / 4);
        assert!(order.iter().enumerate().all(|(place, item)| *item < place + 4), "{order:?}");
    }

    #[test]
    fn every_place_is_as_likely_as_any_other_where_all_fits_the_window() {
        let mut first = [0; 5];
        (0..5000).for_each(|seed| first[shuffled(seed, 5, 1)[0]] += 1);
        assert!(first.iter().all(|count| (850..1150).contains(count)), "{first:?}");
    }
}
