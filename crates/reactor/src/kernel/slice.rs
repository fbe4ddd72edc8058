//! The time slice that a thread asks the scheduler for.
#![allow(unsafe_code)] // sched_getattr(2) and sched_setattr(2) have no safe binding among our libraries.

use std::io;
use std::time::Duration;

/// Asks for time slices of this length for the calling thread: 0.1 to 100 ms, others are moved to the nearer bound. Its share of the
/// core and its nice value stay as they are. Linux has that since 6.12 (its `Documentation/scheduler/sched-eevdf.rst`); older ones
/// ignore it. A thread with a short slice that wakes up interrupts a thread with a longer one at once, instead of at the end of
/// that thread's slice.
pub(crate) fn ask_for_slices(length: Duration) -> io::Result<()> {
    let size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: sched_attr is a plain record of numbers, for which all zeros is a value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes into a record of that size; 0 is the calling thread.
    if unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    attributes.sched_runtime = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the kernel reads `attributes.size` bytes, which is what it wrote there: at most the size of the record.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_the_slice_that_it_asked_for_and_its_nice_value() {
        ask_for_slices(Duration::from_micros(700)).unwrap();
        // SAFETY: as above.
        let attributes = unsafe {
            let mut attributes: libc::sched_attr = std::mem::zeroed();
            let size = size_of::<libc::sched_attr>() as u32;
            assert_eq!(libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0), 0);
            attributes
        };
        // Before Linux 6.12 it is 0, whatever was asked for.
        assert!([0, 700_000].contains(&attributes.sched_runtime), "{}", attributes.sched_runtime);
        // SAFETY: reads the calling thread's nice value.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        assert_eq!(attributes.sched_nice, nice);
        ask_for_slices(Duration::ZERO).unwrap();
    }
}
