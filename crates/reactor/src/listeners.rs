//! A loop's listening sockets, and what it knows of each: whether the kernel may have more, and whether accepting pauses.

use mio::net::TcpListener;

use crate::kernel::{Poller, Token};
use crate::protocol::Accept;

/// Their tokens, of generation 0, by slot.
const LISTENERS_FROM: u32 = 16;
/// What acceptors wait for beside connections; listeners are fewer.
const COMPLETIONS_FROM: u32 = 1 << 16;

/// One listening socket and who speaks for it.
pub(crate) struct Listener {
    /// `None` once the loop drains.
    pub(crate) socket: Option<TcpListener>,
    pub(crate) acceptor: Box<dyn Accept>,
    /// The kernel may have more.
    pub(crate) ready: bool,
    /// What [`Accept::completions`] names became readable.
    has_completed: bool,
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
        mut socket: TcpListener,
        acceptor: Box<dyn Accept>,
        poller: &Poller,
    ) -> std::io::Result<()> {
        let slot = LISTENERS_FROM + self.list.len() as u32;
        poller.register_listener(&mut socket, Token { slot, generation: 0 })?;
        if let Some(fd) = acceptor.completions() {
            poller.register_fd(fd, Token { slot: COMPLETIONS_FROM + self.list.len() as u32, generation: 0 })?;
        }
        self.list.push(Listener { socket: Some(socket), acceptor, ready: true, has_completed: false });
        Ok(())
    }

    /// An event of one of the loop's own descriptors; the waker's and the alarm's have done their work by waking.
    pub(crate) fn event(&mut self, token: Token) {
        let (first, is_completion) =
            if token.slot < COMPLETIONS_FROM { (LISTENERS_FROM, false) } else { (COMPLETIONS_FROM, true) };
        let index = token.slot.checked_sub(first);
        if let Some(listener) = index.and_then(|index| self.list.get_mut(index as usize)) {
            listener.has_completed |= is_completion;
            listener.ready |= !is_completion;
        }
    }

    /// Whether something has ended that this listener's protocols began; told once.
    pub(crate) fn take_completed(&mut self, index: usize) -> bool {
        std::mem::take(&mut self.list[index].has_completed)
    }

    pub(crate) fn have_more(&self) -> bool {
        !self.paused && self.list.iter().any(|listener| listener.ready)
    }

    /// Something became free: try again.
    pub(crate) fn end_pause(&mut self) {
        self.paused = false;
    }

    /// The timer of a pause went off.
    pub(crate) fn pause_is_over(&mut self) {
        self.paused = false;
        self.pause_timed = false;
    }

    /// Asks the kernel again, whatever it said before.
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
