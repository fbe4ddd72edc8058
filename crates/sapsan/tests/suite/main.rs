//! The tests of the real binary, one subject a module, in one program: each program is linked with the whole server.
//! The siege stands alone (`tests/siege`): a campaign builds it as it is released.

mod heavy;

mod apps;
mod changes;
mod commands;
mod documents;
mod export;
mod init;
mod lab;
mod memory;
mod proxy;
mod reload;
mod reshard;
mod small_disk;
mod statements;
mod travels;
