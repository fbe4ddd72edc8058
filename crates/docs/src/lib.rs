//! Collections, schemas, indexes and SQL over the store. A library without any network.

pub mod catalog;
pub mod engine;
pub mod index;
pub mod key;
pub mod order;
