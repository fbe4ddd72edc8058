//! One file as it is sent: its bytes, and its header fields.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Weak};
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;
use reactor::{FileRange, Piece};

use super::Options;
use super::conditions::Validators;
use super::encoding::Coding;
use super::folder::Stamp;
use super::media::{Media, is_fingerprinted};

/// Lifetime of files that never change: a year, the most that RFC 9111 mentions.
const IMMUTABLE: &str = "max-age=31536000, immutable";
/// Clients keep it, and revalidate it at each use.
const CHECKED: &str = "no-cache";

/// A file's bytes.
#[derive(Debug)]
pub(super) enum Content {
    Memory(Arc<[u8]>),
    Static(&'static [u8]),
    /// Sent from the page cache, or from disk.
    File(Arc<File>),
}

/// Bytes of a file that are being sent and that nothing else holds.
#[derive(Debug)]
pub(super) enum Pin {
    Memory(Weak<[u8]>),
    File(Weak<File>),
}

impl Pin {
    /// Bytes of memory; `None`: the file was sent.
    pub(super) fn memory_bytes(&self) -> Option<usize> {
        match self {
            Pin::Memory(bytes) => bytes.upgrade().map(|bytes| bytes.len()),
            Pin::File(file) => (file.strong_count() > 0).then_some(0),
        }
    }

    pub(super) fn is_open_file(&self) -> bool {
        matches!(self, Pin::File(_))
    }
}

/// A file, or one of its compressed siblings, as it is sent.
#[derive(Debug)]
pub(super) struct Representation {
    content: Content,
    bytes: u64,
    pub(super) content_type: &'static str,
    tag: Box<str>,
    modified: Option<u64>,
    /// Header fields as whole lines: those of a 304 first, then those that describe the body.
    lines: Box<[u8]>,
    common_bytes: usize,
}

impl Representation {
    /// A coding of the plain file `name`. `tag` is without quotes, and differs from the tags of the other codings.
    pub(super) fn new(
        (name, media, options): (&str, Media, Options),
        coding: Coding,
        content: Content,
        bytes: u64,
        (tag, modified): (&str, Option<u64>),
    ) -> Representation {
        let tag = match coding {
            Coding::Identity => format!("\"{tag}\""),
            coded => format!("\"{tag}-{}\"", coded.name()),
        };
        let keeps = options.immutable && is_fingerprinted(name);
        let mut lines = Vec::with_capacity(200);
        // Writing to a Vec cannot fail.
        let _ = write!(lines, "ETag: {tag}\r\nCache-Control: {}\r\n", if keeps { IMMUTABLE } else { CHECKED });
        if media.is_compressible {
            lines.extend_from_slice(b"Vary: Accept-Encoding\r\n");
        }
        if let Some(seconds) = modified {
            let _ = write!(lines, "Last-Modified: {}\r\n", HttpDate::from(UNIX_EPOCH + Duration::from_secs(seconds)));
        }
        let common_bytes = lines.len();
        lines.extend_from_slice(b"Accept-Ranges: bytes\r\n");
        if coding != Coding::Identity {
            let _ = write!(lines, "Content-Encoding: {}\r\n", coding.name());
        }
        let content_type = media.content_type;
        Representation { content, bytes, content_type, tag: tag.into(), modified, lines: lines.into(), common_bytes }
    }

    pub(super) fn validators(&self) -> Validators<'_> {
        Validators { tag: &self.tag, modified: self.modified, bytes: self.bytes }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The lines of header fields of a reply with a body.
    pub(super) fn lines(&self) -> &[u8] {
        &self.lines
    }

    /// The lines of a reply without a body.
    pub(super) fn common_lines(&self) -> &[u8] {
        &self.lines[..self.common_bytes]
    }

    /// The whole content, if it is in memory.
    pub(super) fn memory(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Memory(bytes) => Some(bytes),
            Content::Static(bytes) => Some(bytes),
            Content::File(_) => None,
        }
    }

    /// The whole content, without a copy.
    pub(super) fn piece(&self) -> Piece {
        match &self.content {
            Content::Memory(bytes) => Piece::Shared(Arc::clone(bytes)),
            Content::Static(bytes) => Piece::Static(bytes),
            Content::File(file) => Piece::File(FileRange::new(Arc::clone(file), 0, length(self.bytes))),
        }
    }

    /// Part of a file that is not in memory.
    pub(super) fn file_part(&self, from: u64, bytes: u64) -> Option<Piece> {
        match &self.content {
            Content::File(file) => Some(Piece::File(FileRange::new(Arc::clone(file), from, length(bytes)))),
            _ => None,
        }
    }

    /// What replies in progress go on holding after this was evicted; `None`: nothing.
    pub(super) fn pin(&self) -> Option<Pin> {
        match &self.content {
            Content::Memory(bytes) if Arc::strong_count(bytes) > 1 => Some(Pin::Memory(Arc::downgrade(bytes))),
            Content::File(file) if Arc::strong_count(file) > 1 => Some(Pin::File(Arc::downgrade(file))),
            _ => None,
        }
    }

    /// Approximate bytes of memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let content = if let Content::Memory(bytes) = &self.content { bytes.len() } else { 0 };
        size_of::<Self>() + self.tag.len() + self.lines.len() + content
    }

    pub(super) fn is_open_file(&self) -> bool {
        matches!(self.content, Content::File(_))
    }
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The entity tag of a file in this state, without quotes. It differs from the tags of all earlier states, except after a change
/// within one tick of the file system's clock that keeps the length.
pub(super) fn tag_of(stamp: &Stamp) -> String {
    let (seconds, nanoseconds) = stamp.modified;
    format!("{seconds:x}.{nanoseconds:x}-{:x}", stamp.bytes)
}

/// The first second of the year 10000, from which on there are no HTTP dates.
const DATES_END: u64 = 253_402_300_800;

/// Last modification in seconds since 1970; `None` before 1970, and if HTTP has no date for it.
pub(super) fn modified_of(stamp: &Stamp) -> Option<u64> {
    u64::try_from(stamp.modified.0).ok().filter(|seconds| *seconds < DATES_END)
}
