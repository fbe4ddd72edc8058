//! Ammo: the requests of a run, read from a file or standard input.
//!
//! [`Ammo`] reads records of one of five formats ([`Format`]), one at a time, repeats and shuffles them, pairs each with what is expected of its
//! answer, and is the [`Source`](crate::source::Source) of the engine. It holds one record, a small input or a window of bounded size ([`KEPT_BYTES_MAX`], [`SHUFFLE_BYTES_MAX`]),
//! never a whole large input. A broken record is an error with its line or number; on request it is counted and left out instead.
//!
//! Layers, each pulling from the one before:
//!
//! ```text
//! input       bytes: a file again for each pass, standard input once
//! records     one request for each record (phantom, urls, ndjson, har, access log); templates filled
//! pass        each request with its answer, by order; broken records
//! ammo        passes one after another, shuffled in a window; tags and indexes for the engine
//! ```

mod access_log;
mod error;
mod format;
mod har;
mod input;
mod lines;
mod ndjson;
mod pass;
mod per_line;
mod phantom;
mod request;
mod shuffle;
mod supply;
mod tag;
mod template;
mod url_list;

pub use error::{AmmoError, Place};
pub use format::Format;
pub use input::KEPT_BYTES_MAX;
pub use pass::OnBroken;
pub use request::{Defaults, Request};
pub use shuffle::{SHUFFLE_BYTES_MAX, SHUFFLE_REQUESTS_MAX};
pub use supply::{Ammo, Loops, Options};
pub use tag::{TAG_BYTES_MAX, TAGS_MAX, Tags};

pub(crate) use input::{Reader, is_standard_input};
pub(crate) use lines::Lines;
pub(crate) use ndjson::without_line;
pub(crate) use request::{Draft, form_encoded};

use std::sync::atomic::AtomicU64;
use template::Values;

/// Records of one format. A record is one request.
pub(crate) trait Records: Send {
    /// Puts the next request in place of what `request` was. False: the input has ended.
    fn next(&mut self, values: &mut Values, request: &mut Request) -> Result<bool, AmmoError>;

    /// A fault of the record read last, such as an answer that belongs to another one.
    fn fault(&self, reason: String) -> AmmoError;
}

/// What was left out of the ammo, counted while it is read.
#[derive(Debug, Default)]
pub struct Counts {
    /// Broken records ([`OnBroken::Skip`]).
    pub broken: AtomicU64,
    /// Requests of a HAR for other hosts than the first.
    pub left_out: AtomicU64,
}
