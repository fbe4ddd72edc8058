//! Admission of a client's commands, and back-pressure on it.
//!
//! A client is read while its unanswered commands, their bytes, and its replies that wait for earlier ones are within their
//! bounds ([`Client::has_room`]), and its output is below the reactor's high-water mark. If all clients of a loop together hold
//! too much, those that hold anything are not read ([`Shard::is_pressed`]); a client that holds nothing may always have one
//! command in flight.

use reactor::Io;

use super::Shard;
use super::client::{Client, Mode, Waits};
use crate::commands::CommandRequest;
use resp::codec::{ProtocolError, RequestKind};

/// Result of handling a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// It is answered, or in flight.
    Done,
    /// It must wait until all earlier requests are answered.
    Waits,
}

/// State of the bytes at the front of a client's input.
enum Front {
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
        while self.may_serve(client, io) {
            if client.stream.is_some() {
                let passed = self.pass_on(client, io, at);
                at += passed;
                if passed == 0 || client.stream.is_some() {
                    break;
                }
                continue;
            }
            match front(client, &io.input()[at..]) {
                Front::Complete(bytes) => match self.request(client, io, at..at + bytes) {
                    Served::Done => at += bytes,
                    Served::Waits => {
                        client.framed = Some(bytes);
                        self.wait(client, Waits::Empty, io);
                        break;
                    }
                },
                Front::Partial => {
                    if client.scanned > self.config.limits.request_bytes_max {
                        at += self.begin_stream(client, io, at);
                        if client.stream.is_some() {
                            continue;
                        }
                    }
                    break;
                }
                Front::Malformed(error) => {
                    self.answer(client, io, |writer| writer.protocol_error(error));
                    client.ends = true;
                }
            }
            if !io.spend(1) {
                break;
            }
        }
        io.consume(at);
        self.note_end(client, io);
    }

    /// Whether the next command may be handled.
    #[inline]
    fn may_serve(&mut self, client: &mut Client, io: &mut Io<'_>) -> bool {
        if client.ends || client.waits != Waits::No {
            return false;
        }
        if !client.has_room(&self.config.limits) {
            self.wait(client, Waits::Room, io);
            return false;
        }
        let is_pressed = self.is_pressed || self.held_bytes + self.reserved_bytes > self.pressure_bytes;
        if is_pressed && (!client.queue.is_empty() || io.unsent() > 0) {
            self.wait(client, Waits::Total, io);
            return false;
        }
        if let Mode::Own(link) = client.mode
            && client.stream.is_none()
        {
            return self.leave_own(client, link, io);
        }
        if client.queue.is_empty() && client.subscriptions.as_ref().is_some_and(|all| all.is_empty()) {
            self.end_subscriptions(client, io);
        }
        true
    }

    /// Leaves a client's input unread until the condition of `waits` ends.
    pub(super) fn wait(&mut self, client: &mut Client, waits: Waits, io: &mut Io<'_>) {
        client.waits = waits;
        if waits == Waits::Total {
            self.is_pressed = true;
            self.starved.push(client.key);
        }
        // A client with a blocking command is still read, so that its disconnection is noticed; its input is bounded anyway.
        if !client.is_blocked {
            client.is_paused = true;
            io.pause_input();
        }
    }

    /// Handles the end of a client's input.
    fn note_end(&mut self, client: &mut Client, io: &mut Io<'_>) {
        if io.input_ended() {
            if client.is_blocked {
                // Otherwise the command could take an element out of a list for a client that is gone.
                return io.abort();
            }
            client.ends |= client.waits == Waits::No && !client.is_paused;
        }
        if client.ends {
            io.pause_input();
            if client.queue.is_empty() {
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
                client.ends = true;
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
fn front(client: &mut Client, input: &[u8]) -> Front {
    if let Some(bytes) = client.framed.take() {
        return Front::Complete(bytes);
    }
    match client.framer.advance(&input[client.scanned..]) {
        Ok(advance) if advance.is_complete => {
            let bytes = client.scanned + advance.consumed;
            client.scanned = 0;
            Front::Complete(bytes)
        }
        Ok(advance) => {
            client.scanned += advance.consumed;
            Front::Partial
        }
        Err(error) => Front::Malformed(error),
    }
}
