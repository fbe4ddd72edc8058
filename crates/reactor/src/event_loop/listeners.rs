//! A loop's listening sockets, with the state of each: whether the kernel may have more connections, and whether accepting
//! pauses.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use mio::net::{TcpListener, UnixListener};

use crate::address::UNIX_PEER;
use crate::connection::socket::{Socket, Stream};
use crate::kernel::{Poller, Token};
use crate::settings::Traffic;
use crate::setup::Accept;
use crate::tls::TlsServer;

/// Tokens of listeners: generation 0, slots from this one on.
const LISTENERS_FROM: u32 = 16;

/// A listening socket.
pub(crate) enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl ListeningSocket {
    fn register(&mut self, poller: &Poller, token: Token) -> io::Result<()> {
        match self {
            Self::Tcp(listener) => poller.register_listener(listener, token),
            Self::Unix(listener) => poller.register_listener(listener, token),
        }
    }

    /// Accepts the next connection; returns its socket and peer address.
    pub(crate) fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        let (stream, peer) = match self {
            Self::Tcp(listener) => listener.accept().map(|(stream, peer)| (Stream::Tcp(stream), peer))?,
            Self::Unix(listener) => listener.accept().map(|(stream, _)| (Stream::Unix(stream), UNIX_PEER))?,
        };
        Ok((Socket::accepted(stream), peer))
    }
}

impl AsRawFd for ListeningSocket {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Unix(listener) => listener.as_raw_fd(),
        }
    }
}

/// One listening socket and its acceptor.
pub(crate) struct Listener {
    /// `None` once the loop drains, or if another loop has the only socket.
    pub(crate) socket: Option<ListeningSocket>,
    pub(crate) acceptor: Box<dyn Accept>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) tls: Option<TlsServer>,
    pub(crate) connections_beyond: usize,
    /// The kernel may have more connections.
    pub(crate) ready: bool,
}

/// A loop's listening sockets.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) list: Vec<Listener>,
    pub(crate) paused: bool,
    /// The end of a pause is among the loop's timers.
    pub(crate) pause_timed: bool,
    /// The present shortage was reported.
    pub(crate) reported: bool,
}

impl Listeners {
    pub(crate) fn add(
        &mut self,
        mut socket: Option<ListeningSocket>,
        acceptor: Box<dyn Accept>,
        (traffic, tls, connections_beyond): (Arc<Traffic>, Option<TlsServer>, usize),
        poller: &Poller,
    ) -> io::Result<()> {
        let slot = LISTENERS_FROM + self.list.len() as u32;
        if let Some(socket) = &mut socket {
            socket.register(poller, Token { slot, generation: 0 })?;
        }
        let ready = socket.is_some();
        self.list.push(Listener { socket, acceptor, traffic, tls, connections_beyond, ready });
        Ok(())
    }

    /// An event of one of the loop's own descriptors. Events of the waker and the alarm need no more work.
    pub(crate) fn event(&mut self, token: Token) {
        let index = token.slot.checked_sub(LISTENERS_FROM);
        if let Some(listener) = index.and_then(|index| self.list.get_mut(index as usize)) {
            listener.ready = true;
        }
    }

    pub(crate) fn have_more(&self) -> bool {
        !self.paused && self.list.iter().any(|listener| listener.ready)
    }

    /// A connection slot or descriptor became free: accepting goes on.
    pub(crate) fn end_pause(&mut self) {
        self.paused = false;
    }

    /// The timer of a pause fired.
    pub(crate) fn pause_is_over(&mut self) {
        self.paused = false;
        self.pause_timed = false;
    }

    /// Marks all listeners as ready, whatever the kernel reported.
    pub(crate) fn look_again(&mut self) {
        for listener in &mut self.list {
            listener.ready = listener.socket.is_some();
        }
    }

    pub(crate) fn close(&mut self) {
        for listener in &mut self.list {
            listener.socket = None;
            listener.ready = false;
        }
    }
}
