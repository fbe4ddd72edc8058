//! The allocator of the program.
//!
//! Small blocks are mimalloc's: late replies are allocated on one thread and freed on another, which mimalloc does without
//! a lock. Each large block is a memory map of its own, made by the C library. Freeing it returns it to the kernel at
//! once, and a buffer that grows is moved by its page tables instead of copied, so it never holds its bytes twice.
//! mimalloc would put blocks of up to half a megabyte, of one size and thread, into runs of four megabytes, and keep the
//! touched memory of a run until all its blocks are free. After a burst of large documents that was most of a small memory
//! setting.

#![allow(unsafe_code)] // An allocator, and the options of two others, which have no safe interface.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_int, c_long, c_void};

use mimalloc::MiMalloc;

/// Blocks of at least this size are large. Requests in steady state allocate none: they reuse kept buffers.
const LARGE_BYTES: usize = 32 << 10;
/// `mi_option_purge_delay` of mimalloc 3: milliseconds for which freed memory stays mapped.
const PURGE_DELAY: c_int = 15;

/// `MI_MAX_ALIGN_SIZE` of mimalloc's `types.h`: the alignment of every block of at least as many bytes. Smaller blocks are aligned to
/// eight bytes.
const ALIGNED_ANYWAY: usize = 16;

// As in `mimalloc.h`; the bindings have the option only together with all the rest, and without its number.
unsafe extern "C" {
    fn mi_malloc(bytes: usize) -> *mut c_void;
    fn mi_zalloc(bytes: usize) -> *mut c_void;
    fn mi_option_set(option: c_int, value: c_long);
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

struct BySize;

#[global_allocator]
static ALLOCATOR: BySize = BySize;

/// Whether mimalloc's plain allocation gives a small block the alignment that is asked for. Its aligned allocation, which its bindings
/// call for every block, is several times slower for sizes that are no power of two, such as 112 bytes: if the free list of that size
/// is empty, it takes a larger block instead of those that other threads have freed.
fn is_aligned_anyway(layout: Layout) -> bool {
    layout.align() <= 8 || layout.align() <= ALIGNED_ANYWAY && layout.size() >= ALIGNED_ANYWAY
}

fn is_large(bytes: usize) -> bool {
    bytes >= LARGE_BYTES
}

// SAFETY: a block's size decides which of two sound allocators it belongs to; the caller gives the same size when it is
// freed or changed, so it always comes back to its own. A change across the bound is a new block and a copy.
unsafe impl GlobalAlloc for BySize {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match layout.size() {
            // SAFETY: the caller's promise is passed on.
            size if is_large(size) => unsafe { System.alloc(layout) },
            // SAFETY: `mi_malloc` takes any size, and its block has the alignment; it is freed by `mi_free`, as all small blocks.
            size if is_aligned_anyway(layout) => unsafe { mi_malloc(size).cast() },
            // SAFETY: the caller's promise is passed on.
            _ => unsafe { MiMalloc.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match layout.size() {
            // SAFETY: the caller's promise is passed on.
            size if is_large(size) => unsafe { System.alloc_zeroed(layout) },
            // SAFETY: as for `alloc`.
            size if is_aligned_anyway(layout) => unsafe { mi_zalloc(size).cast() },
            // SAFETY: the caller's promise is passed on.
            _ => unsafe { MiMalloc.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on, to the allocator that the same size led to before.
        unsafe { if is_large(layout.size()) { System.dealloc(block, layout) } else { MiMalloc.dealloc(block, layout) } }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        match (is_large(layout.size()), is_large(bytes)) {
            // SAFETY: the caller's promise is passed on, to the allocator that has the block.
            (true, true) => unsafe { System.realloc(block, layout, bytes) },
            // SAFETY: as above.
            (false, false) => unsafe { MiMalloc.realloc(block, layout, bytes) },
            // SAFETY: `bytes` is not zero and does not overflow with the alignment, as the caller promises; both blocks
            // have as many bytes as are copied, and the old one is freed once, where it is not needed any more.
            _ => unsafe {
                let new = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
                if !new.is_null() {
                    std::ptr::copy_nonoverlapping(block, new, layout.size().min(bytes));
                    self.dealloc(block, layout);
                }
                new
            },
        }
    }
}

/// Returns freed memory to the kernel at once, for as long as the process lives. By default mimalloc keeps it for a
/// second, and the C library keeps it for good once it has seen a large block freed: a burst would count twice against the
/// memory setting.
pub(crate) fn give_back_at_once() {
    // SAFETY: sets a number in a table of the allocator, at an index inside it; any thread may at any time.
    unsafe { mi_option_set(PURGE_DELAY, 0) }
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES as c_int) };
}

#[cfg(test)]
mod tests {
    use super::{ALLOCATOR, LARGE_BYTES, PURGE_DELAY, mi_option_get};
    use std::alloc::{GlobalAlloc, Layout};

    #[test]
    fn the_options_number_is_that_of_the_purge_delay() {
        // SAFETY: reads a number of the same table.
        let default = unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(default, 1000, "a new version of mimalloc may number its options anew");
    }

    #[test]
    fn blocks_are_aligned_as_asked() {
        for size in 1..4096_usize {
            for align in [1, 8, 16, 64] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // Several at once, so that they are not all the first of a page.
                let blocks: Vec<*mut u8> = (0..5)
                    // SAFETY: the size is not zero.
                    .map(|_| unsafe { ALLOCATOR.alloc(layout) })
                    .collect();
                assert!(blocks.iter().all(|block| !block.is_null() && block.addr() % align == 0), "{layout:?}");
                // SAFETY: each was allocated above with this layout, and is freed once.
                blocks.into_iter().for_each(|block| unsafe { ALLOCATOR.dealloc(block, layout) });
            }
        }
    }

    #[test]
    fn a_block_keeps_its_bytes_when_it_crosses_the_bound_both_ways() {
        let mut bytes: Vec<u8> = Vec::new();
        for number in 0..5 * LARGE_BYTES {
            bytes.push(number as u8);
        }
        bytes.truncate(LARGE_BYTES / 2);
        bytes.shrink_to_fit();
        bytes.reserve_exact(3 * LARGE_BYTES);
        assert!(bytes.iter().enumerate().all(|(number, byte)| *byte == number as u8));
        assert_eq!(vec![0_u64; LARGE_BYTES].iter().sum::<u64>(), 0);
    }
}
