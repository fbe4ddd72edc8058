//! Settings of an application's sessions: keys, cookie, expiry.

use super::key::Keys;
use http::cookies::{CookieFault, SameSite};
use std::borrow::Cow;
use std::fmt;
use std::time::{Duration, SystemTime};

/// Name of a cookie that is sent over TLS only: browsers accept the prefix only from the host itself (RFC 6265bis, section
/// 4.1.3.2).
const NAME: &str = "__Host-session";
/// Name of the cookie if that prefix is not allowed.
const NAME_PLAIN: &str = "session";
/// Why a handler or a check that needs sessions has none.
pub(crate) const MISSING: &str = "sessions are missing: give their keys by App::sessions";
/// Most bytes of the cookie's name.
pub(super) const NAME_BYTES_MAX: usize = 100;
const DAY: Duration = Duration::from_secs(86_400);
/// Longest lifetime: browsers keep no cookie for longer (RFC 6265bis, section 5.5).
pub(super) const LIFETIME_MAX: Duration = DAY.saturating_mul(400);
/// Shortest idle time: a session is sent again after a tenth of it.
pub(super) const IDLE_MIN: Duration = Duration::from_secs(10);

/// Settings of an application's sessions. Defaults: a cookie `__Host-session` for the whole host, `Secure`, `HttpOnly`,
/// `SameSite=Lax`; a session ends 14 days after its last use, and 90 days after its beginning.
///
/// ```
/// use sapsan::{Keys, Sessions};
/// # fn main() -> Result<(), sapsan::KeyFault> {
/// let sessions = Sessions::signed(Keys::generate()?).plain_http();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Sessions {
    pub(super) keys: Keys,
    pub(super) is_encrypted: bool,
    name: Option<Cow<'static, str>>,
    pub(super) path: Cow<'static, str>,
    pub(super) domain: Option<Cow<'static, str>>,
    pub(super) is_secure: bool,
    pub(super) same_site: SameSite,
    pub(super) idle: Duration,
    pub(super) lifetime: Duration,
    pub(super) outlives_browser: bool,
    pub(super) clock: fn() -> SystemTime,
}

/// Why an application with these sessions cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionsFault {
    /// The cookie's name or an attribute is invalid.
    Cookie(CookieFault),
    /// The cookie's name is too long.
    Name {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The idle time or the lifetime is out of range, or they do not fit together.
    Expiry {
        /// The idle time that was set.
        idle: Duration,
        /// The lifetime that was set.
        lifetime: Duration,
    },
}

impl fmt::Display for SessionsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionsFault::Cookie(fault) => write!(f, "sessions: {fault}"),
            SessionsFault::Name { bytes } => {
                write!(f, "sessions: the cookie's name has {bytes} bytes, more than {NAME_BYTES_MAX}")
            }
            SessionsFault::Expiry { idle, lifetime } => write!(
                f,
                "sessions: idle time {idle:?} and lifetime {lifetime:?}; the idle time is at least {IDLE_MIN:?} and at most the \
                 lifetime, which is at most 400 days"
            ),
        }
    }
}

impl std::error::Error for SessionsFault {}

impl Sessions {
    /// Sessions whose content clients can read, but not change (HMAC-SHA-256).
    pub fn signed(keys: Keys) -> Sessions {
        Sessions {
            keys,
            is_encrypted: false,
            name: None,
            path: "/".into(),
            domain: None,
            is_secure: true,
            same_site: SameSite::Lax,
            idle: DAY * 14,
            lifetime: DAY * 90,
            outlives_browser: true,
            clock: SystemTime::now,
        }
    }

    /// Sessions whose content clients can neither read nor change (AES-256-GCM with random nonces). A key should encrypt at most
    /// 2³² cookies: rotate it before.
    pub fn encrypted(keys: Keys) -> Sessions {
        Sessions { is_encrypted: true, ..Sessions::signed(keys) }
    }

