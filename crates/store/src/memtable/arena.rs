//! Arena: the bounded block of memory in which a memtable lives.
//!
//! Address space for all of it is reserved at once, and the kernel allocates pages on first write. So references are
//! plain offsets, nothing moves, and a value of any size that fits is contiguous. (The alternative is a list of chunks:
//! it costs one more dependent load for each reference, and wastes the end of each chunk.)
//!
//! ```text
//!  0      64                  low                  high                       bytes
//!  +------+---------------------+--------------------+---------------------------+
//!  | none | keys and records -> |       free         | <- nodes, buckets, trees  |
//!  +------+---------------------+--------------------+---------------------------+
//!
//!  key      newest u32 | tree u32 | length u32 | bytes, padded to 8      (only newest changes)
//!  record   version u64 | older u32 | length u32 | bytes, padded to 8    (never changes)
//! ```
//!
//! Offsets count units of 8 bytes, so 32 bits reach 32 GB; offset 0 means "none". A deletion is a record of length
//! [`TOMBSTONE`].
//!
//! Invariants, on which every `unsafe` block below rests:
//!
//! - Memory for nodes, buckets and trees starts zeroed; memory is never moved, and is freed only with the last [`Arena`] handle.
//! - Only the one [`Fill`] allocates, each byte once. An allocation is completely written before its reference exists;
//!   afterwards it changes only through atomics.
//! - Only [`Fill`] makes references ([`KeyRef`], [`RecordRef`], and [`Ref`] of a [`Lined`] type). They pass between threads
//!   only through `store(Release)` / `load(Acquire)` of the cells below, so a thread with a reference sees the object's
//!   content. They stay inside one memtable, which has one arena.
#![allow(unsafe_code)] // Raw memory shared by one writer and many readers cannot be expressed in safe Rust.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::base::key::{TreeId, Version};
use crate::base::prefetch::prefetch_line;
use crate::base::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::disk::{ScratchFile, Watched};

/// Unit of offsets in bytes; also the alignment of keys and records.
pub(super) const UNIT: usize = 8;
/// Alignment of nodes, buckets and trees: a cache line.
const LINE: usize = 64;
/// Largest arena: what 32-bit offsets reach.
const ARENA_BYTES_MAX: usize = UNIT * (u32::MAX as usize + 1);
/// Bytes ahead of the lower end for which memory is requested in advance.
const AHEAD_BYTES: usize = 1 << 20;
/// Up to this fill level nothing is requested in advance, because most stores are idle most of the time.
const UNASKED_BYTES: usize = 256 << 10;
/// Bytes before the key's bytes.
const KEY_HEADER: usize = 12;
/// Bytes before the value's bytes.
const RECORD_HEADER: usize = 16;
/// Length that marks a deletion.
const TOMBSTONE: u32 = u32::MAX;

/// A reference: an offset in the arena.
pub(super) struct Ref<T> {
    offset: NonZeroU32,
    what: PhantomData<fn() -> T>,
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Ref<T> {}
impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset
    }
}

/// Marker of a [`KeyRef`]'s target.
pub(super) enum KeyKind {}
/// Marker of a [`RecordRef`]'s target.
pub(super) enum RecordKind {}
/// Reference to a key.
pub(super) type KeyRef = Ref<KeyKind>;
/// Reference to one version of a key's value.
pub(super) type RecordRef = Ref<RecordKind>;

/// A type of the upper end: nodes, buckets, trees. It has whole cache lines, which [`Fill::push`] checks.
///
/// # Safety
/// It consists of atomics only, and zeroed memory is a value of it.
pub(super) unsafe trait Lined: Sized {}

impl<T> Ref<T> {
    fn new(offset: usize) -> Ref<T> {
        let units = u32::try_from(offset / UNIT).ok().and_then(NonZeroU32::new);
        Ref { offset: units.expect("offsets lie inside the arena, past its first line"), what: PhantomData }
    }

    /// The reference as a number, for a hash slot.
    pub(super) fn bits(self) -> u32 {
        self.offset.get()
    }

    /// The reference with this number.
    ///
    /// # Safety
    /// `bits` is 0, or came from [`Ref::bits`] of a reference of the same kind and arena, by an acquire load.
    pub(super) unsafe fn from_bits(bits: u32) -> Option<Ref<T>> {
        NonZeroU32::new(bits).map(|offset| Ref { offset, what: PhantomData })
    }
}

