//! Sources of requests: the interface between the code that reads or makes requests and the engine that sends them.
//!
//! The engine asks a [`RequestSource`] for one request after another, on a separate thread that reads ahead by a bounded number
//! of bytes. The source may read files, parse and allocate: it does not run on the sending path. The engine distributes the
//! requests to its loops in order (in the open model request `k` is sent at the profile's moment `k`), and informs an
//! [`Observer`] about the end of each.
//!
//! A request that is always the same needs no thread: its source returns it once, from [`RequestSource::constant`].

use std::sync::{Arc, Mutex, PoisonError};

/// Largest request in bytes, head and body.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;

/// Facts about a request that the engine needs; it does not parse requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// The source's number for it, which is returned with the reply, such as the line of an answers file.
    pub index: u64,
    /// The source's number for its kind, which is returned with the reply.
    pub tag: u32,
    /// The expected status. 0: any of those that the run expects, usually 200 to 399.
    pub expected_status: u16,
    /// Whether the method is HEAD, so that the reply has no body whatever its head says (RFC 9112, 6.3).
    pub is_head: bool,
    /// Whether the request contains `Connection: close`, so that none may follow on its connection.
    pub closes: bool,
}

/// Name of the tags beyond the bound of a source.
const FURTHER_TAGS: &str = "(further tags)";

/// The names of a source's tags, by number. The source adds them while it makes requests; others read them.
#[derive(Debug, Default)]
pub struct TagNames(Mutex<Vec<String>>);

impl TagNames {
    /// Adds the name of the next number.
    pub fn push(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(name.to_owned());
    }

    /// The name of a number. A number without one stands for all tags beyond the bound.
    pub fn name(&self, number: u32) -> String {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(number as usize).map_or_else(|| FURTHER_TAGS.to_owned(), Clone::clone)
    }
}

/// Why a source fails before its end: a broken line, with its number, or an unreadable file. The text is shown to the user
/// unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError(pub String);

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SourceError {}

/// A sequence of HTTP/1.1 requests.
pub trait RequestSource: Send {
    /// Appends the bytes of the next request, ready to be sent, at most [`REQUEST_BYTES_MAX`]. Earlier content of `bytes` belongs
    /// to other requests. `None`: there are no more, and the run ends once the earlier ones are answered.
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Described>, SourceError>;

    /// The single request that this source repeats endlessly. The engine then calls no other method.
    fn constant(&self) -> Option<(Vec<u8>, Described)> {
        None
    }

    /// The names of [`Described::tag`]. `None`: its requests have no tags, so there are no results by tag.
    fn tags(&self) -> Option<Arc<TagNames>> {
        None
    }
}

/// The end of one request, for an [`Observer`].
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// [`Described::index`] of the request.
    pub index: u64,
    /// [`Described::tag`] of the request.
    pub tag: u32,
    /// Its reply. `None`: none arrived (the connection ended, the request timed out, or it was never sent).
    pub reply: Option<ObservedReply<'a>>,
}

/// A complete reply.
#[derive(Clone, Copy, Debug)]
pub struct ObservedReply<'a> {
    /// 101, or 200 to 999.
    pub status: u16,
    /// The body without its framing (chunks are joined), not decompressed.
    pub body: &'a [u8],
    /// Whether the body is longer than the engine keeps ([`OBSERVED_BODY_BYTES_MAX`]): `body` is then its beginning.
    pub is_cut: bool,
}

/// Bytes of a reply's body that are kept for an observer.
pub const OBSERVED_BODY_BYTES_MAX: usize = 1 << 20;

/// An observer's verdict on a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyVerdict {
    /// As expected.
    Right,
    /// Another status or body than expected.
    Wrong,
    /// The observer knows nothing about this request: its status alone decides.
    Unknown,
}

/// Examines each reply, on a separate thread. Replies come in the order of their arrival, which is not the order of requests.
///
/// The queue to the observer is bounded. A reply that finds it full is not observed: its status alone decides, and it is counted
/// in [`crate::Recording::unchecked`]. An observer that keeps state for each request must therefore drop old state itself.
pub trait Observer: Send {
    /// A request has ended. The verdict on a request without a reply is ignored.
    fn observe(&mut self, observed: &Observed<'_>) -> ReplyVerdict;
}
