//! A form of fields as an argument.

use super::deserializer;
use crate::arguments::Extract;
use crate::dispatch::Request;
use crate::reply::Error;
use http::Status;
use http::forms::{FieldError, FieldLimits, FormField, FormType, fields};
use serde::de::DeserializeOwned;

/// The request's body, `application/x-www-form-urlencoded`, as a type that serde can deserialize: a struct with a field for each name, or
/// a map. The values of a repeated name become a sequence; an empty value of an `Option` is `None`.
///
/// Errors: 415 if Content-Type names another format, 400 if the form is malformed, 413 if it has too many or too long fields, 422 if it
/// does not fit `T`. A state of type [`FieldLimits`] ([`crate::App::state`]) sets the limits.
///
/// ```
/// # use sapsan::Form;
/// #[derive(serde::Deserialize)]
/// struct Login {
///     name: String,
///     password: String,
/// }
///
/// fn login(Form(login): Form<Login>) -> String {
///     format!("{} has {} letters to tell", login.name, login.password.len())
/// }
/// # sapsan::App::new().post("/login", login);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form<T>(pub T);

impl<T: DeserializeOwned> Extract for Form<T> {
    type Item<'r> = Form<T>;

    fn extract(request: &Request<'_>) -> Result<Form<T>, Error> {
        let format = request.http().header("Content-Type").and_then(FormType::of);
        if format != Some(FormType::UrlEncoded) {
            let detail = "the body is to be a form: Content-Type: application/x-www-form-urlencoded";
            return Err(Error::new(Status(415), detail));
        }
        let limits = request.state::<FieldLimits>().copied().unwrap_or_default();
        let list = list(request.body(), &limits)?;
        deserializer::read(&list).map(Form).map_err(|error| Error::new(Status(422), error.to_string()))
    }
}

fn list<'f>(body: &'f [u8], limits: &FieldLimits) -> Result<Vec<FormField<'f>>, Error> {
    fields(body, limits).and_then(|fields| fields.collect()).map_err(|error| refused(&error))
}

/// The reply to a form that cannot be read.
fn refused(error: &FieldError) -> Error {
    let status = if error.is_too_large() { Status(413) } else { Status(400) };
    Error::new(status, error.to_string())
}
