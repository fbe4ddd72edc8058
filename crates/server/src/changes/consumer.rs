//! One consumer of the feed: the body of its reply, which its loop pulls.
//!
//! It copies events from the shared window, and while it is behind that from its seat's piece. It keeps none of them between
//! two pulls.

use super::hub::{Arrival, End, Hub, Next, refuse};
use super::place::Place;
use super::wanted::{Form, Wanted};
use super::window::Chunk;
use crate::failure::{Failure, Kind};
use http::{BodySource, More, Status};
use std::io::Write as _;
use std::sync::Arc;

/// A pull ends when it has given as many bytes, and the event that it is at.
const PULL_BYTES: usize = 32 << 10;
/// How long an EventSource is to wait before it connects again.
const RETRY_MS: u32 = 1000;

/// See the module's text.
pub(crate) struct Consumer {
    hub: Arc<Hub>,
    number: u64,
    wanted: Wanted,
    /// All up to it was given, or was not wanted.
    place: Place,
    /// The chunk of the window that comes next, once it is there.
    chunk: Option<u64>,
    /// The beat that was heard last.
    beat: Option<u64>,
}

/// Takes a request for the feed on: from here its reply is a consumer's.
pub(crate) fn begin(hub: &Arc<Hub>, arrival: Arrival, place: Place) {
    let Arrival { mut late, wanted } = arrival;
    let Some(number) = hub.join(late.nudge(), wanted, place) else {
        return refuse(late, &Failure::new(Kind::Unavailable, "the server stops"));
    };
    late.header("Cache-Control", "no-store");
    let consumer = Consumer { hub: Arc::clone(hub), number, wanted, place, chunk: None, beat: None };
    late.stream_open(Status(200), wanted.form.media(), Box::new(consumer));
}

impl Consumer {
    /// Copies what is wanted of a chunk; whether it is copied to its end.
    fn copy(&mut self, chunk: &Chunk, out: &mut Vec<u8>) -> bool {
        let (start, mut number) = (out.len(), chunk.first_after(self.place));
        while let Some((entry, line)) = chunk.entry(number) {
            if self.wanted.collection.is_none_or(|wanted| wanted == entry.collection) {
                if out.len() - start >= PULL_BYTES {
                    return false;
                }
                self.event(entry.place, line, out);
            }
            self.place = entry.place;
            number += 1;
        }
        true
    }

    fn event(&self, place: Place, line: &[u8], out: &mut Vec<u8>) {
        if self.wanted.form == Form::Events {
            // Writing into a vector does not fail.
            let _ = write!(out, "id: {place}\ndata: ");
        }
        out.extend_from_slice(line);
        out.extend_from_slice(if self.wanted.form == Form::Events { b"\n\n" } else { b"\n" });
    }

    /// Tells where the consumer is, also where nothing came that it wants: to resume from there costs no reading.
    fn heartbeat(&self, out: &mut Vec<u8>) {
        let place = self.place;
        let _ = match self.wanted.form {
            // An event without data is not dispatched, but its id is remembered.
            Form::Events if self.beat.is_none() => write!(out, "retry: {RETRY_MS}\nid: {place}\n\n"),
            Form::Events => write!(out, ":\nid: {place}\n\n"),
            Form::Lines => match place.part() {
                None => writeln!(out, "{{\"change\":{place}}}"),
                Some(part) => writeln!(out, "{{\"change\":{},\"part\":{part}}}", place.change_number),
            },
        };
    }

    /// The last that it hears.
    fn say_end(&self, end: &End, out: &mut Vec<u8>) {
        let mut line = serde_json::json!({ "end": end.to_string(), "since": self.place.change_number });
        if let Some(part) = self.place.part() {
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
        match hub.next(self.number, self.place, self.chunk, self.beat) {
            Next::Chunk(number, chunk) => {
                let is_done = self.copy(&chunk, out);
                self.chunk = Some(if is_done { number + 1 } else { number });
                More::Yes
            }
            Next::Piece(piece) => {
                self.chunk = None;
                if self.copy(&piece, out) {
                    hub.taken(self.number);
                }
                More::Yes
            }
            Next::Beat(beat, tip) => {
                // Where it waits at the tip, all up to it was not wanted.
                self.place = self.place.max(tip.unwrap_or(self.place));
                self.heartbeat(out);
                self.beat = Some(beat);
                More::Yes
            }
            Next::Nothing => More::Wait,
            Next::End(end) => {
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
