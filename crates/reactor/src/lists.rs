//! Which of a loop's connections have something to do without an event of the kernel.

use crate::connection::Link;
use crate::protocol::ConnectionId;

/// Connections by what is still to be done for them; each stands once in a list.
#[derive(Default)]
pub(crate) struct Lists {
    /// Those that go on next tick.
    pub(crate) ready: Vec<ConnectionId>,
    /// Those of them whose last turn was ended by the clock: they go on behind all others.
    pub(crate) heavy: Vec<ConnectionId>,
    /// Those that something outside their own turns was done to: by mail, by a neighbour, by a loop's state. Their turns end
    /// together, at the end of the tick, so that each writes once.
    pub(crate) touched: Vec<ConnectionId>,
}

impl Lists {
    /// Has a connection go on next tick.
    #[inline]
    pub(crate) fn list(&mut self, link: &mut Link) {
        if !link.listed {
            link.listed = true;
            let list = if link.is_heavy { &mut self.heavy } else { &mut self.ready };
            list.push(link.id);
        }
    }

    /// Has a connection's queue written, and its phase moved on, at the end of the tick.
    #[inline]
    pub(crate) fn touch(&mut self, link: &mut Link) {
        if !link.touched {
            link.touched = true;
            self.touched.push(link.id);
        }
    }

    /// Whether some connection goes on without an event.
    pub(crate) fn have_some(&self) -> bool {
        !(self.ready.is_empty() && self.heavy.is_empty() && self.touched.is_empty())
    }
}
