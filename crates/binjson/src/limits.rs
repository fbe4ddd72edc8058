//! What every part of the crate keeps to.

/// How deep objects and arrays may nest. Also the bound of every recursion in this crate.
pub const DEPTH_MAX: usize = 128;

/// Longest text that is taken, before minification: the store's largest value.
pub const TEXT_BYTES_MAX: usize = 64 << 20;
