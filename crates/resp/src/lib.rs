//! Redis protocol, RESP2 and RESP3: a codec for servers, proxies and clients, and a blocking client.
//!
//! | subject | room |
//! |---|---|
//! | bytes to requests and replies and back, without I/O | [`codec`] |
//! | one connection, a pool, messages | `client`, re-exported here |
//!
//! What holds everywhere: no byte from a peer is a panic; split input is looked at once; every buffer and every level of
//! nesting has a limit, in [`codec::Limits`] or [`Settings`].

mod client;
pub mod codec;

pub use client::{
    ArgumentWriter, Client, Endpoint, Error, Event, FromReply, Lost, Mismatch, NotSent, Pipeline, Pool, PooledClient,
    ServerError, Settings, Subscriber, Tls, TlsError, ToArguments, Value,
};
