//! What a framer found in the bytes that it was given.

/// How far a framer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Bytes of the input that belong to the message: all, or those up to its end.
    pub consumed: usize,
    /// Whether the message ends there. Otherwise the framer wants the bytes that follow, and only those.
    pub is_complete: bool,
}
