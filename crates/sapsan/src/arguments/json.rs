//! JSON: the body of a request as an argument, and a result of a handler.

use super::extract::Extract;
use crate::dispatch::{Content, Request, Respond, Response};
use crate::reply::{Buffer, Error};
use http::Status;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;

const JSON: &str = "application/json";

/// JSON. As an argument, the request's body; as a result, any value that serde can serialize.
///
/// Errors: 415 if Content-Type names another format, 400 if the body is not JSON, 422 if it does not fit `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> Extract for Json<T> {
    type Item<'r> = Json<T>;

    fn extract(request: &Request<'_>) -> Result<Json<T>, Error> {
        if !is_json(request.header("Content-Type")) {
            return Err(Error::new(Status(415), "the body is to be JSON: Content-Type: application/json"));
        }
        serde_json::from_slice(request.body()).map(Json).map_err(|error| {
            let status = if error.is_data() { Status(422) } else { Status(400) };
            Error::new(status, format!("the body: {error}"))
        })
    }
}

/// Whether a media type is JSON or based on it. A missing Content-Type counts as JSON.
fn is_json(content_type: Option<&str>) -> bool {
    let Some(content_type) = content_type else { return true };
    let media = content_type.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/json") || media.to_ascii_lowercase().ends_with("+json")
}

impl<T: Serialize> Respond for Json<T> {
    fn respond(self) -> Response {
        let mut text = Buffer::take();
        match serde_json::to_writer(&mut text, &self.0) {
            Ok(()) => Response::of(Status(200), Cow::Borrowed(JSON), Content::Buffer(text)),
            Err(error) => Error::internal(format!("a reply is no JSON: {error}")).respond(),
        }
    }
}
