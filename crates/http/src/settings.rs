//! All settings of a server, in one value.

use crate::access_log::AccessLog;
use crate::limits::{ClientLimits, Deadlines};
use crate::metrics::slow::SlowLog;
use crate::trusted_proxies::TrustedProxies;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// See [`ClientLimits`].
    pub limits: ClientLimits,
    /// See [`Deadlines`].
    pub deadlines: Deadlines,
    /// Whether replies have `Date`. RFC 9110 section 6.6.1 requires it of a server that has a clock.
    pub date: bool,
    /// Destination of the access log's lines; `None`, the default, writes none.
    pub access_log: Option<AccessLog>,
    /// Called for slow requests; `None` by default.
    pub slow_log: Option<SlowLog>,
    /// Peers whose forwarding fields are trusted ([`crate::HttpRequest::client`]); none by default.
    pub trusted_proxies: TrustedProxies,
}

impl Default for HttpSettings {
    fn default() -> Self {
        let (limits, deadlines) = (ClientLimits::default(), Deadlines::default());
        let trusted_proxies = TrustedProxies::default();
        HttpSettings { limits, deadlines, date: true, access_log: None, slow_log: None, trusted_proxies }
    }
}
