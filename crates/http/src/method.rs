//! Request methods, and the order of a request relative to those before it.

/// A request method. Other methods are answered with 501 before the service is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

impl Method {
    /// All methods, in the order in which `Allow` lists them.
    pub const ALL: [Method; 7] =
        [Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch, Method::Delete, Method::Options];

    /// The method of this name. Names are case-sensitive (RFC 9110 section 9.1).
    pub fn from_name(name: &str) -> Option<Method> {
        Some(match name.as_bytes() {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"PATCH" => Method::Patch,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            _ => return None,
        })
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
        }
    }

    /// Whether the method is safe: it must change nothing (RFC 9110 section 9.2.1).
    pub fn is_safe(self) -> bool {
        matches!(self, Method::Get | Method::Head | Method::Options)
    }
}

/// Order of a request relative to the unanswered requests before it on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOrder {
    /// Waits until every earlier request of the connection that may change something is answered.
    Read,
    /// Is passed to the service at once, unless an earlier one is [`RequestOrder::Alone`]; replies still leave in the order of the
    /// requests.
    Write,
    /// May change something, but not in sequence with other writes: waits as a read does, and every later request that may change
    /// something waits for it.
    Alone,
}
