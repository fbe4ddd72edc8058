//! The arena in which expressions compute values for a row. Every chunk is counted before it is allocated.
//!
//! All arena memory is allocated here: a function that computes a text gets [`Fault::Computed`] if the budget has no room for
//! it. The common case, a few bytes in the present chunk, costs one comparison. A growing text counts its work ([`Meter`]) with
//! each step of its growth.
//!
//! The first [`ARENA_BYTES_KEPT`] of each arena are not counted: they belong to the thread, which keeps them between rows.

use std::fmt;

use bumpalo::Bump;
use bumpalo::collections::{CollectionAllocErr, Vec as BumpVec};

use crate::sql::limits::{ARENA_BYTES_KEPT, Fault, Meter, TEXT_BYTES_MAX};

/// Allowance for a chunk's footer and its rounding up to whole pages.
const CHUNK_SLACK_BYTES: usize = 4 << 10;
/// The initial capacity of a growing text.
const TEXT_BYTES_LEAST: usize = 32;

/// See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct Workspace<'a> {
    arena: &'a Bump,
    pub(crate) meter: &'a Meter<'a>,
}

impl<'a> Workspace<'a> {
    pub(crate) fn new(arena: &'a Bump, meter: &'a Meter<'a>) -> Workspace<'a> {
        Workspace { arena, meter }
    }

    pub(crate) fn arena(self) -> &'a Bump {
        self.arena
    }

    /// A copy.
    #[inline]
    pub(crate) fn copy(self, bytes: &[u8]) -> Result<&'a [u8], Fault> {
        self.meter.tick_bytes(bytes.len())?;
        self.within(bytes.len(), || {
            Ok(&*self.arena.try_alloc_slice_copy(bytes).map_err(|_| CollectionAllocErr::AllocErr)?)
        })
    }

    /// An empty list with room for `len` elements; the caller pushes no more.
    #[inline]
    pub(crate) fn list<T>(self, len: usize) -> Result<BumpVec<'a, T>, Fault> {
        let mut list = BumpVec::new_in(self.arena);
        if len > 0 {
            let bytes = len.saturating_mul(size_of::<T>()).saturating_add(align_of::<T>());
            self.within(bytes, || list.try_reserve_exact(len))?;
        }
        Ok(list)
    }

    /// A text that grows up to [`TEXT_BYTES_MAX`].
    #[inline]
    pub(crate) fn text(self) -> TextBuilder<'a> {
        TextBuilder { bytes: BumpVec::new_in(self.arena), workspace: self, bytes_max: TEXT_BYTES_MAX, fault: None }
    }

    /// The same with room for `capacity` bytes, which the caller will need.
    pub(crate) fn text_of(self, capacity: usize) -> Result<TextBuilder<'a>, Fault> {
        let mut text = self.text();
        text.reserve(capacity)?;
        Ok(text)
    }

    /// A text with its own limit, which may exceed [`TEXT_BYTES_MAX`]: for texts derived from a stored one.
    pub(crate) fn text_within(self, bytes_max: usize) -> Result<TextBuilder<'a>, Fault> {
        let mut text = TextBuilder { bytes_max, ..self.text() };
        text.reserve(bytes_max)?;
        Ok(text)
    }

    /// Allocates `bytes` bytes in the arena, which may add a chunk.
    #[inline]
    fn within<R>(self, bytes: usize, take: impl FnOnce() -> Result<R, CollectionAllocErr>) -> Result<R, Fault> {
        if bytes <= self.arena.chunk_capacity() {
            return take().map_err(|_| self.meter.exceeded());
        }
        self.with_chunk(bytes, take)
    }

    /// The same if the present chunk is too small. The new chunk is no larger than the budget allows.
    #[cold]
    fn with_chunk<R>(self, bytes: usize, take: impl FnOnce() -> Result<R, CollectionAllocErr>) -> Result<R, Fault> {
        let before = self.arena.allocated_bytes();
        let (least, free) = (bytes.saturating_add(CHUNK_SLACK_BYTES), ARENA_BYTES_KEPT.saturating_sub(before));
        // The arena doubles its chunks while there is room.
        let most = least.max(before.saturating_mul(2).saturating_add(CHUNK_SLACK_BYTES));
        let taken = self.meter.take(least.saturating_sub(free), most.saturating_sub(free))?;
        self.arena.set_allocation_limit(Some(before + free + taken));
        let made = take();
        self.arena.set_allocation_limit(None);
        let grown = counted(self.arena) - before.saturating_sub(ARENA_BYTES_KEPT);
        self.meter.give_back(taken.saturating_sub(grown));
        made.map_err(|_| self.meter.exceeded())
    }
}

