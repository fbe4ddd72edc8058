//! The client for which a request was forwarded: its address by `X-Forwarded-For`, or by `Forwarded` (RFC 7239).
//!
//! Every proxy appends the address of its peer, so a list grows to the right, and its left end is whatever the client wrote. The
//! list is read from the right: the client is the last hop that is not a trusted proxy.
//!
//! ```text
//!  X-Forwarded-For: 1.2.3.4, 203.0.113.9, 10.0.0.7        peer 10.0.0.8
//!                   `forged' `  client  ' `trusted'       `trusted'
//! ```
//!
//! - A peer that is not trusted is the client, whatever its request contains.
//! - A hop that is malformed, `unknown` or obfuscated (`_x`) ends the walk: the client is the last address before it, that of a
//!   trusted proxy.
//! - If every hop is trusted, the client is the first one.
//! - If a request has both fields, only `X-Forwarded-For` counts. Nearly all proxies write it, and pass on a `Forwarded` field of
//!   the client unread; trusting that one would let every client choose its address. So a proxy that writes `Forwarded` must
//!   remove the client's `X-Forwarded-For`.
//!
//! Nothing is allocated. At most [`HOPS_MAX`] hops of a list are read.

use std::net::{IpAddr, SocketAddr};

use crate::parsing::chunked::is_token;
use crate::trusted_proxies::TrustedProxies;

/// Hops that are read; a longer walk ends at the last known address.
const HOPS_MAX: usize = 64;
/// Digits of a port.
const PORT_DIGITS_MAX: usize = 5;
const X_FORWARDED_FOR: &str = "X-Forwarded-For";
const FORWARDED: &str = "Forwarded";

/// The address of a request's client. `values(name)` returns the values of all header fields with this name, the last field first.
pub(crate) fn client<'h, V: Iterator<Item = &'h [u8]>>(
    peer: SocketAddr,
    values: impl Fn(&'static str) -> V,
    trusted: &TrustedProxies,
) -> IpAddr {
    if !trusted.contains_peer(peer) {
        return peer.ip();
    }
    let mut usual = values(X_FORWARDED_FOR).peekable();
    match usual.peek() {
        Some(_) => last_untrusted(peer.ip(), usual, usual_address, trusted),
        None => last_untrusted(peer.ip(), values(FORWARDED), standard_address, trusted),
    }
}

/// Walks from a trusted peer to the client.
fn last_untrusted<'h>(
    peer: IpAddr,
    lists: impl Iterator<Item = &'h [u8]>,
    address_of: fn(&[u8]) -> Option<IpAddr>,
    trusted: &TrustedProxies,
) -> IpAddr {
    let mut client = peer;
    for element in lists.flat_map(|list| FromRight { rest: Some(list) }).take(HOPS_MAX) {
        let Some(address) = address_of(element) else { return client };
        client = address;
        if !trusted.contains(address) {
            return client;
        }
    }
    client
}

/// The elements of a list from its right end, without blanks around them; empty ones are left out (RFC 9110, section 5.6.1). A
/// comma inside a quoted string does not separate.
///
/// Quotation marks are paired from the right too: the last proxy's part is split as the proxy wrote it, whatever precedes it.
struct FromRight<'l> {
    rest: Option<&'l [u8]>,
}

impl<'l> Iterator for FromRight<'l> {
    type Item = &'l [u8];

    fn next(&mut self) -> Option<&'l [u8]> {
        loop {
            let list = self.rest?;
            let comma = last_comma(list);
            self.rest = comma.map(|at| &list[..at]);
            let element = list[comma.map_or(0, |at| at + 1)..].trim_ascii();
            if !element.is_empty() {
                return Some(element);
            }
        }
    }
}

fn last_comma(list: &[u8]) -> Option<usize> {
    let mut is_quoted = false;
    list.iter().enumerate().rev().find_map(|(at, byte)| {
        match byte {
            b'"' if !is_escaped(&list[..at]) => is_quoted = !is_quoted,
            b',' if !is_quoted => return Some(at),
            _ => {}
        }
        None
    })
}

