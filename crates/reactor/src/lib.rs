//! Thread-per-core event loop: listeners, connections, buffers, timers, mailboxes.
//!
//! One [`Reactor`] runs one loop on each of its threads. A connection lives and dies on one loop; a [`Protocol`] sees
//! its bytes through [`Io`] and never a socket. Other threads speak to a loop through its mailbox ([`Loop`]).
//!
//! What holds everywhere in the crate:
//!
//! - On the way of a request (event, read, protocol, write) nothing locks, allocates or reads the clock; there is one
//!   `recv` and one `send` for all requests that arrived together, and a share of one `epoll_wait`.
//! - Every buffer and queue has a bound with a name, in [`Settings`]; past it a connection is not read any more.
//! - An idle connection holds no buffer: read and write buffers belong to the loop and are lent for a turn.
//! - A panic in a protocol costs its connection and nothing else.
//!
//! Code map: `reactor` (start-up, threads), `event_loop` (the tick), `turn` (what one connection does in a tick),
//! `accepting`, `draining`, `mailbox`, `wheel` and `timers`, `input`/`output`/`pool` (buffers), `transport` (the seam
//! where TLS will go), `kernel` (every system call that is not a plain socket operation).

mod accepting;
mod batch;
mod connection;
mod connections;
mod core;
mod draining;
mod event_loop;
mod fleet;
mod input;
mod io;
mod kernel;
mod listeners;
mod mailbox;
mod metrics;
mod output;
mod pool;
mod protocol;
mod reactor;
mod settings;
pub mod signals;
mod tick;
mod timers;
mod transport;
mod turn;
mod wheel;

pub use fleet::Loop;
pub use io::Io;
pub use mailbox::{Open, Task};
pub use metrics::{LoopMetrics, Metrics};
pub use protocol::{Accept, Closed, ConnectionId, Factory, Message, Protocol};
pub use reactor::{Reactor, Running};
pub use settings::Settings;
