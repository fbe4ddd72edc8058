//! The least that a server can do: it finds the blank line of each request and sends a fixed reply. Its cost above that of such a
//! program in C is the cost of the loop.
//!
//! `cargo run --release -p reactor --example hello_floor -- PORT LOOPS BODY_BYTES [close]`

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reactor::signals::Termination;
use reactor::{Accept, ConnectionId, Factory, Io, Loop, Protocol, Reactor, ReactorSettings, Setup};

struct Hello {
    reply: Arc<[u8]>,
    close: bool,
}

impl Protocol for Hello {
    fn input(&mut self, io: &mut Io<'_>) {
        loop {
            let (input, output) = io.split();
            let Some(end) = blank_line(input) else { break };
            output.extend_from_slice(&self.reply);
            io.consume(end);
            if !io.spend(1) {
                return;
            }
        }
        if io.input_ended() || self.close && io.unsent() > 0 {
            io.finish();
        }
    }
}

fn blank_line(input: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        from += memchr::memchr(b'\r', &input[from..])?;
        if input[from..].starts_with(b"\r\n\r\n") {
            return Some(from + 4);
        }
        from += 1;
    }
}

#[derive(Clone)]
struct Hellos {
    reply: Arc<[u8]>,
    close: bool,
}

impl Accept for Hellos {
    fn accept(&mut self, _peer: SocketAddr, _id: ConnectionId, _lp: &Loop) -> Option<Box<dyn Protocol>> {
        Some(Box::new(Hello { reply: Arc::clone(&self.reply), close: self.close }))
    }
}

impl Factory for Hellos {
    fn acceptor(&self, _setup: &mut Setup<'_>) -> Box<dyn Accept> {
        Box::new(self.clone())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let termination = Termination::claim()?;
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| arguments.next().map_or(Ok(default), |given| given.parse());
    let (port, loops, body_bytes) = (number(7001)?, number(1)?, number(100)?.max(2));
    let close = arguments.next().is_some();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {body_bytes}\r\n{}\r\n",
        if close { "Connection: close\r\n" } else { "" }
    );
    let reply = format!("{head}\"{}\"", "x".repeat(body_bytes - 2)).into_bytes().into();
    let mut reactor = Reactor::new(ReactorSettings { loops, ..ReactorSettings::default() })?;
    reactor.listen(SocketAddr::from(([127, 0, 0, 1], u16::try_from(port)?)), Arc::new(Hellos { reply, close }))?;
    let running = reactor.start()?;
    termination.wait();
    running.drain(Duration::from_secs(1));
    running.join()?;
    Ok(())
}
