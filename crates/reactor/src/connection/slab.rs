//! The slab of a loop's connections, addressed by generational ids.
//!
//! Ids and connections are kept apart, so that an id can be given out ([`Ids::take`]) while a connection is borrowed:
//! that is how a protocol opens an outgoing connection from inside its call. Each connection is boxed: the slab stays
//! small enough for the cache and grows without moving connections. For its turn a connection is taken out of its slot and put
//! back afterwards, so that its protocol can reach all others.

use crate::connection::Connection;
use crate::protocol::ConnectionId;

/// Free slots with their next generations.
#[derive(Default)]
pub(crate) struct Ids {
    free: Vec<(u32, u32)>,
    slots: u32,
}

impl Ids {
    /// A free slot; the one freed last comes first (it is warm in the cache).
    pub(crate) fn take(&mut self, loop_index: u16) -> ConnectionId {
        let (slot, generation) = self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            (self.slots - 1, 1)
        });
        ConnectionId { loop_index, slot, generation }
    }

    pub(crate) fn give_back(&mut self, id: ConnectionId) {
        // Generation 0 names the loop's own descriptors.
        self.free.push((id.slot, id.generation.checked_add(1).unwrap_or(1)));
    }
}

/// The connections in their slots.
#[derive(Default)]
pub(crate) struct Connections {
    slots: Vec<Option<Box<Connection>>>,
    count: usize,
}

impl Connections {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Number of slots, for a walk over all.
    pub(crate) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn insert(&mut self, connection: Box<Connection>) {
        let slot = connection.link.id.slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        debug_assert!(self.slots[slot].is_none(), "a free place");
        self.slots[slot] = Some(connection);
        self.count += 1;
    }

    pub(crate) fn get(&mut self, slot: u32, generation: u32) -> Option<&mut Connection> {
        self.at(slot).filter(|connection| connection.link.id.generation == generation)
    }

    pub(crate) fn at(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    /// Takes a connection out of its slot for a turn; it still counts.
    #[inline]
    pub(crate) fn lend(&mut self, slot: u32, generation: u32) -> Option<Box<Connection>> {
        let place = self.slots.get_mut(slot as usize)?;
        place.take_if(|connection| connection.link.id.generation == generation)
    }

    /// The turn of a lent connection is over.
    #[inline]
    pub(crate) fn take_back(&mut self, connection: Box<Connection>) {
        let place = &mut self.slots[connection.link.id.slot as usize];
        debug_assert!(place.is_none(), "the slot of a connection in its turn stays free");
        // An assignment would check for an old value to drop.
        std::mem::forget(place.replace(connection));
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Box<Connection>> {
        let removed = self.slots.get_mut(slot as usize)?.take();
        self.count -= usize::from(removed.is_some());
        removed
    }
}
