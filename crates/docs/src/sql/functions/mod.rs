//! The functions of SQL on values that are given: one table of scalar functions, dates, printf, LIKE and GLOB,
//! mathematics, and the changes of JSON texts.
//!
//! It imports `values` and `limits`. It does not know where its arguments come from.

pub(crate) mod dates;
pub(super) mod format;
pub(super) mod json_edits;
mod mathematics;
pub(super) mod pattern;
pub(super) mod scalar;

pub(super) use mathematics::Mathematics;
pub(super) use scalar::{FUNCTIONS, Function, JsonFunction};
