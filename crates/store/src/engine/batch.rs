//! Transactions on their way to the log, alone and gathered.

use crate::error::Error;
use crate::log::BatchBuilder;
use crate::options::Options;
use crate::transaction::{Transaction, Work};

/// A prepared transaction on its way.
pub(crate) struct Request {
    pub(crate) transaction: Box<dyn Transaction>,
    pub(crate) work: Work,
    /// What of [`super::weight::Weights`] is given back when it is finished. One that is awaited has none: its caller can
    /// have no second one.
    pub(crate) weight: usize,
    /// Its caller sleeps until it is finished.
    pub(crate) is_awaited: bool,
}

/// A batch being gathered, with those who wait for it.
pub(crate) struct OpenBatch {
    pub(crate) builder: BatchBuilder,
    pub(super) done: Vec<(Box<Request>, Result<u64, Error>)>,
}

impl OpenBatch {
    pub(super) fn new(options: &Options) -> OpenBatch {
        OpenBatch { builder: BatchBuilder::new(options.batch_bytes_max() / 4), done: Vec::new() }
    }
}
