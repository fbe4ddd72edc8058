//! The expected answer of one request.

/// The expected answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Method of the request that it answers.
    pub method: String,
    /// Path and query of that request.
    pub target: String,
    /// The status, 200 to 599.
    pub status: u16,
    /// The body. `None`: any.
    pub body: Option<Vec<u8>>,
}
