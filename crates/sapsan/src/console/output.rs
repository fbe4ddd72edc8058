//! Standard output and standard error of the commands. Writing to either never panics, as `println!` and `eprintln!` do where the
//! reader has gone or the disk is full; lints refuse those in this crate.
//!
//! - Standard output carries results. A result that cannot be written is the command's error, unless its reader has closed
//!   the pipe (`sapsan query … | head`): such a reader has what it wants.
//! - Standard error carries notices. Nobody is left to hear of a notice that cannot be written.

use super::Outcome;
use std::fmt::Display;
use std::io::{ErrorKind, Write};

/// Writes a line of a result.
pub(crate) fn line(text: impl Display) -> Outcome {
    bytes(format!("{text}\n").as_bytes())
}

/// Writes a result as it stands.
pub(crate) fn bytes(result: &[u8]) -> Outcome {
    let mut out = std::io::stdout().lock();
    ended(out.write_all(result).and_then(|()| out.flush()))
}

/// What a command ends with that has written its result so.
pub(crate) fn ended(written: std::io::Result<()>) -> Outcome {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(format!("cannot write to standard output: {error}")),
        _ => Ok(()),
    }
}

/// Writes a line of a result that another program may wait for, or nobody: a server goes on serving without a reader.
pub(crate) fn announce(text: impl Display) {
    // The error is what this function is there to ignore.
    let _ = line(text);
}

/// Writes a line to standard error.
pub(crate) fn notice(text: impl Display) {
    // One write: a line of another thread does not stand in the middle.
    let _ = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}
