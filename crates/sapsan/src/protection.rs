//! What stands around every handler by default or by settings: origins, form tokens, sessions, security headers. Not layers, so that
//! none of them costs a call through a table.
//!
//! A request passes them before the layers, a reply behind them; late replies too.

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

/// What an application sets.
#[derive(Default)]
pub(crate) struct ProtectionSettings {
    sessions: Option<Sessions>,
    origins: Origins,
    form_tokens: Option<FormTokens>,
    security_headers: SecurityHeaders,
}

/// The same, checked.
pub(crate) struct Protection {
    /// They were asked for, rightly or not.
    pub(crate) has_sessions: bool,
    sessions: Option<Codec>,
    origins: Origins,
    form_tokens: Option<FormTokens>,
    security_headers: SecurityHeaders,
}

impl App {
    /// Gives the application's clients sessions, which handlers take as [`crate::Session`].
    pub fn sessions(mut self, sessions: Sessions) -> App {
        self.protection.sessions = Some(sessions);
        self
    }

    /// Sets from which origins' pages browsers may send what may change something. Without this: from those of the same origin.
    pub fn origins(mut self, origins: Origins) -> App {
        self.protection.origins = origins;
        self
    }

    /// Has requests that may change something bring a token of their session.
    pub fn form_tokens(mut self, form_tokens: FormTokens) -> App {
        self.protection.form_tokens = Some(form_tokens);
        self
    }

    /// Sets the security headers of replies. Without this: the defaults of [`SecurityHeaders`].
    pub fn security_headers(mut self, headers: SecurityHeaders) -> App {
        self.protection.security_headers = headers;
        self
    }
}

impl ProtectionSettings {
    /// Whether it asks for sessions or form tokens.
    pub(crate) fn has_session_checks(&self) -> bool {
        self.sessions.is_some() || self.form_tokens.is_some()
    }

    /// Checks all, and notes what is wrong.
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

    /// Looks at a request before the layers and the handler; a reply ends it there.
    #[inline]
    pub(crate) fn before(&self, request: &Request<'_>) -> Option<Response> {
        let checked = self.origins.check(request.http);
        let checked = match &self.form_tokens {
            Some(form_tokens) => checked.and_then(|()| form_tokens.check(request)),
            None => checked,
        };
        checked.err().map(Respond::respond)
    }

    /// Adds to a reply, behind all layers, what goes with its session and for all.
    #[inline]
    pub(crate) fn behind(&self, exchange: &mut Exchange, response: &Response, head: &mut Head<'_>) {
        if let (Some(codec), Some(session)) = (&self.sessions, &exchange.session) {
            send_session(codec, session, response, head);
        }
        self.security_headers.behind(response, head);
    }
}

/// Whether shared caches keep nothing of a reply with this Cache-Control (RFC 9111, section 5.2.2).
fn keeps_out(cache_control: &str) -> bool {
    let directives = cache_control.to_ascii_lowercase();
    directives.contains("no-store") || directives.contains("private")
}

#[inline]
fn send_session(codec: &Codec, session: &SessionData, response: &Response, head: &mut Head<'_>) {
    // What failed inside must not leave half of its changes with the client.
    if !session.is_to_be_sent() || response.status().0 >= 500 {
        return;
    }
    match codec.set_cookie(session, codec.now()) {
        Ok(Some(field)) => {
            head.header("Set-Cookie", &field);
            // No cache on the way may hand one client's session to another.
            if !response.headers().any(|(name, value)| name.eq_ignore_ascii_case("Cache-Control") && keeps_out(value)) {
                head.header("Cache-Control", "no-store");
            }
        }
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "a session's changes are lost"),
    }
}