/// A shared cell that holds a reference or none. Zeroed memory is a cell with none.
#[repr(transparent)]
pub(super) struct AtomicRef<T> {
    bits: AtomicU32,
    what: PhantomData<fn() -> T>,
}

impl<T> AtomicRef<T> {
    pub(super) fn none() -> AtomicRef<T> {
        AtomicRef { bits: AtomicU32::new(0), what: PhantomData }
    }

    #[inline]
    pub(super) fn load(&self) -> Option<Ref<T>> {
        let bits = self.bits.load(Ordering::Acquire);
        // SAFETY: only `store` writes `bits`, with a reference of this kind or none, with release; cells start zeroed.
        unsafe { Ref::from_bits(bits) }
    }

    pub(super) fn store(&self, to: Option<Ref<T>>) {
        self.bits.store(to.map_or(0, Ref::bits), Ordering::Release);
    }
}

/// A key and its tree.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub(super) tree: TreeId,
    pub(super) bytes: &'a [u8],
}

/// One version of a key's value.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) version: Version,
    /// `None` is a deletion.
    pub(super) value: Option<&'a [u8]>,
    older: u32,
}

/// The memory itself, freed with the last handle.
struct Memory {
    base: NonNull<u8>,
    bytes: usize,
    /// Start of what a dropped [`Fill`] had allocated at the upper end.
    high: AtomicUsize,
    /// Below this offset there may be bytes of an earlier use.
    dirty: AtomicUsize,
    /// Memory up to here will be needed soon.
    wanted: AtomicUsize,
    /// Memory up to here was requested from the kernel.
    populated: AtomicUsize,
    /// Watches memory in a file, whose pages the disk may fail to read back. Dropped before the memory.
    watched: Option<Watched>,
    #[cfg(not(miri))]
    _map: memmap2::MmapMut,
}

// SAFETY: `Memory` is plain memory; the module's invariants, which bind no thread, define who may access which byte when.
unsafe impl Send for Memory {}
// SAFETY: as above; `Memory` has no methods that touch the bytes.
unsafe impl Sync for Memory {}

impl Memory {
    #[cfg(not(miri))]
    fn zeroed(bytes: usize) -> std::io::Result<Memory> {
        // An anonymous map and not the allocator, which might recycle memory and would have to zero all of it first.
        let mut map = memmap2::MmapMut::map_anon(bytes)?;
        // Huge pages: a lookup touches three random places, and each would miss the TLB too. A refusal is ignored.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let base = NonNull::new(map.as_mut_ptr()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let [dirty, wanted, populated] = [const { AtomicUsize::new(0) }; 3];
        Ok(Memory { base, bytes, high: AtomicUsize::new(bytes), dirty, wanted, populated, watched: None, _map: map })
    }

    /// Memory that the kernel may write to a file and reclaim; it counts as page cache.
    #[cfg(not(miri))]
    fn in_file(file: &ScratchFile) -> std::io::Result<Memory> {
        let bytes = file.bytes().min(ARENA_BYTES_MAX) / LINE * LINE;
        // SAFETY: a scratch file has no name, so no other process can open, truncate or write it.
        let mut map = unsafe { memmap2::MmapOptions::new().len(bytes).map_mut(file.file())? };
        let base = NonNull::new(map.as_mut_ptr()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let [dirty, wanted, populated] = [const { AtomicUsize::new(0) }; 3];
        let watched = Some(Watched::writable(base.as_ptr() as usize, bytes)?);
        Ok(Memory { base, bytes, high: AtomicUsize::new(bytes), dirty, wanted, populated, watched, _map: map })
    }

    /// Miri checks plain allocations best.
    #[cfg(miri)]
    fn zeroed(bytes: usize) -> std::io::Result<Memory> {
        // SAFETY: the size is not zero: `Arena::new` rounds it up to whole lines.
        let base = unsafe { std::alloc::alloc_zeroed(Memory::layout(bytes)) };
        let base = NonNull::new(base).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let [dirty, wanted, populated] = [const { AtomicUsize::new(0) }; 3];
        Ok(Memory { base, bytes, high: AtomicUsize::new(bytes), dirty, wanted, populated, watched: None })
    }

    /// Zeroes used memory, except for the lower end. `Fill` writes its allocations there before they are read; what the
    /// upper end allocates of it, if this use has other proportions, is zeroed on allocation.
    fn clear(&mut self) {
        let high = std::mem::replace(self.high.get_mut(), self.bytes);
        // SAFETY: `high` lies inside the memory; `&mut self` is the only handle, so there is no reference into it.
        unsafe { std::ptr::write_bytes(self.base.as_ptr().add(high), 0, self.bytes - high) }
    }

    #[cfg(miri)]
    fn layout(bytes: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(bytes, LINE).expect("bounded by ARENA_BYTES_MAX")
    }
}

#[cfg(miri)]
impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout, freed once.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), Memory::layout(self.bytes)) }
    }
}

