//! The loop's interface to the kernel: readiness, listening sockets, traffic, the alarm, the clock, CPU affinity, time slices,
//! the limit of descriptors.
//!
//! Beside them the rest of the crate uses only sockets and the waker of `mio`, and masks signals (`signals.rs`).

mod affinity;
mod alarm;
mod backlog;
mod clock;
mod descriptors;
mod listening;
mod poller;
mod slice;
mod traffic;
mod unix;

pub(crate) use affinity::pin_to;
pub(crate) use alarm::Alarm;
pub(crate) use backlog::has_waiting;
pub(crate) use clock::now_ns;
pub use descriptors::{DescriptorShortage, Descriptors};
pub(crate) use listening::{AcceptFailure, Listening, accept_failure, connect};
pub(crate) use poller::{Events, Poller, Readiness, Token};
pub(crate) use slice::ask_for_slices;
pub(crate) use traffic::{receive, send, unacknowledged};
pub use unix::try_unix;
pub(crate) use unix::{SocketFile, bind_unix, connect_unix};
