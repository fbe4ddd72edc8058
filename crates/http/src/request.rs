//! A request as the service sees it.

use std::net::{IpAddr, SocketAddr};

use crate::forwarded;
use crate::head::Head;
use crate::method::Method;
use crate::trusted_proxies::TrustedProxies;

/// A request, borrowed from the connection's read buffer for the time of the call.
#[derive(Debug)]
pub struct Request<'r> {
    pub(crate) head: Head<'r>,
    pub(crate) body: &'r [u8],
    /// The body follows in pieces.
    pub(crate) in_pieces: bool,
    pub(crate) peer: SocketAddr,
    /// Whose word counts for whom it was forwarded.
    pub(crate) trusted: &'r TrustedProxies,
}

impl<'r> Request<'r> {
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

    /// The query as sent, without `?`; empty where there is none.
    #[inline]
    pub fn query(&self) -> &'r str {
        self.head.query
    }

    /// The authority of a target in absolute form, which counts more than Host (RFC 9112, section 3.2.2); empty for a
    /// target in origin form.
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

    /// Whether an Accept field names something that is neither anything nor JSON: known without a look at the fields.
    #[inline]
    pub fn names_media(&self) -> bool {
        self.head.names_media
    }

    /// Whether If-Match or If-None-Match is there: known without a look at the fields.
    #[inline]
    pub fn is_conditional(&self) -> bool {
        self.head.is_conditional
    }

    /// Whether Origin is there: known without a look at the fields.
    #[inline]
    pub fn has_origin(&self) -> bool {
        self.head.has_origin
    }

    /// A request for the same with another query.
    pub fn with_query<'s>(&'s self, query: &'s str) -> Request<'s> {
        Request { head: Head { query, ..self.head }, ..*self }
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

    /// Whether the body is to be taken in pieces ([`crate::Reply::later_in_pieces`]): [`Request::body`] is empty then.
    #[inline]
    pub fn is_in_pieces(&self) -> bool {
        self.in_pieces
    }

    /// Peer of the connection: the last proxy, where the request came through any.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Address of the client: of the last hop that is no trusted proxy ([`crate::Settings::trusted_proxies`]), by
    /// `X-Forwarded-For`, or by `Forwarded` where there is none. From a peer that is not trusted: the peer's own.
    /// Allocates nothing.
    #[inline]
    pub fn client(&self) -> IpAddr {
        if self.trusted.is_empty() {
            self.peer.ip()
        } else {
            forwarded::client(self.peer, self.head.fields.iter(), self.trusted)
        }
    }
}
