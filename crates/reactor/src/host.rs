//! The address of a peer for the division of time and memory among clients.

use std::net::{IpAddr, Ipv6Addr};

/// The address by which shares are counted: for IPv6 the /64 network of the host.
pub fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let host_of = |text: &str| host(text.parse().expect("an address")).to_string();
        assert_eq!(host_of("192.0.2.7"), "192.0.2.7");
        assert_eq!(host_of("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(host_of("2001:db8:1:2:3:4:5:6"), host_of("2001:db8:1:2::9"));
        assert_ne!(host_of("2001:db8:1:2:3:4:5:6"), host_of("2001:db8:1:3:3:4:5:6"));
    }
}
