//! The database server: declared endpoints, general API, metrics.
