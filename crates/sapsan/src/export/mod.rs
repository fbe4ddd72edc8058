//! Writes documents as lines of JSON, as arrays or as a table, for `sapsan export`.
//!
//! - [`Source`] gives the documents: of a data folder at one moment (`folder`), or of a running server page by page (`server`).
//! - `text` writes lines and arrays, `table` writes CSV. `sapsan import` reads each of these formats.
//! - [`Destination`] is standard output, or a file that gets its name only when it is complete.
//!
//! Documents are written while they are read. Memory holds at most one page of them, and the names of a table's columns.
//!
//! This room imports `target` and `console`.

mod destination;
mod folder;
mod server;
mod source;
mod table;
mod text;

pub(crate) use destination::{Destination, name_is_free};
pub(crate) use folder::FolderSource;
pub(crate) use server::ServerSource;
pub(crate) use source::{CollectionOutline, Source, Stopped};
pub(crate) use table::write_table;
pub(crate) use text::{write_arrays, write_lines};
