//! Limits for every part of the crate.

/// Deepest nesting of objects and arrays. Also the limit of every recursion in this crate.
pub const DEPTH_MAX: usize = 128;

/// Longest accepted text, before minification: the store's largest value.
pub const TEXT_BYTES_MAX: usize = 64 << 20;