/// Whether the following byte is escaped: an odd number of backslashes stands before it.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
}

/// The address of an element of X-Forwarded-For: plain, with a port, or in brackets.
fn usual_address(element: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(element).ok()?;
    match text.parse::<IpAddr>() {
        Ok(address) => Some(address.to_canonical()),
        Err(_) => node_address(text),
    }
}

/// The address in `for=` of an element of Forwarded.
fn standard_address(element: &[u8]) -> Option<IpAddr> {
    let (mut rest, mut node) = (behind_semicolons(element), None);
    while !rest.is_empty() {
        let (name, value, behind) = pair(rest)?;
        // RFC 7239, section 4: no name twice in one element.
        if name.eq_ignore_ascii_case(b"for") && node.replace(value).is_some() {
            return None;
        }
        rest = behind.trim_ascii_start();
        if !rest.is_empty() && rest[0] != b';' {
            return None;
        }
        rest = behind_semicolons(rest);
    }
    node_address(std::str::from_utf8(node?).ok()?)
}

/// An element may have empty pairs (RFC 7239, section 4).
fn behind_semicolons(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !matches!(byte, b';' | b' ' | b'\t')).unwrap_or(text.len());
    &text[end..]
}

/// Name, value without its quotation marks (escapes stay: no address has one), and the rest.
fn pair(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let name_bytes = text.iter().position(|&byte| !is_token(byte)).filter(|&bytes| bytes > 0)?;
    let (name, rest) = text.split_at(name_bytes);
    let rest = rest.strip_prefix(b"=")?;
    let Some(quoted) = rest.strip_prefix(b"\"") else {
        let value_bytes = rest.iter().position(|&byte| !is_token(byte)).unwrap_or(rest.len());
        let (value, behind) = rest.split_at(value_bytes);
        return (!value.is_empty()).then_some((name, value, behind));
    };
    let mut bytes = quoted.iter().enumerate();
    let end = loop {
        match bytes.next()? {
            (_, b'\\') => {
                bytes.next()?;
            }
            (at, b'"') => break at,
            _ => {}
        }
    };
    Some((name, &quoted[..end], &quoted[end + 1..]))
}

/// The address of a node (RFC 7239, section 6): `IPV4`, `[IPV6]`, either with a port.
fn node_address(node: &str) -> Option<IpAddr> {
    let (address, port) = match node.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            (IpAddr::V6(address.parse().ok()?), port)
        }
        None => {
            let (address, port) = node.split_at(node.find(':').unwrap_or(node.len()));
            (IpAddr::V4(address.parse().ok()?), port)
        }
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    is_port.then_some(address.to_canonical())
}

