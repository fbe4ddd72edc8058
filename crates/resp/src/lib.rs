//! Redis protocol, RESP2 and RESP3: a codec for servers, proxies and clients, a blocking client, and one on an event loop.
//!
//! | subject | room |
//! |---|---|
//! | bytes to requests and replies and back, without I/O | [`codec`] |
//! | one connection, a pool, messages, for threads that wait | `client`, re-exported here |
//! | the same without waiting, on a loop of `reactor` | `loop_client` (feature `reactor`) |
//!
//! What holds everywhere: no byte from a peer causes a panic; each received byte is scanned once; every buffer and every
//! level of nesting has a limit, in [`codec::FrameLimits`] or [`ClientSettings`].

mod client;
pub mod codec;
#[cfg(feature = "reactor")]
pub mod loop_client;

pub use client::{
    ArgumentWriter, Client, ClientPool, ClientSettings, CommandError, Endpoint, FromReply, Lost, MessageFeed, Mismatch,
    NotSent, Pipeline, PooledClient, ReplyValue, ServerError, Subscriber, SubscriberEvent, Tls, TlsSettingsError,
    ToArguments,
};
#[cfg(feature = "reactor")]
pub use loop_client::{LoopClient, LoopSettings, LoopSubscriber};
