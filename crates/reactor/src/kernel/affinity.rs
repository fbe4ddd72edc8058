//! Binding a thread to a CPU.
#![allow(unsafe_code)] // sched_setaffinity has no safe binding among our libraries.

use std::io;

/// Binds the calling thread to `cpu`.
pub(crate) fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: cpu_set_t is a plain bit mask for which all zeros is the empty set; CPU_SET stays inside it because `cpu`
    // is below CPU_SETSIZE; the kernel reads `size` bytes of a value that lives through the call.
    let status = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
