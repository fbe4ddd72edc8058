//! Order-preserving encoding of values in index keys: bytes compare as the values do.
//!
//! NULL < numbers < text (text by bytes), as SQL rule 5 of the design says; integers and reals that are equal as
//! numbers encode equally up to a tail that tells which it was, so that decoding gives the value back exactly.
//! An index key is the encoded fields one after another, then the encoded primary key, which makes it unique.

/// A value as SQL sees it, borrowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar<'a> {
    /// A missing field or null.
    Null,
    /// An integer within 64 bits.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// Text.
    Text(&'a str),
}

/// Appends the encoding of `value`, self-delimiting.
pub fn encode(_value: Scalar<'_>, _out: &mut Vec<u8>) {
    unimplemented!()
}

/// Reads one value off the front of `bytes`; text is unescaped into `scratch` where it has to be. `None`: damaged.
pub fn decode<'a>(_bytes: &mut &'a [u8], _scratch: &'a mut Vec<u8>) -> Option<Scalar<'a>> {
    unimplemented!()
}
