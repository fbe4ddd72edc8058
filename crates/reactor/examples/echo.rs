//! Echo server: `cargo run -p reactor --example echo -- 127.0.0.1:7000`, then `nc 127.0.0.1 7000`. Ctrl-C drains it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reactor::signals::Termination;
use reactor::{Accept, ConnectionId, Factory, Io, Loop, Protocol, Reactor, ReactorSettings, Setup};

struct Echo;

impl Protocol for Echo {
    fn input(&mut self, io: &mut Io<'_>) {
        let (input, output) = io.split();
        output.extend_from_slice(input);
        let echoed = input.len();
        io.consume(echoed);
        if io.input_ended() {
            io.finish();
        }
    }
}

struct Echoes;

impl Accept for Echoes {
    fn accept(&mut self, _peer: SocketAddr, _id: ConnectionId, _lp: &Loop) -> Option<Box<dyn Protocol>> {
        Some(Box::new(Echo))
    }
}

impl Factory for Echoes {
    fn acceptor(&self, _setup: &mut Setup<'_>) -> Box<dyn Accept> {
        Box::new(Echoes)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let termination = Termination::claim()?;
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned()).parse()?;
    let mut reactor = Reactor::new(ReactorSettings::default())?;
    println!("echo on {}", reactor.listen(address, Arc::new(Echoes))?);
    let running = reactor.start()?;
    termination.wait();
    running.drain(Duration::from_secs(5));
    running.join()?;
    Ok(())
}
