//! Parameters taken from header fields and cookies. They replace parameters of the same names in the request's query, and are
//! read with all others from it: so a client cannot set them in another way.

use super::escape::escape;
use super::preconditions;
use crate::failure::{Failure, FailureKind};
use docs::config::{Parameter, ParameterPlace};
use http::{HttpRequest, query};
use std::fmt::Write as _;

/// Those of an endpoint.
#[derive(Debug)]
pub(crate) struct HeaderParams(Box<[(String, ParameterPlace)]>);

impl HeaderParams {
    /// `None` if all parameters come from the query.
    pub(crate) fn of(declared: &[Parameter]) -> Option<Box<HeaderParams>> {
        let own = declared.iter().filter(|parameter| parameter.from != ParameterPlace::Query);
        let own: Box<[_]> = own.map(|parameter| (parameter.name.clone(), parameter.from.clone())).collect();
        (!own.is_empty()).then(|| Box::new(HeaderParams(own)))
    }

    /// The request's query with these parameters, and without its own values of their names.
    pub(crate) fn query(&self, request: &HttpRequest<'_>) -> Result<String, Failure> {
        let (mut text, mut scratch) = (String::new(), Vec::new());
        for (name, value) in query::pairs(request.query()) {
            let decoded = query::decode(name, &mut scratch);
            if !decoded.is_ok_and(|name| self.0.iter().any(|(own, _)| own == name)) {
                // Writing into a String does not fail.
                let _ = write!(text, "{}{name}={value}", separator(&text));
            }
        }
        self.add(request, &mut text)?;
        Ok(text)
    }

    /// A query of these parameters only.
    pub(crate) fn own(&self, request: &HttpRequest<'_>) -> Result<String, Failure> {
        let mut text = String::new();
        self.add(request, &mut text)?;
        Ok(text)
    }

    fn add(&self, request: &HttpRequest<'_>, text: &mut String) -> Result<(), Failure> {
        for (name, place) in &self.0 {
            let value = match place {
                ParameterPlace::Query => None,
                ParameterPlace::Header(field) => preconditions::once(request, field)?,
                ParameterPlace::Cookie(cookie) => cookie_of(request, cookie)?,
            };
            // An empty value counts as missing: a cookie is often emptied instead of removed.
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                text.push_str(separator(text));
                escape(name.as_bytes(), text);
                text.push('=');
                escape(value, text);
            }
        }
        Ok(())
    }
}

fn separator(text: &str) -> &'static str {
    if text.is_empty() { "" } else { "&" }
}

/// A cookie's value. A repeated cookie is refused: it is unknown which of them is meant.
fn cookie_of<'r>(request: &HttpRequest<'r>, name: &str) -> Result<Option<&'r [u8]>, Failure> {
    let mut cookies = http::cookies::of_request(request).filter(|cookie| cookie.name == name);
    let first = cookies.next();
    if cookies.next().is_some() {
        return Err(Failure::new(FailureKind::Invalid, format!("the cookie `{name}` is given more than once")));
    }
    Ok(first.map(|cookie| cookie.value))
}
