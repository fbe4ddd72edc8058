//! Resource usage of the process, from the kernel: processor time, context switches, memory.
//!
//! Only Linux has `/proc`. If a file cannot be read or written, its figure is missing; this is not an error.
#![allow(unsafe_code)] // getrusage(2) and clock_gettime(2) of a thread's clock have no safe binding among our libraries.

use std::time::Duration;

/// The kernel's counters of this process since its start, including ended threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) user: Duration,
    pub(crate) system: Duration,
    /// Switches because a thread waited.
    pub(crate) voluntary_switches: u64,
    /// Switches because a thread was preempted.
    pub(crate) involuntary_switches: u64,
}

impl Usage {
    /// The current counters.
    pub(crate) fn now() -> Self {
        // SAFETY: rusage consists of plain numbers, for which all zeros are valid.
        let mut raw: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `raw` is a live local of the type that the call fills. The call fails only for an unknown `who`.
        unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut raw) };
        Self {
            user: of_timeval(raw.ru_utime),
            system: of_timeval(raw.ru_stime),
            voluntary_switches: raw.ru_nvcsw as u64,
            involuntary_switches: raw.ru_nivcsw as u64,
        }
    }

    /// The usage since an earlier reading.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            voluntary_switches: self.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(before.involuntary_switches),
        }
    }
}

fn of_timeval(time: libc::timeval) -> Duration {
    Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000)
}

/// Processor time of the calling thread so far.
pub(crate) fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live local of the type that the call fills; every thread has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Resident memory of the process now, in bytes.
pub(crate) fn resident_bytes() -> Option<u64> {
    status_bytes("VmRSS:")
}

/// Largest resident memory since [`reset_peak`], in bytes.
pub(crate) fn peak_bytes() -> Option<u64> {
    status_bytes("VmHWM:")
}

/// Resets the peak. `false`: the kernel does not permit it.
pub(crate) fn reset_peak() -> bool {
    // proc_pid_clear_refs(5): 5 resets the peak resident set size.
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

fn status_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kilobytes = status.lines().find_map(|line| line.strip_prefix(field))?.split_whitespace().next()?;
    Some(kilobytes.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_is_seen_as_processor_time_and_waiting_is_not() {
        let (before, thread_before) = (Usage::now(), thread_cpu());
        std::thread::sleep(Duration::from_millis(2));
        let mut sum = 0_u64;
        while thread_cpu() - thread_before < Duration::from_millis(5) {
            sum = std::hint::black_box(sum + 1);
        }
        let used = Usage::now().since(before);
        assert!(used.user + used.system >= Duration::from_millis(4), "{used:?}");
        assert!(used.voluntary_switches >= 1, "the sleep is one");
    }

    #[test]
    fn memory_is_read_where_there_is_proc() {
        let (Some(resident), Some(peak)) = (resident_bytes(), peak_bytes()) else { return };
        assert!(resident > 100_000 && peak > 100_000, "{resident} {peak}");
    }
}
