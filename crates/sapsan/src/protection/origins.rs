//! Protection against cross-site request forgery: a request from a page of another origin is refused if it may change something.
//!
//! A browser says where a request comes from, in `Sec-Fetch-Site` (all browsers since 2023, over TLS and to localhost) and in
//! `Origin` (except for GET and HEAD). A page can set neither. So no token is needed:
//!
//! | request | decision |
//! |---|---|
//! | GET, HEAD, OPTIONS | accepted: it must not change anything |
//! | `Sec-Fetch-Site: same-origin` or `none` (typed, bookmark) | accepted |
//! | `Sec-Fetch-Site` of another value | refused, unless exempt |
//! | no `Sec-Fetch-Site`; `Origin` with the host of the request | accepted |
//! | no `Sec-Fetch-Site`; another `Origin`, also `null` | refused, unless exempt |
//! | neither field | accepted: not a browser |
//!
//! Exempt are the paths given to [`Origins::exempt`], and requests whose `Origin` was given to [`Origins::trust`]. `Origin` is
//! compared with the request's host without its scheme, which a server behind a proxy may not know; `Strict-Transport-Security`
//! closes that gap. The content type is not part of the decision, because browsers may change which types a foreign page can send.
//! (Go's `net/http` decides in the same way; OWASP lists this as a defence of its own.)

use super::exempt::Exempt;
use crate::reply::Error;
use std::borrow::Cow;

const SCHEMES: [(&str, &str); 2] = [("https", ":443"), ("http", ":80")];

/// Which pages may send requests that may change something (not GET, HEAD, OPTIONS): pages of the same origin, and pages of the
/// origins named here. Other requests are answered 403. On in every application; [`Origins::any`] turns it off.
///
/// ```
/// use sapsan::{App, Origins};
/// App::new().origins(Origins::same().trust("https://shop.example").exempt("/hooks/{*name}"));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Origins {
    is_on: bool,
    trusted: Vec<Cow<'static, str>>,
    exempt: Exempt,
}

impl Default for Origins {
    fn default() -> Origins {
        Origins::same()
    }
}

impl Origins {
    /// Pages of the same origin only.
    pub fn same() -> Origins {
        Origins { is_on: true, trusted: Vec::new(), exempt: Exempt::default() }
    }

    /// Pages of any origin: nothing is checked. For applications that do not identify clients by cookies.
    pub fn any() -> Origins {
        Origins { is_on: false, ..Origins::same() }
    }

    /// Accepts pages of this origin too: `https://shop.example`, `http://localhost:3000`.
    pub fn trust(mut self, origin: impl Into<Cow<'static, str>>) -> Origins {
        self.trusted.push(origin.into());
        self
    }

    /// Checks nothing for paths that match this pattern. Patterns are those of routes: `/hooks/{*name}`.
    pub fn exempt(mut self, pattern: &str) -> Origins {
        self.exempt.add(pattern);
        self
    }

    /// Checks the settings.
    pub(crate) fn build(self) -> Result<Origins, String> {
        for origin in &self.trusted {
            if !is_origin(origin) {
                return Err(format!(
                    "origins: {origin:?} is not an origin: write scheme and host alone, as https://shop.example"
                ));
            }
        }
        Ok(Origins { exempt: self.exempt.build().map_err(|error| format!("origins: {error}"))?, ..self })
    }

    /// Refuses a request from a page of another origin.
    #[inline]
    pub(crate) fn check(&self, request: &http::HttpRequest<'_>) -> Result<(), Error> {
        if !self.is_on || request.method().is_safe() { Ok(()) } else { self.check_unsafe(request) }
    }

    #[inline(never)]
    fn check_unsafe(&self, request: &http::HttpRequest<'_>) -> Result<(), Error> {
        let origin = if request.has_origin() { request.header("Origin") } else { None };
        let is_same = match (request.header("Sec-Fetch-Site"), origin) {
            (Some(site), _) if !site.is_empty() => matches!(site, b"same-origin" | b"none"),
            (_, Some(origin)) => is_origin_of(origin, host(request)),
            (_, None) => true,
        };
        if is_same || self.exempt.has(request.path()) || origin.is_some_and(|origin| self.trusts(origin)) {
            return Ok(());
        }
        tracing::debug!(origin = ?origin.map(String::from_utf8_lossy), path = request.path(), "a request of a page of another origin is refused");
        Err(Error::forbidden("a page of another site sent this request: open this site itself, and try again there"))
    }

    fn trusts(&self, origin: &[u8]) -> bool {
        self.trusted.iter().any(|trusted| trusted.as_bytes().eq_ignore_ascii_case(origin))
    }
}

/// The requested host, with its port.
fn host<'r>(request: &http::HttpRequest<'r>) -> &'r [u8] {
    match request.authority() {
        "" => request.header("Host").unwrap_or_default(),
        authority => authority.as_bytes(),
    }
}

/// Whether an origin, `scheme://host[:port]`, is on this host. The scheme's default port may be written or left out.
fn is_origin_of(origin: &[u8], host: &[u8]) -> bool {
    SCHEMES.iter().any(|(scheme, port)| {
        let after = origin.strip_prefix(scheme.as_bytes()).and_then(|rest| rest.strip_prefix(b"://"));
        let host = without(host, port);
        !host.is_empty() && after.is_some_and(|after| without(after, port).eq_ignore_ascii_case(host))
    })
}

fn without<'h>(host: &'h [u8], port: &str) -> &'h [u8] {
    host.strip_suffix(port.as_bytes()).unwrap_or(host)
}

/// Whether a text is an origin in the form that browsers send.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !scheme.is_empty()
        && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && !host.is_empty()
        && host.bytes().all(is_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_compared_with_the_host_but_for_a_port_that_its_scheme_implies() {
        for (origin, host) in [
            ("https://a.b", "a.b"),
            ("https://a.b", "A.b:443"),
            ("http://a.b:80", "a.b"),
            ("http://localhost:8080", "localhost:8080"),
            ("http://[::1]:80", "[::1]"),
        ] {
            assert!(is_origin_of(origin.as_bytes(), host.as_bytes()), "{origin} {host}");
        }
        for (origin, host) in [
            ("null", "null"),
            ("a.b", "a.b"),
            ("https://a.b", "b"),
            ("https://a.b.c", "a.b"),
            ("https://a.b", "a.b:80"),
            ("http://a.b:8080", "a.b"),
            ("https://", ""),
            ("https://:443", ""),
            ("ftp://a.b", "a.b"),
        ] {
            assert!(!is_origin_of(origin.as_bytes(), host.as_bytes()), "{origin} {host}");
        }
    }

    #[test]
    fn trusted_origins_are_scheme_and_host_alone() {
        assert!(Origins::same().trust("https://a.b").trust("http://localhost:3000").build().is_ok());
        for wrong in
            ["a.b", "https://", "://a.b", "https://a.b/", "https://a.b/c", "https://u@a.b", "*", "null", "https://*.b"]
        {
            let fault = Origins::same().trust(wrong).build().map(|_| ()).unwrap_err();
            assert!(fault.starts_with(&format!("origins: {wrong:?} is not an origin")), "{fault}");
        }
        let fault = Origins::same().exempt("/a/{").build().map(|_| ()).unwrap_err();
        assert!(fault.starts_with("origins: "), "{fault}");
    }
}
