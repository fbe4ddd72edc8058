//! Listening sockets: one for each loop, on one port that no second server can share.
//!
//! The first socket is bound and set to listen without SO_REUSEPORT, so that a server on the same port, ours or not,
//! makes it fail with EADDRINUSE, and so does a server that starts later. Only then is SO_REUSEPORT switched on and the
//! other loops' sockets join: the kernel lets a socket join when all that hold the port have the option, and puts the
//! first one into the group when the second joins it. Binding a probe and closing it again would leave a moment in which
//! two servers starting together both succeed.

use std::io;
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, Socket, Type};

/// Bytes of a connection that the kernel takes from us beyond those that are on their way (tcp(7), TCP_NOTSENT_LOWAT). Without it
/// a client that does not read has up to `net.ipv4.tcp_wmem`'s megabytes of kernel memory made for it.
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// What an error of `accept` calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptFailure {
    /// Nobody waits.
    Empty,
    /// That one connection is gone; the next may be fine.
    Gone,
    /// The process or the system is short of descriptors or memory: pause.
    Exhausted,
}

/// Sorts an error of `accept` (accept(2), "Error handling").
pub(crate) fn accept_failure(error: &io::Error) -> AcceptFailure {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => AcceptFailure::Empty,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => AcceptFailure::Exhausted,
        _ => AcceptFailure::Gone,
    }
}

/// The sockets of one address, one for each loop.
pub(crate) struct Listening {
    pub(crate) address: SocketAddr,
    pub(crate) sockets: Vec<TcpListener>,
}

impl Listening {
    pub(crate) fn bind(address: SocketAddr, loops: usize, backlog: u32) -> io::Result<Self> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        let first = unbound(address)?;
        first.bind(&address.into())?;
        first.listen(backlog)?;
        // Port 0 was a question; the others join the answer.
        let address = first.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        if loops > 1 {
            first.set_reuse_port(true)?;
        }
        let mut sockets = vec![TcpListener::from_std(first.into())];
        for _ in 1..loops {
            let next = unbound(address)?;
            next.set_reuse_port(true)?;
            next.bind(&address.into())?;
            next.listen(backlog)?;
            sockets.push(TcpListener::from_std(next.into()));
        }
        Ok(Self { address, sockets })
    }
}

fn unbound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    // Connections in TIME_WAIT from before a restart must not hold the port; a listening socket still does.
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit TCP_NODELAY, which saves a call for each of them.
    socket.set_tcp_nodelay(true)?;
    // The same way they inherit how much the kernel keeps for each of them.
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    Ok(socket)
}

/// Begins an outgoing connection.
pub(crate) fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
