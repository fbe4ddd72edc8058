//! A TLS session over a connected socket, behind the operations of a plain socket.
//!
//! ```text
//!  request --encrypt--> one record --write_tls--> socket
//!  reply buffer <--reader-- clear bytes <--process-- records <--read_tls-- socket
//! ```
//!
//! Guarantees:
//!
//! - Clear bytes count as sent when their whole record was sent. The server can decrypt nothing of a record that was sent in
//!   part, so a request whose first record is cut off was not executed. If the socket has no room for the rest of a record, the
//!   next call sends that rest first; that call must therefore pass the same bytes again.
//! - Between calls the channel holds at most one outgoing record (16 KB), one incoming record or one handshake message (64 KB),
//!   and the clear bytes of one record.
//! - The handshake ends by its deadline, whatever the server sends.
//!
//! An end of the connection without a close_notify is reported like one with it: replies carry their own lengths, so an attacker
//! who cuts the connection (RFC 8446, 6.1) cannot shorten one.

use super::Tls;
use crate::client::readiness;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::{AlertDescription, CertificateError, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// Clear bytes of a full record (RFC 8446, 5.1).
const RECORD_BYTES_MAX: usize = 16 << 10;

#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    session: ClientConnection,
    /// Clear bytes of the record that was sent in part.
    unsent: usize,
    /// The error that ended the session, kept until the clear bytes before it are read.
    failed: Option<io::Error>,
}

impl Channel {
    /// Performs the handshake over a connected socket.
    ///
    /// # Errors
    /// `TimedOut` at the deadline; otherwise the reason that either side gives.
    pub(crate) fn open(socket: OwnedFd, tls: &Tls, deadline: Instant) -> io::Result<Channel> {
        let session = tls.new_session().map_err(|error| explained(&error))?;
        let mut channel = Channel { socket, session, unsent: 0, failed: None };
        channel.shake_hands(deadline).map_err(of_handshake)?;
        Ok(channel)
    }

    fn shake_hands(&mut self, deadline: Instant) -> io::Result<()> {
        loop {
            let has_pending = !self.send_pending(false)?;
            if !self.session.is_handshaking() && !has_pending {
                return Ok(());
            }
            readiness::wait(self.socket.as_fd(), has_pending, deadline)?;
            match self.take_records(RecvFlags::DONTWAIT) {
                Ok(Taken { bytes: 0, .. }) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    }

    /// Encrypts and sends as much as fits into the socket; see the module about the rest of a record.
    pub(crate) fn send_now(&mut self, bytes: &[u8], more_follows: bool) -> io::Result<usize> {
        let mut sent = 0;
        while sent < bytes.len() {
            if self.unsent == 0 {
                let record = &bytes[sent..bytes.len().min(sent + RECORD_BYTES_MAX)];
                self.unsent = self.session.writer().write(record)?;
            }
            if !self.send_pending(more_follows)? {
                break;
            }
            sent += std::mem::take(&mut self.unsent);
        }
        if sent == 0 && !bytes.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(sent) }
    }

    /// Receives clear bytes, and waits for the socket at most for its timeout. 0: the end of the connection.
    ///
    /// # Errors
    /// `WouldBlock`: no record is complete.
    pub(crate) fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.fill(room, RecvFlags::empty())
    }

    /// Receives the clear bytes that are available. 0: the end of the connection.
    pub(crate) fn receive_now(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.fill(room, RecvFlags::DONTWAIT)
    }

