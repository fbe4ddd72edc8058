//! Back-pressure: the refusal of a task by a full or draining executor, and the mark at which waiting submitters continue.

use std::fmt;

/// A job was refused; it is returned to the caller.
pub enum Refused<J> {
    /// The queue is full: try later, or answer "busy".
    Full(J),
    /// The pool is draining and takes no more jobs.
    Draining(J),
}

impl<J> Refused<J> {
    /// The job.
    pub fn into_job(self) -> J {
        match self {
            Self::Full(job) | Self::Draining(job) => job,
        }
    }
}

impl<J> fmt::Debug for Refused<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full",
            Self::Draining(_) => "Draining",
        })
    }
}

impl<J> fmt::Display for Refused<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the queue of blocking work is full",
            Self::Draining(_) => "the pool for blocking work is draining",
        })
    }
}

impl<J> std::error::Error for Refused<J> {}

/// Low-water mark of a limit, three quarters of it: submitters that found a queue full are woken when so many tasks are left. Waking
/// one for each task that leaves would cost two context switches for each.
pub(crate) fn low_water(limit: usize) -> usize {
    limit - limit.div_ceil(4)
}
