//! Receives a multipart body: parses it on the event loop as it arrives, keeps small files in memory, has larger ones written on an
//! executor, and then calls the handler.
//!
//! ```text
//!  body in pieces ─► parser ─► fields and small files: memory
//!        ▲                └──► large files: spool ─► executor writes them
//!        │ no room                             │
//!        └───────────── nudge ─────────────────┘     all has come, all is written ─► handler, on the executor
//! ```
//!
//! [`UploadLimits`] bounds one form; bytes that wait to be written have a bound of their own (`spool`). An error is answered at once, and
//! the connection is closed after the reply; the rest of the body is dropped.

use super::limits::UploadLimits;
use super::multipart::{Multipart, Stored, UploadedFile};
use super::spool::{DiskRoom, Refused, Spool};
use crate::dispatch::{Environment, Later, Request, Respond, Responder, Response, later};
use crate::reply::Error;
use http::forms::{Boundary, FormField, MultipartError, MultipartParser, PartEvent, PartHead};
use http::{BodyFault, BodySink, Status};
use std::cell::RefCell;
use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// One in this many parts of a form's memory may hold files; the rest is for fields.
const PARTS_FOR_FILES: usize = 2;
/// Room on disk that each file counts in addition to its bytes. So `disk_bytes_max` also bounds the number of open files of all forms, by
/// default to 1,024.
const FILE_ROOM_BYTES: u64 = 1 << 20;

/// Calls the handler, and sends its reply.
pub(super) type CallHandler = Box<dyn FnOnce(Multipart, Responder) + Send>;

/// Settings and counters that all forms of one handler share.
pub(super) struct UploadPolicy {
    pub(super) limits: UploadLimits,
    pub(super) executor: &'static str,
    /// Bytes on disk of all forms of the handler.
    pub(super) disk_bytes: Arc<AtomicU64>,
}

/// Receives the form of a request, and calls the handler with it.
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
    // The body arrived together with its head, so it is no longer than one read of the connection.
    if let Err(error) = intake.push(request.body()) {
        return error.respond();
    }
    later(move |responder| {
        intake.begin(responder);
        intake.end(Ok(()));
    })
    .respond()
}

/// The sink that the connection writes the body into.
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

/// A form that is arriving.
struct Intake {
    parser: MultipartParser,
    gathered: Gathered,
    executor: &'static str,
    /// `None` before [`Intake::begin`], and after the request is answered or its form passed to the handler.
    waiting: Option<(Responder, CallHandler)>,
    handle: Option<CallHandler>,
    environment: Option<Arc<Environment>>,
}

impl Intake {
    fn new(boundary: &Boundary, policy: &UploadPolicy, handle: CallHandler) -> Intake {
        Intake {
            parser: MultipartParser::new(boundary, &policy.limits.form),
            gathered: Gathered::new(policy),
            executor: policy.executor,
            waiting: None,
            handle: Some(handle),
            environment: None,
        }
    }

    /// From now on there is a responder, so errors can be sent.
    fn begin(&mut self, responder: Responder) {
        self.gathered.spool.set_nudge(responder.late.nudge());
        self.environment = Some(Arc::clone(&responder.environment));
        self.waiting = self.handle.take().map(|handle| (responder, handle));
    }

    fn take(&mut self, piece: &[u8]) -> usize {
        let mut taken = 0;
        while taken < piece.len() {
            if self.waiting.is_none() {
                // Already answered: the rest of the body is dropped.
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

    /// Has an executor write what is queued.
    fn write(&mut self) {
        let Some(environment) = &self.environment else { return };
        if let Err(Refused { why, responder }) = self.gathered.spool.run(&environment.resources.pools, self.executor) {
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
        // The client has disconnected. A form that is complete is still written and handled.
        if self.waiting.is_some() {
            self.gathered.spool.cancel();
        }
    }
}

fn malformed(error: &MultipartError) -> Error {
    let status = if error.is_too_large() { Status(413) } else { Status(400) };
    Error::new(status, error.to_string())
}

/// The reply if a file could not be created or written.
fn not_written(error: &io::Error) -> Error {
    let cause = format!("an uploaded file cannot be written: {error}");
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Error::new(Status(507), "the server has no room for the file at the moment").with_cause(cause)
        }
        _ => Error::internal(cause),
    }
}

/// The parts of a form that have arrived.
struct Gathered {
    limits: UploadLimits,
    fields: Vec<FormField<'static>>,
    files: Vec<GatheredPart>,
    /// The part that is arriving.
    part: Option<GatheredPart>,
    /// Bytes in memory: names, fields, and files that are not on disk.
    memory_bytes: usize,
    spool: Arc<Spool>,
    disk_bytes: Arc<AtomicU64>,
    room: DiskRoom,
}

/// A part: a field or a file.
struct GatheredPart {
    head: PartHead,
    bytes: u64,
    /// Empty if the part is on disk.
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

    fn take(&mut self) -> (Vec<FormField<'static>>, Vec<GatheredPart>, DiskRoom) {
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

    /// Counts bytes in memory against the bound.
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

    /// Whether a file may stay in memory with this many bytes more.
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
            // An empty file input sends such a part.
            Some("") if part.bytes == 0 => {}
            Some(_) => self.files.push(part),
            None => {
                let name = part.head.name;
                let value = String::from_utf8(part.in_memory).map_err(|_| {
                    Error::bad_request(format!("the field \"{name}\" of the form holds bytes that are not UTF-8"))
                })?;
                self.fields.push(FormField { name: name.into(), value: value.into() });
            }
        }
        Ok(())
    }
}

/// The files of a form. `on_disk` has those that were written to disk, in their order.
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
