//! The way of a multipart body to its handler: parsed on the event loop as it arrives, kept in memory while it is small,
//! its files written on an executor.
//!
//! ```text
//!  body in pieces ─► parser ─► fields and small files: memory
//!        ▲                └──► large files: spool ─► executor writes them
//!        │ no room                             │
//!        └───────────── nudge ─────────────────┘     all has come, all is written ─► handler, on the executor
//! ```
//!
//! What one form may take is in [`UploadLimits`]; the bytes that wait to be written have a bound of their own (`spool`).
//! A fault is answered at once, and the connection closed behind the reply: the rest of the body is dropped.

use super::multipart::{Multipart, Stored, UploadedFile};
use super::spool::{DiskRoom, Refused, Spool};
use super::upload::UploadLimits;
use crate::build::Built;
use crate::error::Error;
use crate::late::{Later, Responder, later};
use crate::request::Request;
use crate::respond::Respond;
use crate::response::Response;
use http::forms::{Boundary, Field, MultipartError, MultipartParser, PartEvent, PartHead};
use http::{BodyFault, BodySink, Status};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Files may have this part of the memory of their form; the rest is for its fields.
const PARTS_FOR_FILES: usize = 2;
/// Room on disk that a file counts beside its bytes: so `disk_bytes_max` bounds the open files of all forms, too. By default they are 1,024.
const FILE_ROOM_BYTES: u64 = 1 << 20;

/// Calls the handler, and answers.
pub(super) type CallHandler = Box<dyn FnOnce(Multipart, Responder) + Send>;

/// What takes the forms of one handler.
pub(super) struct UploadPolicy {
    pub(super) limits: UploadLimits,
    pub(super) executor: &'static str,
    /// Bytes on disk of all its forms.
    pub(super) disk_bytes: Arc<AtomicU64>,
}

/// Takes the form of a request, and has it handled.
pub(super) fn receive(
    request: &Request<'_>,
    boundary: &Boundary,
    policy: &UploadPolicy,
    handle: CallHandler,
) -> Response {
    let mut intake = Intake::new(boundary, policy, handle);
    if request.http().is_in_pieces() {
        let intake = Rc::new(RefCell::new(intake));
        let body = Box::new(IntakeBody(Rc::clone(&intake)));
        return Later::with_body(body, move |responder| intake.borrow_mut().begin(responder)).respond();
    }
    // It came with its head, so it is no longer than what a connection reads at once.
    if let Err(error) = intake.push(request.body()) {
        return error.respond();
    }
    later(move |responder| {
        intake.begin(responder);
        intake.end(Ok(()));
    })
    .respond()
}

/// The connection's end of it.
struct IntakeBody(Rc<RefCell<Intake>>);

impl BodySink for IntakeBody {
    fn take(&mut self, piece: &[u8]) -> usize {
        self.0.borrow_mut().take(piece)
    }

    fn held_bytes(&self) -> usize {
        self.0.borrow().held_bytes()
    }

    fn end(self: Box<Self>, end: Result<(), BodyFault>) {
        self.0.borrow_mut().end(end);
    }
}

/// A form that is coming.
struct Intake {
    parser: MultipartParser,
    gathered: Gathered,
    executor: &'static str,
    /// Until it is answered, or handed to the handler.
    waiting: Option<(Responder, CallHandler)>,
    handle: Option<CallHandler>,
    built: Option<Arc<Built>>,
}

impl Intake {
    fn new(boundary: &Boundary, policy: &UploadPolicy, handle: CallHandler) -> Intake {
        Intake {
            parser: MultipartParser::new(boundary, &policy.limits.form),
            gathered: Gathered::new(policy),
            executor: policy.executor,
            waiting: None,
            handle: Some(handle),
            built: None,
        }
    }

    /// From now on it can answer.
    fn begin(&mut self, responder: Responder) {
        self.gathered.spool.set_nudge(responder.late.nudge());
        self.built = Some(Arc::clone(&responder.built));
        self.waiting = self.handle.take().map(|handle| (responder, handle));
    }

