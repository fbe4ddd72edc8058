//! Binary JSON: read a field without parsing the document.
//!
//! A stored document is a table of field positions followed by its minified JSON text. Numbers and the order of keys stay
//! exactly as they were sent; `\uXXXX` escapes become the characters themselves, and characters that must stay escaped have one
//! form only (see `escape.rs`), so that equal strings are equal bytes. Returning a document is one copy of its text.
//!
//! ```text
//!  0     1         1+W           1+2W
//!  +-----+---------+-------------+------------+----------------+-----------+
//!  | tag | count   | tables_len  | root table | nested tables  | JSON text |
//!  | u8  | W bytes | W bytes     |            |                | to the end|
//!  +-----+---------+-------------+------------+----------------+-----------+
//!        only for an object      only with the nested tables
//! ```
//!
//! - `tag`: bits 0-1 the width W of every number here (1, 2 or 4 bytes, little-endian; the text is shorter than `256^W`), bit 2
//!   "the root is an object", bit 3 "there are nested tables", bits 4-6 the format version, bit 7 "a mark follows" (ten bytes,
//!   drawn in `mark.rs`; the rest is as without a mark).
//! - `table.rs` draws the tables. An inner object or array has a table only if that costs at most a sixteenth of its text;
//!   others are small or dense, and are scanned.
//!
//! Invariants:
//!
//! - [`encode`] accepts exactly RFC 8259, except duplicate keys, `\u0000`, lone surrogates, depth over [`DEPTH_MAX`] and texts
//!   over [`TEXT_BYTES_MAX`]; its time is linear in the text (times the logarithm of the fields of one object).
//! - The stored bytes depend only on the minified text, not on the whitespace it was sent with.
//! - Reading never trusts the bytes: every access is checked against the slice. Damaged bytes give `None`, an error or a wrong
//!   value; never a panic, and never a read outside the document.
//! - Neither encoding with a reused [`Encoder`] nor reading allocates in steady state.

mod document;
mod encoder;
mod error;
mod escape;
mod hash;
mod inside;
mod key;
mod lanes;
mod limits;
mod lookup;
mod mark;
mod parser;
mod patch;
mod scan;
mod skip;
mod stream;
mod table;
mod tag;
mod value;
mod walk;
mod write;

pub use document::StoredDocument;
pub use encoder::{Encoder, SCRATCH_BYTES_KEPT_MAX, encode};
pub use error::{Damaged, JsonError, JsonErrorKind};
pub use escape::escape_of;
pub use key::FieldName;
pub use limits::{DEPTH_MAX, TEXT_BYTES_MAX};
pub use lookup::{FieldCache, Shape};
pub use mark::{MARK_MAX, MARK_NAME, set_mark};
pub use patch::merge_patch;
pub use skip::{skip_space, string_end, value_end};
pub use stream::ValueScan;
pub use value::{JsonKind, JsonValue, StoredName};
pub use walk::{Fields, Items};
pub use write::{JsonWriter, ObjectWriter, append_f64, append_i64, append_string, append_text, append_u64};
