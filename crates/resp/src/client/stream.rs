//! The socket of a connection: blocking reads, writes that never block, and waiting for either with a limit of time.
//!
//! A call in the usual case is two system calls: `send` of the whole request, and one `recv` that the kernel ends with the
//! reply or with the socket's timeout. Only where a request does not fit into the socket, or a reply comes in parts, `poll`
//! joins them.
//!
//! TLS will be a third variant here: its bytes go through the same four operations.

use super::settings::Endpoint;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Shortest timeout of a socket: the kernel reads zero as none.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// What the kernel said of a socket that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
}

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Connects within this time. Looking up a host's name is the system's own affair and may take longer.
    pub(crate) fn connect(endpoint: &Endpoint, deadline: Instant) -> io::Result<Stream> {
        match endpoint {
            Endpoint::Tcp { host, port } => connect_tcp(host, *port, deadline).map(Stream::Tcp),
            Endpoint::Unix(path) => connect_unix(path).map(Stream::Unix),
        }
    }

    /// Sends what fits into the socket at once. With `more_follows` the kernel may gather bytes until a packet is full; it
    /// sends them at the latest when the peer has acknowledged all before, or after 200 ms (tcp(7), TCP_CORK).
    #[inline]
    pub(crate) fn send_now(&self, bytes: &[u8], more_follows: bool) -> io::Result<usize> {
        let more = if more_follows { SendFlags::MORE } else { SendFlags::empty() };
        Ok(send(self, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL | more)?)
    }

    /// Receives, and waits no longer than the timeout that was set; 0 is the end of the connection.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).read(buffer),
            Stream::Unix(stream) => (&*stream).read(buffer),
        }
    }

    /// Receives what is there.
    pub(crate) fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (received, _) = recv(self, buffer, RecvFlags::DONTWAIT)?;
        Ok(received)
    }

    /// Sets the longest time that [`Stream::receive`] waits.
    pub(crate) fn set_receive_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Some(timeout.max(TIMEOUT_MIN));
        match self {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Waits until something can be read, or until something can be written where that is wanted too.
    ///
    /// # Errors
    /// `TimedOut` at the deadline.
    pub(crate) fn wait(&self, wants_write: bool, deadline: Instant) -> io::Result<Readiness> {
        let interest = if wants_write { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut sockets = [PollFd::new(self, interest)];
            let timeout = Timespec::try_from(left).ok();
            match poll(&mut sockets, timeout.as_ref()) {
                Ok(0) => {}
                Ok(_) => {
                    let events = sockets[0].revents();
                    // A broken socket is ready for both: the operation then says what is wrong.
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
}

impl AsFd for Stream {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
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
                // A peer that vanished without a word is noticed by the kernel; the intervals are the system's.
                sockopt::set_socket_keepalive(&stream, true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether the kernel joined the socket with itself: it does where nobody listens at a port that it then chose for our end.
fn is_own_end(stream: &TcpStream, address: SocketAddr) -> bool {
    stream.local_addr().is_ok_and(|own| own == address)
}

/// A Unix socket answers at once, or is full.
fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path)
}
