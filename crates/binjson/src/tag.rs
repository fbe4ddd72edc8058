//! The first byte of a stored document: version and kind of its layout. Its lowest two bits are the width of the numbers.

/// Version of the stored layout, in the tag's bits 4 to 6.
pub(crate) const FORMAT_VERSION: u8 = 1;
/// Tag bit: the root is an object.
pub(crate) const TAG_OBJECT: u8 = 1 << 2;
/// Tag bit: there are nested tables.
pub(crate) const TAG_NESTED: u8 = 1 << 3;
/// Tag bit: a mark follows the tag.
pub(crate) const TAG_MARK: u8 = 1 << 7;
/// Digits of a mark.
pub(crate) const MARK_BYTES: usize = 10;
