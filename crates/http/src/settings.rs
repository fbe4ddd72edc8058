//! All that is set about a server, in one value.

use crate::access_log::AccessLog;
use crate::limits::{Deadlines, Limits};
use crate::slow::SlowLog;
use crate::trusted_proxies::TrustedProxies;

/// All that is set about a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// See [`Limits`].
    pub limits: Limits,
    /// See [`Deadlines`].
    pub deadlines: Deadlines,
    /// Whether replies carry `Date`. RFC 9110 section 6.6.1 wants it of a server that has a clock.
    pub date: bool,
    /// Where a line for each request goes; `None`, the default, writes none.
    pub access_log: Option<AccessLog>,
    /// What is told of slow requests; `None`, the default, tells nothing.
    pub slow_log: Option<SlowLog>,
    /// Peers that may say for whom they forward a request ([`crate::Request::client`]); none by default.
    pub trusted_proxies: TrustedProxies,
}

impl Default for Settings {
    fn default() -> Self {
        let (limits, deadlines) = (Limits::default(), Deadlines::default());
        let trusted_proxies = TrustedProxies::default();
        Settings { limits, deadlines, date: true, access_log: None, slow_log: None, trusted_proxies }
    }
}
