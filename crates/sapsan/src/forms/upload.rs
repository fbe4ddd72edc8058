//! Handlers of forms with files.

use super::intake::{self, CallHandler, UploadPolicy};
use super::limits::UploadLimits;
use super::multipart::Multipart;
use crate::arguments::Extract;
use crate::dispatch::{Needs, Request, Respond, Response};
use crate::reply::Error;
use crate::routes::Handler;
use http::Status;
use http::forms::{Boundary, BoundaryError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A handler of forms with files: see [`upload`].
pub struct Upload<F> {
    policy: UploadPolicy,
    handler: Arc<F>,
}

/// Makes a handler of forms with files (`multipart/form-data`). Its first argument is the [`Multipart`]; up to five further ones must own
/// their data, as those of [`crate::blocking()`]. The body is parsed as it arrives, and its larger files are written to disk. When the
/// whole form has arrived, the handler runs on the executor of this name ([`crate::App::executor`]), where it may wait.
///
/// The body may be larger than [`crate::App::body_bytes_max`]; its bounds are [`UploadLimits`]. Errors: 400 if the form is malformed, 413
/// if it is too large, 415 if it is not multipart, 503 if the executor or the disk quota is full, 507 if the disk is full.
///
/// ```
/// # use sapsan::{App, Error, Multipart, Threads, upload};
/// fn photo(form: Multipart) -> Result<String, Error> {
///     let photo = form.file("photo").ok_or_else(|| Error::bad_request("A photo is missing."))?;
///     Ok(format!("{} has {} bytes", photo.name(), photo.bytes()))
/// }
///
/// App::new().executor("files", Threads { count: 2, queue_max: 64 }).post("/photos", upload("files", photo));
/// ```
pub fn upload<F>(executor: &'static str, handler: F) -> Upload<F> {
    let policy = UploadPolicy { limits: UploadLimits::default(), executor, disk_bytes: Arc::default() };
    Upload { policy, handler: Arc::new(handler) }
}

impl<F> Upload<F> {
    /// The same handler with other limits.
    pub fn limits(mut self, limits: UploadLimits) -> Upload<F> {
        self.policy.limits = limits;
        self
    }
}

/// The boundary of the request's form.
fn boundary(request: &Request<'_>) -> Result<Boundary, Error> {
    let content_type = request.http().header("Content-Type").unwrap_or_default();
    Boundary::of(content_type).map_err(|error| {
        let status = if error == BoundaryError::NotMultipart { Status(415) } else { Status(400) };
        Error::new(status, error.to_string())
    })
}

/// Marker that keeps apart the implementations for functions of different argument lists.
#[doc(hidden)]
pub struct Receiving<Args>(std::marker::PhantomData<fn(Args)>);

macro_rules! upload_handlers {
    ($($argument:ident $value:ident),*) => {
        #[allow(non_snake_case, unused_variables)]
        impl<F, R, $($argument),*> Handler<Receiving<fn($($argument),*) -> R>> for Upload<F>
        where
            F: Fn(Multipart, $($argument),*) -> R + Send + Sync + 'static,
            R: Respond + 'static,
            $($argument: for<'r> Extract<Item<'r> = $argument> + Send + 'static),*
        {
            fn call(&self, request: &Request<'_>) -> Response {
                let boundary = match boundary(request) {
                    Ok(boundary) => boundary,
                    Err(error) => return error.respond(),
                };
                $(let $value = match $argument::extract(request) {
                    Ok(value) => value,
                    Err(error) => return error.respond(),
                };)*
                let handler = Arc::clone(&self.handler);
                let handle: CallHandler = Box::new(move |form, responder| {
                    match catch_unwind(AssertUnwindSafe(|| handler(form, $($value),*))) {
                        Ok(reply) => responder.send(reply),
                        Err(_) => responder.send(Error::internal("the handler of a form panicked")),
                    }
                });
                intake::receive(request, &boundary, &self.policy, handle)
            }

            fn needs(&self, needs: &mut Needs<'_>) {
                needs.executor(self.policy.executor);
                $($argument::needs(needs);)*
            }

            fn takes_pieces(&self) -> bool {
                true
            }
        }
    };
}

upload_handlers!();
upload_handlers!(A a);
upload_handlers!(A a, B b);
upload_handlers!(A a, B b, C c);
upload_handlers!(A a, B b, C c, D d);
upload_handlers!(A a, B b, C c, D d, E e);
