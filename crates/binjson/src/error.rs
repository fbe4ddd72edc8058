//! Errors in a text, and in stored bytes.

use std::fmt;

/// Why a text was refused, and at which byte. It is reported to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonError {
    /// What is wrong.
    pub kind: JsonErrorKind,
    /// The byte of the sent text where the error was found; for a duplicate key the second key's opening quote.
    pub offset: usize,
}

/// What is wrong with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JsonErrorKind {
    /// The text ends inside a value, or contains none.
    UnexpectedEnd,
    /// A byte that is not allowed here.
    UnexpectedByte,
    /// A member of an object must begin with a string.
    ExpectedKey,
    /// A number that JSON's grammar does not allow (`01`, `1.`, `+1`, `NaN`).
    BadNumber,
    /// An unknown escape, or one with bad hexadecimal digits.
    BadEscape,
    /// A `\uD800`-`\uDFFF` escape without its other half.
    LoneSurrogate,
    /// `\u0000`, which is not accepted.
    NulCharacter,
    /// A raw control character inside a string.
    ControlCharacter,
    /// The text is not UTF-8.
    BadUtf8,
    /// The same key twice in one object.
    DuplicateKey,
    /// Nested deeper than [`DEPTH_MAX`](crate::DEPTH_MAX).
    TooDeep,
    /// Something follows the value.
    TrailingBytes,
    /// Longer than [`TEXT_BYTES_MAX`](crate::TEXT_BYTES_MAX).
    TooLarge,
    /// The text begins with a byte order mark, which is not part of JSON.
    ByteOrderMark,
    /// Cancelled by the callback of [`Encoder::encode_while`](crate::Encoder::encode_while).
    Unwanted,
}

impl JsonErrorKind {
    /// The error in words, without the place.
    pub fn message(self) -> &'static str {
        match self {
            Self::UnexpectedEnd => "the JSON text ends too early",
            Self::UnexpectedByte => "unexpected character",
            Self::ExpectedKey => "expected a key in double quotes",
            Self::BadNumber => "not a JSON number",
            Self::BadEscape => "unknown escape in a string",
            Self::LoneSurrogate => "half of a surrogate pair",
            Self::NulCharacter => "\\u0000 is not allowed in a string",
            Self::ControlCharacter => "control character in a string must be escaped",
            Self::BadUtf8 => "not UTF-8",
            Self::DuplicateKey => "the same key twice in one object",
            Self::TooDeep => "nested more than 128 levels deep",
            Self::TrailingBytes => "something follows the JSON value",
            Self::TooLarge => "the JSON text is larger than 64 MB",
            Self::ByteOrderMark => "a byte order mark (EF BB BF): send the text without it,",
            Self::Unwanted => "cancelled",
        }
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind.message(), self.offset)?;
        if self.kind == JsonErrorKind::UnexpectedByte && self.offset == 0 {
            f.write_str(": JSON begins with {, [, a double quote, a digit, -, true, false or null")?;
        }
        Ok(())
    }
}

impl std::error::Error for JsonError {}

/// The bytes are not a stored document: they are damaged, or written by a newer format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stored document is damaged")
    }
}

impl std::error::Error for Damaged {}
