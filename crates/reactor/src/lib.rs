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
//! | subject | file |
//! |---|---|
//! | start-up and threads, the set-up of one loop, settings | `reactor`, `setup`, `settings` |
//! | loops as seen from any thread | `fleet`, `mailbox`, `lag`, `broken` (a loop that ended by itself) |
//! | interface of a protocol | `protocol`, `event_loop/io`, `event_loop/state` (a loop's state beside connections), `event_loop/neighbour` |
//! | one loop | `event_loop`: `tick` (order of the loop's work), `turn` (work of one connection in a tick), `batch`, `accepting`, `draining` |
//! | bounds of one loop | `event_loop`: `work_time` (time limits of turns and ticks), `fairness` (order of turns under load), `hoarders` (the connections that hold most memory when it is short) |
//! | one connection | `connection`: input, output, buffers, `pace` (slow receivers), `slab` (all of a loop), `transport` and `socket` (readiness) |
//! | timers | `timers`: a heap of precise ones, a wheel of coarse ones |
//! | TLS | `tls`, `event_loop/handshake` |
//! | system calls, clock | `kernel`, `signals` |
//! | address by which shares are counted, addresses to connect to | `host`, `address` |

mod address;
mod broken;
mod connection;
mod event_loop;
mod fleet;
mod host;
mod kernel;
mod lag;
mod mailbox;
mod metrics;
mod protocol;
mod reactor;
mod settings;
mod setup;
pub mod signals;
mod timers;
mod tls;

pub use address::{Address, ConnectFailure, UNIX_PEER};
pub use connection::piece::{FileRange, Piece};
pub use event_loop::io::Io;
pub use event_loop::neighbour::{Neighbour, Neighbourhood};
pub use event_loop::state::{LoopContext, LoopState};
pub use fleet::{Loop, Open, Task};
pub use host::host;
pub use kernel::{DescriptorShortage, Descriptors, try_unix};
pub use metrics::{LoopMetrics, ReactorMetrics};
pub use protocol::{Closed, ConnectionId, MemoryPart, Message, Protocol};
pub use reactor::{Reactor, RunningReactor};
pub use settings::{ListenerSettings, Outgoing, ReactorSettings, Traffic};
pub use setup::{Accept, Factory, ListenerId, Setup};
pub use tls::{CertificateError, TlsClient, TlsServer};
