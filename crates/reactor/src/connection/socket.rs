//! A connected socket, TCP or Unix, with the readiness last reported by the kernel.
//!
//! The registration is edge-triggered, so the socket remembers readiness: `readable` and `writable` stay set until a read or
//! write comes back short. After a short read no second one is made that would only return EAGAIN: bytes or a FIN that arrive
//! later make a new edge. The one exception is a FIN that was reported together with the bytes (`fin_waits`); there will be no
//! other edge for it. So no edge is lost, however many layers are between the socket and the protocol.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use mio::net::{TcpStream, UnixStream};
use rustix::fs::sendfile;
use socket2::SockRef;

use crate::kernel::{self, Poller, Readiness, Token};

/// What follows a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Perhaps more output, perhaps none: the bytes leave now.
    Send,
    /// The end of the output follows at once: the kernel keeps the last bytes back, and they leave with the FIN in one segment
    /// instead of two.
    End,
    /// A file's bytes follow at once: the kernel keeps the last bytes back for them in the same way.
    More,
}

const KEPT_BACK: libc::c_int = libc::MSG_MORE | libc::MSG_NOSIGNAL;

pub(crate) enum Stream {
    Tcp(TcpStream),
    /// To or from a peer on the same machine.
    Unix(UnixStream),
}

/// A connection's socket.
pub(crate) struct Socket {
    stream: Stream,
    /// The kernel may have more to read: no read came back short since the last event.
    readable: bool,
    /// The kernel may take more: no write came back short since the last event.
    writable: bool,
    /// The peer's FIN is known to be in the kernel, so a short read is not the last one.
    fin_waits: bool,
}

impl Socket {
    /// An accepted socket: writable, and not known to be readable.
    pub(crate) fn accepted(stream: Stream) -> Self {
        Self { stream, readable: false, writable: true, fin_waits: false }
    }

    /// A socket whose connection has been started.
    pub(crate) fn connecting(stream: Stream) -> Self {
        Self { stream, readable: false, writable: false, fin_waits: false }
    }

    pub(crate) fn register(&mut self, poller: &Poller, token: Token) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => poller.register(stream, token),
            Stream::Unix(stream) => poller.register(stream, token),
        }
    }

    /// Records readiness reported by the kernel.
    #[inline]
    pub(crate) fn note(&mut self, readiness: Readiness) {
        self.writable |= readiness.writable;
        self.readable |= readiness.readable;
        self.fin_waits |= readiness.ended;
    }

    /// Makes the next turn read although the kernel reported no input.
    pub(crate) fn expect_input(&mut self) {
        self.readable = true;
    }

    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        self.readable
    }

    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// The peer's FIN is in the kernel.
    pub(crate) fn fin_waits(&self) -> bool {
        self.fin_waits
    }

    /// Reads once; `Ok(0)` is the end of the peer's half.
    #[inline]
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let taken = uninterrupted(|| match &self.stream {
            Stream::Tcp(stream) => kernel::receive(stream, room),
            Stream::Unix(stream) => kernel::receive(stream, room),
        });
        match &taken {
            Ok(taken) => self.readable = *taken > 0 && (*taken == room.len() || self.fin_waits),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(_) => {}
        }
        taken
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8], then: Then) -> io::Result<usize> {
        let taken = match &self.stream {
            Stream::Tcp(stream) => uninterrupted(|| match then {
                Then::Send => kernel::send(stream, bytes),
                Then::End | Then::More => SockRef::from(stream).send_with_flags(bytes, KEPT_BACK),
            }),
            // A Unix socket has no segments to save.
            Stream::Unix(stream) => uninterrupted(|| kernel::send(stream, bytes)),
        };
        self.after_write(taken, bytes.len())
    }

    pub(crate) fn write_vectored(&mut self, pieces: &[IoSlice<'_>], then: Then) -> io::Result<usize> {
        let taken = match &mut self.stream {
            Stream::Tcp(stream) => uninterrupted(|| match then {
                Then::Send => stream.write_vectored(pieces),
                Then::End | Then::More => SockRef::from(&*stream).send_vectored_with_flags(pieces, KEPT_BACK),
            }),
            // A plain writev would raise SIGPIPE if the peer has gone.
            Stream::Unix(stream) => {
                uninterrupted(|| SockRef::from(&*stream).send_vectored_with_flags(pieces, libc::MSG_NOSIGNAL))
            }
        };
        self.after_write(taken, pieces.iter().map(|piece| piece.len()).sum())
    }

    /// Sends bytes of a file from the offset `from` on, without a copy; `Ok(0)`: the file ends at `from`.
    pub(crate) fn send_file(&mut self, file: &File, from: u64, bytes: usize) -> io::Result<usize> {
        let taken = uninterrupted(|| {
            let mut from = from;
            let sent = match &self.stream {
                Stream::Tcp(stream) => sendfile(stream, file, Some(&mut from), bytes),
                Stream::Unix(stream) => sendfile(stream, file, Some(&mut from), bytes),
            };
            sent.map_err(io::Error::from)
        });
        // A short send may have other reasons than a full socket.
        self.writable &= !matches!(&taken, Err(error) if error.kind() == ErrorKind::WouldBlock);
        taken
    }

    /// A short write means a full socket buffer: another attempt would only return EAGAIN.
    #[inline]
    fn after_write(&mut self, taken: io::Result<usize>, asked: usize) -> io::Result<usize> {
        match &taken {
            Ok(taken) => self.writable = *taken == asked,
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
            Err(_) => {}
        }
        taken
    }

    /// Bytes that were written and that the peer has not acknowledged; 0 if unknown.
    pub(crate) fn unacknowledged(&self) -> u64 {
        match &self.stream {
            Stream::Tcp(stream) => kernel::unacknowledged(stream),
            Stream::Unix(stream) => kernel::unacknowledged(stream),
        }
    }

    /// Makes the connection end by a reset: the kernel drops the bytes that it still holds for the peer.
    pub(crate) fn reset_at_close(&self) {
        match &self.stream {
            // If this fails, the kernel keeps the bytes for some minutes.
            Stream::Tcp(stream) => drop(SockRef::from(stream).set_linger(Some(Duration::ZERO))),
            // A Unix socket's unread bytes are dropped with it.
            Stream::Unix(_) => {}
        }
    }

    /// Tells the peer that nothing more will come.
    pub(crate) fn end_output(&mut self) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Whether an outgoing connection is made; `Ok(false)`: not yet.
    pub(crate) fn connected(&mut self) -> io::Result<bool> {
        let is_made = match &self.stream {
            Stream::Tcp(stream) => is_made(stream)?,
            // A Unix socket is connected at once or not at all.
            Stream::Unix(stream) => stream.take_error()?.map_or(Ok(true), Err)?,
        };
        self.writable |= is_made;
        Ok(is_made)
    }
}

fn is_made(stream: &TcpStream) -> io::Result<bool> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(SocketAddr::V4(_) | SocketAddr::V6(_)) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}

#[inline]
fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
