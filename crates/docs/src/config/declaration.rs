//! What a configuration declares of a database, as the other rooms use it.

use super::collection::CollectionConfig;
use super::parameter::Parameter;
use crate::expire::WallClock;
use crate::sql::PlanSpace;

/// The declared content of a database: collections, views, the parameters of its queries, and the fields that indexes carry.
#[derive(Clone, Debug)]
pub struct Config {
    /// The collections.
    pub collections: Vec<CollectionConfig>,
    /// The views.
    pub views: Vec<ViewConfig>,
    /// The parameters whose values `--set` sets.
    pub params: Vec<Parameter>,
    /// Fields that indexes include so that the service's declared queries need no documents. Not in the file: added when the
    /// queries are prepared.
    pub included: Vec<IncludedFields>,
    /// Memory for sorting while the database is opened and brought in line with the file. Not in the file.
    pub sort_bytes: usize,
    /// Memory for building views while the database is open, and for each verification of a view. Not in the file.
    pub build_bytes: usize,
    /// Threads that build views. Not in the file.
    pub build_threads: usize,
    /// Whether new indexes and unique fields of collections with documents are built while the database is open, not before.
    /// Not in the file.
    pub builds_indexes_later: bool,
    /// Names of collections and views that have mistakes. Statements that name them are not checked, because further mistakes
    /// reported there would be misleading.
    pub doubtful: Vec<String>,
    /// Whether opening a directory may drop parts that the configuration no longer declares; otherwise such an opening fails.
    /// Not in the file.
    pub may_drop: bool,
    /// The cache of query plans. Not in the file.
    pub plans: PlanSpace,
    /// The clock for expiry. Not in the file.
    pub clock: WallClock,
}

/// Default memory for sorting.
pub const SORT_BYTES_DEFAULT: usize = 64 << 20;

/// Default memory for building views.
pub const BUILD_BYTES_DEFAULT: usize = 16 << 20;

impl Default for Config {
    fn default() -> Config {
        let (collections, views, params, included) = Default::default();
        let (sort_bytes, build_threads, clock) = (SORT_BYTES_DEFAULT, build_threads(), WallClock::default());
        let (build_bytes, builds_indexes_later) = (BUILD_BYTES_DEFAULT, false);
        Config {
            collections,
            views,
            params,
            included,
            sort_bytes,
            build_bytes,
            build_threads,
            builds_indexes_later,
            doubtful: Vec::new(),
            may_drop: false,
            plans: PlanSpace::default(),
            clock,
        }
    }
}

/// A declared view. Its query is checked against the collections and the other views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewConfig {
    /// Its name.
    pub name: String,
    /// Its query.
    pub query: String,
}

/// Fields included in the entries of one index (a covering index), so that a query reads no document for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncludedFields {
    /// The collection.
    pub collection: String,
    /// The index, by its fields.
    pub index: Vec<String>,
    /// The fields, in their order in the entries.
    pub fields: Vec<String>,
}

fn build_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
