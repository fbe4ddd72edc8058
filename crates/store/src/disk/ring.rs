//! Reads past the page cache with io_uring(7).
//!
//! Threads blocked in `pread` would also work. But on a virtual disk each of their reads notifies the device by itself
//! and ends with a thread wake-up: 5.5 µs of CPU for a read, and as much again for passing it to such a thread and
//! back. Reads that are submitted and collected in batches cost 2.4 µs.
//!
//! Why the buffers are sound although the kernel fills them without the compiler's knowledge: they lie in a map of
//! their own, which is accessed only through its address. A slice of a slot is created only while no read of it is
//! noted or in flight (`places`). The map is freed only after every read has ended, or never ([`Drop`]).

#![allow(unsafe_code)] // The ring gets addresses; an eventfd, and slices of buffers that the kernel fills.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use io_uring::{IoUring, opcode, types};
use memmap2::{MmapMut, MmapRaw};

use super::DIRECT_ALIGN;
use super::reads::ReadQueue;

/// Maximum number of slots of one queue.
const PLACES_MAX: usize = 1024;
/// Attempts to submit reads while the kernel is short of memory.
const TRIES_MAX: usize = 3;
/// io_uring_enter(2): run the completions that wait for this thread.
const ENTER_GETEVENTS: u32 = 1;

/// State of a slot's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Idle,
    Busy,
    /// Not submitted, but the ring may still know it: its buffer is never used again.
    Given,
}

/// See the module's text.
pub(super) struct Ring {
    ring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<MmapRaw>,
    place_bytes: usize,
    places: Box<[Place]>,
    /// Noted, in the order of the ring's submission queue.
    noted: Vec<usize>,
    /// Reads that could not be submitted, and are not yet reported.
    refused: Vec<usize>,
    /// Nothing is submitted any more.
    is_broken: bool,
    /// Number of reads submitted and not ended.
    under_way: usize,
    event: OwnedFd,
}

impl Ring {
    /// A queue of this many slots, each a multiple of [`DIRECT_ALIGN`], for reads of this file. To be created and used on one
    /// thread. Fails if the kernel is too old (before 6.1) or forbids rings, or the file system has no direct reads.
    pub(super) fn new(file: &File, places: usize, place_bytes: usize) -> io::Result<Ring> {
        let is_fit = (1..=PLACES_MAX).contains(&places) && place_bytes > 0 && place_bytes.is_multiple_of(DIRECT_ALIGN);
        if !is_fit {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Reopens the same file, whatever its name is by now.
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(own)?;
        // Completions are delivered when this thread asks for them, and do not interrupt it otherwise.
        let ring =
            IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(places.next_power_of_two() as u32)?;
        // SAFETY: a plain system call; no memory is passed.
        let event = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and no other code has it.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        // A ring's own descriptor can be polled too, but kernels differ in when it wakes the poller.
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        // The ring keeps the file open from here on.
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let buffers = MmapRaw::from(MmapMut::map_anon(places * place_bytes)?);
        Ok(Ring {
            ring: ManuallyDrop::new(ring),
            buffers: ManuallyDrop::new(buffers),
            place_bytes,
            places: vec![Place::Idle; places].into(),
            noted: Vec::with_capacity(places),
            refused: Vec::with_capacity(places),
            is_broken: false,
            under_way: 0,
            event,
        })
    }

    /// Reports the reads that the kernel does not accept as ended.
    #[cold]
    fn refuse(&mut self) {
        self.is_broken = true;
        for place in self.noted.drain(..) {
            self.places[place] = Place::Given;
            self.refused.push(place);
        }
    }

    /// Lets the kernel post completions; waits for at least `least` of them.
    fn enter(&self, least: u32) -> io::Result<()> {
        // SAFETY: no argument is a pointer, and nothing is submitted.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, least, ENTER_GETEVENTS, None) }.map(drop)
    }
}

impl ReadQueue for Ring {
    fn completions(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    fn note(&mut self, place: usize, offset: u64, len: usize) -> bool {
        let is_aligned = offset.is_multiple_of(DIRECT_ALIGN as u64) && len.is_multiple_of(DIRECT_ALIGN);
        if self.is_broken || self.places.get(place) != Some(&Place::Idle) || !is_aligned || len > self.place_bytes {
            return false;
        }
        // SAFETY: the place lies in the map, which has `place_bytes` for each.
        let buffer = unsafe { self.buffers.as_mut_ptr().add(place * self.place_bytes) };
        let read =
            opcode::Read::new(types::Fixed(0), buffer, len as u32).offset(offset).build().user_data(place as u64);
        // SAFETY: the buffer is the slot's own, has at least `len` bytes, stays mapped until the read has ended, and is
        // not read before: the slot is busy.
        if unsafe { self.ring.submission().push(&read) }.is_err() {
            return false;
        }
        self.places[place] = Place::Busy;
        self.noted.push(place);
        true
    }

    fn begin(&mut self) {
        for _ in 0..TRIES_MAX {
            if self.noted.is_empty() {
                return;
            }
            match self.ring.submit() {
                Ok(count) => {
                    let count = count.min(self.noted.len());
                    self.noted.drain(..count);
                    self.under_way += count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel is short of memory, or of room for completions: collecting them may free some.
                Err(_) => drop(self.enter(0)),
            }
        }
        if !self.noted.is_empty() {
            self.refuse();
        }
    }

    fn gather(&mut self) {
        if self.under_way > 0 {
            // Fails only if the ring is broken, and then nothing ever ends.
            while self.enter(0).is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
        }
    }

    fn next_ended(&mut self) -> Option<(usize, io::Result<usize>)> {
        if let Some(place) = self.refused.pop() {
            return Some((place, Err(io::ErrorKind::Other.into())));
        }
        let ended = self.ring.completion().next()?;
        self.under_way -= 1;
        let place = ended.user_data() as usize;
        if let Some(state) = self.places.get_mut(place) {
            *state = Place::Idle;
        }
        let result = usize::try_from(ended.result()).map_err(|_| io::Error::from_raw_os_error(-ended.result()));
        Some((place, result))
    }

    fn bytes(&self, place: usize) -> &[u8] {
        if self.places.get(place) != Some(&Place::Idle) {
            return &[];
        }
        // SAFETY: the slot lies in the map, which lives as long as `self`. It was zeros at first, and no read writes to
        // it before `note`, which needs exclusive access to `self`.
        unsafe { std::slice::from_raw_parts(self.buffers.as_ptr().add(place * self.place_bytes), self.place_bytes) }
    }
}

impl Drop for Ring {
    /// Reads in flight write into the buffers, whatever happens to the ring.
    fn drop(&mut self) {
        while self.under_way > 0 {
            if self.enter(1).is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
                // Ring and buffers are leaked.
                return;
            }
            self.under_way = self.under_way.saturating_sub(self.ring.completion().count());
        }
        // SAFETY: neither is used again. The ring is dropped first, with what it still knows of refused reads.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            ManuallyDrop::drop(&mut self.buffers);
        }
    }
}
