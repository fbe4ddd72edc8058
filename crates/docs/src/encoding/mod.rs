//! The bytes in which documents, keys and sums are stored: primary keys, index keys and entries, variable-length numbers,
//! exact sums, and a document's row by numbered fields.
//!
//! It imports no other folder. It does not know collections, queries, or where the bytes lie.

pub(crate) mod exact_sum;
pub mod index;
pub mod key;
pub mod order;
pub mod row;
pub(crate) mod varint;

pub(crate) use exact_sum::{ExactSum, ONE_BIT};
pub(crate) use index::IncludedValues;
pub(crate) use key::{KEY_BYTES_MAX, KEY_TYPES, Key, KeyType};
pub(crate) use order::Scalar;
pub(crate) use row::{FieldNumbers, NAMES_MAX, Names, Plain, Row};
