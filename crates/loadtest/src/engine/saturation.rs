//! How many seconds a loop's thread had no processor time to spare: then it was the limit, not the server.

use rustix::time::{ClockId, clock_gettime};

/// A thread that used this share of a second's time had none to spare: the rest is lost between wake-ups.
const SATURATED_SHARE: f64 = 0.97;

/// Seconds of one thread.
#[derive(Debug, Default)]
pub(super) struct Saturation {
    wall_ns: u64,
    cpu_ns: u64,
    seconds: u32,
    saturated: u32,
}

impl Saturation {
    /// To be called on the thread itself.
    pub(super) fn begin(&mut self, now_ns: u64) {
        *self = Self { wall_ns: now_ns, cpu_ns: thread_cpu_ns(), ..Self::default() };
    }

    /// Another second is over. To be called on the thread itself.
    pub(super) fn beat(&mut self, now_ns: u64) {
        self.note(now_ns, thread_cpu_ns());
    }

    fn note(&mut self, wall_ns: u64, cpu_ns: u64) {
        let (wall, cpu) = (wall_ns.saturating_sub(self.wall_ns), cpu_ns.saturating_sub(self.cpu_ns));
        (self.wall_ns, self.cpu_ns) = (wall_ns, cpu_ns);
        self.seconds += 1;
        self.saturated += u32::from(cpu as f64 >= SATURATED_SHARE * wall as f64);
    }

    /// All seconds, and those without time to spare.
    pub(super) fn seconds(&self) -> (u32, u32) {
        (self.seconds, self.saturated)
    }
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
    fn the_threads_own_time_is_read() {
        let before = thread_cpu_ns();
        while thread_cpu_ns() == before {
            std::hint::spin_loop();
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