    /// Fills `room` with the bytes that are available. `first` are the flags of the first read from the socket, unless clear
    /// bytes are available already. Later reads never wait.
    fn fill(&mut self, room: &mut [u8], first: RecvFlags) -> io::Result<usize> {
        let mut filled = self.read_clear(room)?;
        let mut flags = if filled == 0 { first } else { RecvFlags::DONTWAIT };
        while filled < room.len() && self.failed.is_none() {
            match self.take_records(flags) {
                Ok(taken) => {
                    filled += self.read_clear(&mut room[filled..])?;
                    if taken.is_all {
                        break;
                    }
                    flags = RecvFlags::DONTWAIT;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => self.failed = Some(error),
            }
        }
        match self.failed.take() {
            Some(error) if filled == 0 => return Err(error),
            later => self.failed = later,
        }
        if filled > 0 { Ok(filled) } else { self.session.reader().read(room) }
    }

    /// Whether decrypted bytes wait to be read.
    pub(crate) fn has_clear_bytes(&mut self) -> bool {
        matches!(self.session.reader().into_first_chunk(), Ok(chunk) if !chunk.is_empty())
    }

    /// Reads bytes that were decrypted earlier.
    fn read_clear(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < room.len() {
            match self.session.reader().read(&mut room[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                // The end of the connection is reported only after all bytes before it.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::UnexpectedEof) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Reads once from the socket and decrypts the records that this completes.
    fn take_records(&mut self, flags: RecvFlags) -> io::Result<Taken> {
        let mut reading = Reading { socket: self.socket.as_fd(), flags, is_all: false };
        let bytes = self.session.read_tls(&mut reading)?;
        let is_all = reading.is_all || bytes == 0;
        if let Err(error) = self.session.process_new_packets() {
            self.send_last_words();
            return Err(explained(&error));
        }
        Ok(Taken { bytes, is_all })
    }

    /// Sends the alert that tells the server why the connection ends, if the socket accepts it. It is not sent behind a record
    /// that was sent in part: that record would become complete, and a request that was reported as not sent would be executed.
    fn send_last_words(&mut self) {
        if self.unsent == 0 {
            let _ = self.send_pending(false);
        }
    }

    /// Sends pending records. False: the socket is full.
    fn send_pending(&mut self, more_follows: bool) -> io::Result<bool> {
        let mut writing = Writing { socket: self.socket.as_fd(), more_follows };
        while self.session.wants_write() {
            match self.session.write_tls(&mut writing) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                written => written.map(drop)?,
            }
        }
        Ok(true)
    }
}

/// Tells the server that the end is intended.
impl Drop for Channel {
    fn drop(&mut self) {
        self.session.send_close_notify();
        self.send_last_words();
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Result of one read.
struct Taken {
    bytes: usize,
    /// The read was short: the socket is empty, or has ended.
    is_all: bool,
}

/// The socket, as rustls reads it.
struct Reading<'s> {
    socket: BorrowedFd<'s>,
    flags: RecvFlags,
    is_all: bool,
}

impl Read for Reading<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let wanted = room.len();
        let (received, _) = recv(self.socket, room, self.flags)?;
        self.is_all = received < wanted;
        Ok(received)
    }
}

/// The socket, as rustls writes to it.
struct Writing<'s> {
    socket: BorrowedFd<'s>,
    more_follows: bool,
}

impl Write for Writing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let more = if self.more_follows { SendFlags::MORE } else { SendFlags::empty() };
        Ok(send(self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL | more)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An error of the session, with a text that says what to do about it.
pub(crate) fn explained(error: &rustls::Error) -> io::Error {
    let words = match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the server's certificate has an unknown issuer, none of the trusted ones".to_owned()
        }
        rustls::Error::InvalidCertificate(CertificateError::BadSignature) => {
            "the server's certificate was not signed by the trusted issuer whose name it has".to_owned()
        }
        rustls::Error::InvalidCertificate(reason) => format!("the server's certificate: {reason}"),
        rustls::Error::InvalidMessage(_) => "the server's answer is no TLS; it may expect none (redis://)".to_owned(),
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server requires a certificate of the client".to_owned()
        }
        other => other.to_string(),
    };
    io::Error::new(ErrorKind::InvalidData, format!("TLS: {words}"))
}

/// Names what happened in the handshake, which the error kind alone does not show.
fn of_handshake(error: io::Error) -> io::Error {
    let words = match error.kind() {
        ErrorKind::TimedOut => "the server did not complete the handshake in time",
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "the server closed the connection during the handshake"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), format!("TLS: {words}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ServerConfig, ServerConnection};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::time::Duration;

    /// A channel and the server's end of it, after the handshake.
    fn connected() -> (Channel, ServerConnection, TcpStream) {
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let mut config = builder.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        // Session tickets that the client does not read would turn the end of the connection into a reset.
        config.send_tls13_tickets = 0;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let server = std::thread::spawn(move || {
            let mut session = ServerConnection::new(Arc::new(config)).unwrap();
            while session.is_handshaking() {
                session.complete_io(&mut stream).unwrap();
            }
            (session, stream)
        });
        let tls = Tls::with_roots(made.cert.pem().as_bytes(), "a.test").unwrap();
        let channel = Channel::open(client.into(), &tls, Instant::now() + Duration::from_secs(20)).unwrap();
        let (session, stream) = server.join().unwrap();
        (channel, session, stream)
    }

    /// Number of clear bytes in whole records.
    fn decrypted(session: &mut ServerConnection, mut records: &[u8]) -> usize {
        let (mut bytes, mut room) = (0, [0; RECORD_BYTES_MAX]);
        while !records.is_empty() {
            session.read_tls(&mut records).unwrap();
            session.process_new_packets().unwrap();
            while let Ok(read @ 1..) = session.reader().read(&mut room) {
                bytes += read;
            }
        }
        bytes
    }

    #[test]
    fn a_record_that_left_in_part_neither_counts_as_sent_nor_leaves_when_the_channel_is_dropped() {
        let (mut channel, mut session, mut stream) = connected();
        let (record, mut sent) = ([7; RECORD_BYTES_MAX], 0);
        while let Ok(more) = channel.send_now(&record, false) {
            sent += more;
        }
        assert!(sent > 0 && channel.unsent > 0);
        // The server empties the socket, so that there is room for the rest of the record.
        let (mut records, mut room) = (Vec::new(), [0; RECORD_BYTES_MAX]);
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        while let Ok(read @ 1..) = stream.read(&mut room) {
            records.extend_from_slice(&room[..read]);
        }
        drop(channel);
        stream.set_read_timeout(None).unwrap();
        stream.read_to_end(&mut records).unwrap();
        assert_eq!(decrypted(&mut session, &records), sent);
    }
}
