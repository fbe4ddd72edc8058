//! One connection: bytes of replies in, bytes of requests out.

use super::ended::Lost;
use super::generator::{Gathers, Generator, SlotNo, Then};
use super::observing::Gathered;
use crate::reply::{ReceivedReply, ReplyReader};
use reactor::{Closed, Io, Protocol};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// Time limit for a server that has announced a close to close the connection.
const END_WAIT: Duration = Duration::from_secs(1);

/// The protocol of a connection.
pub(super) struct Client {
    generator: Rc<RefCell<Generator>>,
    slot: SlotNo,
    is_made: bool,
    reader: ReplyReader,
    /// The received part of the reply, if somebody reads it.
    body: Option<Gathered>,
    /// The transport's error.
    failure: Option<String>,
}

impl Client {
    pub(super) fn new(generator: Rc<RefCell<Generator>>, slot: SlotNo, gathers: Gathers) -> Self {
        let body = match gathers {
            Gathers::Nothing => None,
            Gathers::Body => Some(Gathered::new(false)),
            Gathers::HeadAndBody => Some(Gathered::new(true)),
        };
        Self { generator, slot, is_made: false, reader: ReplyReader::default(), body, failure: None }
    }

    /// Reads the replies that have arrived, and appends the requests that may follow them. Returns the consumed bytes and the
    /// last reply. `Err`: the bytes are not a reply, or more than was asked for. A request that is appended here has not been sent
    /// yet, so the input holds no reply to it.
    fn read(
        &mut self,
        generator: &mut Generator,
        input: &[u8],
        output: &mut Vec<u8>,
        now_ns: u64,
    ) -> Result<(usize, Option<ReceivedReply>), Lost> {
        let (mut used, mut last) = (0, None);
        let mut asked = generator.in_flight_on(self.slot);
        while let Some(is_head) = generator.expected(self.slot).filter(|_| asked > 0) {
            let rest = &input[used..];
            let read = match &mut self.body {
                None => self.reader.read(rest, is_head, &mut ()),
                Some(body) => self.reader.read(rest, is_head, body),
            };
            let (bytes, reply) = read.map_err(|_| Lost::Malformed)?;
            used += bytes;
            generator.received(self.slot, bytes);
            let Some(reply) = reply else { return Ok((used, last)) };
            asked -= 1;
            if asked == 0 && used < input.len() {
                // Which of the replies answers the request is not known, so none does.
                return Err(Lost::Surplus);
            }
            self.replied(generator, reply, now_ns, output);
            last = Some(reply);
        }
        if used < input.len() { Err(Lost::Surplus) } else { Ok((used, last)) }
    }

    fn replied(&mut self, generator: &mut Generator, reply: ReceivedReply, now_ns: u64, output: &mut Vec<u8>) {
        generator.replied(self.slot, reply, self.body.as_ref(), now_ns, output);
        if let Some(body) = &mut self.body {
            body.clear();
        }
    }
}

fn carry_out(then: Then, io: &mut Io<'_>) {
    match then {
        Then::GoOn => {}
        Then::Close => io.abort(),
        Then::AwaitEnd => io.set_timer(Some(END_WAIT)),
    }
}

impl Protocol for Client {
    fn writable(&mut self, io: &mut Io<'_>) {
        // Later calls follow after a large request was sent; nothing waits for that.
        if !std::mem::replace(&mut self.is_made, true) {
            let now_ns = io.lp().precise_now_ns();
            let then = self.generator.borrow_mut().connected(self.slot, now_ns, io.output());
            carry_out(then, io);
        }
    }

    fn input(&mut self, io: &mut Io<'_>) {
        let (now_ns, input_ended) = (io.lp().precise_now_ns(), io.input_ended());
        let (input, output) = io.split();
        let generator = Rc::clone(&self.generator);
        let mut generator = generator.borrow_mut();
        let (used, mut last) = match self.read(&mut generator, input, output, now_ns) {
            Ok(read) => read,
            Err(cause) => {
                generator.refuse(self.slot, cause);
                return io.abort();
            }
        };
        if let Some(reply) = input_ended.then(|| self.reader.input_ended()).flatten() {
            self.replied(&mut generator, reply, now_ns, output);
            last = Some(reply);
        }
        let then = generator.after_input(self.slot, input_ended, last);
        io.consume(used);
        carry_out(then, io);
    }

    fn timer(&mut self, io: &mut Io<'_>) {
        io.abort();
    }

    fn drain(&mut self, io: &mut Io<'_>) {
        io.abort();
    }

    fn failed(&mut self, error: &io::Error) {
        self.failure = Some(error.to_string());
    }

    fn closed(&mut self, reason: Closed) {
        let not_made = match (reason, self.failure.take()) {
            (Closed::Unconnected(failure), Some(text)) => Some(format!("{failure}: {text}")),
            (Closed::Unconnected(failure), None) => Some(failure.to_string()),
            (_, text) => text,
        };
        self.generator.borrow_mut().connection_ended(self.slot, not_made);
    }
}
