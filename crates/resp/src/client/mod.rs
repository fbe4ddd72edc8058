//! The client.
//!
//! | subject | file |
//! |---|---|
//! | what an application sees | `client`, `pipeline`, `command` (arguments), `from_reply`, `value`, `error`, `settings` |
//! | many threads | `pool` |
//! | messages | `subscriber`, `message_feed` (the replication stream) |
//! | a connection | `stream` (system calls), `readiness` (waiting for a socket), `tls` (encryption), `input` (buffer), `connection` (exchanges), `session` (HELLO, AUTH, SELECT) |
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
mod message_feed;
mod pipeline;
mod pool;
mod queue;
mod readiness;
mod session;
mod settings;
mod silence;
mod stream;
mod subscriber;
mod tls;
mod value;

#[cfg(feature = "reactor")]
pub(crate) use backoff::Backoff;
pub use client::Client;
#[cfg(feature = "reactor")]
pub(crate) use command::write as write_command;
pub use command::{ArgumentWriter, ToArguments};
pub use error::{CommandError, Lost, Mismatch, NotSent, ServerError};
pub use from_reply::FromReply;
#[cfg(feature = "reactor")]
pub(crate) use input::reply_limits;
pub use message_feed::MessageFeed;
pub use pipeline::Pipeline;
pub use pool::{ClientPool, PooledClient};
#[cfg(feature = "reactor")]
pub(crate) use session::request as session_request;
pub use settings::{ClientSettings, Endpoint};
pub use subscriber::{Subscriber, SubscriberEvent};
#[cfg(feature = "reactor")]
pub(crate) use subscriber::{event_of, write_subscriptions};
#[cfg(feature = "reactor")]
pub(crate) use tls::explained;
pub use tls::{Tls, TlsSettingsError};
pub use value::ReplyValue;
