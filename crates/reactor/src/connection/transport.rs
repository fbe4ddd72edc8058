//! Transport of a connection's bytes: plain, or inside TLS.
//!
//! A transport owns the socket and its readiness, so a read or write that comes back short loses no edge, whichever layer cut it.
//! The choice is an enum: a call costs one comparison.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::connection::socket::{Socket, Then};
use crate::kernel::{Poller, Readiness, Token};
use crate::tls::{Session, TlsClient, TlsServer};

/// Bytes of a file read at once if it cannot be sent without a copy: the payload of one TLS record.
const COPIED_BYTES: usize = 16 << 10;

pub(crate) enum Transport {
    Plain(Socket),
    Tls(Box<Session>),
}

impl Transport {
    /// For an accepted socket.
    pub(crate) fn accepted(socket: Socket, tls: Option<&TlsServer>) -> io::Result<Self> {
        match tls {
            None => Ok(Self::Plain(socket)),
            Some(server) => Session::accepted(socket, server).map(|session| Self::Tls(Box::new(session))),
        }
    }

    /// For a socket whose connection has been started.
    pub(crate) fn outgoing(socket: Socket, tls: Option<&TlsClient>) -> io::Result<Self> {
        match tls {
            None => Ok(Self::Plain(socket)),
            Some(client) => Session::outgoing(socket, client).map(|session| Self::Tls(Box::new(session))),
        }
    }

    #[inline]
    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(session) => session.socket(),
        }
    }

    #[inline]
    fn socket_mut(&mut self) -> &mut Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(session) => session.socket_mut(),
        }
    }

    pub(crate) fn register(&mut self, poller: &Poller, token: Token) -> io::Result<()> {
        self.socket_mut().register(poller, token)
    }

    /// Records readiness reported by the kernel.
    #[inline]
    pub(crate) fn note(&mut self, readiness: Readiness) {
        self.socket_mut().note(readiness);
    }

    /// Makes the next turn read although the kernel reported no input.
    pub(crate) fn expect_input(&mut self) {
        self.socket_mut().expect_input();
    }

    /// Whether a read may bring bytes.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_readable(),
            Self::Tls(session) => session.is_readable(),
        }
    }

    /// Whether a write may send bytes.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_writable(),
            Self::Tls(session) => session.is_writable(),
        }
    }

    /// The peer's FIN is in the kernel.
    pub(crate) fn fin_waits(&self) -> bool {
        self.socket().fin_waits()
    }

    /// Whether bytes were taken by a write that the socket has not taken yet.
    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(session) => session.has_pending(),
        }
    }

    /// Upper bound of the bytes that the transport holds between turns.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(session) => session.held_bytes(),
        }
    }

    /// Time limit of the handshake; `None`: there is no handshake.
    pub(crate) fn handshake_max(&self) -> Option<Duration> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(session) => Some(session.handshake_max()),
        }
    }

    /// Continues a handshake. `true`: it is done, or there is none.
    pub(crate) fn shake_hands(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(session) => session.shake_hands(),
        }
    }

    /// Reads once; `Ok(0)` is the end of the peer's half.
    #[inline]
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(room),
            Self::Tls(session) => session.read(room),
        }
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8], then: Then) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes, then),
            // A close_notify follows the last bytes.
            Self::Tls(session) => session.write(bytes),
        }
    }

    pub(crate) fn write_vectored(&mut self, pieces: &[IoSlice<'_>], then: Then) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(pieces, then),
            Self::Tls(session) => session.write_vectored(pieces),
        }
    }

    /// Sends bytes of a file from the offset `from` on. `Ok(0)`: the file ends at `from`. It may send fewer bytes than asked for
    /// although the transport could take more.
    pub(crate) fn send_file(&mut self, file: &File, from: u64, bytes: usize) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => match socket.send_file(file, from, bytes) {
                // A file system without sendfile.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
                    copy_file(file, from, bytes, |bytes| socket.write(bytes, Then::Send))
                }
                done => done,
            },
            Self::Tls(session) => copy_file(file, from, bytes, |bytes| session.write(bytes)),
        }
    }

    /// Sends pending bytes, as far as the socket takes them.
    #[cold]
    pub(crate) fn send_pending(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Tls(session) => session.send_pending().map(drop),
        }
    }

    /// Bytes that were written and that the peer has not acknowledged; 0 if unknown.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.socket().unacknowledged()
    }

    /// Makes the connection end by a reset: the kernel drops the bytes that it still holds for the peer.
    pub(crate) fn reset_at_close(&self) {
        self.socket().reset_at_close();
    }

    /// Ends the output, after pending bytes.
    pub(crate) fn end_output(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.end_output(),
            Self::Tls(session) => session.end_output(),
        }
    }

    /// Ends the output when the peer has ended too, just before the socket is closed. Without TLS the close is enough.
    pub(crate) fn announce_end(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Tls(session) => drop(session.end_output()),
        }
    }

    /// Whether an outgoing connection is made; `Ok(false)`: not yet.
    pub(crate) fn connected(&mut self) -> io::Result<bool> {
        self.socket_mut().connected()
    }
}

/// Reads a part of a file and writes it.
fn copy_file(
    file: &File,
    from: u64,
    bytes: usize,
    write: impl FnOnce(&[u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut room = [0; COPIED_BYTES];
    let room = &mut room[..bytes.min(COPIED_BYTES)];
    match file.read_at(room, from)? {
        0 => Ok(0),
        read => write(&room[..read]),
    }
}
