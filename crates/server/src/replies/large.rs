//! Replies over 64 KB: they are streams, pulled in pieces at the low-water mark, so that a client that does not read holds one
//! piece, not the whole reply.
//!
//! A document is read again for each piece, by its key and change number: nothing of it is kept between two pulls, and no
//! snapshot pins pages. Rows cannot be read again, so their bytes are kept, under a bound over all clients; above it a request is
//! answered with 503.

use super::media::JSON;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::threads::in_flight::{Account, InFlight, Taken};
use docs::key::{Key, KeyType};
use docs::{CollectionId, ReaderSession};
use http::{BodySource, Cutter, LateReply, More, Reply, Status};
use std::rc::Rc;
use std::sync::Arc;

/// A reply up to this size is copied into the write queue at once.
pub(super) const WHOLE_BYTES_MAX: usize = 64 << 10;
/// A late reply up to this size is not counted while it waits: its slot in the connection's ring is about as large.
const UNCHARGED_BYTES_MAX: usize = 1 << 10;
/// Bytes of one pull.
const PIECE_BYTES: usize = 64 << 10;

/// Answers with bytes made for this request.
#[inline]
pub(crate) fn send(
    replies: &InFlight,
    errors: &ErrorRules,
    reply: Reply<'_>,
    status: Status,
    media: &str,
    body: &mut Vec<u8>,
) {
    if body.len() <= WHOLE_BYTES_MAX {
        return reply.send(status, media, body);
    }
    match Kept::new(replies, reply.cutter(), std::mem::take(body)) {
        Some(kept) => reply.stream(status, media, Some(kept.body.len() as u64), Box::new(kept)),
        None => {
            let (status, media, body) = errors.reply(&busy());
            reply.send(status, media, &body);
        }
    }
}

/// The same for a late reply.
pub(crate) fn send_late(
    replies: &InFlight,
    errors: &ErrorRules,
    late: LateReply,
    status: Status,
    media: &str,
    body: Vec<u8>,
) {
    if body.len() <= UNCHARGED_BYTES_MAX {
        return late.send(status, media, body);
    }
    match Kept::new(replies, late.cutter(), body) {
        Some(kept) => kept.send(late, status, media),
        None => refusal::refuse(errors, late, &busy()),
    }
}

/// Answers with bytes whose memory is taken already.
pub(super) fn send_taken(
    late: LateReply,
    status: Status,
    media: &str,
    body: Vec<u8>,
    (taken, account): (Taken, Arc<Account>),
) {
    Kept { body, sent: 0, taken, account }.send(late, status, media);
}

pub(crate) fn busy() -> Failure {
    Failure::new(FailureKind::Busy, "too many bytes of large replies wait for their clients")
}

/// Bytes kept until the client has received them.
struct Kept {
    body: Vec<u8>,
    sent: usize,
    taken: Taken,
    account: Arc<Account>,
}

impl Kept {
    fn new(replies: &InFlight, cutter: Cutter, mut body: Vec<u8>) -> Option<Kept> {
        body.shrink_to_fit();
        let account = Arc::new(replies.account(cutter));
        let Some(taken) = account.take(body.capacity()) else {
            replies.report_refusal(body.capacity());
            return None;
        };
        Some(Kept { body, sent: 0, taken, account })
    }

    fn send(self, late: LateReply, status: Status, media: &str) {
        if self.body.len() <= WHOLE_BYTES_MAX {
            let Kept { body, taken, account, .. } = self;
            return late.send_charged(status, media, body, Box::new((taken, account)));
        }
        late.stream(status, media, self.body.len() as u64, Box::new(self));
    }
}

impl BodySource for Kept {
    // `taken` is released when the stream ends.
    fn pull(&mut self, out: &mut Vec<u8>) -> More {
        self.account.went_on();
        append(&self.body, &mut self.sent, out)
    }
}

fn append(body: &[u8], sent: &mut usize, out: &mut Vec<u8>) -> More {
    let end = body.len().min(*sent + PIECE_BYTES);
    let Some(piece) = body.get(*sent..end) else { return More::Broken };
    out.extend_from_slice(piece);
    *sent = end;
    if end == body.len() { More::No } else { More::Yes }
}

/// Answers with a large document.
#[cold]
pub(crate) fn send_document(
    session: &Rc<ReaderSession>,
    collection: CollectionId,
    kind: KeyType,
    key: &Key<'_>,
    (change_number, bytes): (u64, usize),
    reply: Reply<'_>,
) {
    let key = key.as_bytes().to_vec();
    let pieces = Pieces { session: Rc::clone(session), collection, kind, key, change_number, bytes, sent: 0 };
    reply.stream(Status(200), JSON, Some(bytes as u64), Box::new(pieces));
}

/// A document that is read again for each piece.
struct Pieces {
    session: Rc<ReaderSession>,
    collection: CollectionId,
    kind: KeyType,
    key: Vec<u8>,
    change_number: u64,
    bytes: usize,
    sent: usize,
}

impl BodySource for Pieces {
    /// A document that changed half-way cannot be completed: the connection is closed, so that the client notices.
    fn pull(&mut self, out: &mut Vec<u8>) -> More {
        let now = self.session.now();
        let Some(key) = self.kind.of_bytes(&self.key) else { return More::Broken };
        let Ok(Some(stored)) = now.get(self.collection, &key) else { return More::Broken };
        match (stored.change_number(), stored.text()) {
            (Ok(number), Ok(text)) if number == self.change_number && text.len() == self.bytes => {
                let before = out.len();
                let more = append(text, &mut self.sent, out);
                if now.check().is_ok() {
                    return more;
                }
                out.truncate(before);
                More::Broken
            }
            _ => More::Broken,
        }
    }
}
