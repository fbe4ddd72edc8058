//! The query as an argument.

use crate::error::Error;
use crate::extract::Extract;
use crate::request::Request;
use serde::de::DeserializeOwned;

/// The request's query, `application/x-www-form-urlencoded`, as a type that serde knows: a struct with a field for each name, or a map.
/// 400 where it is not what `T` wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> Extract for Query<T> {
    type Item<'r> = Query<T>;

    fn extract<'r>(request: &'r Request<'_>) -> Result<Query<T>, Error> {
        let read = serde_urlencoded::from_str(request.query());
        read.map(Query).map_err(|error| Error::bad_request(format!("the query: {error}")))
    }
}
