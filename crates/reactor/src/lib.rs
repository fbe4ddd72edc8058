//! Thread-per-core event loop: listeners, connections, buffers, timers, mailboxes.
//!
//! One [`Reactor`] runs one loop on each of its threads. A connection lives and dies on one loop; a [`Protocol`] sees
//! its bytes through [`Io`] and never a socket. Other threads speak to a loop through its mailbox ([`Loop`]).
//!
//! What holds everywhere in the crate:
//!
//! - On the path of a request (event, read, protocol, write) nothing locks or allocates, and the clock is seldom read
//!   (`work_time`). All requests that arrived together share one `recv`, one `send` and a part of one `epoll_wait`.
//! - Buffers have named bounds in [`ReactorSettings`] and [`Traffic`]. Above its own bound a connection is not read; above the bound of
//!   all, connections are closed. The mailbox is bounded by its senders.
//! - An idle connection holds no buffer: read and write buffers belong to the loop and are lent for a turn.
//! - Connections of one loop reach one another's queues directly ([`Neighbour`]); other loops are reached by mail.
//! - A panic in a protocol closes its connection and no other.
//!
//! Code map: `reactor` (start-up, threads), `setup` (of one loop), `state` (a loop's state beside connections), `fleet` (loops as
//! seen from any thread), `tick` and `event_loop`, `turn` (what one connection does in a tick), `work_time` (time limits of turns
//! and ticks), `fairness` (order of turns under load), `neighbour`, `accepting`, `draining`, `mailbox`, `wheel` and `timers`,
//! `input`/`output`/`piece`/`pool`/`buffers`, `pace` and `hoarders` (slow receivers, and the largest holders when memory is short),
//! `host` (the address by which shares are counted), `socket` (readiness), `transport` and `tls`, `kernel` (epoll, the
//! clock, and other system calls).

mod accepting;
mod address;
mod batch;
mod broken;
mod buffers;
mod connection;
mod connections;
mod core;
mod draining;
mod event_loop;
mod fairness;
mod fleet;
mod handshake;
mod hoarders;
mod hooks;
mod host;
mod input;
mod io;
mod kernel;
mod lag;
mod listeners;
mod lists;
mod mailbox;
mod metrics;
mod neighbour;
mod next_to_go;
mod output;
mod pace;
mod piece;
mod pool;
mod protocol;
mod reactor;
mod settings;
mod setup;
pub mod signals;
mod socket;
mod state;
mod tick;
mod timers;
mod tls;
mod transport;
mod turn;
mod wheel;
mod work_time;

pub use address::{Address, ConnectFailure, UNIX_PEER};
pub use fleet::{Loop, Open, Task};
pub use host::host;
pub use io::Io;
pub use kernel::try_unix;
pub use metrics::{LoopMetrics, ReactorMetrics};
pub use neighbour::{Neighbour, Neighbourhood};
pub use piece::{FileRange, Piece};
pub use protocol::{Closed, ConnectionId, MemoryPart, Message, Protocol};
pub use reactor::{Reactor, RunningReactor};
pub use settings::{ListenerSettings, Outgoing, ReactorSettings, Traffic};
pub use setup::{Accept, Factory, ListenerId, Setup};
pub use state::{LoopContext, LoopState};
pub use tls::{CertificateError, TlsClient, TlsServer};
