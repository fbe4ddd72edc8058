//! Bringing a folder and a configuration together: the stored catalog, what differs and what would be lost, the rebuilding of
//! stored documents, indexes built while writes continue, and the counting of trees.
//!
//! It imports `writes`, `views`, `config` and the folders below them. It does not know sessions, statements or callers.

mod comparison;
pub(crate) mod counter;
mod declared_rows;
mod differences;
mod index_build;
pub(crate) mod loader;
pub(crate) mod losses;
mod open_error;
pub(crate) mod rebuild;
pub(crate) mod stored_catalog;
pub(crate) mod stored_rows;

pub(crate) use counter::CountingThread;
pub use differences::{DIFFERENCES_MAX, Differences};
pub(crate) use index_build::IndexBuilder;
pub(crate) use loader::{DocumentOrigin, LoadError, Loader, ORIGIN_BYTES, STORED, Task, TreesToBuild};
pub use open_error::{CollectionNames, DatabaseOpenError};
pub use stored_catalog::outline;
pub(crate) use stored_catalog::{ResolvedCatalog, Work};
pub(crate) use stored_rows::{CATALOG_TREE, DROP, Rows};
