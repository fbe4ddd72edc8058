//! Replies of the ring, in order, to the connection's write queue.

use reactor::Io;

use super::Connection;
use crate::body::More;
use crate::connection::ring::Held;
use crate::connection::worker::Worker;
use crate::reply::composer::{HeaderFields, JSON, Length, Shape, checked, has_body};
use crate::reply::late::Answer;
use crate::reply::part::{self, Splices};
use crate::reply::stream::{Stream, StreamFraming};
use crate::service::Service;

/// Pulls of a stream in one turn; a source of 64 KB pieces fills the write queue long before.
const PULLS_PER_TURN: usize = 16;

impl<S: Service> Connection<S> {
    /// Writes replies from the ring's front as far as possible.
    #[inline(never)]
    pub(super) fn flush(&mut self, io: &mut Io<'_>) {
        while !io.congested() {
            let Some(slot) = self.ring.front_mut() else { return };
            if matches!(slot.held, Held::Nothing) {
                return;
            }
            if let Held::Answer(answer) = &mut slot.held
                && let Some((length, source)) = answer.source.take()
            {
                let worker = &self.shared.worker;
                let (framing, length) = StreamFraming::of(length, slot.shape.http10);
                // The end of such a body is signalled only by the connection's end.
                slot.shape.persistent &= framing != StreamFraming::UntilClose;
                self.last |= framing == StreamFraming::UntilClose;
                let (shape, status) = (slot.shape, checked(answer.status));
                let mut head = worker.take_buffer();
                compose_answer_head(worker, &mut head, shape, answer, length);
                let empty = framing == StreamFraming::Length(0);
                self.ring.replace_front(if shape.head_only || !has_body(status) || empty {
                    Held::Bytes(status, head)
                } else {
                    Held::Stream(status, head, Box::new(Stream::new(source, framing)))
                });
                continue;
            }
            if let Held::Stream(_, head, stream) = &mut slot.held {
                let (more, appended) = pump(head, stream, io);
                stream.sent += appended;
                self.count_appended(appended);
                match more {
                    More::No => {}
                    More::Yes => return io.notify_writable(),
                    More::Wait => return,
                    More::Broken => return self.abort(io),
                }
            }
            self.write_front(io);
        }
    }

    /// Pops the front slot, whose reply is due, and appends its reply.
    #[inline(never)]
    fn write_front(&mut self, io: &mut Io<'_>) {
        let Some(slot) = self.ring.pop() else { return };
        let worker = &self.shared.worker;
        let out = io.output();
        let before = out.len();
        let mut streamed = 0;
        let (status, pieces) = match slot.held {
            Held::Nothing => return,
            Held::Answer(mut answer) => {
                let pieces = compose_answer(worker, out, slot.shape, &mut answer);
                (checked(answer.status), pieces)
            }
            Held::Bytes(status, bytes) => {
                out.extend_from_slice(&bytes);
                worker.give_buffer(bytes);
                (status, None)
            }
            Held::Spliced(status, bytes, mut pieces) => {
                out.extend_from_slice(&bytes);
                worker.give_buffer(bytes);
                pieces.iter_mut().for_each(|(at, _)| *at += before);
                (status, Some(pieces))
            }
            Held::Stream(status, _, stream) => {
                streamed = stream.sent;
                (status, None)
            }
        };
        let bytes = streamed + out.len() - before + pieces.as_ref().map_or(0, |pieces| part::bytes_of(pieces));
        match &slot.watched {
            Some(watched) => worker.count(status, slot.measure, Some(watched)),
            None => worker.count_with_turn(status, slot.measure),
        }
        worker.log(status, bytes, slot.log);
        // The bytes of a stream were counted when they were pulled.
        self.count_appended(bytes - streamed);
        if let Some(mut pieces) = pieces {
            io.output_pieces(&mut pieces);
        }
    }
}

/// Appends a stream's head and as many pieces as the write queue takes. Returns the result of the last pull, and the number of
/// bytes appended.
fn pump(head: &mut Vec<u8>, stream: &mut Stream, io: &mut Io<'_>) -> (More, usize) {
    let before = io.output().len();
    io.output().append(head);
    *head = Vec::new();
    let mut more = More::Yes;
    for _ in 0..PULLS_PER_TURN {
        if more != More::Yes || io.congested() {
            break;
        }
        more = stream.pull(io.output());
    }
    (more, io.output().len() - before)
}

fn compose_answer_head(worker: &Worker, out: &mut Vec<u8>, shape: Shape, answer: &Answer, length: Length) {
    let content_type = if answer.json { JSON } else { "" };
    worker.composer.borrow().head(
        out,
        shape,
        checked(answer.status),
        content_type,
        HeaderFields::of(&answer.fields),
        length,
    );
}

/// Appends a late reply; returns the pieces that go between its bytes.
fn compose_answer(worker: &Worker, out: &mut Vec<u8>, shape: Shape, answer: &mut Answer) -> Option<Box<Splices>> {
    let (status, copied) = (checked(answer.status), answer.body.len());
    let apart = answer.pieces.as_ref().map_or(0, |pieces| part::bytes_of(pieces));
    compose_answer_head(worker, out, shape, answer, Length::Spliced { bytes: (copied + apart) as u64, copied });
    if shape.head_only || !has_body(status) {
        return None;
    }
    let start = out.len();
    out.extend_from_slice(&answer.body);
    let mut pieces = answer.pieces.take()?;
    pieces.iter_mut().for_each(|(at, _)| *at += start);
    Some(pieces)
}
