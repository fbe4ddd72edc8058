//! The socket of a connection: blocking reads, non-blocking writes, and waiting for either until a deadline.
//!
//! The usual call makes two system calls: `send` of the whole request, and one `recv` that ends with the reply or with the
//! socket's timeout. `poll` is added only if a request does not fit into the socket or a reply arrives in parts.
//!
//! TLS is a variant of the stream, behind the same operations (`tls/channel.rs`).

use super::readiness::{Readiness, wait};
use super::settings::{ClientSettings, Endpoint};
use super::tls::{Channel, Tls};
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Shortest timeout of a socket: the kernel takes zero as no timeout.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<Channel>),
}

impl Stream {
    /// Connects until the deadline, including the handshake if TLS is set. The system's lookup of a host name may take longer.
    ///
    /// # Errors
    /// `InvalidData`: one side refused the other's TLS; a further attempt would end in the same way.
    pub(crate) fn connect(settings: &ClientSettings, deadline: Instant) -> io::Result<Stream> {
        match (&settings.endpoint, &settings.tls) {
            (Endpoint::Tcp { host, port }, None) => connect_tcp(host, *port, deadline).map(Stream::Tcp),
            (Endpoint::Unix(path), None) => connect_unix(path).map(Stream::Unix),
            (Endpoint::Tcp { host, port }, Some(tls)) => {
                Stream::encrypted(connect_tcp(host, *port, deadline)?.into(), tls, deadline)
            }
            (Endpoint::Unix(path), Some(tls)) => Stream::encrypted(connect_unix(path)?.into(), tls, deadline),
        }
    }

    fn encrypted(socket: OwnedFd, tls: &Tls, deadline: Instant) -> io::Result<Stream> {
        Channel::open(socket, tls, deadline).map(|channel| Stream::Tls(Box::new(channel)))
    }

    /// Sends as much as fits into the socket. After `WouldBlock` the next call must pass the same bytes again: TLS may have sent
    /// a part of their record. With `more_follows` the kernel may delay bytes until a packet is full; it sends them at the
    /// latest when the peer has acknowledged all earlier ones, or after 200 ms (tcp(7), TCP_CORK).
    #[inline]
    pub(crate) fn send_now(&mut self, bytes: &[u8], more_follows: bool) -> io::Result<usize> {
        if let Stream::Tls(channel) = self {
            return channel.send_now(bytes, more_follows);
        }
        let more = if more_follows { SendFlags::MORE } else { SendFlags::empty() };
        Ok(send(self, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL | more)?)
    }

    /// Receives, and waits at most for the socket's timeout. 0: the end of the connection.
    ///
    /// # Errors
    /// `WouldBlock`: the timeout ended, or only a part of a TLS record has arrived.
    #[inline]
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tls(channel) => channel.receive(buffer),
        }
    }

    /// Receives the bytes that have arrived.
    ///
    /// # Errors
    /// `WouldBlock`: none, or only a part of a TLS record.
    pub(crate) fn receive_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Stream::Tls(channel) = self {
            return channel.receive_now(buffer);
        }
        let (received, _) = recv(self, buffer, RecvFlags::DONTWAIT)?;
        Ok(received)
    }

    /// Sets the longest time that [`Stream::receive`] waits.
    pub(crate) fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Some(timeout.max(TIMEOUT_MIN));
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
            Stream::Tls(channel) => Ok(sockopt::set_socket_timeout(channel, sockopt::Timeout::Recv, timeout)?),
        }
    }

    /// Waits until the socket is readable, or, with `wants_write`, readable or writable.
    ///
    /// # Errors
    /// `TimedOut` at the deadline.
    pub(crate) fn wait(&mut self, wants_write: bool, deadline: Instant) -> io::Result<Readiness> {
        if let Stream::Tls(channel) = self
            && channel.has_clear_bytes()
        {
            return Ok(Readiness { is_readable: true, is_writable: false });
        }
        wait(self.as_fd(), wants_write, deadline)
    }
}

impl AsFd for Stream {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tls(channel) => channel.as_fd(),
        }
    }
}

/// Tries each address of the host's name until one answers.
fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("`{host}` has no address"));
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) if is_own_end(&stream, address) => last = io::ErrorKind::ConnectionRefused.into(),
            Ok(stream) => {
                stream.set_nodelay(true)?;
                // The kernel detects a peer that vanished silently; the system sets the intervals.
                sockopt::set_socket_keepalive(&stream, true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether the kernel connected the socket to itself. This happens if no server listens on a port which the kernel then chooses
/// for the client's end.
fn is_own_end(stream: &TcpStream, address: SocketAddr) -> bool {
    stream.local_addr().is_ok_and(|own| own == address)
}

/// Connecting a Unix socket ends at once, or blocks while the server's backlog is full.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path)
}
