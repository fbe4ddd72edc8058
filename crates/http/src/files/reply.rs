//! The reply to a request for a file.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use super::conditions::{Fields, Verdict};
use super::representation::Representation;
use crate::method::Method;
use crate::reply::Reply;
use crate::reply::part::UNCOPIED_BYTES_MIN;
use crate::request::HttpRequest;
use crate::status::Status;

/// A reply to a request for a file. [`FileReply::send`] sends it; header fields may be added to the [`Reply`] before.
#[derive(Debug)]
pub struct FileReply(Answer);

#[derive(Debug)]
enum Answer {
    File {
        file: Arc<Representation>,
        verdict: Verdict,
    },
    /// Redirect from a folder's path without slash.
    Moved(String),
}

impl FileReply {
    pub(super) fn to(fields: &Fields<'_>, method: Method, file: Arc<Representation>) -> FileReply {
        let verdict = fields.judge(method, &file.validators());
        FileReply(Answer::File { file, verdict })
    }

    /// Redirects to the same path with a final slash. The path begins with one slash: the names below the route were checked.
    pub(super) fn redirect(request: &HttpRequest<'_>) -> FileReply {
        let path = request.path();
        let query = request.query();
        let mark = if query.is_empty() { "" } else { "?" };
        FileReply(Answer::Moved(format!("{path}/{mark}{query}")))
    }

    /// The status: 200, 206, 301, 304, 412 or 416.
    pub fn status(&self) -> Status {
        Status(match &self.0 {
            Answer::Moved(_) => 301,
            Answer::File { verdict: Verdict::Whole, .. } => 200,
            Answer::File { verdict: Verdict::Part(_), .. } => 206,
            Answer::File { verdict: Verdict::NotModified, .. } => 304,
            Answer::File { verdict: Verdict::Failed, .. } => 412,
            Answer::File { verdict: Verdict::Unsatisfiable, .. } => 416,
        })
    }

    /// The content type of the body; empty if there is none.
    pub fn content_type(&self) -> &'static str {
        match &self.0 {
            Answer::File { file, verdict: Verdict::Whole | Verdict::Part(_) } => file.content_type,
            _ => "",
        }
    }

    /// Sends it.
    pub fn send(self, mut reply: Reply<'_>) {
        let status = self.status();
        match self.0 {
            Answer::File { file, verdict: Verdict::Whole } => {
                reply.lines(file.lines());
                match file.memory().filter(|bytes| bytes.len() < UNCOPIED_BYTES_MIN) {
                    Some(bytes) => reply.send(status, file.content_type, bytes),
                    None => reply.send_piece(status, file.content_type, file.piece()),
                }
            }
            Answer::File { file, verdict: Verdict::Part(range) } => send_part(reply, &file, range),
            Answer::File { file, verdict: Verdict::NotModified } => {
                reply.lines(file.common_lines());
                reply.send(status, "", b"");
            }
            Answer::File { file, verdict: Verdict::Unsatisfiable } => {
                content_range(&mut reply, &"*", file.bytes());
                reply.send(status, "", b"");
            }
            Answer::File { verdict: Verdict::Failed, .. } => reply.send(status, "", b""),
            Answer::Moved(to) => {
                reply.header("Location", &to);
                reply.send(status, "", b"");
            }
        }
    }
}

fn send_part(mut reply: Reply<'_>, file: &Representation, range: Range<u64>) {
    reply.lines(file.lines());
    content_range(&mut reply, &format_args!("{}-{}", range.start, range.end - 1), file.bytes());
    let (status, content_type) = (Status(206), file.content_type);
    if let Some(piece) = file.file_part(range.start, range.end - range.start) {
        return reply.send_piece(status, content_type, piece);
    }
    let part = usize::try_from(range.start).ok().zip(usize::try_from(range.end).ok());
    let bytes = part.and_then(|(start, end)| file.memory()?.get(start..end));
    reply.send(status, content_type, bytes.unwrap_or_default());
}

fn content_range(reply: &mut Reply<'_>, range: &dyn std::fmt::Display, bytes: u64) {
    let mut line = [0; 80];
    let mut room = &mut line[..];
    // Three numbers of twenty digits at most.
    let _ = write!(room, "Content-Range: bytes {range}/{bytes}\r\n");
    let left = room.len();
    reply.lines(&line[..line.len() - left]);
}