/// The counted bytes of an arena.
fn counted(arena: &Bump) -> usize {
    arena.allocated_bytes().saturating_sub(ARENA_BYTES_KEPT)
}

/// Empties an arena and releases its counted bytes.
pub(crate) fn reset(arena: &mut Bump, meter: &Meter<'_>) {
    meter.give_back(counted(arena));
    arena.reset();
    if arena.allocated_bytes() > ARENA_BYTES_KEPT {
        *arena = Bump::new();
    }
}

/// Empties an arena between rows if it is large. No value computed for an earlier row is used again: kept values were copied.
#[inline]
pub(crate) fn empty(arena: &mut Bump, meter: &Meter<'_>) {
    if arena.allocated_bytes() > ARENA_BYTES_KEPT {
        reset(arena, meter);
    }
}

/// An arena of its own for the values of one row at a time.
pub(crate) struct RowArena<'m> {
    arena: Bump,
    meter: &'m Meter<'m>,
}

impl<'m> RowArena<'m> {
    pub(crate) fn new(meter: &'m Meter<'m>) -> RowArena<'m> {
        RowArena { arena: Bump::new(), meter }
    }

    /// The workspace of the next row. No value of an earlier row is used again.
    pub(crate) fn next(&mut self) -> Workspace<'_> {
        empty(&mut self.arena, self.meter);
        Workspace::new(&self.arena, self.meter)
    }
}

impl Drop for RowArena<'_> {
    fn drop(&mut self) {
        self.meter.give_back(counted(&self.arena));
    }
}

/// A text that grows in a workspace.
pub(crate) struct TextBuilder<'a> {
    bytes: BumpVec<'a, u8>,
    workspace: Workspace<'a>,
    bytes_max: usize,
    /// The error of a failed [`fmt::Write`], which cannot carry it.
    fault: Option<Fault>,
}

impl fmt::Write for TextBuilder<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend(text.as_bytes()).map_err(|fault| {
            self.fault = Some(fault);
            fmt::Error
        })
    }
}

impl<'a> TextBuilder<'a> {
    /// Makes room for more bytes. The work of writing them is counted here, by the capacity.
    #[inline]
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), Fault> {
        if more <= self.bytes.capacity() - self.bytes.len() { Ok(()) } else { self.grow(more) }
    }

    #[cold]
    fn grow(&mut self, more: usize) -> Result<(), Fault> {
        let len = self.bytes.len().saturating_add(more);
        if len > self.bytes_max {
            return Err(Fault::TextTooLong);
        }
        let capacity =
            len.max(2 * self.bytes.capacity()).max(TEXT_BYTES_LEAST).min(self.bytes_max.max(TEXT_BYTES_LEAST));
        self.workspace.meter.tick_bytes(capacity)?;
        let more = capacity - self.bytes.len();
        let (workspace, bytes) = (self.workspace, &mut self.bytes);
        workspace.within(capacity, || bytes.try_reserve_exact(more))
    }

    #[inline]
    pub(crate) fn push(&mut self, byte: u8) -> Result<(), Fault> {
        self.reserve(1)?;
        self.bytes.push(byte);
        Ok(())
    }

    #[inline]
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.reserve(bytes.len())?;
        self.bytes.extend_from_slice_copy(bytes);
        Ok(())
    }

    /// Appends `count` copies of a byte.
    pub(crate) fn fill(&mut self, byte: u8, count: usize) -> Result<(), Fault> {
        self.reserve(count)?;
        self.bytes.resize(self.bytes.len() + count, byte);
        Ok(())
    }

    /// Appends formatted text.
    pub(crate) fn format(&mut self, text: fmt::Arguments<'_>) -> Result<(), Fault> {
        // The formatting of numbers and texts itself does not fail.
        let _ = fmt::Write::write_fmt(self, text);
        self.fault.map_or(Ok(()), Err)
    }

    /// Removes the last byte.
    pub(crate) fn pop(&mut self) {
        self.bytes.pop();
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes.
    pub(crate) fn finish(self) -> &'a [u8] {
        self.bytes.into_bump_slice()
    }
}
