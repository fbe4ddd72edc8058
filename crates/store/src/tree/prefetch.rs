//! Asks the processor for memory that will be read soon.

#![allow(unsafe_code)] // The instruction has no safe wrapper.

/// Fetches the cache line in which `values` begin. Touches nothing: a page that is not in memory is not brought in.
#[inline]
pub(crate) fn prefetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads and writes nothing and cannot fault, whatever the address; SSE is part of x86_64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(values.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}

const LINE_BYTES: usize = 64;
/// Lines of a value that are asked for; of a longer one the processor's own prefetcher brings the rest.
const LINES_MAX: usize = 8;

/// Fetches all lines of a short value at once, where reading it from the front would wait for one after the other.
#[inline]
pub(crate) fn prefetch_all(bytes: &[u8]) {
    for line in bytes.chunks(LINE_BYTES).take(LINES_MAX) {
        prefetch(line);
    }
    // The last byte's line: a value begins anywhere in its first.
    prefetch(bytes.get(bytes.len().saturating_sub(1)..).unwrap_or_default());
}
