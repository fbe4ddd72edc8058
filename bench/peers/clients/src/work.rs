//! What is measured: kinds of work, and the bytes that they are made of.

use crate::Outcome;

/// Commands of one pipeline; the other kinds of work look at the clock as rarely.
pub(crate) const BATCH: usize = 100;
/// Bytes of the value that is read and written.
pub(crate) const VALUE_BYTES: usize = 132;
/// Name of the value that is read.
pub(crate) const KEY: &str = "key";
/// Name of the value that is written.
pub(crate) const OTHER: &str = "other";

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// GET, one after the other.
    Get,
    /// GET, a hundred in one write.
    Pipeline,
    /// SET, one write for each, without replies.
    NoReply,
}

impl Work {
    pub(crate) const ALL: [Work; 3] = [Work::Get, Work::Pipeline, Work::NoReply];

    /// For the command line of the hiredis program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::Get => "get",
            Work::Pipeline => "pipeline",
            Work::NoReply => "noreply",
        }
    }

    /// For the table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Work::Get => "single GET of 132 bytes",
            Work::Pipeline => "pipeline of 100 GETs of 132 bytes",
            Work::NoReply => "SET of 132 bytes without reply, one write for each",
        }
    }
}

/// The value.
pub(crate) fn value() -> Vec<u8> {
    vec![b'v'; VALUE_BYTES]
}

/// Stores what is read later.
pub(crate) fn store_value(port: u16) -> Outcome<()> {
    let mut client = resp::Client::connect(&format!("redis://127.0.0.1:{port}"))?;
    Ok(client.command(("SET", KEY, value()))?)
}
