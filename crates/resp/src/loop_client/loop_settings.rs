//! Settings of a client on an event loop: those of the blocking client, with the host looked up and the loop's own bounds.

use crate::client::{Endpoint, NotSent, Settings};
use reactor::{Address, Outgoing, TlsClient, Traffic};
use std::net::ToSocketAddrs;
use std::sync::Arc;

/// Commands whose replies have not come.
const IN_FLIGHT_MAX: usize = 1 << 16;
/// Bytes that wait for the server to take them.
const UNSENT_BYTES_MAX: usize = 16 << 20;
/// What a connection may have unsent before the reactor would stop reading it: never. A server that waits for its replies to be
/// read takes nothing meanwhile, and each side would wait for the other. [`LoopSettings::unsent_bytes_max`] is the bound.
const OUTPUT_HIGH_WATER: usize = usize::MAX / 4;
/// Input beyond the largest reply, so that a reply that is too large is seen to be so.
const INPUT_BYTES_SPARE: usize = 128 << 10;

/// What the clients of all loops share. A host's name is looked up once, when this is made: a loop must not wait for that.
#[derive(Clone, Debug)]
pub struct LoopSettings {
    /// Commands in flight on one connection; at the bound more are refused as [`NotSent::Congested`]. Default: 65,536.
    pub in_flight_max: usize,
    /// Bytes that the kernel has not taken; at the bound more commands are refused as [`NotSent::Congested`]. Default: 16 MB.
    pub unsent_bytes_max: usize,
    pub(super) client: Settings,
    /// For each address of the host.
    outgoing: Arc<[Outgoing]>,
}

impl LoopSettings {
    /// Takes the settings of a blocking client and looks up the host's addresses, which may block.
    ///
    /// # Errors
    /// [`NotSent::Address`]: the host has no address.
    pub fn resolve(settings: Settings) -> Result<LoopSettings, NotSent> {
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

    /// Where this attempt to connect leads: the host's addresses by turns.
    pub(super) fn outgoing(&self, attempt: usize) -> &Outgoing {
        &self.outgoing[attempt % self.outgoing.len()]
    }
}

/// One address at least.
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
        let settings = LoopSettings::resolve(Settings::of("redis://127.0.0.1:7000").unwrap()).unwrap();
        let expected = Address::Tcp("127.0.0.1:7000".parse().unwrap());
        assert_eq!((&settings.outgoing(0).to, &settings.outgoing(7).to), (&expected, &expected));
        let unix = LoopSettings::resolve(Settings::of("unix:///run/redis.sock").unwrap()).unwrap();
        assert_eq!(unix.outgoing(1).to, Address::Unix("/run/redis.sock".into()));
        let nowhere = LoopSettings::resolve(Settings::of("redis://no.such.host.invalid").unwrap());
        assert!(matches!(nowhere, Err(NotSent::Address(reason)) if reason.contains("no.such.host.invalid")));
    }
}
