//! Tests of the proxy through its public interface and with real servers.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod bounds;
mod campaign;
mod clients;
mod cluster;
mod commands;
mod cut_over;
mod ejection;
mod faults;
mod keys;
mod nodes;
mod own;
mod placement;
mod preconnect;
mod programs;
mod random;
mod replicas;
mod replies_off;
mod reshard;
mod reshard_scope;
mod set_up;
mod sharded_channels;
mod slow_readers;
mod splits;
mod tls;
