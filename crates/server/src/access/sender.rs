//! Access to the general API: which requests it answers, and why it refuses the others.
//!
//! A request is answered if all of these hold; each keeps out another kind of client:
//!
//! | condition | clients kept out |
//! |---|---|
//! | the peer's address is loopback | other machines |
//! | no header field of a proxy, and not HTTP/1.0, which nginx before 1.29.7 speaks to its upstream by default | clients behind a reverse proxy on this machine |
//! | the requested host is `localhost`, a loopback address or one of `[server] hosts` | a page whose name was rebound to this machine's address |
//! | no Origin but the host's own, no Sec-Fetch-Site of another site | any page of another origin in a browser on this machine |
//!
//! The peer is that of the connection, never a client named by a proxy: the clients of a proxy, trusted or not, are not local.
//!
//! A request with a valid token is answered whatever else holds: it may do what the token allows. A request with an invalid token
//! is refused even if it would be answered without one. A page of another origin cannot send a token: its browser sends a
//! preflight request first, and that is not allowed.
//!
//! Only requests below `/_/` are checked: a declared endpoint is public unless it names a scope.

use super::token::{Grant, Permit};
use crate::config::{AdminListener, ServerConfig};
use crate::failure::{Failure, FailureKind};
use http::HttpRequest;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

/// Prefix of the general API's paths.
const PREFIX: &str = "/_/";
/// Bytes of a request's value that an error message quotes.
const SHOWN_BYTES_MAX: usize = 100;
/// Header fields that a proxy adds, besides those that begin with [`PROXY_PREFIX`].
const PROXY_FIELDS: [&str; 6] = ["Forwarded", "Via", "X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP"];
const PROXY_PREFIX: &str = "X-Forwarded-";

/// The listener of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    /// That of `[server] http`.
    Public,
    /// That of `[server] admin`.
    Admin,
}

/// Permissions of a request.
#[derive(Clone, Debug)]
pub(crate) enum Granted {
    /// Everything: the request is local.
    All,
    /// The permissions of its token.
    Token(Arc<Grant>),
}

impl Granted {
    /// Refuses a request that needs a scope which its token does not have. Work that may run for long holds the permit.
    pub(crate) fn need(&self, scope: &str) -> Result<Permit, Failure> {
        match self {
            Granted::All => Ok(Permit::default()),
            Granted::Token(grant) => {
                grant.need(scope)?;
                Ok(Permit::new(Arc::clone(grant), scope))
            }
        }
    }
}

/// Access rules of the general API.
#[derive(Debug)]
pub(crate) struct Access {
    /// Names of this machine beside `localhost`, in lower case.
    hosts: Box<[String]>,
    admin: AdminListener,
    /// Scheme of the server's own addresses.
    scheme: Scheme,
}

/// Scheme of an origin, with its default port.
#[derive(Clone, Copy, Debug)]
enum Scheme {
    Http,
    Https,
}

/// Whether a path belongs to the general API, even if it has no such route.
pub(crate) fn is_general(path: &str) -> bool {
    path.starts_with(PREFIX)
}

impl Access {
    pub(crate) fn new(config: &ServerConfig) -> Access {
        let scheme = if config.tls.is_some() { Scheme::Https } else { Scheme::Http };
        Access { hosts: config.hosts.clone().into(), admin: config.admin.clone(), scheme }
    }

    /// Whether the general API answers this request without a token.
    pub(crate) fn check_sender(&self, request: &HttpRequest<'_>) -> Result<(), Failure> {
        check_peer(request)?;
        check_proxies(request)?;
        self.check_hosts(request)?;
        self.check_site(request)
    }

    pub(crate) fn check_listener(&self, listener: Listener) -> Result<(), Failure> {
        match (&self.admin, listener) {
            (AdminListener::Http, _) | (_, Listener::Admin) => Ok(()),
            (AdminListener::Off, Listener::Public) => {
                Err(forbidden("the general API is switched off (`[server] admin = \"off\"`)"))
            }
            (AdminListener::Address(_) | AdminListener::Unix(_), Listener::Public) => {
                Err(forbidden("the general API has a listener of its own (`[server] admin`): ask there"))
            }
        }
    }

    fn check_hosts(&self, request: &HttpRequest<'_>) -> Result<(), Failure> {
        let mut names_host = false;
        let authority = Some(request.authority().as_bytes()).filter(|authority| !authority.is_empty());
        // `http` refuses a second Host field. If there is an authority too, both must be local.
        for value in authority.into_iter().chain(request.header("Host")) {
            names_host = true;
            if !std::str::from_utf8(value).is_ok_and(|value| self.is_local(value)) {
                let (host, remedy) = (shown(value), "ask for localhost, or list the name in `[server] hosts`");
                let detail =
                    format!("the request's host is \"{host}\", which is no known name of this machine: {remedy}");
                return Err(refused(detail));
            }
        }
        if names_host { Ok(()) } else { Err(refused("the request names no host: send `Host: localhost`")) }
    }

    /// Checks the browser's fields about the requesting page. A page below `/_/` itself has the host's own origin.
    fn check_site(&self, request: &HttpRequest<'_>) -> Result<(), Failure> {
        const REMEDY: &str = "pages of other origins may use declared endpoints alone";
        let host = request.header("Host").unwrap_or_default();
        for (name, value) in request.headers() {
            if name.eq_ignore_ascii_case("Origin") && !self.scheme.is_origin_of(value, host) {
                let (origin, host) = (shown(value), shown(host));
                return Err(refused(format!("`Origin` is \"{origin}\", not that of the host \"{host}\": {REMEDY}")));
            }
            // `none`: the user typed the address, or opened a bookmark.
            if name.eq_ignore_ascii_case("Sec-Fetch-Site") && !matches!(value, b"same-origin" | b"none") {
                return Err(refused(format!("`Sec-Fetch-Site` is \"{}\": {REMEDY}", shown(value))));
            }
        }
        Ok(())
    }

