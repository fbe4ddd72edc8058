//! What is in memory: asked of the kernel before a page is touched on a thread that must not wait for the disk.

#![allow(unsafe_code)] // mincore and getrusage have no safe wrapper in the standard library.

use std::mem::MaybeUninit;

/// Pages of one question: of a larger value the start is asked for.
const PAGES_MAX: usize = 64;
/// The kernel wants a page's start. Larger pages of memory only make it look at a little more.
const PAGE_BYTES: usize = 4096;

/// Whether all of the bytes' pages, or the first [`PAGES_MAX`], are in memory. Where the kernel does not tell: yes.
pub(super) fn is_resident(bytes: &[u8]) -> bool {
    let start = bytes.as_ptr() as usize / PAGE_BYTES * PAGE_BYTES;
    let len = (bytes.as_ptr() as usize + bytes.len() - start).min(PAGES_MAX * PAGE_BYTES);
    let mut present = [1u8; PAGES_MAX];
    // SAFETY: the range is mapped, as `bytes` borrows from it (a page's start lies in the same mapping), and `present` has a
    // byte for each of its pages.
    let result = unsafe { libc::mincore(start as *mut libc::c_void, len, present.as_mut_ptr()) };
    result != 0 || present.iter().all(|page| page & 1 == 1)
}

/// Bytes of memory of the machine; 0 where the kernel does not tell.
pub(crate) fn memory_bytes() -> u64 {
    // SAFETY: sysconf reads constants of the system.
    let (pages, page_bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(page_bytes).unwrap_or(0)
}

/// How often the calling thread has waited for the disk because it touched memory that was not there.
pub fn major_faults() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills in a structure of this size; all zeros is a valid one too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_majflt).unwrap_or(0)
}
