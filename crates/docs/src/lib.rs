//! Collections, schemas, indexes and SQL over the store. A library without any network.

pub mod catalog;
pub mod config;
pub mod engine;
pub mod index;
pub mod key;
pub mod order;
pub mod row;
pub mod schema;
pub mod sql;
