//! SIGTERM, SIGINT and SIGHUP as events to wait for, for the binary that owns the process.
//!
//! The signals are blocked and then waited for on a thread of the binary's choice: no handler, no self-pipe, nothing
//! that must be async-signal-safe.
#![allow(unsafe_code)] // sigprocmask and sigwait have no safe binding among our libraries.

use std::io;

/// The right to wait for termination signals. One for the process, taken before any other thread is started.
#[derive(Debug)]
pub struct Termination {
    with_hangup: bool,
}

/// Which signal came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: read the configuration again.
    Hangup,
}

impl Termination {
    /// Blocks SIGTERM and SIGINT for the calling thread and all threads that it starts later. Running threads would still be
    /// killed by them, so call it first in `main`.
    pub fn claim() -> io::Result<Self> {
        Self::claim_all(false)
    }

    /// The same with SIGHUP, which then no longer ends the process.
    pub fn claim_with_hangup() -> io::Result<Self> {
        Self::claim_all(true)
    }

    fn claim_all(with_hangup: bool) -> io::Result<Self> {
        let set = claimed(with_hangup);
        // SAFETY: `set` is an initialised signal set that lives through the call; a null old set is allowed.
        let status = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
        if status == 0 { Ok(Self { with_hangup }) } else { Err(io::Error::from_raw_os_error(status)) }
    }

    /// Waits for the next of these signals. May be called again, for a second Ctrl-C.
    pub fn wait(&self) -> Signal {
        let (set, mut signal) = (claimed(self.with_hangup), 0);
        // SAFETY: `set` is initialised, `signal` a live local; both signals were blocked by `claim`, as sigwait asks.
        // It fails only for an invalid set.
        unsafe { libc::sigwait(&set, &mut signal) };
        match signal {
            libc::SIGINT => Signal::Interrupt,
            libc::SIGHUP => Signal::Hangup,
            _ => Signal::Terminate,
        }
    }
}

fn claimed(with_hangup: bool) -> libc::sigset_t {
    // SAFETY: sigset_t is plain bits; sigemptyset initialises the live local before it is used, and the signals'
    // numbers are valid, so none of the calls can fail.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGINT);
        if with_hangup {
            libc::sigaddset(&mut set, libc::SIGHUP);
        }
        set
    }
}
