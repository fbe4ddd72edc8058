//! Residency: asks the kernel whether a page is in memory, for threads that must not wait for the disk.

#![allow(unsafe_code)] // mincore and getrusage have no safe wrapper in the standard library.

use std::mem::MaybeUninit;

/// Maximum number of pages of one query: of a larger value only the start is checked.
const PAGES_MAX: usize = 64;
/// The kernel requires a page's start. With larger memory pages it only checks a little more.
const PAGE_BYTES: usize = 4096;

/// Whether all of the bytes' pages, or the first [`PAGES_MAX`], are in memory. True if the kernel does not tell.
pub(super) fn is_resident(bytes: &[u8]) -> bool {
    let start = bytes.as_ptr() as usize / PAGE_BYTES * PAGE_BYTES;
    let len = (bytes.as_ptr() as usize + bytes.len() - start).min(PAGES_MAX * PAGE_BYTES);
    let mut present = [1u8; PAGES_MAX];
    // SAFETY: the range is mapped, as `bytes` borrows from it (a page's start lies in the same mapping), and `present` has a
    // byte for each of its pages.
    let result = unsafe { libc::mincore(start as *mut libc::c_void, len, present.as_mut_ptr()) };
    result != 0 || present.iter().all(|page| page & 1 == 1)
}

/// Bytes of memory available to this process: the machine's, or less if its control group has a limit; 0 if the kernel does not tell.
pub(crate) fn memory_bytes() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = limit_files(&groups).filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok());
    limits.fold(machine_bytes(), u64::min)
}

/// The files with this process's memory limits, from /proc/self/cgroup: `0::PATH` in version 2, `N:memory:PATH` in
/// version 1 (cgroups(7)). Limits of parent groups, which few set, are not read.
fn limit_files(groups: &str) -> impl Iterator<Item = String> {
    groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let path = path.trim_end_matches('/');
        match controllers {
            "" => Some(format!("/sys/fs/cgroup{path}/memory.max")),
            "memory" => Some(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")),
            _ => None,
        }
    })
}

fn machine_bytes() -> u64 {
    // SAFETY: sysconf reads constants of the system.
    let (pages, page_bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(page_bytes).unwrap_or(0)
}

/// Number of major faults of the calling thread: accesses to memory that waited for the disk.
pub fn major_faults() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills in a structure of this size; all zeros is a valid one too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    u64::try_from(usage.ru_majflt).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(groups: &str, expected: &[&str]) {
        assert_eq!(limit_files(groups).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_limit_of_memory_is_looked_for_where_the_process_s_group_is() {
        check("0::/system.slice/x.service\n", &["/sys/fs/cgroup/system.slice/x.service/memory.max"]);
        check("0::/\n", &["/sys/fs/cgroup/memory.max"]);
        check("5:cpu,cpuacct:/a\n4:memory:/a\n", &["/sys/fs/cgroup/memory/a/memory.limit_in_bytes"]);
        check("no line of such a file\n", &[]);
    }

    #[test]
    fn a_process_has_some_memory() {
        assert!(memory_bytes() > 0);
        assert!(memory_bytes() <= machine_bytes());
    }
}
