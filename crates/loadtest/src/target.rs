//! The server under load: its URL, its addresses, and whether it may be loaded without confirmation.

use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Longest URL in bytes.
const URL_BYTES_MAX: usize = 64 << 10;

/// A URL `http://HOST[:PORT][/PATH]` or `https://…`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUrl {
    /// Whether TLS is used.
    pub is_tls: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// The port; 80 or 443 if the URL names none.
    pub port: u16,
    /// The field `Host` of requests: the host, with the port if the URL names it.
    pub authority: String,
    /// Path and query, beginning with `/`.
    pub path: String,
    /// The URL as it was written.
    pub url: String,
}

/// Why a target cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetError {
    /// The text is not an HTTP URL, for this reason.
    Url(String),
    /// The host's name has no address.
    Name {
        /// The host.
        host: String,
        /// The resolver's reason.
        reason: String,
    },
    /// An address that belongs neither to this machine nor to a private network.
    Foreign(IpAddr),
    /// No address of the host accepts a connection; the error is that of the last one.
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// The kernel's reason.
        reason: String,
    },
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(what) => write!(f, "{what}; write http://HOST:PORT/PATH or https://HOST/PATH"),
            Self::Name { host, reason } => write!(f, "the name `{host}` has no address: {reason}"),
            Self::Foreign(address) => write!(
                f,
                "{address} is neither of this machine nor of a private network. Load on a host of others harms them: \
                 --i-may-load-this-host says that you may"
            ),
            Self::Unreachable { address, reason } => {
                write!(f, "{address} takes no connection: {reason}. Does the server listen there?")
            }
        }
    }
}

impl std::error::Error for TargetError {}

impl TargetUrl {
    /// Parses a URL.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let wrong = |what: &str| TargetError::Url(format!("`{url}` {what}"));
        if url.len() > URL_BYTES_MAX || url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(TargetError::Url("the URL is too long, or has blanks".to_owned()));
        }
        let (is_tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong("does not begin with http:// or https://")),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(wrong("has a user name: send it with --header 'Authorization: …'"));
        }
        let (host, port) = host_and_port(authority).ok_or_else(|| wrong("has no host, or a port that is no number"))?;
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let port = port.unwrap_or(if is_tls { 443 } else { 80 });
        let (host, authority) = (host.to_owned(), authority.to_owned());
        Ok(Self { is_tls, host, port, authority, path, url: url.to_owned() })
    }

    /// Resolves the host's addresses. Blocks.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, TargetError> {
        let fail = |reason: String| TargetError::Name { host: self.host.clone(), reason };
        let found = (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| fail(error.to_string()))?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() { Err(fail("the resolver knows none".to_owned())) } else { Ok(found) }
    }
}

/// Host and port of `HOST`, `HOST:PORT`, `[V6]`, `[V6]:PORT`.
fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        None => return None,
        Some(digits) => Some(digits.parse().ok()?),
    };
    (!host.is_empty()).then_some((host, port))
}

/// Whether an address belongs to this machine or to a private network (RFC 1918, RFC 4193, link-local).
pub fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_unspecified(),
    }
}

/// Refuses addresses outside this machine and private networks.
pub fn check_near(addresses: &[SocketAddr]) -> Result<(), TargetError> {
    let foreign = addresses.iter().find(|address| !is_near(address.ip()));
    foreign.map_or(Ok(()), |address| Err(TargetError::Foreign(address.ip())))
}

/// The first address that accepts a connection. Blocks, at most `within` for each.
pub fn first_that_listens(addresses: &[SocketAddr], within: Duration) -> Result<SocketAddr, TargetError> {
    let mut last = TargetError::Url("no address".to_owned());
    for address in addresses {
        match TcpStream::connect_timeout(address, within) {
            Ok(_) => return Ok(*address),
            Err(error) => last = TargetError::Unreachable { address: *address, reason: error.to_string() },
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, host: &str, port: u16, authority: &str, path: &str) {
        let target = TargetUrl::parse(url).unwrap();
        let got = (target.host.as_str(), target.port, target.authority.as_str(), target.path.as_str());
        assert_eq!(got, (host, port, authority, path));
        assert_eq!(target.is_tls, url.starts_with("https"));
    }

    #[test]
    fn urls_are_taken_apart() {
        check("http://localhost:8080/users/1?x=2#top", "localhost", 8080, "localhost:8080", "/users/1?x=2");
        check("https://example.test", "example.test", 443, "example.test", "/");
        check("http://127.0.0.1?q", "127.0.0.1", 80, "127.0.0.1", "/?q");
        check("http://[::1]:81/a", "::1", 81, "[::1]:81", "/a");
        check("http://[::1]", "::1", 80, "[::1]", "/");
    }

    #[test]
    fn what_is_no_url_is_refused_with_what_is_allowed() {
        for url in
            ["", "localhost:80", "ftp://a", "http://", "http://a:x/", "http://a:99999/", "http://[1]/", "http://a b/"]
        {
            let error = TargetUrl::parse(url).unwrap_err().to_string();
            assert!(error.contains("write http://HOST:PORT/PATH"), "{url}: {error}");
        }
        assert!(TargetUrl::parse("http://me:secret@a/").unwrap_err().to_string().contains("--header"));
    }

    #[test]
    fn only_this_machine_and_private_networks_are_near() {
        for near in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "169.254.0.1",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_near(near.parse().unwrap()), "{near}");
        }
        for foreign in ["8.8.8.8", "172.32.0.1", "100.64.0.1", "2001:db8::1", "::ffff:8.8.8.8"] {
            assert!(!is_near(foreign.parse().unwrap()), "{foreign}");
        }
        let addresses = ["10.0.0.1:80".parse().unwrap(), "8.8.8.8:80".parse().unwrap()];
        assert!(check_near(&addresses[..1]).is_ok());
        assert!(check_near(&addresses).unwrap_err().to_string().contains("--i-may-load-this-host"));
    }

    #[test]
    fn a_name_without_an_address_is_told() {
        let error = TargetUrl::parse("http://no-such-host.invalid/").unwrap().resolve().unwrap_err();
        assert!(matches!(error, TargetError::Name { .. }), "{error}");
    }

    #[test]
    fn a_port_at_which_nothing_listens_is_told() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = first_that_listens(&[free], Duration::from_secs(5)).unwrap_err();
        assert!(error.to_string().contains("takes no connection"), "{error}");
    }
}
