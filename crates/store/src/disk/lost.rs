//! Lost pages: handling of accesses to the map that the disk cannot serve.
//!
//! The kernel answers such an access with SIGBUS: the disk failed to read the page, or the file was truncated. The default action
//! would end the process and all other requests. Jumping out of the handler is no alternative, since the interrupted code may be in
//! any state. So the handler records the page as lost, maps a page of zeros in its place, and lets the access continue.
//!
//! The map of a large transaction's file is writable; a lost page of it is replaced by a writable one.
//!
//! Zeros must never be taken for data. This is ensured as follows:
//!
//! 1. The page is recorded before the zeros are mapped. So a thread that has read a zero from it finds the count of lost pages increased.
//! 2. Every reader of the map compares the count after reading with the one before, and only then uses the result.
//!    `StoreSnapshot`, the preparation of transactions, and the end of a checkpoint do this.
//! 3. A recorded page is not handed out again ([`Watched::holds_lost`]) until the file is reopened: its memory stays zero.
//!
//! A fault outside of the watched maps is passed to the previous handler of the signal, or ends the process.

#![allow(unsafe_code)] // A signal handler, and the page that it maps.

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// Maximum number of watched maps.
const WATCHED_MAX: usize = 256;
/// Maximum number of lost pages recorded one by one; with more the whole map counts as lost.
const PAGES_MAX: usize = 64;

/// One watched map. Static, since the handler must neither allocate nor lock.
struct Place {
    /// 0: free. `CLAIMED`: being initialized, or no longer used.
    start: AtomicUsize,
    end: AtomicUsize,
    is_writable: AtomicBool,
    /// Number of lost pages; counted twice if two threads hit one page together.
    lost: AtomicU64,
    /// Their offsets.
    pages: [AtomicU64; PAGES_MAX],
}

/// Counted, but not yet recorded by another thread: it may be any page.
const NOT_NOTED: u64 = u64::MAX;
const CLAIMED: usize = usize::MAX;

impl Place {
    const fn new() -> Place {
        Place {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            is_writable: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            pages: [const { AtomicU64::new(0) }; PAGES_MAX],
        }
    }
}

static PLACES: [Place; WATCHED_MAX] = [const { Place::new() }; WATCHED_MAX];

/// For memory that is not backed by a disk.
static NOWHERE: Place = Place::new();

/// The previous handler of the signal.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Bytes of a memory page, which may be larger than a page of the file.
static MEMORY_PAGE: AtomicUsize = AtomicUsize::new(0);

/// Watches a map until it is dropped.
pub(crate) struct Watched {
    place: &'static Place,
}

impl Watched {
    /// Watches `len` bytes of memory at `start`, which the caller has mapped and keeps mapped, read-only.
    pub(super) fn new(start: usize, len: usize) -> io::Result<Watched> {
        Watched::of(start, len, false)
    }

    /// The same for memory that is mapped writable.
    pub(crate) fn writable(start: usize, len: usize) -> io::Result<Watched> {
        Watched::of(start, len, true)
    }

    fn of(start: usize, len: usize, is_writable: bool) -> io::Result<Watched> {
        install()?;
        for place in &PLACES {
            if place.start.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                place.lost.store(0, Ordering::Relaxed);
                place.pages.iter().for_each(|page| page.store(NOT_NOTED, Ordering::Relaxed));
                place.end.store(start + len, Ordering::Relaxed);
                place.is_writable.store(is_writable, Ordering::Relaxed);
                place.start.store(start, Ordering::Release);
                return Ok(Watched { place });
            }
        }
        Err(io::Error::other("too many files are mapped"))
    }

    /// Watches nothing, so it never counts anything.
    pub(super) fn nothing() -> Watched {
        Watched { place: &NOWHERE }
    }

    /// Number of lost pages so far. A zero read from one of them before this call has been counted.
    #[inline]
    pub(crate) fn lost(&self) -> u64 {
        fence(Ordering::Acquire);
        self.place.lost.load(Ordering::Relaxed)
    }

    /// Whether a part of these bytes is lost.
    #[cold]
    pub(super) fn holds_lost(&self, offset: u64, len: usize) -> bool {
        let lost = self.place.lost.load(Ordering::Acquire) as usize;
        let page_bytes = MEMORY_PAGE.load(Ordering::Relaxed) as u64;
        let noted = self.place.pages.iter().take(lost);
        lost > PAGES_MAX
            || noted.map(|page| page.load(Ordering::Acquire)).any(|page| {
                page == NOT_NOTED
                    || page < offset.saturating_add(len as u64) && offset < page.saturating_add(page_bytes)
            })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.place.start.store(0, Ordering::Release);
    }
}

/// Installs the handler, once for the process.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: sysconf reads a constant of the system.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        MEMORY_PAGE.store(usize::try_from(page_bytes).unwrap_or(4096), Ordering::Relaxed);
        let mut previous = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: reads the current action into memory of its size.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), previous.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        // SAFETY: the call above has filled it in. It is set before the handler can run, which reads it.
        let _ = PREVIOUS.set(unsafe { previous.assume_init() });
        // SAFETY: all zeros is a valid sigaction: an empty mask, no flags.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
        action.sa_sigaction = handler as usize;
        // The standard library's threads have an alternate signal stack.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler calls nothing that is not safe in a signal handler: atomics, mmap, sigaction.
        if unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        Ok(())
    });
    installed.map_err(io::Error::from_raw_os_error)
}

extern "C" fn on_bus_error(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to a handler of SA_SIGINFO, and for SIGBUS it holds an address.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: errno of this thread; it is restored below for the interrupted code.
    let errno = unsafe { *libc::__errno_location() };
    if !replace(address)
        && let Some(previous) = PREVIOUS.get()
    {
        // SAFETY: restores an action that came from the kernel. The access is repeated on return and reaches that action.
        unsafe { libc::sigaction(libc::SIGBUS, previous, std::ptr::null_mut()) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Records the page and maps zeros in its place; false if the address is in no watched map.
fn replace(address: usize) -> bool {
    let page_bytes = MEMORY_PAGE.load(Ordering::Relaxed).max(1);
    let page = address / page_bytes * page_bytes;
    for place in &PLACES {
        let start = place.start.load(Ordering::Acquire);
        if start == 0 || start == CLAIMED || address < start || address >= place.end.load(Ordering::Relaxed) {
            continue;
        }
        let index = place.lost.fetch_add(1, Ordering::AcqRel) as usize;
        if let Some(note) = place.pages.get(index) {
            note.store((page - start) as u64, Ordering::Release);
        }
        let is_writable = place.is_writable.load(Ordering::Relaxed);
        // SAFETY: the page is in a live map (an access to it is in progress) and mapped with these rights. Replacing it by
        // another page with the same rights, of zeros, changes only what is read, which rules 1 to 3 of the module's text cover.
        let zeros = unsafe {
            libc::mmap(
                page as *mut libc::c_void,
                page_bytes,
                if is_writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ },
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        return zeros != libc::MAP_FAILED;
    }
    false
}
