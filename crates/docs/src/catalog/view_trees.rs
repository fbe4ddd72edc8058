//! Virtual tree numbers, not assigned by the store, by which queries read views.
//!
//! A number encodes the view, whether its rows are read as documents or as entries of the index over GROUP BY, and which of its
//! first columns the reader does not need: these are returned as NULL and not computed.
//!
//! ```text
//!  bit 31: 1 | bits 30 to 11: set for columns that are not wanted, column 0 in bit 11 | bits 10 to 1: the view's place | bit 0: index
//! ```

use crate::engine::TreeId;

/// The first such number.
const TABLES: u32 = 1 << 31;
const PLACE_BITS: u32 = 10;
/// Columns that can be marked as not needed; later columns are always computed.
const COLUMNS_MAX: usize = 20;

/// The tree number for reading a view's rows as documents, by the view's place.
pub(crate) fn document_tree(place: usize) -> TreeId {
    TreeId(TABLES | (place as u32 & ((1 << PLACE_BITS) - 1)) << 1)
}

/// The same for reading them as entries of the index over GROUP BY.
pub(crate) fn index_tree(place: usize) -> TreeId {
    TreeId(document_tree(place).0 | 1)
}

#[inline]
pub(crate) fn is_table(tree: TreeId) -> bool {
    tree.0 >= TABLES
}

/// The view's place.
pub(crate) fn place(tree: TreeId) -> usize {
    (tree.0 >> 1 & ((1 << PLACE_BITS) - 1)) as usize
}

/// Whether rows are read as entries of the index.
pub(crate) fn is_index(tree: TreeId) -> bool {
    tree.0 & 1 == 1
}

/// The same tree without a column that the reader does not need.
pub(crate) fn without(tree: TreeId, column: usize) -> TreeId {
    if column < COLUMNS_MAX { TreeId(tree.0 | 1 << (1 + PLACE_BITS as usize + column)) } else { tree }
}

/// Whether the reader needs a column.
pub(crate) fn wants(tree: TreeId, column: usize) -> bool {
    column >= COLUMNS_MAX || tree.0 >> (1 + PLACE_BITS as usize + column) & 1 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_tells_the_view_the_way_and_the_columns() {
        for place_of in [0, 1, 255, 700, 1023] {
            for tree in [document_tree(place_of), index_tree(place_of)] {
                let less = without(without(tree, 3), 19);
                assert!(is_table(less) && place(less) == place_of && is_index(less) == is_index(tree));
                let wanted: Vec<usize> = (0..70).filter(|column| !wants(less, *column)).collect();
                assert_eq!(wanted, [3, 19]);
                assert_eq!(without(tree, 20), tree);
            }
        }
    }
}
