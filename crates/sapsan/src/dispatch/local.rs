//! What each event loop has of an application.

use crate::database::{Database, LoopDatabase};
use http::FileCache;
use reactor::Loop;
use std::cell::{Cell, RefCell};

/// Bytes of files that each loop keeps in memory. Other files are sent from the page cache by the kernel.
const FILE_CACHE_BYTES: usize = 16 << 20;

/// State of one loop.
pub(crate) struct Local {
    pub(crate) database: Option<LoopDatabase>,
    /// The last request answers late, and its work does not keep the order of the connection's requests.
    pub(crate) stands_alone: Cell<bool>,
    pub(crate) files: RefCell<FileCache>,
    pub(crate) lp: Loop,
}

impl Local {
    pub(super) fn new(lp: &Loop, database: Option<&Database>) -> Local {
        let files = RefCell::new(FileCache::new(lp, FILE_CACHE_BYTES));
        Local { database: database.map(LoopDatabase::new), stands_alone: Cell::new(false), files, lp: lp.clone() }
    }
}
