//! Working memory of a thread that writes. It is reused, so that a steady stream of writes allocates little.
//!
//! A transaction may run on its caller's thread and again on the committing thread, so the memory belongs to the thread, not to
//! the transaction.

use std::cell::Cell;

use binjson::Encoder;

use super::long_check::LongCheck;
use crate::encoding::FieldNumbers;
use crate::views;

/// Larger buffers are freed after each write: every event loop and every thread of the store has its own.
const SCRATCH_KEPT_BYTES: usize = 64 << 10;

/// Buffers and remembered shapes.
#[derive(Default)]
pub(crate) struct WriteScratch {
    pub(crate) encoder: Encoder,
    pub(crate) buffers: WriteBuffers,
    pub(crate) shape: FieldNumbers,
    pub(crate) old_shape: FieldNumbers,
    pub(crate) views: views::write::ViewBuffers,
    /// The check of the current write.
    pub(crate) long_check: LongCheck,
}

/// Buffers by their content.
#[derive(Default)]
pub(crate) struct WriteBuffers {
    pub(crate) old: Vec<u8>,
    pub(crate) new: Vec<u8>,
    pub(crate) patch: Vec<u8>,
    /// The text of a new document with its generated key.
    pub(crate) keyed: Vec<u8>,
    pub(crate) entries: Entries,
}

/// The entries of the old and the new document in one tree.
#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) old_key: Vec<u8>,
    pub(crate) old_value: Vec<u8>,
    pub(crate) new_key: Vec<u8>,
    pub(crate) new_value: Vec<u8>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<WriteScratch>>> = const { Cell::new(None) };
}

/// Runs `work` with this thread's memory.
pub(crate) fn with<R>(work: impl FnOnce(&mut WriteScratch) -> R) -> R {
    let mut scratch = SCRATCH.take().unwrap_or_default();
    let result = work(&mut scratch);
    let buffers = &mut scratch.buffers;
    for buffer in [&mut buffers.old, &mut buffers.new, &mut buffers.patch, &mut buffers.keyed] {
        if buffer.capacity() > SCRATCH_KEPT_BYTES {
            *buffer = Vec::new();
        }
    }
    // The state of one write's check must not apply to another write.
    scratch.long_check = LongCheck::default();
    SCRATCH.set(Some(scratch));
    result
}
