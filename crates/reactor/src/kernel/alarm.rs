//! Alarm: a timerfd that wakes the loop at the next deadline.
//!
//! `epoll_wait` always sleeps without a timeout. A timeout would start and cancel a kernel timer at each sleep, is rounded to
//! milliseconds, and is lengthened by the thread's timer slack (50 µs). The alarm is set once for many sleeps and fires to the
//! microsecond. It is edge-triggered and never read: setting it again clears its expiry.
#![allow(unsafe_code)] // timerfd has no safe binding among our libraries.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::poller::{Poller, Token};

/// One absolute moment of CLOCK_MONOTONIC at which the loop wakes.
pub(crate) struct Alarm {
    fd: OwnedFd,
    /// The moment it is set for; `u64::MAX`: none.
    set_for_ns: u64,
}

impl Alarm {
    pub(crate) fn new(poller: &Poller, token: Token) -> io::Result<Self> {
        // SAFETY: no pointers; a new descriptor that nobody else owns comes back, or -1.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        poller.register_fd(fd.as_raw_fd(), token)?;
        Ok(Self { fd, set_for_ns: u64::MAX })
    }

    /// Makes sure that the loop wakes at `at_ns` (`u64::MAX`: no deadline). An alarm set for an earlier moment stays: it costs
    /// one idle tick, whereas moving it would cost a system call for each postponed deadline.
    pub(crate) fn wake_by(&mut self, at_ns: u64, now_ns: u64) -> io::Result<()> {
        if self.set_for_ns <= now_ns {
            self.set_for_ns = u64::MAX; // it has fired
        }
        if at_ns >= self.set_for_ns {
            return Ok(());
        }
        // All zeros would disarm it; a moment in the past fires at once, as it should.
        let at_ns = at_ns.max(1);
        let moment = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: libc::timespec {
                tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
                tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
            },
        };
        // SAFETY: the descriptor is ours and open; `moment` is live and a null old value is allowed.
        let status = unsafe {
            libc::timerfd_settime(self.fd.as_raw_fd(), libc::TFD_TIMER_ABSTIME, &moment, std::ptr::null_mut())
        };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        self.set_for_ns = at_ns;
        Ok(())
    }
}
