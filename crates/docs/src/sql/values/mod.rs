//! Values as SQL computes with them: numbers and their text, the memory in which they are computed, their bytes in sorts
//! and in kept rows, and their JSON.
//!
//! It imports `limits`. It does not know expressions, collections or plans.

pub(super) mod json;
mod json_types;
pub(super) mod number;
mod row_room;
pub(super) mod sort;
pub(super) mod value;
pub(crate) mod workspace;

pub use json_types::JsonTypes;
pub(super) use number::{Digits, IntegerText, Rounding};
pub(super) use row_room::RowRoom;
pub(super) use sort::SortBuffer;
pub(super) use value::OuterValue;
pub use value::{FieldValue, OwnedValue, Value};
pub(super) use workspace::{RowArena, TextBuilder, Workspace};
