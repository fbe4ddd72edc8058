//! Waiting until a socket is ready, with a deadline.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Readiness of a socket as `poll` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
}

/// Waits until a socket is readable, or, with `wants_write`, readable or writable.
///
/// # Errors
/// `TimedOut` at the deadline.
pub(super) fn wait(socket: BorrowedFd<'_>, wants_write: bool, deadline: Instant) -> io::Result<Readiness> {
    let interest = if wants_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut sockets = [PollFd::new(&socket, interest)];
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut sockets, timeout.as_ref()) {
            Ok(0) => {}
            Ok(_) => {
                let events = sockets[0].revents();
                // A broken socket is ready for both: the next operation then reports the error.
                let is_broken = events.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
                return Ok(Readiness {
                    is_readable: is_broken || events.contains(PollFlags::IN),
                    is_writable: is_broken || events.contains(PollFlags::OUT),
                });
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
