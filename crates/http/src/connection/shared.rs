//! A loop's worker together with its service.

use std::cell::RefCell;
use std::sync::Arc;

use crate::connection::worker::Worker;
use crate::service::Service;

/// A worker with its service.
pub(crate) struct Shared<S: Service> {
    pub(crate) worker: Worker,
    pub(crate) service: Arc<S>,
    pub(crate) local: RefCell<S::Local>,
}
