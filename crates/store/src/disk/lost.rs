//! Lost pages: what becomes of a touch of the map that the disk does not serve.
//!
//! The kernel answers such a touch with SIGBUS: the disk failed to read the page, or the file was cut under us. Left alone
//! that ends the process, and with it every other request. Jumping out of the handler is no way out (the code it leaves
//! behind may hold anything). So the handler notes the page as lost, puts a page of zeros in its place, and
//! lets the touch go on.
//!
//! Zeros must never pass for data. What makes sure of that:
//!
//! 1. The page is noted before the zeros are there. So who has read a zero of it finds the count of lost pages risen.
//! 2. Whoever reads through the map compares the count afterwards with the one before, before the result is used for
//!    anything: `Snapshot`, the preparation of transactions, and the end of a checkpoint do.
//! 3. A page that is noted is not handed out again ([`Watched::holds_lost`]), until the file is opened anew: its place in
//!    memory stays zeros.
//!
//! A fault elsewhere than in a watched map is none of ours: it goes to whoever handled the signal before, or ends the process.

#![allow(unsafe_code)] // A signal handler, and the page that it maps.

use std::io;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// Maps that can be watched at once.
const WATCHED_MAX: usize = 256;
/// Lost pages that are told apart; with more of them the whole map counts as lost.
const PAGES_MAX: usize = 64;

/// One watched map. Static, since the handler may neither allocate nor lock.
struct Place {
    /// 0: free. `CLAIMED`: being filled in, or not used any more.
    start: AtomicUsize,
    end: AtomicUsize,
    /// Lost pages, noted twice where two threads met at one.
    lost: AtomicU64,
    /// Their offsets.
    pages: [AtomicU64; PAGES_MAX],
}

/// Counted, and about to be noted by another thread: it may be any page.
const NOT_NOTED: u64 = u64::MAX;
const CLAIMED: usize = usize::MAX;

impl Place {
    const fn new() -> Place {
        Place {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            pages: [const { AtomicU64::new(0) }; PAGES_MAX],
        }
    }
}

static PLACES: [Place; WATCHED_MAX] = [const { Place::new() }; WATCHED_MAX];

/// Of memory that no disk stands behind.
static NOWHERE: Place = Place::new();

/// What handled the signal before us.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Bytes of a page of memory, which may be larger than a page of the file.
static MEMORY_PAGE: AtomicUsize = AtomicUsize::new(0);

/// A map is watched until this is dropped.
pub(super) struct Watched {
    place: &'static Place,
}

impl Watched {
    /// Watches the memory from `start` on, which the caller has mapped and keeps mapped.
    pub(super) fn new(start: usize, len: usize) -> io::Result<Watched> {
        install()?;
        for place in &PLACES {
            if place.start.compare_exchange(0, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                place.lost.store(0, Ordering::Relaxed);
                place.pages.iter().for_each(|page| page.store(NOT_NOTED, Ordering::Relaxed));
                place.end.store(start + len, Ordering::Relaxed);
                place.start.store(start, Ordering::Release);
                return Ok(Watched { place });
            }
        }
        Err(io::Error::other("too many files are mapped"))
    }

    /// Watches nothing, and so never counts anything.
    pub(super) fn nothing() -> Watched {
        Watched { place: &NOWHERE }
    }

    /// Lost pages so far. A zero read from one of them before this call has been counted.
    #[inline]
    pub(super) fn lost(&self) -> u64 {
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

/// Once for the process.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: sysconf reads a constant of the system.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        MEMORY_PAGE.store(usize::try_from(page_bytes).unwrap_or(4096), Ordering::Relaxed);
        let mut previous = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: asks for the present action, into memory of its size.
        if unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), previous.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(0));
        }
        // SAFETY: the call above has filled it in. Known before the handler can run, which reads it.
        let _ = PREVIOUS.set(unsafe { previous.assume_init() });
        // SAFETY: all zeros is a valid sigaction: an empty mask, no flags.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
        action.sa_sigaction = handler as usize;
        // The standard library's threads have a stack for signals.
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
    // SAFETY: the kernel hands a valid siginfo to a handler of SA_SIGINFO, and for SIGBUS it holds an address.
    let address = unsafe { (*info).si_addr() } as usize;
    // SAFETY: errno of this thread; what the interrupted code may be about to read is put back.
    let errno = unsafe { *libc::__errno_location() };
    if !replace(address)
        && let Some(previous) = PREVIOUS.get()
    {
        // SAFETY: puts back an action that the kernel gave us. The touch is repeated on return, and meets it.
        unsafe { libc::sigaction(libc::SIGBUS, previous, std::ptr::null_mut()) };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Notes the page and puts zeros in its place; false where the address lies in no watched map.
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
        // SAFETY: the page lies in a map that is alive (a touch of it is under way), and is mapped read-only: replacing it
        // by another read-only page, of zeros, changes only what is read, which rule 1 to 3 of the module's text bear.
        let zeros = unsafe {
            libc::mmap(
                page as *mut libc::c_void,
                page_bytes,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        return zeros != libc::MAP_FAILED;
    }
    false
}
