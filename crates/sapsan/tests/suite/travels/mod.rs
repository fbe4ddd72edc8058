//! The travels service as a user runs it: the real binary, real sockets, one config file, answers compared with a slow
//! and obvious reference.

mod ammo;
mod backup;
mod client;
mod commands;
mod crash;
mod cup;
mod data;
mod edges;
mod full_disk;
mod general;
mod import_kill;
mod kill;
mod loadtest;
mod model;
pub(crate) mod process;
mod random;
mod replay;
mod system_faults;
