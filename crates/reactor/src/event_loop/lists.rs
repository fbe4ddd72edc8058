//! Lists of a loop's connections that have work without an event of the kernel.

use crate::connection::Link;
use crate::protocol::ConnectionId;

/// Connections by the kind of work that is left; each stands at most once in a list.
#[derive(Default)]
pub(crate) struct Lists {
    /// Connections that continue in the next tick.
    pub(crate) ready: Vec<ConnectionId>,
    /// Connections that continue in the next tick, after all others: the time limit ended their last turn.
    pub(crate) heavy: Vec<ConnectionId>,
    /// Connections of the current list whose input was read, but whose turn did not begin in this tick: they return to the front of
    /// the list. Empty between two ticks, and at most one batch.
    pub(crate) put_off: Vec<ConnectionId>,
    /// Connections changed from outside their own turns: by mail, by a neighbour, by a loop's state. Their turns end together, at
    /// the end of the tick, so that each writes once.
    pub(crate) touched: Vec<ConnectionId>,
}

impl Lists {
    /// Lists a connection, so that it continues in the next tick.
    #[inline]
    pub(crate) fn list(&mut self, link: &mut Link) {
        if !link.listed {
            link.listed = true;
            let list = if link.is_heavy { &mut self.heavy } else { &mut self.ready };
            list.push(link.id);
        }
    }

    /// Makes a connection's queue be written, and its phase advance, at the end of the tick.
    #[inline]
    pub(crate) fn touch(&mut self, link: &mut Link) {
        if !link.touched {
            link.touched = true;
            self.touched.push(link.id);
        }
    }

    /// Whether some connection continues without an event.
    pub(crate) fn have_some(&self) -> bool {
        !(self.ready.is_empty() && self.heavy.is_empty() && self.touched.is_empty())
    }
}
