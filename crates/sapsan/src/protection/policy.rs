//! Protection around every handler: origin checks and security headers (on by default), sessions and form tokens (off by default).
//! They are not layers, so that none of them costs a virtual call.
//!
//! A request is checked before the layers see it; a reply, late or not, gets its fields after the layers have seen it.

use super::form_tokens::FormTokens;
use super::origins::Origins;
use super::security_headers::SecurityHeaders;
use crate::reply::{Error, Fields, Head};
use crate::session::{Codec, SessionData, Sessions};
use http::Status;

/// Settings of the protection.
#[derive(Default)]
pub(crate) struct ProtectionSettings {
    pub(crate) sessions: Option<Sessions>,
    pub(crate) origins: Origins,
    pub(crate) form_tokens: Option<FormTokens>,
    pub(crate) security_headers: SecurityHeaders,
}

/// The checked settings.
pub(crate) struct Protection {
    /// The application has set sessions, even if their settings turned out to be invalid.
    pub(crate) has_sessions: bool,
    sessions: Option<Codec>,
    origins: Origins,
    form_tokens: Option<FormTokens>,
    security_headers: SecurityHeaders,
}

impl ProtectionSettings {
    /// Whether sessions or form tokens are on.
    pub(crate) fn has_session_checks(&self) -> bool {
        self.sessions.is_some() || self.form_tokens.is_some()
    }

    /// Checks all settings, and adds what is wrong to `mistakes`.
    pub(crate) fn build(self, mistakes: &mut Vec<String>) -> Protection {
        let has_sessions = self.sessions.is_some();
        let sessions = self.sessions.and_then(|sessions| noted(sessions.build(), mistakes));
        let form_tokens = self.form_tokens.and_then(|form_tokens| noted(form_tokens.build(), mistakes));
        if form_tokens.is_some() && !has_sessions {
            mistakes.push("form tokens are of a session: give keys by App::sessions".to_owned());
        }
        Protection {
            has_sessions,
            sessions,
            form_tokens,
            origins: noted(self.origins.build(), mistakes).unwrap_or_default(),
            security_headers: noted(self.security_headers.build(), mistakes).unwrap_or_default(),
        }
    }
}

fn noted<T, E: ToString>(result: Result<T, E>, mistakes: &mut Vec<String>) -> Option<T> {
    result.map_err(|error| mistakes.push(error.to_string())).ok()
}

impl Protection {
    pub(crate) fn sessions(&self) -> Option<&Codec> {
        self.sessions.as_ref()
    }

    /// Checks a request before the layers and the handler, and may read its session. An error is the reply: they are not called.
    #[inline]
    pub(crate) fn before(
        &self,
        request: &http::HttpRequest<'_>,
        session: &mut Option<SessionData>,
    ) -> Result<(), Error> {
        self.origins.check(request)?;
        match &self.form_tokens {
            Some(form_tokens) => form_tokens.check(request, self.sessions(), session),
            None => Ok(()),
        }
    }

    /// Adds the session's cookie and the security headers to a reply of this status and these header fields, after all layers.
    #[inline]
    pub(crate) fn behind(&self, session: Option<&SessionData>, status: Status, fields: &Fields, head: &mut Head<'_>) {
        if let (Some(codec), Some(session)) = (&self.sessions, session) {
            send_session(codec, session, status, fields, head);
        }
        self.security_headers.behind(fields, head);
    }
}

/// Whether a Cache-Control value keeps a reply out of shared caches (RFC 9111, section 5.2.2).
fn keeps_out(cache_control: &str) -> bool {
    let directives = cache_control.to_ascii_lowercase();
    directives.contains("no-store") || directives.contains("private")
}

#[inline]
fn send_session(codec: &Codec, session: &SessionData, status: Status, fields: &Fields, head: &mut Head<'_>) {
    // A failed request must not leave half of its session changes with the client.
    if !session.is_to_be_sent() || status.0 >= 500 {
        return;
    }
    match codec.set_cookie(session, codec.now()) {
        Ok(Some(field)) => {
            head.header("Set-Cookie", &field);
            // A shared cache must not give one client's session to another.
            if !fields.texts().any(|(name, value)| name.eq_ignore_ascii_case("Cache-Control") && keeps_out(value)) {
                head.header("Cache-Control", "no-store");
            }
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "a session's changes are lost"),
    }
}
