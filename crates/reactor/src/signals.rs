//! SIGTERM and SIGINT as something to wait for, for the binary that owns the process.
//!
//! The signals are blocked and then waited for on a thread of the binary's choice: no handler, no self-pipe, nothing
//! that must be async-signal-safe.
#![allow(unsafe_code)] // sigprocmask and sigwait have no safe binding among our libraries.

use std::io;

/// The right to wait for the process's end. One for the process, taken before any other thread is started.
#[derive(Debug)]
pub struct Termination(());

/// Which signal came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Termination {
    /// Blocks both signals for the calling thread and all that it starts later. Threads that run already would still
    /// be killed by them, so call it first in `main`.
    pub fn claim() -> io::Result<Self> {
        let set = both();
        // SAFETY: `set` is an initialised signal set that lives through the call; a null old set is allowed.
        let status = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
        if status == 0 { Ok(Self(())) } else { Err(io::Error::from_raw_os_error(status)) }
    }

    /// Waits for the next of the two. May be called again, for an impatient second Ctrl-C.
    pub fn wait(&self) -> Signal {
        let (set, mut signal) = (both(), 0);
        // SAFETY: `set` is initialised, `signal` a live local; both signals were blocked by `claim`, as sigwait asks.
        // It fails only for an invalid set.
        unsafe { libc::sigwait(&set, &mut signal) };
        if signal == libc::SIGINT { Signal::Interrupt } else { Signal::Terminate }
    }
}

fn both() -> libc::sigset_t {
    // SAFETY: sigset_t is plain bits; sigemptyset initialises the live local before it is used, and the two signal
    // numbers are valid, so none of the calls can fail.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        set
    }
}