/// A reader's handle of the arena.
pub(super) struct Arena {
    /// Same as `memory.base`, kept here to save a load on each access.
    base: NonNull<u8>,
    memory: Arc<Memory>,
}

// SAFETY: `base` is only the address of `memory`, which is `Send` and `Sync`.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves address space for `bytes` (rounded up to lines); returns the only right to allocate in it.
    pub(super) fn new(bytes: usize) -> std::io::Result<(Arena, Fill)> {
        let bytes = bytes.clamp(LINE, ARENA_BYTES_MAX).next_multiple_of(LINE);
        Ok(Arena::over(Memory::zeroed(bytes)?))
    }

    /// The same in a file.
    pub(super) fn in_file(file: &ScratchFile) -> std::io::Result<(Arena, Fill)> {
        #[cfg(not(miri))]
        return Ok(Arena::over(Memory::in_file(file)?));
        #[cfg(miri)]
        Arena::new(file.bytes())
    }

    /// The same memory, empty; new memory if another handle still exists.
    pub(super) fn reuse(self) -> std::io::Result<(Arena, Fill)> {
        let bytes = self.bytes();
        match Arc::try_unwrap(self.memory) {
            Ok(mut memory) => {
                memory.clear();
                Ok(Arena::over(memory))
            }
            Err(_) => Arena::new(bytes),
        }
    }

    fn over(memory: Memory) -> (Arena, Fill) {
        let (base, high, dirty) = (memory.base, memory.bytes, memory.dirty.load(Ordering::Relaxed));
        let memory = Arc::new(memory);
        let arena = Arena { base, memory: Arc::clone(&memory) };
        let asked = memory.populated.load(Ordering::Relaxed).max(UNASKED_BYTES + AHEAD_BYTES);
        (arena, Fill { arena: Arena { base, memory }, low: LINE, high, dirty, asked })
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Whether the memory is in a file.
    pub(super) fn is_in_file(&self) -> bool {
        self.memory.watched.is_some()
    }

    /// Number of pages of its file that the disk has failed to read back: they are zeros now.
    pub(super) fn lost(&self) -> u64 {
        self.memory.watched.as_ref().map_or(0, Watched::lost)
    }

    /// Allocates the memory that [`Fill::wants_memory`] has requested. The kernel zeroes each page, which takes longer
    /// than filling it, so this belongs on a background thread. One thread at a time.
    pub(super) fn populate(&self) {
        let memory = &*self.memory;
        let wanted = memory.wanted.load(Ordering::Relaxed).min(memory.bytes);
        let from = memory.populated.load(Ordering::Relaxed).max(wanted.saturating_sub(2 * AHEAD_BYTES));
        if from < wanted {
            // If the kernel does not support this, the first write to each page allocates it.
            #[cfg(all(target_os = "linux", not(miri)))]
            let _ = memory._map.advise_range(memmap2::Advice::PopulateWrite, from, wanted - from);
            memory.populated.store(wanted, Ordering::Relaxed);
        }
    }

    #[inline]
    fn at<T>(&self, place: Ref<T>) -> *mut u8 {
        let offset = place.offset.get() as usize * UNIT;
        debug_assert!(offset < self.memory.bytes);
        // SAFETY: references lie inside the arena (`Fill` made them).
        unsafe { self.base.as_ptr().add(offset) }
    }

    /// An object of the upper end; of several side by side the first.
    pub(super) fn get<T: Lined>(&self, place: Ref<T>) -> &T {
        // SAFETY: `Fill::push` or `Fill::push_all` reserved an aligned `T` here; it holds atomics only, so sharing it is sound.
        unsafe { &*self.at(place).cast::<T>() }
    }

    /// `count` objects side by side.
    ///
    /// # Safety
    /// `Fill::push_all` reserved at least `count` of them at `place`.
    pub(super) unsafe fn get_all<T: Lined>(&self, place: Ref<T>, count: usize) -> &[T] {
        // SAFETY: reserved and aligned by the caller's promise; they hold atomics only, so sharing them is sound.
        unsafe { std::slice::from_raw_parts(self.at(place).cast::<T>(), count) }
    }

    /// A key.
    #[inline]
    pub(super) fn key(&self, place: KeyRef) -> Key<'_> {
        let at = self.at(place);
        // SAFETY: a whole key was written here before its reference was made; tree, length and bytes never change.
        unsafe {
            let tree = at.add(4).cast::<u32>().read();
            let length = at.add(8).cast::<u32>().read() as usize;
            Key { tree: TreeId(tree), bytes: std::slice::from_raw_parts(at.add(KEY_HEADER), length) }
        }
    }

    #[inline]
    fn newest_cell(&self, place: KeyRef) -> &AtomicRef<RecordKind> {
        // SAFETY: a key starts with this cell, aligned to 8, and it is only ever touched as this atomic cell.
        unsafe { &*self.at(place).cast::<AtomicRef<RecordKind>>() }
    }

    /// The newest record of a key.
    #[inline]
    pub(super) fn newest(&self, place: KeyRef) -> Record<'_> {
        let newest = self.newest_cell(place).load();
        self.record(newest.expect("a key is written together with its first record"))
    }

    /// The newest record of a key that a snapshot of `version` sees.
    #[inline]
    pub(super) fn visible(&self, place: KeyRef, version: Version) -> Option<Record<'_>> {
        // A lost page of a memtable in a file has zeros: no record. Its reader compares `lost`.
        let mut record = self.record(self.newest_cell(place).load()?);
        while record.version > version {
            // SAFETY: `older` is the reference (or none) written into the record before its own reference was made.
            record = self.record(unsafe { Ref::from_bits(record.older) }?);
        }
        Some(record)
    }

    #[inline]
    fn record(&self, place: RecordRef) -> Record<'_> {
        let at = self.at(place);
        // SAFETY: a whole record was written here before its reference was made, and it never changes.
        unsafe {
            let version = Version(at.cast::<u64>().read());
            let older = at.add(8).cast::<u32>().read();
            let length = at.add(12).cast::<u32>().read();
            let value = (length != TOMBSTONE)
                .then(|| std::slice::from_raw_parts(at.add(RECORD_HEADER).cast_const(), length as usize));
            Record { version, value, older }
        }
    }

    /// Prefetches the first lines of the target.
    #[inline]
    pub(super) fn prefetch<T>(&self, place: Ref<T>, lines: usize) {
        for line in 0..lines {
            prefetch_line(self.at(place).wrapping_add(line * LINE));
        }
    }
}

