//! Result of a framer's step.

/// How far a framer got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Bytes of the input that belong to the message: all, or those up to its end.
    pub consumed: usize,
    /// Whether the message ends there. Otherwise the next call must pass the bytes that follow, and only
    /// those.
    pub is_complete: bool,
}
