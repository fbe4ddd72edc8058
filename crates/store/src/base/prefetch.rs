//! Prefetches memory that will be read soon.

#![allow(unsafe_code)] // The instruction has no safe wrapper.

/// Prefetches the cache line in which `values` begin. A page that is not in memory is not read from the disk.
#[inline]
pub(crate) fn prefetch<T>(values: &[T]) {
    prefetch_line(values.as_ptr().cast());
}

/// Prefetches a cache line.
#[inline]
pub(crate) fn prefetch_line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads and writes nothing and cannot fault, whatever the address; SSE is part of x86_64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

const LINE_BYTES: usize = 64;
/// Prefetched lines of a value; the hardware prefetcher fetches the rest of a longer one.
const LINES_MAX: usize = 8;

/// Bytes that [`prefetch_all`] prefetches.
pub(crate) const PREFETCHED_BYTES_MAX: usize = LINES_MAX * LINE_BYTES;

/// Prefetches all lines of a short value at once, where a sequential read would wait for one after the other.
#[inline]
pub(crate) fn prefetch_all(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES).take(LINES_MAX) {
        prefetch(line);
    }
    // The last byte's line: a value may begin anywhere in its first line.
    prefetch(bytes.get(bytes.len().saturating_sub(1)..).unwrap_or_default());
}
