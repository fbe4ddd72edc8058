//! Traffic: bytes from and to a connected socket, by bare system calls.
//!
//! glibc's `recv` and `send` are cancellation points. In a process of several threads each call makes two atomic exchanges for
//! that, twice as many instructions as the call itself. This program cancels no threads.
#![allow(unsafe_code)] // system calls without glibc's functions around them

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// Receives once; `Ok(0)` is the end of the peer's half.
#[inline]
pub(crate) fn receive(socket: &impl AsRawFd, room: &mut [u8]) -> io::Result<usize> {
    let (from, from_bytes) = (ptr::null_mut::<libc::sockaddr>(), ptr::null_mut::<libc::socklen_t>());
    let (at, bytes) = (room.as_mut_ptr(), room.len());
    // SAFETY: the kernel writes to `room` alone, at most as many bytes as it has; no address is asked for.
    let got = unsafe { libc::syscall(libc::SYS_recvfrom, socket.as_raw_fd(), at, bytes, 0, from, from_bytes) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Sends once; no SIGPIPE if the peer has gone.
#[inline]
pub(crate) fn send(socket: &impl AsRawFd, bytes: &[u8]) -> io::Result<usize> {
    let (flags, to, to_bytes) = (libc::MSG_NOSIGNAL, ptr::null::<libc::sockaddr>(), 0);
    let (at, count) = (bytes.as_ptr(), bytes.len());
    // SAFETY: the kernel reads from `bytes` alone; no address is given.
    let sent = unsafe { libc::syscall(libc::SYS_sendto, socket.as_raw_fd(), at, count, flags, to, to_bytes) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Bytes sent and not acknowledged by the peer (tcp(7), SIOCOUTQ); 0 if the kernel does not report it.
pub(crate) fn unacknowledged(socket: &impl AsRawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the request writes one int, and the pointer is to one of this frame, which lives during the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}
