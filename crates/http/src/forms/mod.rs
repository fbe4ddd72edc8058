//! Forms as browsers send them: `application/x-www-form-urlencoded` and `multipart/form-data`.
//!
//! Bytes in, fields or errors out: nothing here reads a socket or writes a file. A form that exceeds its limits, or that two
//! servers could interpret in two ways, is an error that names the fault, the field or part, and the byte.

mod boundary;
mod multipart;
mod multipart_fault;
mod parameters;
mod part_head;
mod urlencoded;

pub use boundary::{Boundary, BoundaryError, FormType};
pub use multipart::{MultipartError, MultipartLimits, MultipartParser, PartEvent};
pub use multipart_fault::MultipartFault;
pub use part_head::PartHead;
pub use urlencoded::{FieldError, FieldFault, FieldLimits, FormField, FormFields, fields};

/// Bytes of a name that an error quotes.
const SHOWN_BYTES_MAX: usize = 64;

/// The front of a name, for an error.
fn shown(name: &str) -> String {
    match name.char_indices().find(|(at, letter)| at + letter.len_utf8() > SHOWN_BYTES_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
