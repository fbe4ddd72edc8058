//! Settings of a client on an event loop: those of the blocking client, with resolved addresses and the loop's own bounds.

use crate::client::{ClientSettings, Endpoint, NotSent};
use reactor::{Address, Outgoing, TlsClient, Traffic};
use std::net::ToSocketAddrs;
use std::sync::Arc;

/// Default bound on commands whose replies have not arrived.
const IN_FLIGHT_MAX: usize = 1 << 16;
/// Default bound on bytes that the kernel has not accepted.
const UNSENT_BYTES_MAX: usize = 16 << 20;
/// Unsent bytes of a connection at which the reactor stops reading it: never. A server whose replies are not read stops reading
/// too, and both sides would wait for each other. [`LoopSettings::unsent_bytes_max`] is the bound.
const OUTPUT_HIGH_WATER: usize = usize::MAX / 4;
/// Room for input beyond the largest reply, so that an oversized reply is detected.
const INPUT_BYTES_SPARE: usize = 128 << 10;

/// Settings that the clients of all loops share. The host name is looked up once, when they are made: a loop must not block on
/// that.
#[derive(Clone, Debug)]
pub struct LoopSettings {
    /// Bound on commands in flight on one connection; further ones are refused as [`NotSent::Congested`]. Default: 65,536.
    pub in_flight_max: usize,
    /// Bound on bytes that the kernel has not accepted; further commands are refused as [`NotSent::Congested`]. Default: 16
    /// MB.
    pub unsent_bytes_max: usize,
    pub(super) client: ClientSettings,
    /// One for each address of the host.
    outgoing: Arc<[Outgoing]>,
}

impl LoopSettings {
    /// Takes the settings of a blocking client and looks up the host's addresses, which may block.
    ///
    /// # Errors
    /// [`NotSent::Address`]: the host has no address.
    pub fn resolve(settings: ClientSettings) -> Result<LoopSettings, NotSent> {
        let traffic = Arc::new(Traffic {
            requests_per_turn: u32::MAX,
            input_bytes_max: settings.reply_bytes_max.saturating_add(INPUT_BYTES_SPARE),
            output_high_water: OUTPUT_HIGH_WATER,
            ..Traffic::default()
        });
        let tls = settings.tls.as_ref().map(|tls| {
            let (config, name) = tls.parts();
            TlsClient::of_config(config, name).with_handshake_max(settings.connect_timeout)
        });
        let outgoing = |to: Address| Outgoing {
            to,
            connect_max: Some(settings.connect_timeout),
            traffic: Some(Arc::clone(&traffic)),
            tls: tls.clone(),
        };
        let outgoing: Arc<[Outgoing]> = addresses(&settings.endpoint)?.into_iter().map(outgoing).collect();
        Ok(LoopSettings {
            in_flight_max: IN_FLIGHT_MAX,
            unsent_bytes_max: UNSENT_BYTES_MAX,
            client: settings,
            outgoing,
        })
    }

    /// The target of this attempt to connect: the host's addresses in rotation.
    pub(super) fn outgoing(&self, attempt: usize) -> &Outgoing {
        &self.outgoing[attempt % self.outgoing.len()]
    }
}

/// The addresses of the endpoint; at least one.
fn addresses(endpoint: &Endpoint) -> Result<Vec<Address>, NotSent> {
    let (host, port) = match endpoint {
        Endpoint::Unix(path) => return Ok(vec![Address::Unix(path.clone())]),
        Endpoint::Tcp { host, port } => (host.as_str(), *port),
    };
    let found = (host, port).to_socket_addrs().map_err(|error| NotSent::Address(format!("`{host}`: {error}")))?;
    let addresses: Vec<Address> = found.map(Address::from).collect();
    if addresses.is_empty() { Err(NotSent::Address(format!("`{host}` has no address"))) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_looked_up_once_and_its_addresses_are_tried_by_turns() {
        let settings = LoopSettings::resolve(ClientSettings::of("redis://127.0.0.1:7000").unwrap()).unwrap();
        let expected = Address::Tcp("127.0.0.1:7000".parse().unwrap());
        assert_eq!((&settings.outgoing(0).to, &settings.outgoing(7).to), (&expected, &expected));
        let unix = LoopSettings::resolve(ClientSettings::of("unix:///run/redis.sock").unwrap()).unwrap();
        assert_eq!(unix.outgoing(1).to, Address::Unix("/run/redis.sock".into()));
        let nowhere = LoopSettings::resolve(ClientSettings::of("redis://no.such.host.invalid").unwrap());
        assert!(matches!(nowhere, Err(NotSent::Address(reason)) if reason.contains("no.such.host.invalid")));
    }
}