fn is_port(port: &str) -> bool {
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit()) && (1..=PORT_DIGITS_MAX).contains(&port.len());
    let is_obfuscated = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        !name.is_empty() && name.bytes().all(allowed)
    };
    is_number || port.strip_prefix('_').is_some_and(is_obfuscated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn proxies() -> TrustedProxies {
        TrustedProxies::new(&["10.0.0.0/8", "fd00::/8", "unix"]).unwrap()
    }

    fn client_of(peer: &str, fields: &[(&str, &str)]) -> String {
        let peer = peer.parse().unwrap();
        let values = |name: &'static str| {
            let named = fields.iter().rev().filter(move |(field, _)| field.eq_ignore_ascii_case(name));
            named.map(|(_, value)| value.as_bytes())
        };
        client(peer, values, &proxies()).to_string()
    }

    /// The client according to a trusted proxy's X-Forwarded-For.
    #[track_caller]
    fn check_usual(list: &str, expected: &str) {
        assert_eq!(client_of("10.0.0.1:7", &[("x-forwarded-for", list)]), expected, "{list}");
    }

    /// The same for Forwarded.
    #[track_caller]
    fn check_standard(list: &str, expected: &str) {
        assert_eq!(client_of("10.0.0.1:7", &[("forwarded", list)]), expected, "{list}");
    }

    #[test]
    fn only_a_trusted_peer_is_believed() {
        let fields = [(X_FORWARDED_FOR, "192.0.2.1")];
        assert_eq!(client_of("203.0.113.9:7", &fields), "203.0.113.9");
        assert_eq!(client_of("127.0.0.1:7", &fields), "127.0.0.1");
        assert_eq!(client_of("10.0.0.1:7", &fields), "192.0.2.1");
        assert_eq!(client_of("[::ffff:10.0.0.1]:7", &fields), "192.0.2.1");
        assert_eq!(client_of("[fd00::1]:7", &fields), "192.0.2.1");
        // A Unix socket.
        assert_eq!(client_of("127.0.0.1:0", &fields), "192.0.2.1");
        assert_eq!(client_of("10.0.0.1:7", &[]), "10.0.0.1");
    }

    #[test]
    fn the_client_is_the_last_hop_that_is_not_trusted() {
        check_usual("1.1.1.1, 192.0.2.1", "192.0.2.1");
        check_usual("1.1.1.1, 192.0.2.1, 10.0.0.2,10.9.9.9", "192.0.2.1");
        check_usual("10.0.0.3, 10.0.0.2", "10.0.0.3");
        check_usual("", "10.0.0.1");
        check_usual(" , ,192.0.2.1, ,", "192.0.2.1");
        check_standard("for=1.1.1.1, for=192.0.2.1;proto=http, for=10.0.0.2", "192.0.2.1");
        let lines = [(X_FORWARDED_FOR, "1.1.1.1"), ("Other", "x"), ("X-FORWARDED-FOR", "192.0.2.1, 10.0.0.2")];
        assert_eq!(client_of("10.0.0.1:7", &lines), "192.0.2.1");
        let trusted = [(X_FORWARDED_FOR, "192.0.2.1"), (X_FORWARDED_FOR, "10.0.0.2")];
        assert_eq!(client_of("10.0.0.1:7", &trusted), "192.0.2.1");
    }

    #[test]
    fn addresses_may_have_ports_and_brackets() {
        for (hop, address) in [
            ("192.0.2.1:80", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
        ] {
            check_usual(hop, address);
        }
        for (hop, address) in [
            ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
            ("by=203.0.113.43 ; for=192.0.2.60", "192.0.2.60"),
            (";for=192.0.2.60; ;", "192.0.2.60"),
            ("for=\"192.0.2.43:47011\"", "192.0.2.43"),
            ("for=\"192.0.2.43:_x.y-z\"", "192.0.2.43"),
            ("host=\"a,b;for=1.1.1.1\\\"\";for=192.0.2.43", "192.0.2.43"),
        ] {
            check_standard(hop, address);
        }
    }

    #[test]
    fn a_hop_that_is_no_address_ends_the_walk_at_the_proxy_before_it() {
        for hop in [
            "unknown",
            "_hidden",
            "x",
            "1.2.3",
            "01.2.3.4",
            "1.2.3.4:",
            "1.2.3.4:x",
            "1.2.3.4:123456",
            "[::1",
            "[1.2.3.4]",
            "::1:",
            "fe80::1%eth0",
            "\"1.2.3.4\"",
            "1.2.3.4 5.6.7.8",
        ] {
            check_usual(&format!("1.1.1.1, {hop}"), "10.0.0.1");
            check_usual(&format!("1.1.1.1, {hop}, 10.0.0.2"), "10.0.0.2");
            check_usual(&format!("{hop}, 192.0.2.1"), "192.0.2.1");
        }
        for hop in [
            "for=unknown",
            "for=_hidden",
            "for=\"_hidden:80\"",
            "for=",
            "for",
            "proto=http",
            "1.2.3.4",
            "for=1.2.3.4;for=1.2.3.4",
            "for=[::1]",
            "for=\"::1\"",
            "for=1.2.3.4:80",
            "for=\"1.2.3.4",
            "for=\"1.2.3\\.4\"",
            "for = 1.2.3.4",
            ";",
            "for=1.2.3.4 x=y",
        ] {
            check_standard(&format!("for=1.1.1.1, {hop}"), "10.0.0.1");
            check_standard(&format!("{hop}, for=10.0.0.2"), "10.0.0.2");
            check_standard(&format!("{hop}, for=192.0.2.1"), "192.0.2.1");
        }
    }

    #[test]
    fn of_two_fields_the_usual_one_counts_alone() {
        let both = [(FORWARDED, "for=1.1.1.1"), (X_FORWARDED_FOR, "192.0.2.1")];
        assert_eq!(client_of("10.0.0.1:7", &both), "192.0.2.1");
        let wrong = [(FORWARDED, "for=1.1.1.1"), (X_FORWARDED_FOR, "unknown")];
        assert_eq!(client_of("10.0.0.1:7", &wrong), "10.0.0.1");
    }

    #[test]
    fn quotation_marks_of_a_client_hide_nothing_of_what_a_proxy_adds() {
        for forged in ["for=\"", "for=\"a", "\"", "for=\"\\", "for=\"x\\\"", ",\",", "for=\"a\"b\""] {
            check_standard(&format!("{forged}, for=192.0.2.1"), "192.0.2.1");
            check_standard(&format!("{forged}, for=\"[2001:db8::1]:80\""), "2001:db8::1");
            check_usual(&format!("{forged}, 192.0.2.1"), "192.0.2.1");
        }
    }

    #[test]
    fn a_walk_has_a_bound() {
        let hops = |count: usize| format!("192.0.2.1{}", ", 10.0.0.2".repeat(count));
        check_usual(&hops(HOPS_MAX - 1), "192.0.2.1");
        check_usual(&hops(HOPS_MAX), "10.0.0.2");
    }

    /// A plain reading of X-Forwarded-For: all hops in a list, then from its end.
    fn plain(peer: &str, lines: &[String]) -> String {
        let trusted = |address: &str| address.starts_with("10.") || address.starts_with("fd00:");
        let joined = lines.join(",");
        let mut hops: Vec<&str> = joined.split(',').map(str::trim).filter(|hop| !hop.is_empty()).collect();
        let mut client = peer.to_owned();
        while trusted(&client)
            && let Some(hop) = hops.pop()
        {
            let Ok(address) = hop.parse::<IpAddr>() else { break };
            client = address.to_string();
        }
        client
    }

    proptest! {
        #[test]
        fn any_lists_are_read_as_plainly(
            peer in prop::sample::select(vec!["10.0.0.1", "192.0.2.9"]),
            lines in prop::collection::vec(
                prop::collection::vec(prop::sample::select(vec!["10.0.0.2", "fd00::2", "192.0.2.1", "2001:db8::1", "unknown", "_x", "", " "]), 0..6),
                0..4,
            ),
        ) {
            let lines: Vec<String> = lines.iter().map(|hops| hops.join(", ")).collect();
            let fields: Vec<_> = lines.iter().map(|line| (X_FORWARDED_FOR, line.as_str())).collect();
            prop_assert_eq!(client_of(&format!("{peer}:7"), &fields), plain(peer, &lines));
        }

        /// Both fields give the same client.
        #[test]
        fn both_fields_mean_the_same(hops in prop::collection::vec(prop::sample::select(vec!["10.0.0.2", "[fd00::2]", "192.0.2.1", "[2001:db8::1]:8", "unknown"]), 0..6)) {
            let standard: Vec<_> = hops.iter().map(|hop| format!("proto=http;for=\"{hop}\"")).collect();
            prop_assert_eq!(
                client_of("10.0.0.1:7", &[(FORWARDED, &standard.join(", "))]),
                client_of("10.0.0.1:7", &[(X_FORWARDED_FOR, &hops.join(", "))])
            );
        }

        #[test]
        fn no_bytes_make_it_panic(list in prop::collection::vec(any::<u8>(), 0..60), soup in "[for=\",;\\\\\\[\\]:1.]{0,40}") {
            for field in [FORWARDED, X_FORWARDED_FOR] {
                for bytes in [&list[..], soup.as_bytes()] {
                    let values = |name| (name == field).then_some(bytes).into_iter();
                    let _ = client("10.0.0.1:7".parse().unwrap(), values, &proxies());
                }
            }
        }
    }
}
