//! Peers whose forwarding fields are trusted: addresses, networks in CIDR notation, Unix sockets.
//!
//! An IPv4 network is stored as the IPv6 network of its mapped addresses (RFC 4291, section 2.5.5.2), so one comparison serves
//! both, and a peer whose IPv4 address is inside an IPv6 address matches too.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Limit of a list's entries: each is compared with each hop.
const ENTRIES_MAX: usize = 64;
/// The entry for all Unix sockets.
const UNIX: &str = "unix";

/// The trusted proxies ([`crate::HttpRequest::client`]). By default there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Box<[Network]>,
    /// Peers on Unix sockets are trusted.
    unix: bool,
}

/// The addresses with a common prefix of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    bits: u128,
    /// Length of the prefix, of 128 bits.
    prefix: u32,
}

/// Why an entry is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyEntryError {
    /// It is neither an address, nor a network, nor `unix`.
    Malformed,
    /// Its address has bits after its prefix; the network that contains it.
    HostBits(String),
    /// There are more than this many.
    TooMany(usize),
}

impl fmt::Display for ProxyEntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyEntryError::Malformed => {
                f.write_str("an address, a network as in 10.0.0.0/8 or fd00::/8, or \"unix\" for Unix sockets")
            }
            ProxyEntryError::HostBits(network) => write!(f, "the network itself: \"{network}\""),
            ProxyEntryError::TooMany(max) => write!(f, "up to {max} entries"),
        }
    }
}

impl std::error::Error for ProxyEntryError {}

impl TrustedProxies {
    /// The proxies of a list such as `["10.0.0.0/8", "::1", "unix"]`.
    ///
    /// # Errors
    ///
    /// The index of the first invalid entry, and the fault. The error's text describes valid entries.
    pub fn new<T: AsRef<str>>(entries: &[T]) -> Result<TrustedProxies, (usize, ProxyEntryError)> {
        if entries.len() > ENTRIES_MAX {
            return Err((ENTRIES_MAX, ProxyEntryError::TooMany(ENTRIES_MAX)));
        }
        let (mut networks, mut unix) = (Vec::new(), false);
        for (place, entry) in entries.iter().enumerate() {
            match entry.as_ref() {
                UNIX => unix = true,
                text => networks.push(Network::parse(text).map_err(|error| (place, error))?),
            }
        }
        Ok(TrustedProxies { networks: networks.into(), unix })
    }

    /// Whether there are no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }

    /// Whether the address belongs to a trusted proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = mapped(address);
        self.networks.iter().any(|network| network.has(bits))
    }

    /// Whether the peer of a connection is a trusted proxy.
    pub fn contains_peer(&self, peer: SocketAddr) -> bool {
        // A loopback network does not include Unix sockets, although their peers have a loopback address here.
        if peer == reactor::UNIX_PEER { self.unix } else { self.contains(peer.ip()) }
    }
}

impl Network {
    fn parse(text: &str) -> Result<Network, ProxyEntryError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ProxyEntryError::Malformed)?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let length = match prefix {
            None => bits_max,
            Some(digits) => {
                parse_prefix(digits).filter(|&prefix| prefix <= bits_max).ok_or(ProxyEntryError::Malformed)?
            }
        };
        let network = Network { bits: mapped(address), prefix: 128 - bits_max + length };
        let first = network.first();
        if first != network.bits {
            return Err(ProxyEntryError::HostBits(format!("{}/{length}", unmapped(first, address))));
        }
        Ok(network)
    }

    #[inline]
    fn has(self, bits: u128) -> bool {
        // A shift by all 128 bits is `None`.
        (bits ^ self.bits).checked_shr(128 - self.prefix).unwrap_or(0) == 0
    }

    /// The bits of its first address.
    fn first(self) -> u128 {
        let mask = u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0);
        self.bits & mask
    }
}

