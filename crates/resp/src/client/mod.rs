//! The client.
//!
//! | subject | file |
//! |---|---|
//! | what an application sees | `client`, `pipeline`, `command` (arguments), `from_reply`, `value`, `error`, `settings` |
//! | many threads | `pool` |
//! | messages | `subscriber` |
//! | a connection | `stream` (system calls), `tls` (encryption), `input` (buffer), `connection` (exchanges), `session` (HELLO, AUTH, SELECT) |
//! | without replies | `silence`, `queue` |
//! | when to connect again | `backoff` |

mod backoff;
#[allow(clippy::module_inception, reason = "the room and its main noun")]
mod client;
mod command;
mod connection;
mod error;
mod from_reply;
mod input;
mod pipeline;
mod pool;
mod queue;
mod session;
mod settings;
mod silence;
mod stream;
mod subscriber;
mod tls;
mod value;

pub use client::Client;
pub use command::{ArgumentWriter, ToArguments};
pub use error::{Error, Lost, Mismatch, NotSent, ServerError};
pub use from_reply::FromReply;
pub use pipeline::Pipeline;
pub use pool::{Pool, PooledClient};
pub use settings::{Endpoint, Settings};
pub use subscriber::{Event, Subscriber};
pub use tls::{Tls, TlsError};
pub use value::Value;
