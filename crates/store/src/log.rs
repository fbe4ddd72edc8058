//! The log: what was acknowledged.

mod position;

pub use position::LogPosition;