/// Digits only: `parse` would accept a plus sign.
fn parse_prefix(digits: &str) -> Option<u32> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| is_number)
}

fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address of these bits, of the same family as `like`.
fn unmapped(bits: u128, like: IpAddr) -> IpAddr {
    let address = IpAddr::V6(Ipv6Addr::from_bits(bits));
    if like.is_ipv4() { address.to_canonical() } else { address }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(entries: &[&str], inside: &[&str], outside: &[&str]) {
        let proxies = TrustedProxies::new(entries).expect("a list");
        for address in inside {
            assert!(proxies.contains(address.parse().unwrap()), "{entries:?} has {address}");
        }
        for address in outside {
            assert!(!proxies.contains(address.parse().unwrap()), "{entries:?} does not have {address}");
        }
    }

    #[test]
    fn addresses_and_networks_are_found() {
        check(
            &["10.0.0.0/8", "192.0.2.7"],
            &["10.255.0.1", "::ffff:10.1.2.3", "192.0.2.7"],
            &["11.0.0.0", "192.0.2.8", "::a00:1"],
        );
        check(&["2001:db8::/33", "::1"], &["2001:db8:7fff::1", "::1"], &["2001:db8:8000::", "::2", "127.0.0.1"]);
        check(&["0.0.0.0/0"], &["255.1.2.3", "::ffff:1.2.3.4"], &["::1"]);
        check(&["::/0"], &["255.1.2.3", "::1"], &[]);
        check(&["::ffff:10.0.0.0/104"], &["10.1.2.3"], &["11.0.0.0"]);
        check(&[], &[], &["127.0.0.1"]);
    }

    #[test]
    fn unix_sockets_are_an_entry_of_their_own() {
        let of = |entries: &[&str]| TrustedProxies::new(entries).unwrap();
        let tcp = SocketAddr::from(([127, 0, 0, 1], 7));
        for (entries, unix, loopback) in
            [(vec!["unix"], true, false), (vec!["127.0.0.0/8"], false, true), (vec![], false, false)]
        {
            let proxies = of(&entries);
            assert_eq!((proxies.contains_peer(reactor::UNIX_PEER), proxies.contains_peer(tcp)), (unix, loopback));
            assert_eq!(proxies.is_empty(), entries.is_empty());
        }
    }

    #[test]
    fn wrong_entries_are_told() {
        for entry in [
            "",
            "localhost",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/08",
            "10.0.0/8",
            "10.0.0.1:80",
            "[::1]",
            "fe80::1%eth0",
            "UNIX",
            "unix:/run/x",
        ] {
            assert_eq!(TrustedProxies::new(&["::1", entry]), Err((1, ProxyEntryError::Malformed)), "{entry}");
        }
        for (entry, network) in
            [("10.0.0.1/8", "10.0.0.0/8"), ("2001:db8::1/32", "2001:db8::/32"), ("1.2.3.4/0", "0.0.0.0/0")]
        {
            assert_eq!(TrustedProxies::new(&[entry]), Err((0, ProxyEntryError::HostBits(network.to_owned()))));
        }
        assert_eq!(TrustedProxies::new(&["::1"; 65]), Err((64, ProxyEntryError::TooMany(64))));
    }

    proptest! {
        /// A network contains an address if their bits agree one by one.
        #[test]
        fn a_network_has_what_begins_with_its_bits(bits: u32, other: u32, shared in 0u32..=32, prefix in 0u32..=32) {
            let same = if shared == 32 { bits } else { bits ^ ((other | 1 << 31) >> shared) };
            let of = |bits: u32| IpAddr::V4(bits.into());
            let first = bits & u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            let proxies = TrustedProxies::new(&[format!("{}/{prefix}", of(first))]).unwrap();
            let agrees = (0..prefix).all(|bit| (bits ^ same) >> (31 - bit) & 1 == 0);
            prop_assert_eq!(proxies.contains(of(same)), agrees);
        }
    }
}
