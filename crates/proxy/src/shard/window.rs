//! Bounds on what is in flight, learnt from the sizes of replies so far.
//!
//! The proxy learns a reply's size only when it arrives, and must then store it. A client therefore begins with few commands in
//! flight and gains one with each reply, up to the number whose replies, by their average size, fit its byte bound. The memory of
//! a pipeline then hardly depends on its depth and its replies.

/// Commands in flight of a client without any reply so far.
const COMMANDS_AT_FIRST: u32 = 16;
/// Divisor for the weight of a reply in the moving average.
const AVERAGE_OVER: u64 = 8;

/// The average size of the last replies.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Average(u64);

impl Average {
    #[inline]
    pub(crate) fn get(self) -> u64 {
        self.0
    }

    /// Counts a reply of this size. A large one counts at once, because it is the large ones that need memory.
    #[inline]
    pub(crate) fn add(&mut self, bytes: u64) {
        self.0 = if bytes > self.0 * AVERAGE_OVER {
            bytes / 2
        } else {
            self.0 - self.0 / AVERAGE_OVER + bytes / AVERAGE_OVER
        };
    }
}

/// A client's bound on unanswered commands.
#[derive(Debug)]
pub(crate) struct Window {
    commands: u32,
    reply_bytes: Average,
}

impl Window {
    pub(crate) fn new(commands_max: u32) -> Window {
        Window { commands: COMMANDS_AT_FIRST.min(commands_max).max(1), reply_bytes: Average::default() }
    }

    /// Bound on unanswered commands.
    #[inline]
    pub(crate) fn commands(&self) -> usize {
        self.commands as usize
    }

    /// Average size of a reply, in bytes.
    #[inline]
    pub(crate) fn reply_bytes(&self) -> u32 {
        u32::try_from(self.reply_bytes.get()).unwrap_or(u32::MAX)
    }

    /// Counts a reply of this size.
    #[inline]
    pub(crate) fn replied(&mut self, bytes: u64, commands_max: u32, bytes_max: usize) {
        self.reply_bytes.add(bytes);
        let most = bytes_max as u64 / self.reply_bytes.get().max(1);
        self.commands = (self.commands + 1).min(commands_max).min(u32::try_from(most).unwrap_or(u32::MAX)).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn small_replies_open_it_and_large_ones_close_it() {
        let mut window = Window::new(1000);
        assert_eq!(window.commands(), 16);
        (0..2000).for_each(|_| window.replied(5, 1000, 1 << 20));
        assert_eq!(window.commands(), 1000);
        window.replied(1 << 20, 1000, 1 << 20);
        assert_eq!(window.commands(), 2);
        (0..50).for_each(|_| window.replied(10 << 20, 1000, 1 << 20));
        assert_eq!(window.commands(), 1);
        (0..2000).for_each(|_| window.replied(1000, 1000, 1 << 20));
        assert!((900..=1000).contains(&window.commands()), "{window:?}");
    }
}
