//! The way of requests and replies through protection and layers.

use super::exchange::Exchange;
use super::parts::HTML;
use super::request::Request;
use super::respond::Respond;
use super::response::{Content, Environment, Response};
use crate::reply::{Error, Head};
use std::borrow::Cow;

impl Environment {
    /// Runs the checks and layers before an endpoint. Returns the reply of the first that gives one.
    #[inline]
    pub(super) fn before(&self, request: &Request<'_>) -> Option<Response> {
        let checked = self.resources.protection.before(request.http, &mut request.exchange.borrow_mut().session);
        if let Err(refusal) = checked {
            return Some(refusal.respond());
        }
        self.layers.iter().find_map(|layer| layer.before(request))
    }

    /// Renders an error and passes the reply through the layers, just before it is written.
    #[inline]
    pub(super) fn behind(
        &self,
        exchange: &mut Exchange,
        response: &mut Response,
        head: &mut Head<'_>,
        wants_html: impl FnOnce() -> bool,
    ) {
        if let Content::Error(error) = &response.body {
            let (content_type, body) = self.render(error, wants_html());
            (response.content_type, response.body) = (Cow::Borrowed(content_type), Content::Owned(body));
        }
        for layer in self.layers.iter().rev() {
            layer.behind(exchange, response, head);
        }
        self.resources.protection.behind(exchange.session.as_ref(), response.status, &response.fields, head);
    }

    #[cold]
    fn render(&self, error: &Error, wants_html: bool) -> (&'static str, Vec<u8>) {
        if let Some(cause) = error.cause() {
            tracing::error!(status = error.status().0, cause, "a request failed");
        }
        match (&self.error_page, wants_html) {
            (_, false) => ("application/problem+json", error.problem()),
            (Some(page), true) => (HTML, page(error).into_bytes()),
            (None, true) => (HTML, error.page().into_bytes()),
        }
    }
}
