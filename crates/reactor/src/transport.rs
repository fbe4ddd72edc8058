//! The seam between a connection and its socket: plain TCP and Unix sockets now, TLS later.
//!
//! A transport owns the socket and its readiness; everything above sees bytes. A TLS variant will answer `read` with
//! clear bytes and keep half a record for itself.

use std::io::{self, IoSlice, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use mio::net::{TcpStream, UnixStream};
use socket2::SockRef;

use crate::kernel::{self, Poller, Token};

/// What follows a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Perhaps more, perhaps nothing: the bytes leave now.
    Send,
    /// The end of the output, at once: the kernel keeps the last bytes back for it, and they leave with the FIN in one
    /// segment instead of two.
    End,
}

const LAST: libc::c_int = libc::MSG_MORE | libc::MSG_NOSIGNAL;

/// How a connection's bytes travel.
pub(crate) enum Transport {
    Plain(TcpStream),
    /// From a peer on this machine.
    Unix(UnixStream),
}

impl Transport {
    pub(crate) fn register(&mut self, poller: &Poller, token: Token) -> io::Result<()> {
        match self {
            Self::Plain(stream) => poller.register(stream, token),
            Self::Unix(stream) => poller.register(stream, token),
        }
    }

    /// Reads once; `Ok(0)` is the end of the peer's half.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => uninterrupted(|| kernel::receive(stream, room)),
            Self::Unix(stream) => uninterrupted(|| kernel::receive(stream, room)),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8], then: Then) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => uninterrupted(|| match then {
                Then::Send => kernel::send(stream, bytes),
                Then::End => SockRef::from(&*stream).send_with_flags(bytes, LAST),
            }),
            // There are no segments to save.
            Self::Unix(stream) => uninterrupted(|| kernel::send(stream, bytes)),
        }
    }

    pub(crate) fn write_vectored(&mut self, pieces: &[IoSlice<'_>], then: Then) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => uninterrupted(|| match then {
                Then::Send => stream.write_vectored(pieces),
                Then::End => SockRef::from(&*stream).send_vectored_with_flags(pieces, LAST),
            }),
            // One by one it would be a signal where the peer has gone.
            Self::Unix(stream) => {
                uninterrupted(|| SockRef::from(&*stream).send_vectored_with_flags(pieces, libc::MSG_NOSIGNAL))
            }
        }
    }

    /// Bytes that were written and that the peer has not acknowledged; 0 where that cannot be told.
    pub(crate) fn unacknowledged(&self) -> u64 {
        match self {
            Self::Plain(stream) => kernel::unacknowledged(stream),
            Self::Unix(stream) => kernel::unacknowledged(stream),
        }
    }

    /// Has the connection end by a reset: what the kernel still holds for the peer goes at once.
    pub(crate) fn reset_at_close(&self) {
        match self {
            // Where it fails the kernel keeps it for some minutes.
            Self::Plain(stream) => drop(SockRef::from(stream).set_linger(Some(Duration::ZERO))),
            // What waits for the peer goes with the socket.
            Self::Unix(_) => {}
        }
    }

    /// Tells the peer that nothing more will come.
    pub(crate) fn end_output(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Whether an outgoing connection is made: `Ok(false)` not yet.
    pub(crate) fn connected(&mut self) -> io::Result<bool> {
        let stream = match self {
            Self::Plain(stream) => stream,
            // A Unix socket is connected at once or not at all.
            Self::Unix(stream) => return stream.take_error().and_then(|error| error.map_or(Ok(true), Err)),
        };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(SocketAddr::V4(_) | SocketAddr::V6(_)) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
