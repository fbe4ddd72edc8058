//! Static files of an application.

use crate::dispatch::{Content, Endpoint, Needs, Request, Respond, Response};
use crate::reply::Error;
use http::{FileMiss, Files, Status};
use std::borrow::Cow;
use std::sync::Arc;

/// Answers with the file that the last parameter of the path names, or with the folder's index page.
pub(crate) struct FilesEndpoint {
    pub(crate) files: Arc<Files>,
    /// The route is that of the folder itself: it has no parameter that names a file.
    pub(crate) is_folder: bool,
}

impl Endpoint for FilesEndpoint {
    fn call(&self, request: &Request<'_>) -> Response {
        let cache = &mut *request.local.files.borrow_mut();
        let path = if self.is_folder { "" } else { request.last_parameter_as_sent() };
        match self.files.find(cache, request.http(), path) {
            Ok(file) => Response::of(file.status(), Cow::Borrowed(file.content_type()), Content::File(file)),
            Err(FileMiss::NotFound) => Error::not_found().respond(),
            Err(FileMiss::Busy) => {
                Error::new(Status(503), "Too many files are being sent.").with_header("Retry-After", "1").respond()
            }
            Err(FileMiss::Unavailable(error)) => {
                Error::internal(format!("the file of {} cannot be read: {error}", request.path())).respond()
            }
        }
    }

    fn needs(&self, _needs: &mut Needs<'_>) {}
}

/// The pattern of the folder itself: `/assets/` for `/assets/{*path}`. `None` if the pattern does not end in a parameter for the
/// rest of the path.
pub(crate) fn folder_pattern(pattern: &str) -> Option<&str> {
    let (folder, rest) = pattern.rsplit_once('/')?;
    let is_rest = rest.strip_prefix("{*").is_some_and(|rest| rest.ends_with('}'));
    is_rest.then(|| &pattern[..=folder.len()])
}
