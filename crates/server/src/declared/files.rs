//! An endpoint that serves the files of a folder.

use crate::failure::{Failure, FailureKind};
use crate::service::{Local, Service};
use http::{FileMiss, Files, HttpRequest, Reply};

/// Answers with the file named by the rest of the path.
pub(crate) fn answer(
    service: &Service,
    local: &mut Local,
    files: &Files,
    (request, path): (&HttpRequest<'_>, &str),
    mut reply: Reply<'_>,
) {
    let failure = match files.find(&mut local.files, request, path) {
        Ok(file) => {
            // The type is that of the extension: a browser that guesses another could run an uploaded text as a script.
            reply.header("X-Content-Type-Options", "nosniff");
            return file.send(reply);
        }
        Err(FileMiss::NotFound) => Failure::new(FailureKind::NotFound, "there is no such file"),
        Err(FileMiss::Busy) => Failure::new(FailureKind::Busy, "too many different files are being sent: try again"),
        Err(FileMiss::Unavailable(error)) => {
            tracing::error!(%error, path = request.path(), "a file cannot be read");
            Failure::new(FailureKind::Internal, "the file cannot be read: the server's log says why")
        }
    };
    service.fail(&failure, reply);
}
