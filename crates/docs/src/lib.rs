//! Collections, schemas, indexes and SQL over the store. A library without any network.

pub mod engine;
pub mod order;
