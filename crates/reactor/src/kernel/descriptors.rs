//! The limit of this process's file descriptors (RLIMIT_NOFILE), and how many connections it leaves room for.
//!
//! Shells and systemd start programs with a soft limit of 1,024 for the sake of those that use select(2), and a hard limit far
//! above it. A program that uses neither select nor children that do may raise the first to the second.

use std::fmt;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of each loop: its poller, its alarm, its waker, one for asynchronous reads, its listeners.
const DESCRIPTORS_PER_LOOP: u64 = 8;

/// The descriptors of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// How many may be open at once; `u64::MAX`: no limit.
    pub limit: u64,
    /// How many were open when they were counted.
    pub open: u64,
}

/// The limit leaves room for too few connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorShortage {
    /// The limit that holds.
    pub limit: u64,
    /// The least that suffices.
    pub needed: u64,
}

impl fmt::Display for DescriptorShortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, needed } = self;
        write!(
            formatter,
            "this process may open {limit} files and connections, and needs {needed} at least: raise the limit with \
             `ulimit -n {needed}`, or with LimitNOFILE= in a unit of systemd"
        )
    }
}

impl std::error::Error for DescriptorShortage {}

impl Descriptors {
    /// Raises the soft limit to the hard one, and counts the open descriptors. If raising is not permitted, the limit stays.
    pub fn raised() -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let holds = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
        // Without /proc the open ones are not known; there are three at least.
        let open = std::fs::read_dir("/proc/self/fd").map_or(3, |entries| entries.count() as u64);
        Self { limit: holds.unwrap_or(u64::MAX), open }
    }

    /// How many connections there is room for, beside those that are open, `own` other files, and the files of `loops`. Fewer than
    /// `least` are a shortage.
    pub fn connections(&self, loops: usize, own: u64, least: u64) -> Result<usize, DescriptorShortage> {
        let taken = self.open + own + DESCRIPTORS_PER_LOOP * loops as u64;
        let left = self.limit.saturating_sub(taken);
        if left < least {
            return Err(DescriptorShortage { limit: self.limit, needed: taken + least });
        }
        Ok(usize::try_from(left).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_leave_is_for_connections_and_too_little_is_an_error() {
        let of = |limit, open| Descriptors { limit, open }.connections(2, 40, 10);
        assert_eq!(of(1024, 8), Ok(960));
        assert_eq!(of(74, 8), Ok(10));
        assert_eq!(of(73, 8), Err(DescriptorShortage { limit: 73, needed: 74 }));
        assert!(of(20, 8).unwrap_err().to_string().contains("`ulimit -n 74`"));
        assert!(of(u64::MAX, 8).unwrap() > 1 << 40);
    }
}
