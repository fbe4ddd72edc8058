//! How requests end: verdicts, causes, and corrections of verdicts.

use crate::source::Described;

/// The verdict on a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Right,
    Wrong,
    Late,
}

/// Why a request has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// No connection was made, for this reason.
    Connect(String),
    Closed,
    Timeout,
    Malformed,
    /// More arrived than was asked for.
    Surplus,
    Unsent,
}

impl Lost {
    /// Whether the request was given up after the timeout.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self, Lost::Timeout | Lost::Unsent)
    }

    /// The cause in the log of requests.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Lost::Connect(_) => "no connection",
            Lost::Closed => "connection closed",
            Lost::Timeout => "timeout",
            Lost::Malformed => "malformed reply",
            Lost::Surplus => "more than was asked for",
            Lost::Unsent => "never sent",
        }
    }
}

/// The end of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    /// `None`: the request was never read from its source.
    pub(super) described: Option<Described>,
    /// Where it counts: row of time, part of the profile.
    pub(super) place: (u32, u32),
    /// From the start of the run.
    pub(super) planned_ns: u64,
    pub(super) latency_ns: u64,
    pub(super) service_ns: u64,
    pub(super) received_bytes: u64,
    /// The status and its verdict. `None`: no reply arrived.
    pub(super) reply: Option<(u16, Judged)>,
    /// Why none arrived.
    pub(super) cause: &'static str,
}

/// Verdicts in one row and part that differ from the status alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Correction {
    pub(super) found_right: u64,
    pub(super) found_wrong: u64,
    /// Sum of the latencies of replies found right, minus those found wrong.
    pub(super) right_ns: i128,
}
