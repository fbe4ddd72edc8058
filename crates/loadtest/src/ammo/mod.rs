//! Ammo: the requests of a run, read from a file or standard input.
//!
//! [`Ammo`] reads records of one of the formats of [`Format`], one at a time, repeats and shuffles them, pairs each with its
//! expected answer, and is the [`RequestSource`](crate::source::RequestSource) of the engine. It holds one record, a small input
//! or a window of bounded size ([`KEPT_BYTES_MAX`], [`SHUFFLE_BYTES_MAX`]), never a whole large input. A broken record is an
//! error with its line or number; optionally it is skipped and counted.
//!
//! Layers, each reading from the one before:
//!
//! ```text
//! input       bytes: a file again for each pass, standard input once
//! records     one request for each record (phantom, urls, ndjson and so on); templates filled
//! pass        each request with its answer, by order; broken records
//! ammo        passes one after another, shuffled in a window; tags and indexes for the engine
//! ```

mod access_log;
mod error;
mod format;
mod har;
mod input;
mod json_line;
mod lines;
mod ndjson;
mod pass;
mod per_line;
mod phantom;
mod request;
mod shuffle;
mod supply;
mod tag;
mod tank;
mod template;
mod url_list;
mod vegeta;

pub use error::{AmmoError, AmmoPlace};
pub use format::Format;
pub use input::KEPT_BYTES_MAX;
pub use pass::OnBroken;
pub use request::{Defaults, PreparedRequest};
pub use shuffle::{SHUFFLE_BYTES_MAX, SHUFFLE_REQUESTS_MAX};
pub use supply::{Ammo, AmmoOptions, Loops};
pub use tag::{TAG_BYTES_MAX, TAGS_MAX, Tags};

pub(crate) use input::{Reader, is_standard_input};
pub(crate) use lines::Lines;
pub(crate) use ndjson::without_line;
pub(crate) use request::{Draft, form_encoded, shown};
pub(crate) use tag::append_shape;
pub(crate) use template::{OtherBraces, Values};

use std::sync::atomic::AtomicU64;

/// Records of one format. Each record is one request.
pub(crate) trait Records: Send {
    /// Replaces `request` by the next one. False: the input has ended.
    fn next(&mut self, values: &mut Values, request: &mut PreparedRequest) -> Result<bool, AmmoError>;

    /// An error about the record read last, for example that its answer belongs to another request.
    fn fault(&self, reason: String) -> AmmoError;
}

/// Records that were left out, counted while the ammo is read.
#[derive(Debug, Default)]
pub struct SkippedRecords {
    /// Broken records ([`OnBroken::Skip`]).
    pub broken: AtomicU64,
    /// Requests of a HAR for other hosts than the first.
    pub left_out: AtomicU64,
}
