//! What the planner knows of the trees: their counts, and what it has computed from them for one plan.

use std::cell::{OnceCell, RefCell};

use hashbrown::HashMap;

use crate::catalog::{Catalog, TreeCount};
use crate::engine::TreeId;
use crate::sql::resolve::Logical;

/// Statistics read once for a plan: most of the thousands of costed access paths need the same ones.
pub(super) struct Known {
    /// Counts of the trees that the query may read.
    pub(super) trees: HashMap<TreeId, TreeCount>,
    /// Ranges whose sizes were requested.
    pub(super) counted: RefCell<Vec<CountedRange>>,
    /// By table: the cost of reading the rows that pass its own predicates.
    pub(super) reading: Vec<OnceCell<f64>>,
    /// By table and index.
    pub(super) coverage: RefCell<HashMap<(usize, usize), Coverage>>,
}

/// The size of a range, estimated from its tree.
pub(super) struct CountedRange {
    pub(super) tree: TreeId,
    pub(super) low: Vec<u8>,
    pub(super) high: Vec<u8>,
    pub(super) entries: f64,
}

/// The expressions that need a table's documents, because the index's entries lack a field.
pub(super) struct Coverage {
    /// Positions of the predicates that need the document, unless the access path fulfils them.
    pub(super) conditions: Vec<usize>,
    /// Any other expression needs it.
    pub(super) elsewhere: bool,
}

impl Known {
    pub(super) fn of(logical: &Logical, catalog: &Catalog) -> Known {
        let trees = logical.tables.iter().filter_map(|table| Some(&catalog.collections[table.collection()?]));
        let trees =
            trees.flat_map(|info| std::iter::once(info.tree).chain(info.indexes.iter().map(|index| index.tree)));
        let reading = logical.tables.iter().map(|_| OnceCell::new()).collect();
        Known {
            trees: catalog.counts.of_all(trees),
            counted: RefCell::default(),
            reading,
            coverage: RefCell::default(),
        }
    }
}
