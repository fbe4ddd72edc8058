//! The life of an open store: its folder and lock, recovery at the start, its threads, closing.
//!
//! It imports all other rooms of the engine, because recovery makes their parts. Nothing in the engine imports it but
//! the engine itself, for the lock that it holds.

pub(crate) mod at_rest;
mod close;
pub(crate) mod folder;
pub(crate) mod recovery;
pub(crate) mod threads;
