//! The open load of the examples that compare two turns.

use loadtest::engine::{Load, LoadSettings};
use loadtest::profile::Profile;
use loadtest::statuses::StatusSet;
use loadtest::target::TargetUrl;
use std::sync::Arc;
use std::time::Duration;

/// Largest number of connections, and connections made before the start.
const CONNECTIONS_MAX: u32 = 1000;
const CONNECTIONS_AT_START: u32 = 16;
const TIMEOUT: Duration = Duration::from_secs(2);

/// An open load with this profile, by one thread, without TLS.
pub(crate) fn settings(target: &TargetUrl, profile: &str) -> Result<LoadSettings, String> {
    let addresses = target.resolve().map_err(|error| error.to_string())?;
    let profile = Arc::new(Profile::parse(profile).map_err(|error| error.to_string())?);
    Ok(LoadSettings {
        target: target.url.clone(),
        address: *addresses.first().ok_or("the host has no address")?,
        tls: None,
        load: Load::Open { profile, connections_at_start: CONNECTIONS_AT_START },
        connections: CONNECTIONS_MAX,
        pipeline: 1,
        new_connections: false,
        timeout: TIMEOUT,
        threads: 1,
        expected: StatusSet::default(),
    })
}
