//! Listening sockets: one for each loop, on one port that no second server can share.
//!
//! The first socket is bound and set to listen without SO_REUSEPORT, so that a server on the same port, ours or not,
//! makes it fail with EADDRINUSE, and so does a server that starts later. Only then is SO_REUSEPORT switched on and the
//! other loops' sockets join: the kernel lets a socket join when all that hold the port have the option, and puts the
//! first one into the group when the second joins it. Binding a probe and closing it again would leave a moment in which
//! two servers starting together both succeed.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

/// Unsent bytes that the kernel accepts beyond those in flight (tcp(7), TCP_NOTSENT_LOWAT). Without this limit a client that does
/// not read could hold up to `net.ipv4.tcp_wmem`, several megabytes, of kernel memory.
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// Silence of a peer after which the kernel asks whether it still exists, and the time between two questions (tcp(7), SO_KEEPALIVE). A
/// host that vanished would otherwise keep its connection for ever, if nothing is sent to it.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(300)).with_interval(Duration::from_secs(100));

/// Reaction to an error of `accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcceptFailure {
    /// The backlog is empty.
    Empty,
    /// This connection is gone; the next may be fine.
    Gone,
    /// The process or the system is short of descriptors or memory: pause.
    Exhausted,
}

/// Classifies an error of `accept` (accept(2), "Error handling").
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
        // Port 0 means any free port; the other sockets join the port that was chosen.
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
    // A restart must not fail because of connections in TIME_WAIT; a listening socket on the port still makes it fail.
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit TCP_NODELAY, which saves a call for each of them.
    socket.set_tcp_nodelay(true)?;
    // In the same way they inherit the limit of unsent bytes, and the questions to silent peers.
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    Ok(socket)
}

/// Begins an outgoing connection.
pub(crate) fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE)?;
    Ok(stream)
}
