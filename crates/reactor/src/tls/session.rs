//! One TLS connection: a socket, and the session that decrypts its records and encrypts its output.
//!
//! ```text
//!  socket --read_tls--> records --process--> plaintext --read--> input buffer
//!  socket <-write_tls-- records <------------- encrypt <--write--- write queue
//! ```
//!
//! Memory of the session is bounded: incoming, one record (16 KB) or one handshake message (64 KB), and the plaintext of one
//! record; outgoing, [`PENDING_BYTES_MAX`]. Nothing is written before the handshake is done, so the write queue above keeps its
//! bounds and its order.
//!
//! A connection that ends without a close_notify may have been cut off by an attacker (RFC 8446, 6.1): that is an error
//! (`UnexpectedEof`), not the end of the peer's input.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::time::Duration;

use rustls::{ClientConnection, Connection, ServerConnection};

use super::config::{TlsClient, TlsServer};
use crate::connection::socket::{Socket, Then};

/// Encrypted bytes that wait for the socket, without the records' overhead (22 bytes in 16 KB).
pub(crate) const PENDING_BYTES_MAX: usize = 64 << 10;
/// Maximum of one read: rustls keeps a buffer of this size for each session, and a larger one only while a record or a handshake
/// message is incomplete.
const RECEIVE_BYTES: usize = 4096;
/// Reads in one turn: each brings 4 KB at most, so a turn reads as much as without TLS.
const RECEIVES_MAX: usize = 16;

/// A socket with its session.
pub(crate) struct Session {
    socket: Socket,
    records: Connection,
    /// Plaintext bytes that were received and not read.
    clear_bytes: usize,
    /// Upper bound of the bytes of a record or message that is incomplete.
    partial_bytes: usize,
    handshake_max: Duration,
    /// The error that ended the session, returned once the plaintext before it has been read.
    failed: Option<io::Error>,
    /// The peer's TCP connection has ended after plaintext that was read: the next read returns the end.
    end_waits: bool,
    /// Whether the socket's write side is to be shut once all records have left, or has been.
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    No,
    Asked,
    Done,
}

impl Session {
    /// The server's side of an accepted connection.
    pub(crate) fn accepted(socket: Socket, server: &TlsServer) -> io::Result<Self> {
        let records = ServerConnection::new(server.config()).map_err(broken)?;
        Ok(Self::new(socket, records.into(), server.handshake_max()))
    }

    /// The client's side of an outgoing one.
    pub(crate) fn outgoing(socket: Socket, client: &TlsClient) -> io::Result<Self> {
        let records = ClientConnection::new(client.config(), client.name()).map_err(broken)?;
        Ok(Self::new(socket, records.into(), client.handshake_max()))
    }

