//! Redis protocol (RESP2 and RESP3): the codec of servers and proxies, the client of applications.

pub mod codec;