    fn take(&mut self, piece: &[u8]) -> usize {
        let mut taken = 0;
        while taken < piece.len() {
            if self.waiting.is_none() {
                // Answered: what still comes is dropped.
                return piece.len();
            }
            if let Some(error) = self.gathered.spool.failure() {
                self.fail(not_written(&error));
                continue;
            }
            let room = self.gathered.spool.room().min(piece.len() - taken);
            if room == 0 {
                break;
            }
            match self.push(&piece[taken..taken + room]) {
                Ok(()) => taken += room,
                Err(error) => self.fail(error),
            }
            self.write();
        }
        taken
    }

    fn push(&mut self, piece: &[u8]) -> Result<(), Error> {
        let Intake { parser, gathered, .. } = self;
        let mut fault = None;
        let pushed = parser.push(piece, &mut |event| {
            if fault.is_none() {
                fault = gathered.note(event).err();
            }
        });
        match fault {
            Some(error) => Err(error),
            None => pushed.map_err(|error| malformed(&error)),
        }
    }

    /// Has what is queued written.
    fn write(&mut self) {
        let Some(built) = &self.built else { return };
        if let Err(Refused { why, responder }) = self.gathered.spool.run(built, self.executor) {
            match responder {
                Some(responder) => responder.send(Error::busy(why)),
                None => self.fail(Error::busy(why)),
            }
        }
    }

    fn end(&mut self, end: Result<(), BodyFault>) {
        let end = end.map_err(|fault| Error::new(fault.status, fault.detail));
        let end = end.and_then(|()| self.parser.finish().map_err(|error| malformed(&error)));
        if let Err(error) = end {
            return self.fail(error);
        }
        let Some((responder, handle)) = self.waiting.take() else { return };
        let (fields, files, room) = self.gathered.take();
        let then = move |responder: Responder, written: io::Result<Vec<std::fs::File>>| match written {
            Ok(on_disk) => handle(Multipart { fields, files: placed(files, on_disk), _room: Some(room) }, responder),
            Err(error) => responder.send(not_written(&error)),
        };
        self.gathered.spool.finish(responder, Box::new(then));
        self.write();
    }

    fn fail(&mut self, error: Error) {
        self.gathered.spool.cancel();
        self.gathered.take();
        if let Some((responder, _)) = self.waiting.take() {
            responder.send(error);
        }
    }

    fn held_bytes(&self) -> usize {
        self.parser.held_bytes() + self.gathered.memory_bytes + self.gathered.spool.queued_bytes()
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        // Its client is gone. What the handler waits for is written to its end.
        if self.waiting.is_some() {
            self.gathered.spool.cancel();
        }
    }
}

fn malformed(error: &MultipartError) -> Error {
    let status = if error.is_too_large() { Status(413) } else { Status(400) };
    Error::new(status, error.to_string())
}

/// A file could not be made or written.
fn not_written(error: &io::Error) -> Error {
    let cause = format!("an uploaded file cannot be written: {error}");
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Error::new(Status(507), "the server has no room for the file at the moment").with_cause(cause)
        }
        _ => Error::internal(cause),
    }
}

/// What has come of a form.
struct Gathered {
    limits: UploadLimits,
    fields: Vec<Field<'static>>,
    files: Vec<GatheredPart>,
    /// The part that is coming.
    part: Option<GatheredPart>,
    /// Bytes of names, fields and files in memory.
    memory_bytes: usize,
    spool: Arc<Spool>,
    disk_bytes: Arc<AtomicU64>,
    room: DiskRoom,
}

/// A part, a field's as well.
struct GatheredPart {
    head: PartHead,
    bytes: u64,
    /// Empty where it is on disk.
    in_memory: Vec<u8>,
    is_on_disk: bool,
}

impl Gathered {
    fn new(policy: &UploadPolicy) -> Gathered {
        let folder = policy.limits.folder.clone();
        Gathered {
            limits: policy.limits.clone(),
            fields: Vec::new(),
            files: Vec::new(),
            part: None,
            memory_bytes: 0,
            spool: Spool::new(Box::new(move || tempfile::tempfile_in(&folder))),
            disk_bytes: Arc::clone(&policy.disk_bytes),
            room: DiskRoom::new(&policy.disk_bytes),
        }
    }

    fn take(&mut self) -> (Vec<Field<'static>>, Vec<GatheredPart>, DiskRoom) {
        self.memory_bytes = 0;
        self.part = None;
        let room = std::mem::replace(&mut self.room, DiskRoom::new(&self.disk_bytes));
        (std::mem::take(&mut self.fields), std::mem::take(&mut self.files), room)
    }