    fn new(socket: Socket, mut records: Connection, handshake_max: Duration) -> Self {
        records.set_buffer_limit(Some(PENDING_BYTES_MAX));
        Self {
            socket,
            records,
            clear_bytes: 0,
            partial_bytes: 0,
            handshake_max,
            failed: None,
            end_waits: false,
            end: End::No,
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn socket_mut(&mut self) -> &mut Socket {
        &mut self.socket
    }

    /// Whether a read may bring bytes.
    pub(crate) fn is_readable(&self) -> bool {
        self.clear_bytes > 0 || self.failed.is_some() || self.end_waits || self.socket.is_readable()
    }

    /// Whether a write may send bytes.
    pub(crate) fn is_writable(&self) -> bool {
        self.socket.is_writable() && !self.records.is_handshaking()
    }

    /// Whether records wait for the socket, or the socket's end does.
    pub(crate) fn has_pending(&self) -> bool {
        self.records.wants_write() || self.end == End::Asked
    }

    /// Upper bound of the bytes that the session holds between turns.
    pub(crate) fn held_bytes(&self) -> usize {
        let pending = if self.has_pending() { PENDING_BYTES_MAX } else { 0 };
        self.clear_bytes + pending + self.partial_bytes.saturating_sub(RECEIVE_BYTES)
    }

    pub(crate) fn handshake_max(&self) -> Duration {
        self.handshake_max
    }

    /// Continues the handshake as far as the socket allows. `true`: it is done.
    pub(crate) fn shake_hands(&mut self) -> io::Result<bool> {
        for _ in 0..RECEIVES_MAX {
            self.send_pending()?;
            if !self.records.is_handshaking() {
                self.partial_bytes = self.partial_bytes.min(RECEIVE_BYTES);
                return Ok(true);
            }
            match self.receive() {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Reads plaintext; `Ok(0)` is the peer's close_notify.
    pub(crate) fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.end_waits = false;
        let mut filled = self.read_clear(room)?;
        for _ in 0..RECEIVES_MAX {
            if filled == room.len() || self.failed.is_some() {
                break;
            }
            match self.receive() {
                Ok(received) => {
                    filled += self.read_clear(&mut room[filled..])?;
                    if received == 0 {
                        // The kernel reports the end once. If plaintext was read, the next read returns the end.
                        self.end_waits = filled > 0;
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => self.failed = Some(error),
            }
        }
        // Answers of the session itself: a change of keys, say. If the socket is gone, the next read reports it.
        let _ = self.send_pending();
        match self.failed.take() {
            Some(error) if filled == 0 => return Err(error),
            later => self.failed = later,
        }
        if filled > 0 || room.is_empty() { Ok(filled) } else { self.records.reader().read(room) }
    }

    /// Reads plaintext that is decrypted already.
    fn read_clear(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while self.clear_bytes > 0 && filled < room.len() {
            let taken = self.records.reader().read(&mut room[filled..])?;
            filled += taken;
            self.clear_bytes = if taken == 0 { 0 } else { self.clear_bytes.saturating_sub(taken) };
        }
        Ok(filled)
    }

    /// One read from the socket, and the processing of its records; `Ok(0)`: the peer sends no more.
    fn receive(&mut self) -> io::Result<usize> {
        if !self.socket.is_readable() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let received = self.records.read_tls(&mut self.socket)?;
        match self.records.process_new_packets() {
            Ok(state) => {
                // If an incomplete record or message became complete, it has brought plaintext or an answer; the rest came in
                // this read.
                let was_whole = state.plaintext_bytes_to_read() > 0 || self.records.wants_write();
                self.partial_bytes = if was_whole { received } else { self.partial_bytes + received };
                self.clear_bytes = state.plaintext_bytes_to_read();
            }
            Err(error) => {
                // Sends the alert to the peer, as far as the socket takes it.
                let _ = self.send_pending();
                return Err(broken(error));
            }
        }
        Ok(received)
    }

    /// Encrypts and sends as much as the socket takes and [`PENDING_BYTES_MAX`] allows; returns the number of plaintext bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all_that_fits(bytes.len(), |records, taken| records.writer().write(&bytes[taken..]))
    }

    pub(crate) fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        // All pieces in one call; after a part of them was taken, one piece at a time.
        let all = pieces.iter().map(|piece| piece.len()).sum();
        self.write_all_that_fits(all, |records, taken| {
            let mut before = taken;
            let rest = pieces.iter().find_map(|piece| {
                let rest = piece.get(before..).filter(|rest| !rest.is_empty());
                before = before.saturating_sub(piece.len());
                rest
            });
            if taken == 0 {
                records.writer().write_vectored(pieces)
            } else {
                records.writer().write(rest.unwrap_or(&[]))
            }
        })
    }

    fn write_all_that_fits(
        &mut self,
        all: usize,
        mut encrypt: impl FnMut(&mut Connection, usize) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut taken = 0;
        while self.send_pending()? && taken < all {
            match encrypt(&mut self.records, taken)? {
                0 => break,
                more => taken += more,
            }
        }
        if taken == 0 && all > 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    /// Sends waiting records. `false`: the socket takes no more.
    pub(crate) fn send_pending(&mut self) -> io::Result<bool> {
        while self.records.wants_write() {
            if !self.socket.is_writable() {
                return Ok(false);
            }
            match self.records.write_tls(&mut self.socket) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                done => done?,
            };
        }
        if self.end == End::Asked {
            self.end = End::Done;
            self.socket.end_output()?;
        }
        Ok(true)
    }

    /// Ends the output: a close_notify, then the end of the socket's write side.
    pub(crate) fn end_output(&mut self) -> io::Result<()> {
        if self.end == End::No {
            self.records.send_close_notify();
            self.end = End::Asked;
        }
        self.send_pending().map(drop)
    }
}

/// An error of the session, with its text.
fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

impl Read for Socket {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        Socket::read(self, room)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Socket::write(self, bytes, Then::Send)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        Socket::write_vectored(self, pieces, Then::Send)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
