//! The query as an argument.

use super::deserializer;
use crate::arguments::Extract;
use crate::dispatch::Request;
use crate::reply::Error;
use http::forms::{FieldError, FieldLimits, FormFields};
use serde::de::DeserializeOwned;

/// The request's query, `application/x-www-form-urlencoded`, as a type that serde can deserialize: a struct with a field for each name,
/// or a map. 400 if it does not fit `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> Extract for Query<T> {
    type Item<'r> = Query<T>;

    fn extract(request: &Request<'_>) -> Result<Query<T>, Error> {
        let limits = request.state::<FieldLimits>().copied().unwrap_or_default();
        let fields = FormFields::of(request.query(), &limits).collect::<Result<Vec<_>, FieldError>>();
        let fields = fields.map_err(|error| Error::bad_request(format!("the query: {error}")))?;
        deserializer::read(&fields).map(Query).map_err(|error| Error::bad_request(format!("the query: {error}")))
    }
}
