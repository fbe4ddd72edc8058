//! The tests of `resp`, one subject per file, in one program: linking one for each took most of the
//! time.

#![allow(clippy::unwrap_used, reason = "parts that tests share fail like tests")]

mod certificate;
mod fake_server;
mod fuzz_check;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;
mod on_loop;
mod redis_server;
mod redis_tls;

mod client_faults;
mod client_pool;
mod client_redis;
mod client_subscriber;
mod client_tls;
mod codec_properties;
mod codec_replies;
mod codec_requests;
mod loop_faults;
mod loop_redis;
