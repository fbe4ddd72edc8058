//! Protection around every handler: origin checks and security headers (on by default), sessions and form tokens (off by default).
//! They are not layers, so that none of them costs a virtual call.
//!
//! A request is checked before the layers see it; a reply, late or not, gets its fields after the layers have seen it.

use crate::app::App;
use crate::exchange::Exchange;
use crate::form_tokens::FormTokens;
use crate::layer::Head;
use crate::origins::Origins;
use crate::request::Request;
use crate::respond::Respond;
use crate::response::Response;
use crate::security_headers::SecurityHeaders;
use crate::session::{Codec, SessionData, Sessions};

/// Settings of the protection.
#[derive(Default)]
pub(crate) struct ProtectionSettings {
    sessions: Option<Sessions>,
    origins: Origins,
    form_tokens: Option<FormTokens>,
    security_headers: SecurityHeaders,
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

impl App {
    /// Turns on sessions, which handlers take as [`crate::Session`].
    pub fn sessions(mut self, sessions: Sessions) -> App {
        self.protection.sessions = Some(sessions);
        self
    }

    /// Sets which origins' pages may send requests that may change something. Default: pages of the same origin.
    pub fn origins(mut self, origins: Origins) -> App {
        self.protection.origins = origins;
        self
    }

    /// Requires a token of the session in requests that may change something.
    pub fn form_tokens(mut self, form_tokens: FormTokens) -> App {
        self.protection.form_tokens = Some(form_tokens);
        self
    }

    /// Sets the security headers of replies. Default: those of [`SecurityHeaders`].
    pub fn security_headers(mut self, headers: SecurityHeaders) -> App {
        self.protection.security_headers = headers;
        self
    }
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

    /// Checks a request before the layers and the handler. If it returns a reply, they are not called.
    #[inline]
    pub(crate) fn before(&self, request: &Request<'_>) -> Option<Response> {
        let checked = self.origins.check(request.http);
        let checked = match &self.form_tokens {
            Some(form_tokens) => checked.and_then(|()| form_tokens.check(request)),
            None => checked,
        };
        checked.err().map(Respond::respond)
    }

    /// Adds the session's cookie and the security headers to a reply, after all layers.
    #[inline]
    pub(crate) fn behind(&self, exchange: &mut Exchange, response: &Response, head: &mut Head<'_>) {
        if let (Some(codec), Some(session)) = (&self.sessions, &exchange.session) {
            send_session(codec, session, response, head);
        }
        self.security_headers.behind(response, head);
    }
}

/// Whether a Cache-Control value keeps a reply out of shared caches (RFC 9111, section 5.2.2).
fn keeps_out(cache_control: &str) -> bool {
    let directives = cache_control.to_ascii_lowercase();
    directives.contains("no-store") || directives.contains("private")
}

#[inline]
fn send_session(codec: &Codec, session: &SessionData, response: &Response, head: &mut Head<'_>) {
    // A failed request must not leave half of its session changes with the client.
    if !session.is_to_be_sent() || response.status().0 >= 500 {
        return;
    }
    match codec.set_cookie(session, codec.now()) {
        Ok(Some(field)) => {
            head.header("Set-Cookie", &field);
            // A shared cache must not give one client's session to another.
            if !response.headers().any(|(name, value)| name.eq_ignore_ascii_case("Cache-Control") && keeps_out(value)) {
                head.header("Cache-Control", "no-store");
            }
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "a session's changes are lost"),
    }
}
