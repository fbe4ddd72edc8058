//! Commands that read and write documents: they draft a service file from them, import, export, generate and query them.

pub(crate) mod export;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod query;