    /// Whether an authority, with any port, is a name of this machine.
    fn is_local(&self, authority: &str) -> bool {
        let Some(host) = host_of(authority) else { return false };
        let host = host.strip_suffix('.').unwrap_or(host);
        host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }
}

fn check_peer(request: &HttpRequest<'_>) -> Result<(), Failure> {
    // An IPv6 address may contain an IPv4 address.
    let peer = request.peer().ip().to_canonical();
    if peer.is_loopback() {
        return Ok(());
    }
    Err(refused(format!("the general API answers requests from its own machine only, and this one came from {peer}")))
}

fn check_proxies(request: &HttpRequest<'_>) -> Result<(), Failure> {
    const REMEDY: &str = "the general API answers direct requests only: ask the server itself, on its own machine";
    let is_of_proxy = |name: &str| {
        PROXY_FIELDS.iter().any(|field| field.eq_ignore_ascii_case(name))
            || name.get(..PROXY_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PROXY_PREFIX))
    };
    if let Some((name, _)) = request.headers().find(|(name, _)| is_of_proxy(name)) {
        let name = shown(name.as_bytes());
        return Err(refused(format!("the header field `{name}` says that a proxy forwarded this request; {REMEDY}")));
    }
    if request.is_http10() {
        return Err(refused(format!(
            "HTTP/1.0 is what proxies speak to the server behind them; {REMEDY}, by HTTP/1.1"
        )));
    }
    Ok(())
}

impl Scheme {
    /// Whether an Origin has this scheme and this authority.
    fn is_origin_of(self, origin: &[u8], host: &[u8]) -> bool {
        let (start, port): (&[u8], &[u8]) = match self {
            Scheme::Http => (b"http://", b":80"),
            Scheme::Https => (b"https://", b":443"),
        };
        let without_port = |authority: &[u8]| authority.strip_suffix(port).unwrap_or(authority).to_ascii_lowercase();
        let authority = origin.strip_prefix(start).filter(|authority| !authority.is_empty());
        authority.is_some_and(|authority| without_port(authority) == without_port(host))
    }
}

/// The host of `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`, without brackets.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            // Brackets hold only IPv6.
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, port)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    (port.is_empty() || port.strip_prefix(':').is_some_and(is_port)).then_some(host)
}

fn forbidden(detail: impl Into<Cow<'static, str>>) -> Failure {
    Failure::new(FailureKind::Forbidden, detail)
}

/// For a request without a token.
fn refused(detail: impl std::fmt::Display) -> Failure {
    forbidden(format!("{detail}; or send a token (`sapsan token`)"))
}

/// A value of the request, shortened for a message.
fn shown(value: &[u8]) -> String {
    let part = String::from_utf8_lossy(&value[..value.len().min(SHOWN_BYTES_MAX)]);
    if value.len() > SHOWN_BYTES_MAX { format!("{part}…") } else { part.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_known_however_they_are_written() {
        let config = ServerConfig { hosts: vec!["box.lan".to_owned()], ..ServerConfig::default() };
        let access = Access::new(&config);
        for local in [
            "localhost",
            "LocalHost:8080",
            "localhost.:80",
            "127.0.0.1",
            "127.8.9.10:1",
            "[::1]",
            "[::1]:8080",
            "[::ffff:127.0.0.1]:80",
            "box.lan",
            "BOX.lan.:8080",
        ] {
            assert!(access.is_local(local), "{local}");
        }
        for strange in [
            "",
            ".",
            "evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            "::1",
            "[::1",
            "[::1]x",
            "[::1%25lo]",
            "[localhost]",
            "[127.0.0.1]",
            "localhost:80:80",
            "localhost:http",
            "localhost..",
            "local%68ost",
            "box.lan.evil.example",
            "xbox.lan",
        ] {
            assert!(!access.is_local(strange), "{strange}");
        }
    }

    #[test]
    fn an_origin_is_the_hosts_own_or_foreign() {
        for (origin, host) in [
            ("http://localhost:8080", "localhost:8080"),
            ("http://LOCALHOST", "localhost:80"),
            ("http://[::1]:1", "[::1]:1"),
        ] {
            assert!(Scheme::Http.is_origin_of(origin.as_bytes(), host.as_bytes()), "{origin}");
        }
        for origin in [
            "",
            "null",
            "http://",
            "https://localhost:8080",
            "http://localhost",
            "http://localhost:80",
            "http://localhost:8081",
            "http://127.0.0.1:8080",
            "http://localhost:8080.evil.example",
            "http://evil.example http://localhost:8080",
            "localhost:8080",
        ] {
            assert!(!Scheme::Http.is_origin_of(origin.as_bytes(), b"localhost:8080"), "{origin}");
        }
        assert!(!Scheme::Http.is_origin_of(b"http://", b""));
        for (origin, host) in [("https://localhost:8080", "LOCALHOST:8080"), ("https://localhost", "localhost:443")] {
            assert!(Scheme::Https.is_origin_of(origin.as_bytes(), host.as_bytes()), "{origin}");
        }
        for origin in ["http://localhost:8080", "https://localhost", "https://", ""] {
            assert!(!Scheme::Https.is_origin_of(origin.as_bytes(), b"localhost:8080"), "{origin}");
        }
    }

    #[test]
    fn a_refusal_repeats_no_more_than_a_part_of_a_value() {
        assert_eq!(shown(b"short"), "short");
        assert_eq!(shown(&[b'a'; 500]), format!("{}…", "a".repeat(100)));
    }
}
