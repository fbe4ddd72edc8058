//! A request, as passed to the service.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};

use crate::forwarded;
use crate::method::Method;
use crate::parsing::head::Head;
use crate::trusted_proxies::TrustedProxies;

/// A request, borrowed from the connection's read buffer for the time of the call.
#[derive(Debug)]
pub struct HttpRequest<'r> {
    pub(crate) head: &'r Head<'r>,
    query: &'r str,
    pub(crate) body: &'r [u8],
    /// The body follows in pieces.
    pub(crate) in_pieces: bool,
    pub(crate) peer: SocketAddr,
    /// Proxies whose forwarding fields are trusted.
    pub(crate) trusted: &'r TrustedProxies,
    /// The client behind a proxy, once it was asked for.
    client: Cell<Option<IpAddr>>,
}

impl<'r> HttpRequest<'r> {
    /// A request with its body, and whether the body follows in pieces.
    #[inline]
    pub(crate) fn new(
        head: &'r Head<'r>,
        (body, in_pieces): (&'r [u8], bool),
        peer: SocketAddr,
        trusted: &'r TrustedProxies,
    ) -> Self {
        HttpRequest { head, query: head.query, body, in_pieces, peer, trusted, client: Cell::new(None) }
    }

    /// The method.
    #[inline]
    pub fn method(&self) -> Method {
        self.head.method
    }

    /// The path as sent (ASCII, percent-escapes intact), without the query.
    #[inline]
    pub fn path(&self) -> &'r str {
        self.head.path
    }

    /// The query as sent, without `?`; empty if there is none.
    #[inline]
    pub fn query(&self) -> &'r str {
        self.query
    }

    /// The authority of a target in absolute form, which takes precedence over Host (RFC 9112, section 3.2.2); empty for a target
    /// in origin form.
    #[inline]
    pub fn authority(&self) -> &'r str {
        self.head.authority
    }

    /// Whether the request is HTTP/1.0, which needs no Host.
    #[inline]
    pub fn is_http10(&self) -> bool {
        self.head.http10
    }

    /// The first header field of this name (ASCII case folded).
    pub fn header(&self, name: &str) -> Option<&'r [u8]> {
        self.head.fields.named(name).next()
    }

    /// The values of all header fields of this name (ASCII case folded), in the order of arrival.
    pub fn fields_named<'n>(&self, name: &'n str) -> impl Iterator<Item = &'r [u8]> + use<'r, 'n> {
        self.head.fields.named(name)
    }

    /// Whether an Accept field is other than exactly `*/*` or `application/json`: known without reading the fields.
    #[inline]
    pub fn names_media(&self) -> bool {
        self.head.facts.names_media
    }

    /// Whether If-Match or If-None-Match is there: known without reading the fields.
    #[inline]
    pub fn is_conditional(&self) -> bool {
        self.head.facts.is_conditional
    }

    /// Whether Origin is there: known without reading the fields.
    #[inline]
    pub fn has_origin(&self) -> bool {
        self.head.facts.has_origin
    }

    /// Whether Content-Encoding is there: known without reading the fields.
    #[inline]
    pub fn has_coding(&self) -> bool {
        self.head.facts.has_coding
    }

    /// The same request with another query.
    pub fn with_query<'s>(&'s self, query: &'s str) -> HttpRequest<'s> {
        HttpRequest { query, client: self.client.clone(), ..*self }
    }

    /// All header fields in the order of arrival.
    pub fn headers(&self) -> impl Iterator<Item = (&'r str, &'r [u8])> + '_ {
        self.head.fields.iter()
    }

    /// The whole body (its size is within the limit), chunks already joined.
    #[inline]
    pub fn body(&self) -> &'r [u8] {
        self.body
    }

    /// Whether the body is to be taken in pieces ([`crate::Reply::later_in_pieces`]): [`HttpRequest::body`] is empty then.
    #[inline]
    pub fn is_in_pieces(&self) -> bool {
        self.in_pieces
    }

    /// Peer of the connection: the last proxy, if the request came through any.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The client's address. If the peer is a trusted proxy ([`crate::HttpSettings::trusted_proxies`]), it is the address of the last hop
    /// in `X-Forwarded-For` that is no trusted proxy; if that field is missing, of the last such hop in `Forwarded`. Otherwise it is the
    /// peer's own address. Allocates nothing.
    #[inline]
    pub fn client(&self) -> IpAddr {
        if self.trusted.is_empty() {
            return self.peer.ip();
        }
        let client = self.client.get().unwrap_or_else(|| {
            forwarded::client(self.peer, |name| self.head.fields.named_from_last(name), self.trusted)
        });
        self.client.set(Some(client));
        client
    }
}
