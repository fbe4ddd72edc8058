//! Readiness of many descriptors: mio's epoll, edge-triggered, both interests registered once.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Poll, Registry, Waker};

/// Name of a registered descriptor: a slot and its generation. Generation 0 is for the loop's own descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

const _: () = assert!(usize::BITS == 64, "a token is a slot and a generation in one machine word");

impl From<Token> for mio::Token {
    fn from(token: Token) -> Self {
        mio::Token((token.generation as usize) << 32 | token.slot as usize)
    }
}

/// Readiness of a descriptor, as reported by the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer's FIN is among what can be read.
    pub(crate) ended: bool,
    pub(crate) failed: bool,
}

/// Room for the events of one wait.
pub(crate) struct Events(mio::Events);

impl Events {
    pub(crate) fn with_room(events: usize) -> Self {
        Self(mio::Events::with_capacity(events))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, Readiness)> + '_ {
        self.0.iter().map(|event| {
            let token = event.token().0;
            let token = Token { slot: token as u32, generation: (token >> 32) as u32 };
            let readiness = Readiness {
                readable: event.is_readable(),
                writable: event.is_writable(),
                ended: event.is_read_closed(),
                failed: event.is_error(),
            };
            (token, readiness)
        })
    }
}

/// The epoll descriptor of one loop.
pub(crate) struct Poller(Poll);

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        Poll::new().map(Self)
    }

    pub(crate) fn waker(&self, token: Token) -> io::Result<Waker> {
        Waker::new(self.0.registry(), token.into())
    }

    /// Another handle of the descriptor, for threads that check whether it has events.
    pub(crate) fn watched(&self) -> io::Result<Registry> {
        self.0.registry().try_clone()
    }

    pub(crate) fn register(&self, source: &mut impl Source, token: Token) -> io::Result<()> {
        self.0.registry().register(source, token.into(), Interest::READABLE | Interest::WRITABLE)
    }

    /// For a descriptor of the loop's own that only wakes the loop.
    pub(crate) fn register_fd(&self, fd: RawFd, token: Token) -> io::Result<()> {
        self.0.registry().register(&mut SourceFd(&fd), token.into(), Interest::READABLE)
    }

    pub(crate) fn register_listener(&self, source: &mut impl Source, token: Token) -> io::Result<()> {
        self.0.registry().register(source, token.into(), Interest::READABLE)
    }

    /// Takes the events that are ready; with `sleep`, waits until there is one (the alarm bounds the sleep, not a timeout).
    pub(crate) fn wait(&mut self, events: &mut Events, sleep: bool) -> io::Result<()> {
        let timeout = if sleep { None } else { Some(Duration::ZERO) };
        match self.0.poll(&mut events.0, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                events.0.clear();
                Ok(())
            }
            done => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::has_waiting;

    #[test]
    fn another_thread_sees_that_an_event_waits_and_takes_none() {
        let token = Token { slot: 0, generation: 0 };
        let mut poller = Poller::new().unwrap();
        let (waker, watched) = (poller.waker(token).unwrap(), poller.watched().unwrap());
        assert!(!has_waiting(&watched));
        waker.wake().unwrap();
        assert!(has_waiting(&watched) && has_waiting(&watched));
        let mut events = Events::with_room(4);
        poller.wait(&mut events, false).unwrap();
        assert_eq!(events.iter().count(), 1);
        assert!(!has_waiting(&watched));
    }
}
