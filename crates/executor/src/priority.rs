//! The priority of a thread: work that may take long gives way to what clients wait for.
#![allow(unsafe_code)] // setpriority(2) for a thread has no safe binding among our libraries.

/// The nicest value: beside a thread of the usual priority such a thread gets about a seventieth of a core, alone all of it.
const NICEST: libc::c_int = 19;

/// Has the calling thread give way to all of the usual priority, for as long as it lives. Where the system refuses, it
/// stays as it was.
pub fn give_way() {
    // SAFETY: the call reads no memory. On Linux the id 0 is the calling thread's, not the process's (setpriority(2),
    // "C library/kernel differences").
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICEST) };
}
