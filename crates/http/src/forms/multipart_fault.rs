//! What can be wrong with a multipart form, and the text for each fault.

use std::fmt;

/// What is wrong with a multipart form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultipartFault {
    /// The body does not begin with the boundary that its Content-Type names.
    NoBoundary,
    /// A boundary is followed by something else than `--`, or blanks and the end of the line.
    BoundaryLine,
    /// Bytes follow the last boundary.
    Trailing,
    /// The body ends before its last boundary.
    Unfinished,
    /// The form has more parts than this many.
    TooManyParts(usize),
    /// The body has more bytes than this many.
    TooLarge(u64),
    /// A part that is no file has more bytes than this many.
    FieldTooLarge(u64),
    /// The head has more bytes than this many.
    HeadTooLarge(usize),
    /// The head has more fields than this many.
    TooManyHeadFields(usize),
    /// A line of the head does not end with CR LF.
    LineEnd,
    /// A line of the head is not `NAME: VALUE`.
    HeadField,
    /// The boundary stands inside of the head.
    BoundaryInHead,
    /// The Content-Disposition is malformed, or not `form-data`.
    Disposition,
    /// The head names no field.
    NameMissing,
    /// A name has more bytes than this many.
    NameTooLong(usize),
    /// The head contains this twice.
    Repeated(&'static str),
    /// This parameter, which RFC 7578 forbids, is sent instead of the plain one.
    ExtendedParameter(&'static str),
    /// The head holds bytes that are not UTF-8.
    NotUtf8,
    /// A name holds a control character.
    ControlCharacter,
    /// A Content-Transfer-Encoding other than 7bit, 8bit and binary.
    TransferEncoding,
}

impl fmt::Display for MultipartFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use MultipartFault::*;
        let text = match self {
            NoBoundary => "the form does not begin with the boundary that its Content-Type names",
            BoundaryLine => "a boundary is followed by something else than -- or the end of the line",
            Trailing => "bytes follow the form's last boundary",
            Unfinished => "the form ends before its last boundary",
            LineEnd => "a line of the part's head does not end with CR LF",
            HeadField => "a line of the part's head is not NAME: VALUE",
            BoundaryInHead => "the boundary stands inside of a part's head",
            Disposition => "the part's Content-Disposition is not form-data; name=\"…\"",
            NameMissing => "the part has no name: send Content-Disposition: form-data; name=\"…\"",
            NotUtf8 => "the part's head holds bytes that are not UTF-8",
            ControlCharacter => "the part's head holds a control character",
            TransferEncoding => "the part has a Content-Transfer-Encoding other than 7bit, 8bit and binary",
            TooManyParts(max) => return write!(f, "the form has more than {max} parts"),
            TooLarge(max) => return write!(f, "the form is larger than {max} bytes"),
            FieldTooLarge(max) => return write!(f, "the field is larger than {max} bytes and is no file"),
            HeadTooLarge(max) => return write!(f, "the part's head is larger than {max} bytes"),
            TooManyHeadFields(max) => return write!(f, "the part's head has more than {max} fields"),
            NameTooLong(max) => return write!(f, "a name in the part's head is longer than {max} bytes"),
            Repeated(what) => return write!(f, "the part's head has more than one {what}"),
            ExtendedParameter(what) => {
                let plain = what.trim_end_matches('*');
                return write!(f, "the part's head has {what}, which RFC 7578 forbids: send {plain} in UTF-8");
            }
        };
        f.write_str(text)
    }
}
