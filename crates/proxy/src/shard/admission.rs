//! Admission of a client's commands, and back-pressure on it.
//!
//! A client is read while its unanswered commands, their bytes, and its replies that wait for earlier ones are within their
//! bounds ([`Client::has_room`]), and its output is below the reactor's high-water mark. If all clients of a loop together hold
//! too much, those that hold anything are not read ([`super::ledger::Ledger::is_pressed`]); a client that holds nothing may always
//! have one command in flight.

use reactor::Io;

use super::Shard;
use super::client::{Client, Front, Reading, State};
use crate::commands::CommandRequest;
use resp::codec::{ProtocolError, RequestKind};

/// Result of handling a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// It is answered, or in flight.
    Done,
    /// It must wait until no request of its client is in flight.
    Waits,
    /// It must wait for its node, which wakes the client.
    WaitsForNode,
}

/// The bytes at the front of a client's input.
enum Framed {
    Complete(usize),
    Partial,
    Malformed(ProtocolError),
}

impl Shard {
    /// Handles the requests in a client's input, as far as its bounds permit.
    pub(super) fn serve(&mut self, client: &mut Client, io: &mut Io<'_>) {
        if io.input().is_empty() && !io.input_ended() {
            return;
        }
        client.active_ns = self.lp.now_ns();
        let mut at = 0;
        loop {
            // An upload has been admitted already.
            if let Front::Upload(to) = client.front {
                at += self.pass_on(client, io, to, at);
                if matches!(client.front, Front::Upload(_)) {
                    break;
                }
            }
            if !self.may_serve(client, io) {
                break;
            }
            match framed(client, &io.input()[at..]) {
                Framed::Complete(bytes) => {
                    let reading = match self.request(client, io, at..at + bytes) {
                        Served::Done => Reading::On,
                        Served::Waits => Reading::WaitsForAnswers,
                        Served::WaitsForNode => Reading::WaitsForNode,
                    };
                    if reading != Reading::On {
                        client.front = Front::Complete(bytes);
                        self.wait(client, reading, io);
                        break;
                    }
                    at += bytes;
                }
                Framed::Partial => match client.front {
                    Front::Arriving(bytes) if bytes > self.config.limits.request_bytes_max => {
                        if !self.begin_upload(client, io, at..at + bytes) {
                            break;
                        }
                        at += bytes;
                    }
                    _ => break,
                },
                Framed::Malformed(error) => {
                    self.answer(client, io, |writer| writer.protocol_error(error));
                    client.close();
                }
            }
            if !io.spend(1) {
                break;
            }
        }
        io.consume(at);
        self.ledger.enter(client, io);
        self.note_end(client, io);
    }

    /// Whether the next command may be handled.
    #[inline]
    fn may_serve(&mut self, client: &mut Client, io: &mut Io<'_>) -> bool {
        if client.reading != Reading::On {
            return false;
        }
        let waits = match client.state {
            State::Closing(_) => return false,
            State::Reserved(_) | State::Blocked(_) => Reading::WaitsForAnswers,
            _ if !client.has_room(&self.config.limits) => Reading::WaitsForRoom,
            _ if self.ledger.is_pressed() && (client.in_flight > 0 || io.unsent() > 0) => Reading::WaitsForMemory,
            _ => {
                if client.in_flight == 0 && client.subscriptions.as_ref().is_some_and(|all| all.is_empty()) {
                    self.end_subscriptions(client, io);
                }
                return true;
            }
        };
        self.wait(client, waits, io);
        false
    }

    /// Leaves a client's input unread until the condition of `reading` ends.
    pub(super) fn wait(&mut self, client: &mut Client, reading: Reading, io: &mut Io<'_>) {
        client.reading = reading;
        if reading == Reading::WaitsForMemory {
            self.ledger.starve(client.key);
        }
        // A client with a blocking command is still read, so that its disconnection is noticed; its input is bounded anyway.
        if !matches!(client.state, State::Blocked(_)) {
            io.pause_input();
        }
    }

    /// Handles the end of a client's input.
    fn note_end(&mut self, client: &mut Client, io: &mut Io<'_>) {
        if io.input_ended() {
            if let State::Blocked(_) = client.state {
                // Otherwise the command could take an element out of a list for a client that is gone.
                return io.abort();
            }
            match (client.reading, client.front) {
                // Half a request cannot be withdrawn.
                (Reading::On, Front::Upload(_)) => return io.abort(),
                (Reading::On, _) => client.close(),
                _ => {}
            }
        }
        if let State::Closing(_) = client.state {
            io.pause_input();
            if client.in_flight == 0 {
                io.finish();
            }
        }
    }

    /// Handles a complete request at the front of the input.
    fn request(&mut self, client: &mut Client, io: &mut Io<'_>, range: std::ops::Range<usize>) -> Served {
        if client.framer.kind() == RequestKind::Multibulk {
            if let Some(served) = self.dispatch_plain(client, io, &range) {
                return served;
            }
            return self.dispatch_from_input(client, io, range);
        }
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        let served = match resp::codec::rewrite_inline(&io.input()[range], &mut text) {
            Ok(0) => Served::Done,
            Ok(_) => self.dispatch_text(client, io, &text),
            Err(error) => {
                self.answer(client, io, |writer| writer.protocol_error(error));
                client.close();
                Served::Done
            }
        };
        self.text = text;
        served
    }

    /// Records the positions of a request's arguments, in reused storage.
    pub(super) fn spans_of(&mut self, bytes: &[u8]) -> Vec<crate::commands::Span> {
        let mut spans = std::mem::take(&mut self.spans);
        CommandRequest::of(bytes, &mut spans);
        spans
    }
}

/// Finds the end of the request at the front of the input.
#[inline]
fn framed(client: &mut Client, input: &[u8]) -> Framed {
    let scanned = match client.front {
        Front::Complete(bytes) => {
            client.front = Front::Arriving(0);
            return Framed::Complete(bytes);
        }
        Front::Arriving(bytes) => bytes,
        // It is passed on before.
        Front::Upload(_) => return Framed::Partial,
    };
    match client.framer.advance(&input[scanned..]) {
        Ok(advance) if advance.is_complete => {
            client.front = Front::Arriving(0);
            Framed::Complete(scanned + advance.consumed)
        }
        Ok(advance) => {
            client.front = Front::Arriving(scanned + advance.consumed);
            Framed::Partial
        }
        Err(error) => Framed::Malformed(error),
    }
}
