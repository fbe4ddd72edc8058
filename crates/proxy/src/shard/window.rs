//! Bound on a client's unanswered commands.
//!
//! The proxy learns a reply's size only when it arrives, and must then store it. A client therefore begins with few commands in
//! flight and gains one with each reply, up to the number whose replies, by their average size, fit its byte bound. The memory of
//! a pipeline then hardly depends on its depth and its replies.

/// Commands in flight of a client without any reply so far.
const COMMANDS_AT_FIRST: u32 = 16;
/// Divisor for the weight of a reply in the moving average.
const AVERAGE_OVER: u64 = 8;

/// See the module.
#[derive(Debug)]
pub(crate) struct Window {
    commands: u32,
    reply_bytes: u64,
}

impl Window {
    pub(crate) fn new(commands_max: u32) -> Window {
        Window { commands: COMMANDS_AT_FIRST.min(commands_max).max(1), reply_bytes: 0 }
    }

    /// Bound on unanswered commands.
    #[inline]
    pub(crate) fn commands(&self) -> usize {
        self.commands as usize
    }

    /// Average size of a reply, in bytes.
    #[inline]
    pub(crate) fn reply_bytes(&self) -> u32 {
        u32::try_from(self.reply_bytes).unwrap_or(u32::MAX)
    }

    /// Counts a reply of this size.
    #[inline]
    pub(crate) fn replied(&mut self, bytes: u64, commands_max: u32, bytes_max: usize) {
        // A large reply counts at once, because it is the large ones that need memory.
        self.reply_bytes = if bytes > self.reply_bytes * AVERAGE_OVER {
            bytes / 2
        } else {
            self.reply_bytes - self.reply_bytes / AVERAGE_OVER + bytes / AVERAGE_OVER
        };
        let most = bytes_max as u64 / self.reply_bytes.max(1);
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
