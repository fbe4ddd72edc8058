//! Counts the seconds in which a loop's thread had no processor time to spare: then the thread was the limit, not the server.
//!
//! A thread is saturated if it ran all the time, or was runnable while others ran: replies then wait unread, which looks as if
//! the server were slow. The kernel reports both (/proc/PID/task/TID/schedstat: nanoseconds on a processor, nanoseconds of
//! waiting for one). If it does not report the waiting, only the time on a processor counts.

use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A thread that ran or waited to run for this share of a second was saturated: the rest is lost between wake-ups.
const SATURATED_SHARE: f64 = 0.97;
/// The file of the calling thread.
const SCHEDULING: &str = "/proc/thread-self/schedstat";

/// Seconds of one thread.
#[derive(Debug, Default)]
pub(super) struct Saturation {
    scheduling: Option<File>,
    wall_ns: u64,
    busy_ns: u64,
    seconds: u32,
    saturated: u32,
}

impl Saturation {
    /// Must be called on the thread itself.
    pub(super) fn begin(&mut self, now_ns: u64) {
        // Opened once: it stays that of this thread.
        *self = Self { scheduling: File::open(SCHEDULING).ok(), wall_ns: now_ns, ..Self::default() };
        self.busy_ns = self.read_busy_ns();
    }

    /// Another second has passed. Must be called on the thread itself.
    pub(super) fn beat(&mut self, now_ns: u64) {
        let busy_ns = self.read_busy_ns();
        self.note(now_ns, busy_ns);
    }

    fn note(&mut self, wall_ns: u64, busy_ns: u64) {
        let (wall, busy) = (wall_ns.saturating_sub(self.wall_ns), busy_ns.saturating_sub(self.busy_ns));
        (self.wall_ns, self.busy_ns) = (wall_ns, busy_ns);
        self.seconds += 1;
        self.saturated += u32::from(busy as f64 >= SATURATED_SHARE * wall as f64);
    }

    /// All seconds, and the saturated ones.
    pub(super) fn seconds(&self) -> (u32, u32) {
        (self.seconds, self.saturated)
    }

    /// Nanoseconds that the thread ran or waited to run.
    fn read_busy_ns(&self) -> u64 {
        let mut text = [0; 128];
        let read = self.scheduling.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        read.and_then(|bytes| run_and_wait_ns(&text[..bytes])).unwrap_or_else(thread_cpu_ns)
    }
}

/// The sum of the first two numbers of schedstat.
fn run_and_wait_ns(text: &[u8]) -> Option<u64> {
    let mut numbers = std::str::from_utf8(text).ok()?.split_ascii_whitespace().map(|number| number.parse::<u64>().ok());
    Some(numbers.next()?? + numbers.next()??)
}

fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_without_time_to_spare_are_counted() {
        let mut saturation = Saturation::default();
        saturation.note(1_000_000_000, 500_000_000);
        saturation.note(2_000_000_000, 1_480_000_000);
        saturation.note(3_000_000_000, 1_480_000_001);
        assert_eq!(saturation.seconds(), (3, 1));
    }

    #[test]
    fn waiting_for_a_processor_counts_as_running() {
        assert_eq!(run_and_wait_ns(b"500 300 7\n"), Some(800));
        assert_eq!((run_and_wait_ns(b"500"), run_and_wait_ns(b"a b c")), (None, None));
    }

    #[test]
    fn the_threads_own_time_is_read() {
        let mut saturation = Saturation::default();
        saturation.begin(0);
        let before = saturation.read_busy_ns();
        let begun = thread_cpu_ns();
        while thread_cpu_ns() < begun + 20_000_000 {
            std::hint::spin_loop();
        }
        assert!(saturation.read_busy_ns() > before);
    }
}
