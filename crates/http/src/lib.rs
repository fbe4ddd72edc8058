//! HTTP/1.1 server on the reactor.
//!
//! Sketch of the public interface (settled for `server`; details are this crate's):

mod service;

pub use service::{BodySource, LateReply, Method, More, Order, Reply, Request, Service, Status};
