//! Accepting: from the backlog to the loop that will own the connection.
//!
//! A listener is edge-triggered: after an event, connections are accepted until the backlog is empty, at most `accepts_per_tick`
//! in one tick. When descriptors, kernel memory or `connections_max` run out, connections stay in the backlog and accepting
//! pauses (events are only remembered) until this loop closes a connection or `accept_pause` has passed. Each shortage is logged
//! once; [`crate::Accept::crowded`] is called at every pause, so that an acceptor can free connections.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::connection::socket::Socket;
use crate::connection::transport::Transport;
use crate::connection::{Connection, Link, Phase};
use crate::event_loop::{Draining, EventLoop};
use crate::fleet::{Mail, Origin, nanoseconds};
use crate::kernel::{AcceptFailure, accept_failure, has_waiting};
use crate::timers::Due;

enum Accepted {
    One,
    NoMore,
    Pause,
}

impl EventLoop {
    /// Calls [`crate::Accept::crowded`] of all acceptors: connections wait in the backlog.
    fn report_crowded(&mut self) {
        for listener in &mut self.listeners.list {
            let panicked = catch_unwind(AssertUnwindSafe(|| listener.acceptor.crowded())).is_err();
            self.core.lp.member().counters.panics.add(u64::from(panicked));
        }
    }

    /// Accepts from every listener that may have more. `true`: the budget ended before the backlogs did.
    pub(crate) fn accept(&mut self) -> bool {
        let (mut budget, mut pauses) = (self.core.settings.accepts_per_tick, false);
        'listeners: for index in 0..self.listeners.list.len() {
            while self.listeners.list[index].ready {
                if budget == 0 {
                    return true;
                }
                match self.accept_one(index) {
                    Accepted::One => budget -= 1,
                    Accepted::NoMore => self.listeners.list[index].ready = false,
                    // Another listener may have connections beyond.
                    Accepted::Pause => {
                        pauses = true;
                        continue 'listeners;
                    }
                }
            }
        }
        if pauses {
            self.report_crowded();
            self.pause_accepting();
        }
        false
    }

    fn accept_one(&mut self, index: usize) -> Accepted {
        let listener = &self.listeners.list[index];
        let Some(socket) = &listener.socket else { return Accepted::NoMore };
        let fleet = self.core.lp.fleet();
        if !fleet.reserve(Origin::Accepted, listener.connections_beyond) {
            if !has_waiting(socket) {
                return Accepted::NoMore;
            }
            self.report_shortage("connections_max is reached");
            return Accepted::Pause;
        }
        let (stream, peer) = match socket.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                fleet.give_back(Origin::Accepted);
                return match accept_failure(&error) {
                    AcceptFailure::Empty => {
                        self.listeners.reported = false; // the backlog is empty: the shortage is over
                        Accepted::NoMore
                    }
                    AcceptFailure::Gone => Accepted::One,
                    AcceptFailure::Exhausted => {
                        self.report_shortage(&error.to_string());
                        Accepted::Pause
                    }
                };
            }
        };
        self.core.lp.member().counters.accepted.add(1);
        self.place(index, stream, peer);
        Accepted::One
    }

    fn place(&mut self, index: usize, stream: Socket, peer: SocketAddr) {
        let (here, fleet) = (self.core.lp.index(), self.core.lp.fleet());
        let there = fleet.place(here);
        fleet.book(there);
        if there == here {
            return self.adopt(index as u16, stream, peer);
        }
        let mail = Mail::Accepted { listener: index as u16, stream, peer };
        match fleet.members[there].mailbox.push(mail) {
            Ok(()) => self.core.lp.member().counters.handed_over.add(1),
            // That loop has ended; this one has not.
            Err(Mail::Accepted { stream, peer, .. }) => {
                fleet.rebook(there, here);
                self.adopt(index as u16, stream, peer);
            }
            Err(_) => unreachable!("push gives back what it was given"),
        }
    }

    /// Makes an accepted and booked connection this loop's own.
    pub(crate) fn adopt(&mut self, listener: u16, stream: Socket, peer: SocketAddr) {
        let id = self.core.ids.take(self.core.lp.index() as u16);
        let listener = &mut self.listeners.list[usize::from(listener)];
        let acceptor = &mut listener.acceptor;
        let made = catch_unwind(AssertUnwindSafe(|| {
            // If a TLS session cannot be created (no random numbers, say), the connection is refused.
            let transport = Transport::accepted(stream, listener.tls.as_ref()).ok();
            transport.and_then(|transport| Some((acceptor.accept(peer, id, &self.core.lp)?, transport)))
        }));
        let counters = &self.core.lp.member().counters;
        let (protocol, transport) = match made {
            Ok(Some(made)) => made,
            refused => {
                self.core.ids.give_back(id);
                self.core.lp.fleet().release(self.core.lp.index(), Origin::Accepted);
                // Counted last: a reader that sees the count sees the connection gone.
                counters.refused.add(1);
                counters.panics.add(u64::from(refused.is_err()));
                return;
            }
        };
        let (traffic, handshake_max) = (Arc::clone(&listener.traffic), transport.handshake_max());
        let link = Link::new(transport, id, peer, (Phase::Open, Origin::Accepted), traffic);
        let mut connection = Box::new(Connection { protocol, link });
        if let Some(within) = handshake_max {
            self.core.begin_handshake(&mut connection, within);
        } else if self.core.time.tick_is_over() {
            self.core.open_later(&mut connection);
        } else {
            self.core.open(&mut connection);
        }
        if self.draining != Draining::No {
            self.core.drain(&mut connection);
        }
        let closed = connection.link.is_closed();
        self.core.connections.insert(connection);
        self.settle(id.slot, closed);
    }

    fn pause_accepting(&mut self) {
        self.listeners.paused = true;
        self.core.lp.member().counters.accept_pauses.add(1);
        if std::mem::replace(&mut self.listeners.pause_timed, true) {
            return; // one timer, however often a closed connection ends the pause before it
        }
        let again_ns = self.core.now_ns.saturating_add(nanoseconds(self.core.settings.accept_pause));
        self.core.timers.push(again_ns, Due::AcceptAgain);
    }

    fn report_shortage(&mut self, why: &str) {
        if !std::mem::replace(&mut self.listeners.reported, true) {
            tracing::warn!(loop_index = self.core.lp.index(), why, "new connections wait in the backlog");
        }
    }
}
