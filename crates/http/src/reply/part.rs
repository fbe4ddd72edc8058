//! Parts of a reply's body that are sent together without being joined.

use std::sync::Arc;

use reactor::Piece;

/// Size from which on a part is not copied into the write queue. Below it a copy is cheaper than one more slice for the kernel
/// and a reference count.
pub const UNCOPIED_BYTES_MIN: usize = 8 << 10;

/// One part of a body: see [`crate::Reply::send_parts`].
#[derive(Clone, Copy, Debug)]
pub enum BodyPart<'p> {
    /// Copied into the write queue.
    Copied(&'p [u8]),
    /// Never freed: not copied if it has at least [`UNCOPIED_BYTES_MIN`] bytes.
    Static(&'static [u8]),
    /// Shared: not copied if it has at least [`UNCOPIED_BYTES_MIN`] bytes; then it is kept until it was sent.
    Shared(&'p Arc<[u8]>),
}

/// Pieces that are not copied, each with the index of the byte before which it goes.
pub(crate) type Splices = Vec<(usize, Piece)>;

impl<'p> BodyPart<'p> {
    /// Its bytes.
    pub fn bytes(&self) -> &'p [u8] {
        match self {
            BodyPart::Copied(bytes) => bytes,
            BodyPart::Static(bytes) => bytes,
            BodyPart::Shared(bytes) => bytes,
        }
    }

    /// The piece, if the part is not copied.
    fn piece(&self) -> Option<Piece> {
        match self {
            _ if self.bytes().len() < UNCOPIED_BYTES_MIN => None,
            BodyPart::Copied(_) => None,
            BodyPart::Static(bytes) => Some(Piece::Static(bytes)),
            BodyPart::Shared(bytes) => Some(Piece::Shared(Arc::clone(bytes))),
        }
    }

    fn is_copied(&self) -> bool {
        matches!(self, BodyPart::Copied(_)) || self.bytes().len() < UNCOPIED_BYTES_MIN
    }
}

/// Total number of bytes, and number of copied bytes.
pub(crate) fn measure<'p>(parts: impl Iterator<Item = BodyPart<'p>>) -> (u64, usize) {
    parts.fold((0, 0), |(all, copied), part| {
        let bytes = part.bytes().len();
        (all + bytes as u64, copied + if part.is_copied() { bytes } else { 0 })
    })
}

/// Appends the copied parts to `out`, and the others to `pieces`.
pub(crate) fn append<'p>(parts: impl Iterator<Item = BodyPart<'p>>, out: &mut Vec<u8>, pieces: &mut Splices) {
    for part in parts {
        match part.piece() {
            Some(piece) => pieces.push((out.len(), piece)),
            None => out.extend_from_slice(part.bytes()),
        }
    }
}

/// Bytes of all pieces.
pub(crate) fn bytes_of(pieces: &[(usize, Piece)]) -> usize {
    pieces.iter().map(|(_, piece)| piece.len()).sum()
}