    fn note(&mut self, event: PartEvent<'_>) -> Result<(), Error> {
        match event {
            PartEvent::Begin(head) => {
                let names = [Some(&head.name), head.file_name.as_ref(), head.content_type.as_ref()];
                self.hold(names.into_iter().flatten().map(String::len).sum())?;
                self.part = Some(GatheredPart { head, bytes: 0, in_memory: Vec::new(), is_on_disk: false });
                Ok(())
            }
            PartEvent::Data(data) => self.add(data),
            PartEvent::End => self.end_part(),
        }
    }

    /// Counts bytes of memory.
    fn hold(&mut self, bytes: usize) -> Result<(), Error> {
        self.memory_bytes += bytes;
        let max = self.limits.memory_bytes_max;
        if self.memory_bytes <= max {
            return Ok(());
        }
        Err(Error::new(Status(413), format!("the form's fields and names take more than {max} bytes")))
    }

    fn add(&mut self, data: &[u8]) -> Result<(), Error> {
        let Some(mut part) = self.part.take() else { return Ok(()) };
        part.bytes += data.len() as u64;
        let is_file = part.head.file_name.is_some();
        if is_file && !part.is_on_disk && !self.fits(&part, data.len()) {
            if !self.room.take(FILE_ROOM_BYTES, self.limits.disk_bytes_max) {
                return Err(Error::busy("uploads take too much room on the server's disk at the moment"));
            }
            self.spool.create();
            self.write(&part.in_memory)?;
            self.memory_bytes -= part.in_memory.len();
            (part.in_memory, part.is_on_disk) = (Vec::new(), true);
        }
        if part.is_on_disk {
            self.write(data)?;
        } else {
            self.hold(data.len())?;
            part.in_memory.extend_from_slice(data);
        }
        self.part = Some(part);
        Ok(())
    }

    /// Whether a file may stay in memory with so many bytes more.
    fn fits(&self, part: &GatheredPart, bytes: usize) -> bool {
        part.in_memory.len() + bytes <= self.limits.file_memory_bytes_max
            && self.memory_bytes + bytes <= self.limits.memory_bytes_max / PARTS_FOR_FILES
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if !self.room.take(bytes.len() as u64, self.limits.disk_bytes_max) {
            return Err(Error::busy("uploads take too much room on the server's disk at the moment"));
        }
        if !bytes.is_empty() {
            self.spool.write(bytes);
        }
        Ok(())
    }

    fn end_part(&mut self) -> Result<(), Error> {
        let Some(part) = self.part.take() else { return Ok(()) };
        match part.head.file_name.as_deref() {
            // What a file input sends that was left empty.
            Some("") if part.bytes == 0 => {}
            Some(_) => self.files.push(part),
            None => {
                let name = part.head.name;
                let value = String::from_utf8(part.in_memory).map_err(|_| {
                    Error::bad_request(format!("the field \"{name}\" of the form holds bytes that are not UTF-8"))
                })?;
                self.fields.push(Field { name: name.into(), value: value.into() });
            }
        }
        Ok(())
    }
}

/// The files of a form; `on_disk` has those that are there, in their order.
fn placed(files: Vec<GatheredPart>, on_disk: Vec<std::fs::File>) -> Vec<UploadedFile> {
    let mut on_disk = on_disk.into_iter();
    let place = |file: GatheredPart| {
        let GatheredPart { head, bytes, in_memory, is_on_disk } = file;
        let file = if is_on_disk { on_disk.next() } else { None };
        let content = file.map_or(Stored::Memory(in_memory), Stored::Disk);
        let PartHead { name, file_name, content_type } = head;
        UploadedFile { field: name, name: file_name.unwrap_or_default(), content_type, bytes, content }
    };
    files.into_iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_507_and_its_cause_is_not_told() {
        let full = not_written(&io::Error::from(ErrorKind::StorageFull));
        assert_eq!((full.status(), full.detail()), (Status(507), "the server has no room for the file at the moment"));
        assert_eq!(not_written(&io::Error::from(ErrorKind::NotFound)).status(), Status(500));
    }
}