/// The only right to allocate in the arena, owned by the writer.
pub(super) struct Fill {
    arena: Arena,
    /// End of keys and records.
    low: usize,
    /// Start of nodes, buckets and trees.
    high: usize,
    /// End of what an earlier use may have left at the lower end.
    dirty: usize,
    /// Memory up to here was requested.
    asked: usize,
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.arena.memory.high.store(self.high, Ordering::Relaxed);
        self.arena.memory.dirty.store(self.dirty.max(self.low).min(self.high), Ordering::Relaxed);
    }
}

/// Bytes of a record.
pub(super) fn record_bytes(value_length: usize) -> usize {
    (RECORD_HEADER + value_length).next_multiple_of(UNIT)
}

/// Bytes of a key.
pub(super) fn key_bytes(key_length: usize) -> usize {
    (KEY_HEADER + key_length).next_multiple_of(UNIT)
}

impl Fill {
    /// Bytes not allocated by either end.
    pub(super) fn free_bytes(&self) -> usize {
        self.high - self.low
    }

    /// True if the lower end comes near to memory that was never requested; requests it, so that [`Arena::populate`] allocates it.
    pub(super) fn wants_memory(&mut self) -> bool {
        if self.low + AHEAD_BYTES <= self.asked || self.asked >= self.arena.bytes() {
            return false;
        }
        self.asked = self.low + 2 * AHEAD_BYTES;
        self.arena.memory.wanted.store(self.asked, Ordering::Relaxed);
        true
    }

    fn take_low(&mut self, bytes: usize) -> Option<usize> {
        let at = self.low;
        (bytes <= self.free_bytes()).then(|| self.low += bytes)?;
        Some(at)
    }

    fn take_high(&mut self, bytes: usize) -> Option<usize> {
        debug_assert!(bytes.is_multiple_of(LINE));
        (bytes <= self.free_bytes()).then(|| self.high -= bytes)?;
        let dirty = self.dirty.min(self.high + bytes).saturating_sub(self.high);
        if dirty > 0 {
            // SAFETY: `high` and the `bytes` after it lie inside the memory, were allocated just now, and nobody else
            // has a reference to them; `dirty` is at most `bytes`.
            unsafe { std::ptr::write_bytes(self.arena.base.as_ptr().add(self.high), 0, dirty) }
        }
        Some(self.high)
    }

