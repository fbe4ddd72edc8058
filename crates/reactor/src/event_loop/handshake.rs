//! The TLS handshake: the time between a connection's creation and its opening.
//!
//! A handshake has a deadline of its own, counted from accept or from the moment at which the outgoing connection is made. Until
//! the handshake is done, the protocol is called only for mail; then it gets its first call as without TLS. A handshake takes the
//! loop a few hundred microseconds, so many of them use up a tick: once the tick is over, a handshake waits for the next one.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use crate::address::ConnectFailure;
use crate::connection::{Connection, Phase};
use crate::event_loop::core::Core;
use crate::fleet::{Origin, nanoseconds};
use crate::protocol::Closed;

impl Core {
    /// Begins the handshake of an accepted or outgoing connection.
    pub(crate) fn begin_handshake(&mut self, connection: &mut Connection, within: Duration) {
        let link = &mut connection.link;
        link.phase = Phase::Handshaking;
        if link.origin == Origin::Accepted {
            link.transport.expect_input();
        }
        self.set_timer(link, Some(nanoseconds(within)));
        self.shake_hands_soon(connection);
        self.register(&mut connection.link);
    }

    /// Continues the handshake; if the tick is over, in the next tick.
    pub(crate) fn shake_hands_soon(&mut self, connection: &mut Connection) {
        if self.time.tick_is_over() {
            self.lists.list(&mut connection.link);
        } else if !connection.link.listed {
            self.shake_hands(connection);
        }
    }

    /// Continues the handshake. Once it is done, the connection is open.
    pub(crate) fn shake_hands(&mut self, connection: &mut Connection) {
        let link = &mut connection.link;
        let is_done = link.transport.shake_hands();
        self.time.look();
        self.count_held(link);
        match is_done {
            Ok(true) => self.finish_handshake(connection),
            Ok(false) if link.has_more() => self.lists.list(link),
            Ok(false) => {}
            Err(error) => self.fail_handshake(connection, error),
        }
    }

    fn finish_handshake(&mut self, connection: &mut Connection) {
        self.lp.member().counters.handshakes.add(1);
        match connection.link.origin {
            Origin::Outgoing => self.be_connected(connection),
            Origin::Accepted => {
                connection.link.phase = Phase::Open;
                self.set_timer(&mut connection.link, None);
                self.open(connection);
            }
        }
    }

    fn fail_handshake(&mut self, connection: &mut Connection, error: Error) {
        let link = &mut connection.link;
        self.lp.member().counters.handshakes_failed.add(1);
        tracing::debug!(peer = %link.peer, %error, "TLS handshake failed");
        link.close(match error.kind() {
            ErrorKind::InvalidData => unshaken(link.origin, ConnectFailure::Handshake),
            _ => unshaken(link.origin, ConnectFailure::of(&error)),
        });
        link.failure = Some(error);
    }
}

/// The reason with which a connection closes whose handshake was not done.
pub(crate) fn unshaken(origin: Origin, why: ConnectFailure) -> Closed {
    match origin {
        Origin::Accepted => Closed::Transport,
        Origin::Outgoing => Closed::Unconnected(why),
    }
}
