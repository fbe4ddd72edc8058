//! Thread-per-core event loop: listeners, connections, buffers, timers, mailboxes.

mod protocol;

pub use protocol::{Accept, Closed, ConnectionId, Factory, Io, Loop, Message, Protocol};
