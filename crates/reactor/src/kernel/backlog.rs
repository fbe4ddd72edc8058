//! Whether a descriptor is readable, without reading: a connection in a listener's backlog, an event in a poller.
#![allow(unsafe_code)] // poll has no safe binding among our libraries.

use std::os::fd::AsRawFd;

/// Calls poll(2) without waiting. If it fails, `true`: the following read reports the error.
pub(crate) fn has_waiting(source: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd { fd: source.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the pointer is to one pollfd of this frame, which lives during the call, and the count is 1.
    let ready = unsafe { libc::poll(&raw mut asked, 1, 0) };
    ready != 0
}
