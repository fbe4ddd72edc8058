//! Form tokens: each form carries a secret of the session that a page of another site does not know.

use super::exempt::Exempt;
use crate::reply::Error;
use crate::session::{Codec, MISSING, SessionData};
use http::query::{decode, pairs};
use std::borrow::Cow;

const FIELD: &str = "csrf_token";
const HEADER: &str = "X-CSRF-Token";
const FORM: &str = "application/x-www-form-urlencoded";

/// Requires a token of the session ([`crate::Session::form_token`]) in every request that may change something (not GET, HEAD, OPTIONS). The
/// token is in the field `csrf_token` of a urlencoded form; scripts and multipart forms send it in the header field `X-CSRF-Token`.
/// Without a valid token the reply is 403. Off unless given to [`crate::App::form_tokens`]; [`crate::Origins`], which is on, needs no
/// token.
///
/// ```
/// use sapsan::{App, FormTokens, Keys, Sessions};
/// # fn main() -> Result<(), sapsan::KeyFault> {
/// App::new()
///     .sessions(Sessions::signed(Keys::generate()?))
///     .form_tokens(FormTokens::new().exempt("/hooks/{*name}"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct FormTokens {
    field: Cow<'static, str>,
    header: Cow<'static, str>,
    exempt: Exempt,
}

impl Default for FormTokens {
    fn default() -> FormTokens {
        FormTokens::new()
    }
}

impl FormTokens {
    /// Tokens are required on all routes.
    pub fn new() -> FormTokens {
        FormTokens { field: FIELD.into(), header: HEADER.into(), exempt: Exempt::default() }
    }

    /// The form's field. Default: `csrf_token`.
    pub fn field(self, name: impl Into<Cow<'static, str>>) -> FormTokens {
        FormTokens { field: name.into(), ..self }
    }

    /// The header field. Default: `X-CSRF-Token`.
    pub fn header(self, name: impl Into<Cow<'static, str>>) -> FormTokens {
        FormTokens { header: name.into(), ..self }
    }

    /// Requires no token for paths that match this pattern. Patterns are those of routes: `/hooks/{*name}`.
    pub fn exempt(mut self, pattern: &str) -> FormTokens {
        self.exempt.add(pattern);
        self
    }

    /// Checks the settings.
    pub(crate) fn build(self) -> Result<FormTokens, String> {
        Ok(FormTokens { exempt: self.exempt.build().map_err(|error| format!("form tokens: {error}"))?, ..self })
    }

    /// Refuses a request without a valid token of its session, which it reads unless it was read before.
    pub(super) fn check(
        &self,
        request: &http::HttpRequest<'_>,
        codec: Option<&Codec>,
        session: &mut Option<SessionData>,
    ) -> Result<(), Error> {
        if request.method().is_safe() || self.exempt.has(request.path()) {
            return Ok(());
        }
        let codec = codec.ok_or_else(|| Error::internal(MISSING))?;
        let session = session.get_or_insert_with(|| codec.load(request));
        let mut scratch = Vec::new();
        match self.token(request, &mut scratch) {
            Some(token) if codec.is_form_token(session, token.as_bytes()) => Ok(()),
            Some(_) => Err(Error::forbidden("the form is of another session or too old: load the page again")),
            None => Err(Error::forbidden(format!(
                "the form's token is missing (field `{}` or header field `{}`): load the page again",
                self.field, self.header
            ))),
        }
    }

    fn token<'r>(&self, request: &http::HttpRequest<'r>, scratch: &'r mut Vec<u8>) -> Option<&'r str> {
        if let Some(token) = text(request, &self.header) {
            return Some(token);
        }
        let media = text(request, "Content-Type")?.split(';').next()?.trim();
        if !media.eq_ignore_ascii_case(FORM) {
            return None;
        }
        let body = std::str::from_utf8(request.body()).ok()?;
        let (_, value) = pairs(body).find(|(name, _)| *name == self.field)?;
        decode(value, scratch).ok()
    }
}

/// A header field, if it is UTF-8 text.
fn text<'r>(request: &http::HttpRequest<'r>, name: &str) -> Option<&'r str> {
    request.header(name).and_then(|value| std::str::from_utf8(value).ok())
}
