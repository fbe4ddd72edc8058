//! From text to sqlparser's tree, within limits of size and nesting.
//!
//! It imports `limits`. It does not know the catalog, nor what a statement means.

mod nesting;
pub(super) mod parse;
mod precedence;

pub use nesting::NESTING_MAX;
pub(super) use nesting::OPEN_MAX;
pub use parse::{SQL_BYTES_MAX, TOKENS_MAX};
