//! Bytes sent without a copy in the write queue: shared or static memory, or a range of a file.

use std::fs::File;
use std::sync::Arc;

/// Bytes that a write queue refers to instead of holding them.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Memory with a reference count.
    Shared(Arc<[u8]>),
    /// Memory that is never freed.
    Static(&'static [u8]),
    /// Part of a file, sent by sendfile(2). Inside TLS it is read in pieces of 16 KB.
    File(FileRange),
}

impl Piece {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Piece::Shared(bytes) => bytes.len(),
            Piece::Static(bytes) => bytes.len(),
            Piece::File(range) => range.bytes,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A range of a regular file. If the file is truncated before its range has been sent, the connection is closed: the reply's
/// length was already announced.
#[derive(Clone, Debug)]
pub struct FileRange {
    file: Arc<File>,
    from: u64,
    bytes: usize,
}

impl FileRange {
    /// `bytes` bytes from the offset `from` on.
    pub fn new(file: Arc<File>, from: u64, bytes: usize) -> Self {
        FileRange { file, from, bytes }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The file offset after `sent` bytes of the range.
    pub(crate) fn offset(&self, sent: usize) -> u64 {
        self.from.saturating_add(sent as u64)
    }
}
