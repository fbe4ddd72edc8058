//! Security headers: header fields by which browsers restrict what a page may do and who may use it.
//!
//! The fields are checked once and copied to each reply as one block. If a handler sets one of them, its value has priority, and the other
//! fields are added one by one.

use crate::reply::{Fields, Head};
use http::FieldBlock;
use std::borrow::Cow;

const CONTENT_TYPE_OPTIONS: &str = "X-Content-Type-Options";
const FRAME_OPTIONS: &str = "X-Frame-Options";
const REFERRER_POLICY: &str = "Referrer-Policy";
const CONTENT_SECURITY_POLICY: &str = "Content-Security-Policy";
const STRICT_TRANSPORT_SECURITY: &str = "Strict-Transport-Security";

/// Header fields of every reply. On in every application with these defaults; [`SecurityHeaders::none`] turns them off.
///
/// | field | value | effect |
/// |---|---|---|
/// | `X-Content-Type-Options` | `nosniff` | browsers do not guess another content type |
/// | `X-Frame-Options` | `DENY` | no page may show this site in a frame; for browsers without `frame-ancestors` |
/// | `Referrer-Policy` | `same-origin` | other sites do not see the paths of this site |
/// | `Content-Security-Policy` | `default-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'` | scripts, styles, images and forms must come from this site; inline scripts and styles are blocked |
/// | `Strict-Transport-Security` | not sent | see [`SecurityHeaders::strict_transport_security`] |
///
/// A field that the handler's reply sets has priority.
///
/// ```
/// use sapsan::{App, SecurityHeaders};
/// let headers = SecurityHeaders::new()
///     .content_security_policy("default-src 'self'; img-src *")
///     .strict_transport_security(31_536_000)
///     .without("X-Frame-Options");
/// App::new().security_headers(headers);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SecurityHeaders {
    fields: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    /// The fields as lines, made by [`SecurityHeaders::build`].
    block: FieldBlock,
}

impl Default for SecurityHeaders {
    fn default() -> SecurityHeaders {
        SecurityHeaders::new()
    }
}

impl SecurityHeaders {
    /// The defaults.
    pub fn new() -> SecurityHeaders {
        SecurityHeaders::none()
            .set(CONTENT_TYPE_OPTIONS, "nosniff")
            .set(FRAME_OPTIONS, "DENY")
            .set(REFERRER_POLICY, "same-origin")
            .set(
                CONTENT_SECURITY_POLICY,
                "default-src 'self'; base-uri 'self'; form-action 'self'; frame-ancestors 'none'",
            )
    }

    /// No field at all.
    pub fn none() -> SecurityHeaders {
        SecurityHeaders { fields: Vec::new(), block: FieldBlock::default() }
    }

    /// Sets a field, one of the above or any other.
    pub fn set(self, name: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) -> SecurityHeaders {
        let name = name.into();
        let mut headers = self.without(&name);
        headers.fields.push((name, value.into()));
        headers
    }

    /// Removes a field.
    pub fn without(mut self, name: &str) -> SecurityHeaders {
        self.fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// Sets `Content-Security-Policy`.
    pub fn content_security_policy(self, policy: impl Into<Cow<'static, str>>) -> SecurityHeaders {
        self.set(CONTENT_SECURITY_POLICY, policy)
    }

    /// Sets `X-Frame-Options`: `DENY` or `SAMEORIGIN`. Browsers prefer the policy's `frame-ancestors`.
    pub fn frame_options(self, options: impl Into<Cow<'static, str>>) -> SecurityHeaders {
        self.set(FRAME_OPTIONS, options)
    }

    /// Sets `Referrer-Policy`. Under `no-referrer` browsers send `Origin: null` with forms. If such a request has no `Sec-Fetch-Site`,
    /// [`crate::Origins`] refuses it.
    pub fn referrer_policy(self, policy: impl Into<Cow<'static, str>>) -> SecurityHeaders {
        self.set(REFERRER_POLICY, policy)
    }

    /// Sets `Strict-Transport-Security`: for this number of seconds browsers use only TLS for this host. It cannot be revoked once a
    /// browser has received it.
    pub fn strict_transport_security(self, seconds: u32) -> SecurityHeaders {
        self.set(STRICT_TRANSPORT_SECURITY, format!("max-age={seconds}"))
    }

    /// Checks the fields.
    pub(crate) fn build(mut self) -> Result<SecurityHeaders, String> {
        let fields = self.fields.iter().map(|(name, value)| (&**name, &**value));
        self.block = FieldBlock::new(fields).map_err(|fault| format!("security headers: {fault}"))?;
        Ok(self)
    }

    /// Adds the fields to a reply, except those that the reply sets itself.
    #[inline]
    pub(crate) fn behind(&self, reply: &Fields, head: &mut Head<'_>) {
        if self.block.is_empty() {
            return;
        }
        if reply.texts().all(|(name, _)| !self.has(name)) {
            head.fields(&self.block);
        } else {
            self.add_missing(reply, head);
        }
    }

    #[cold]
    fn add_missing(&self, reply: &Fields, head: &mut Head<'_>) {
        for (name, value) in &self.fields {
            if !reply.texts().any(|(own, _)| own.eq_ignore_ascii_case(name)) {
                head.header(name, value);
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name))
    }
}