    /// Writes a key and its first record side by side, so that one cache miss fetches both.
    pub(super) fn push_key(
        &mut self,
        tree: TreeId,
        key: &[u8],
        version: Version,
        value: Option<&[u8]>,
    ) -> Option<KeyRef> {
        let key_length = u32::try_from(key.len()).ok()?;
        let key_size = key_bytes(key.len());
        let start = self.take_low(key_size + record_bytes(value.map_or(0, <[u8]>::len)))?;
        let record = self.write_record(start + key_size, version, None, value)?;
        let place = KeyRef::new(start);
        let at = self.arena.at(place);
        // SAFETY: `take_low` allocated this space of `key_size` bytes only here, and no reference to it exists yet.
        unsafe {
            at.cast::<u32>().write(record.bits());
            at.add(4).cast::<u32>().write(tree.0);
            at.add(8).cast::<u32>().write(key_length);
            std::ptr::copy_nonoverlapping(key.as_ptr(), at.add(KEY_HEADER), key.len());
        }
        Some(place)
    }

    /// Writes a newer record of a key.
    pub(super) fn push_record(&mut self, key: KeyRef, version: Version, value: Option<&[u8]>) -> Option<()> {
        let older = self.arena.newest_cell(key).load();
        let start = self.take_low(record_bytes(value.map_or(0, <[u8]>::len)))?;
        let record = self.write_record(start, version, older, value)?;
        self.arena.newest_cell(key).store(Some(record));
        Some(())
    }

    /// Writes a record into space just allocated at `start`.
    fn write_record(
        &mut self,
        start: usize,
        version: Version,
        older: Option<RecordRef>,
        value: Option<&[u8]>,
    ) -> Option<RecordRef> {
        let length = match value {
            Some(bytes) => u32::try_from(bytes.len()).ok().filter(|length| *length != TOMBSTONE)?,
            None => TOMBSTONE,
        };
        let bytes = value.unwrap_or_default();
        let place = RecordRef::new(start);
        let at = self.arena.at(place);
        // SAFETY: the caller allocated `record_bytes(bytes.len())` at `start`, and no reference to it exists yet.
        unsafe {
            at.cast::<u64>().write(version.0);
            at.add(8).cast::<u32>().write(older.map_or(0, Ref::bits));
            at.add(12).cast::<u32>().write(length);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.add(RECORD_HEADER), bytes.len());
        }
        Some(place)
    }

    /// Reserves a zeroed object.
    pub(super) fn push<T: Lined>(&mut self) -> Option<Ref<T>> {
        self.push_all(1)
    }

    /// Reserves `count` zeroed objects side by side.
    pub(super) fn push_all<T: Lined>(&mut self, count: usize) -> Option<Ref<T>> {
        const { assert!(size_of::<T>().is_multiple_of(LINE) && size_of::<T>() > 0 && align_of::<T>() <= LINE) };
        assert!(count > 0, "a reference leads to an object");
        self.take_high(count.checked_mul(size_of::<T>())?).map(Ref::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_asked_for_once_for_each_stretch_and_not_again_when_it_serves_again() {
        let (arena, mut fill) = Arena::new(8 * AHEAD_BYTES).unwrap();
        let value = vec![7; AHEAD_BYTES / 16];
        let populated = || arena.memory.populated.load(Ordering::Relaxed);
        let mut asked = 0;
        for number in 0.. {
            let key = u64::to_be_bytes(number);
            if fill.push_key(TreeId(1), &key, Version(number), Some(&value)).is_none() {
                break;
            }
            assert!(populated() == 0 || populated() >= fill.low, "it was not asked for in time");
            if fill.wants_memory() {
                asked += 1;
                arena.populate();
            }
            assert!(!fill.wants_memory(), "asked twice");
            assert_eq!(fill.low > UNASKED_BYTES, populated() > 0);
        }
        assert!((4..=8).contains(&asked), "{asked}");
        drop(fill);
        let (_arena, mut fill) = arena.reuse().unwrap();
        assert!(fill.push_key(TreeId(1), b"key", Version(1), Some(&value)).is_some());
        assert!(!fill.wants_memory(), "it has its memory already");
    }
}
