//! A loop's worker together with its service.

use std::cell::RefCell;
use std::sync::Arc;

use crate::service::Service;
use crate::worker::Worker;

/// A worker with its service.
pub(crate) struct Shared<S: Service> {
    pub(crate) worker: Worker,
    pub(crate) service: Arc<S>,
    pub(crate) local: RefCell<S::Local>,
}