    /// Sets the cookie's name. Applications on one host need different names.
    pub fn name(self, name: impl Into<Cow<'static, str>>) -> Sessions {
        Sessions { name: Some(name.into()), ..self }
    }

    /// Sets the cookie's `Path`. Default: `/`.
    pub fn path(self, path: impl Into<Cow<'static, str>>) -> Sessions {
        Sessions { path: path.into(), ..self }
    }

    /// Sets the cookie's `Domain`: the session is shared with all subdomains. Each of them can then read and plant it.
    pub fn domain(self, domain: impl Into<Cow<'static, str>>) -> Sessions {
        Sessions { domain: Some(domain.into()), ..self }
    }

    /// Sets from which sites' pages the cookie is sent. Default: [`SameSite::Lax`].
    pub fn same_site(self, same_site: SameSite) -> Sessions {
        Sessions { same_site, ..self }
    }

    /// Omits `Secure`: clients send the cookie over plain HTTP too, where anyone on the network path can read it.
    pub fn plain_http(self) -> Sessions {
        Sessions { is_secure: false, ..self }
    }

    /// Ends a session that was not used for this long. A session in use is sent again when a tenth of this time has passed, not
    /// at each request.
    pub fn idle(self, idle: Duration) -> Sessions {
        Sessions { idle, ..self }
    }

    /// Ends a session this long after its beginning, even if it is in use.
    pub fn lifetime(self, lifetime: Duration) -> Sessions {
        Sessions { lifetime, ..self }
    }

    /// Omits `Max-Age`: browsers drop the cookie when they close (except those that restore their tabs).
    pub fn until_browser_closes(self) -> Sessions {
        Sessions { outlives_browser: false, ..self }
    }

    /// Sets the clock, for tests of expiry.
    pub fn clock(self, clock: fn() -> SystemTime) -> Sessions {
        Sessions { clock, ..self }
    }

    /// The cookie's name: the one that was set, or the default for the other settings.
    pub(super) fn cookie_name(&self) -> Cow<'static, str> {
        match &self.name {
            Some(name) => name.clone(),
            None if self.is_secure && self.path == "/" && self.domain.is_none() => NAME.into(),
            None => NAME_PLAIN.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> Sessions {
        Sessions::signed(Keys::from_bytes(&[7; 32]).unwrap())
    }

    #[track_caller]
    fn check_fault(sessions: Sessions, expected: &str) {
        assert_eq!(sessions.build().map(|_| ()).unwrap_err().to_string(), expected);
    }

    #[test]
    fn the_name_says_host_where_browsers_take_that() {
        assert_eq!(sessions().cookie_name(), "__Host-session");
        for other in [sessions().plain_http(), sessions().path("/a"), sessions().domain("a.b")] {
            assert_eq!(other.cookie_name(), "session");
            assert!(other.build().is_ok());
        }
        assert_eq!(sessions().name("mine").cookie_name(), "mine");
    }

    #[test]
    fn settings_that_no_browser_takes_are_faults() {
        check_fault(
            sessions().name("__Host-a").plain_http(),
            "sessions: a cookie whose name begins with __Host- must be Secure, with Path=/ and without Domain",
        );
        check_fault(
            sessions().same_site(SameSite::None).plain_http(),
            "sessions: a cookie with SameSite=None must be Secure",
        );
        check_fault(sessions().name("a".repeat(101)), "sessions: the cookie's name has 101 bytes, more than 100");
        let words = "the idle time is at least 10s and at most the lifetime, which is at most 400 days";
        check_fault(
            sessions().idle(Duration::from_secs(9)),
            &format!("sessions: idle time 9s and lifetime 7776000s; {words}"),
        );
        check_fault(sessions().lifetime(DAY), &format!("sessions: idle time 1209600s and lifetime 86400s; {words}"));
        check_fault(
            sessions().lifetime(DAY * 401),
            &format!("sessions: idle time 1209600s and lifetime 34646400s; {words}"),
        );
    }
}
