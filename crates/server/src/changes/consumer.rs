//! One consumer of the feed: the body of its reply, pulled by its loop.
//!
//! It copies events from the shared window, or from its seat's piece while it is behind the window. Between two pulls it holds no
//! events.

use super::consumer_request::{ConsumerRequest, Form};
use super::feed_position::FeedPosition;
use super::hub::{Arrival, End, Hub, NextStep, refuse};
use super::window::Chunk;
use crate::failure::{Failure, FailureKind};
use http::{BodySource, More, Status};
use std::io::Write as _;
use std::sync::Arc;

/// A pull ends after this many bytes, at the end of an event.
const PULL_BYTES: usize = 32 << 10;
/// Reconnection time of an EventSource.
const RETRY_MS: u32 = 1000;

/// See the module's documentation.
pub(crate) struct Consumer {
    hub: Arc<Hub>,
    number: u64,
    wanted: ConsumerRequest,
    /// Everything up to here was sent, or was not requested.
    position: FeedPosition,
    /// The next chunk of the window, once it exists.
    chunk: Option<u64>,
    /// The last heartbeat that was sent.
    beat: Option<u64>,
}

/// Turns a request for the feed into a consumer, with its reply.
pub(crate) fn begin(hub: &Arc<Hub>, arrival: Arrival, position: FeedPosition) {
    let Arrival { mut late, wanted, permit } = arrival;
    let Some(number) = hub.join((&late, permit), wanted, position) else {
        return refuse(late, &Failure::new(FailureKind::Unavailable, "the server stops"));
    };
    late.header("Cache-Control", "no-store");
    let consumer = Consumer { hub: Arc::clone(hub), number, wanted, position, chunk: None, beat: None };
    late.stream_open(Status(200), wanted.form.media(), Box::new(consumer));
}

impl Consumer {
    /// Copies the requested events of a chunk. Returns whether it was copied to its end.
    fn copy(&mut self, chunk: &Chunk, out: &mut Vec<u8>) -> bool {
        let (start, mut number) = (out.len(), chunk.first_after(self.position));
        while let Some((entry, line)) = chunk.entry(number) {
            if self.wanted.collection.is_none_or(|wanted| wanted == entry.collection) {
                if out.len() - start >= PULL_BYTES {
                    return false;
                }
                self.event(entry.position, line, out);
            }
            self.position = entry.position;
            number += 1;
        }
        true
    }

    fn event(&self, position: FeedPosition, line: &[u8], out: &mut Vec<u8>) {
        if self.wanted.form == Form::Events {
            // Writing into a vector does not fail.
            let _ = write!(out, "id: {position}\ndata: ");
        }
        out.extend_from_slice(line);
        out.extend_from_slice(if self.wanted.form == Form::Events { b"\n\n" } else { b"\n" });
    }

    /// Sends the consumer's position even if no requested event came, so that a resumed consumer need not read from an older position.
    fn heartbeat(&self, out: &mut Vec<u8>) {
        let position = self.position;
        let _ = match self.wanted.form {
            // An event without data is not dispatched, but clients store its id.
            Form::Events if self.beat.is_none() => write!(out, "retry: {RETRY_MS}\nid: {position}\n\n"),
            Form::Events => write!(out, ":\nid: {position}\n\n"),
            Form::Lines => match position.part() {
                None => writeln!(out, "{{\"change\":{position}}}"),
                Some(part) => writeln!(out, "{{\"change\":{},\"part\":{part}}}", position.change_number),
            },
        };
    }

    /// Sends the last event.
    fn say_end(&self, end: &End, out: &mut Vec<u8>) {
        let mut line = serde_json::json!({ "end": end.to_string(), "since": self.position.change_number });
        if let Some(part) = self.position.part() {
            line["part"] = part.into();
        }
        let line = line.to_string();
        if self.wanted.form == Form::Events {
            out.extend_from_slice(b"event: end\ndata: ");
        }
        out.extend_from_slice(line.as_bytes());
        out.extend_from_slice(if self.wanted.form == Form::Events { b"\n\n" } else { b"\n" });
    }
}

impl BodySource for Consumer {
    fn pull(&mut self, out: &mut Vec<u8>) -> More {
        let hub = Arc::clone(&self.hub);
        match hub.next(self.number, self.position, self.chunk, self.beat) {
            NextStep::Chunk(number, chunk) => {
                let is_done = self.copy(&chunk, out);
                self.chunk = Some(if is_done { number + 1 } else { number });
                More::Yes
            }
            NextStep::Piece(piece) => {
                self.chunk = None;
                if self.copy(&piece, out) {
                    hub.taken(self.number);
                }
                More::Yes
            }
            NextStep::Beat(beat, tip) => {
                // The consumer waits at the tip: nothing before the tip was requested.
                self.position = self.position.max(tip.unwrap_or(self.position));
                self.heartbeat(out);
                self.beat = Some(beat);
                More::Yes
            }
            NextStep::Nothing => More::Wait,
            NextStep::End(end) => {
                self.say_end(&end, out);
                More::No
            }
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.hub.leave(self.number);
    }
}
