//! Media types of replies, and the shapes that rows have by them.

/// The media type of every document and result.
pub(crate) const JSON: &str = "application/json";
/// The media type of lines of JSON.
pub const NDJSON: &str = "application/x-ndjson";
const CSV: &str = "text/csv; charset=utf-8";

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An array of objects.
    Json,
    /// One object on each line.
    Lines,
    /// RFC 4180, with a head line.
    Csv,
}

impl Shape {
    /// What an Accept field asks for.
    pub(crate) fn of_accept(accept: &[u8]) -> Shape {
        let accept = String::from_utf8_lossy(accept).to_ascii_lowercase();
        if accept.contains("ndjson") {
            Shape::Lines
        } else if accept.contains("text/csv") {
            Shape::Csv
        } else {
            Shape::Json
        }
    }

    /// The media type of such rows.
    pub(crate) fn media(self) -> &'static str {
        match self {
            Shape::Json => JSON,
            Shape::Lines => NDJSON,
            Shape::Csv => CSV,
        }
    }
}
