//! The allocator, chosen here alone: mimalloc, since late replies are allocated on one thread and freed on another, which
//! it does without a lock.

#![allow(unsafe_code)] // Its options are set through its C interface; it has no safe one.

use std::ffi::{c_int, c_long};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc 3: milliseconds for which freed memory stays mapped.
const PURGE_DELAY: c_int = 15;

// As in `mimalloc.h`; the bindings have it only together with all the rest, and without this option's number.
unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
    #[cfg(test)]
    fn mi_option_get(option: c_int) -> c_long;
}

/// Gives freed memory back at once. By default it stays for a second, so that a burst of large bodies and replies would
/// count twice against the memory setting; what requests use again and again is kept in buffers of our own, and never
/// freed.
pub(crate) fn give_back_at_once() {
    // SAFETY: sets a number in a table of the allocator, at an index inside it; any thread may at any time.
    unsafe { mi_option_set(PURGE_DELAY, 0) }
}

#[cfg(test)]
mod options {
    use super::PURGE_DELAY;

    #[test]
    fn the_options_number_is_that_of_the_purge_delay() {
        // SAFETY: reads a number of the same table.
        let default = unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(default, 1000, "a new version of mimalloc may number its options anew");
    }
}
