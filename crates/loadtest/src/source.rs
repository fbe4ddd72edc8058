//! Where requests come from: the border between whatever reads or makes requests and the engine that sends them.
//!
//! A [`Source`] is asked for one request after another, on a thread of its own that reads ahead by a bounded number of bytes. It may
//! read files, parse and allocate: nothing of it runs on the sending path. The engine gives the requests to its loops in the order in
//! which they came (in the open model request `k` goes at the profile's moment `k`), and tells an [`Observer`] what became of each.
//!
//! A request that is always the same needs no thread: its source gives it once, through [`Source::constant`].

/// Bytes of one request, head and body.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;

/// What the engine knows of a request beside its bytes. The engine does not parse requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// The source's number for it, which comes back with the reply: the line of an answers file, say.
    pub index: u64,
    /// The source's number for its kind, which comes back with the reply.
    pub tag: u32,
    /// The status that is right. 0: any from 200 to 399.
    pub expected_status: u16,
    /// The method is HEAD, so that the reply has no body whatever its head says (RFC 9112, 6.3).
    pub is_head: bool,
    /// The request says `Connection: close`, so that none may follow on its connection.
    pub closes: bool,
}

impl Described {
    /// Whether a reply with this status is right, as far as the status tells.
    pub fn expects(&self, status: u16) -> bool {
        match self.expected_status {
            0 => (200..400).contains(&status),
            expected => status == expected,
        }
    }
}

/// Why a source gives no more requests although it has not ended: a broken line, with its number, or a file that cannot be read. The
/// text is shown to the user as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceError(pub String);

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SourceError {}

/// Requests of HTTP/1.1, one after another.
pub trait Source: Send {
    /// Appends the bytes of the next request to `bytes`, ready to be sent, [`REQUEST_BYTES_MAX`] at most. What stands in `bytes` before
    /// belongs to others. `None`: there are no more, and the run ends once those before it are answered.
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Described>, SourceError>;

    /// The one request that this source gives for ever. The engine then calls nothing else.
    fn constant(&self) -> Option<(Vec<u8>, Described)> {
        None
    }
}

/// One request's end, as an [`Observer`] sees it.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// [`Described::index`] of the request.
    pub index: u64,
    /// [`Described::tag`] of the request.
    pub tag: u32,
    /// Its reply; `None`: none came (the connection ended, the time was over, or it was never sent).
    pub reply: Option<ObservedReply<'a>>,
}

/// A whole reply.
#[derive(Clone, Copy, Debug)]
pub struct ObservedReply<'a> {
    /// The final status, 200 to 599.
    pub status: u16,
    /// The body without its framing (chunks are joined). Not decompressed.
    pub body: &'a [u8],
    /// The body is longer than the engine keeps ([`OBSERVED_BODY_BYTES_MAX`]): `body` is its beginning.
    pub is_cut: bool,
}

/// Bytes of a reply's body that are kept for an observer.
pub const OBSERVED_BODY_BYTES_MAX: usize = 1 << 20;

/// What an observer finds of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As expected.
    Right,
    /// Another status or body than expected.
    Wrong,
    /// The observer knows nothing of this request: its status alone decides, by [`Described::expects`].
    Unknown,
}

/// Looks at each reply, on a thread of its own. Replies come in the order in which they arrived, which is not the order of requests.
///
/// The queue before it is bounded. A reply that finds it full is not observed: its status alone decides, and it is counted in
/// [`crate::Recording::unchecked`]. An observer that keeps something for each request therefore drops what is far behind by itself.
pub trait Observer: Send {
    /// A request has come to its end. The verdict on a request without a reply is ignored.
    fn observe(&mut self, observed: &Observed<'_>) -> Verdict;
}
