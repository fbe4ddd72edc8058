//! The layout of a session's bytes, before they are signed or encrypted.
//!
//! ```text
//!  0        1       2      18      22        26
//!  +--------+-------+------+-------+---------+------------------------------------------+-----+
//!  | format | flags | id   | begun | renewed | name bytes | name | value bytes | value  | ... |
//!  | u8 = 1 | u8    | 16 B | u32   | u32     | u8         |      | u16         |        |     |
//!  +--------+-------+------+-------+---------+------------------------------------------+-----+
//! ```
//!
//! Integers are little-endian. `begun` and `renewed` are seconds since 1970 (they last until 2106). Bit 7 of a name's
//! length marks a flash message, whose value is its text; the other values are JSON text. Bit 0 of `flags` says that a
//! token was made from the id, so a session without entries is kept.
//!
//! The bytes are read only after they were authenticated. They are bounds-checked all the same: a wrong length ends the
//! list.

use std::io;
use std::ops::Range;

/// First byte. Raise it when the layout changes: sessions of the old format then end.
pub(super) const FORMAT: u8 = 1;
/// Bytes before the entries.
pub(super) const HEADER_BYTES: usize = 26;
/// Most bytes of an entry's name.
pub(super) const NAME_BYTES_MAX: usize = 64;
/// Bytes of an entry in addition to its name and value.
const ENTRY_BYTES: usize = 3;
/// Marks a flash message.
const FLASH_BIT: u8 = 0x80;

const _: () = assert!(NAME_BYTES_MAX < FLASH_BIT as usize);

const FLAGS_AT: usize = 1;
const ID: Range<usize> = 2..18;
const BEGUN_AT: usize = ID.end;
const RENEWED_AT: usize = BEGUN_AT + 4;
/// A token was made from the id.
const TOKEN_FLAG: u8 = 1;

const _: () = assert!(RENEWED_AT + 4 == HEADER_BYTES);

/// Capacity of a new session.
const FIRST_BYTES: usize = 256;

/// Replaces the content of `bytes` by a header without times.
pub(super) fn put_header(bytes: &mut Vec<u8>, id: [u8; 16]) {
    bytes.clear();
    // Usual entries fit, so the buffer grows once.
    bytes.reserve(FIRST_BYTES);
    bytes.resize(HEADER_BYTES, 0);
    bytes[0] = FORMAT;
    set_id(bytes, id);
}

/// The id; `None` if there is no header.
pub(super) fn id(bytes: &[u8]) -> Option<[u8; 16]> {
    bytes.get(ID).and_then(|id| id.try_into().ok())
}

/// Changes the id. This function and those below require a header.
pub(super) fn set_id(bytes: &mut [u8], id: [u8; 16]) {
    bytes[ID].copy_from_slice(&id);
}

/// When the session began; 0 if it was never sent.
pub(super) fn begun(bytes: &[u8]) -> u32 {
    number_at(bytes, BEGUN_AT)
}

pub(super) fn set_begun(bytes: &mut [u8], seconds: u32) {
    bytes[BEGUN_AT..RENEWED_AT].copy_from_slice(&seconds.to_le_bytes());
}

/// When the session was sent last.
pub(super) fn renewed(bytes: &[u8]) -> u32 {
    number_at(bytes, RENEWED_AT)
}

pub(super) fn set_renewed(bytes: &mut [u8], seconds: u32) {
    bytes[RENEWED_AT..HEADER_BYTES].copy_from_slice(&seconds.to_le_bytes());
}

pub(super) fn has_token_flag(bytes: &[u8]) -> bool {
    bytes.get(FLAGS_AT).is_some_and(|flags| flags & TOKEN_FLAG != 0)
}

/// Sets the flag. Returns whether it was unset before.
pub(super) fn set_token_flag(bytes: &mut [u8]) -> bool {
    let before = has_token_flag(bytes);
    bytes[FLAGS_AT] |= TOKEN_FLAG;
    !before
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |number| u32::from_le_bytes(*number))
}

/// Whether an entry belongs to the map or is a flash message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Value,
    Flash,
}

/// An entry, and its range in the bytes.
#[derive(Clone, Debug)]
pub(super) struct Entry<'c> {
    pub(super) kind: Kind,
    pub(super) name: &'c [u8],
    pub(super) value: &'c [u8],
    pub(super) range: Range<usize>,
}

/// The entries of a session's bytes, in their order.
#[inline]
pub(super) fn entries(bytes: &[u8]) -> Entries<'_> {
    Entries { bytes, at: HEADER_BYTES }
}

/// See [`entries`].
#[derive(Clone, Debug)]
pub(super) struct Entries<'c> {
    bytes: &'c [u8],
    at: usize,
}

impl<'c> Iterator for Entries<'c> {
    type Item = Entry<'c>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'c>> {
        let (&first, rest) = self.bytes.get(self.at..)?.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(first & !FLASH_BIT))?;
        let (length, rest) = rest.split_first_chunk()?;
        let value = rest.get(..usize::from(u16::from_le_bytes(*length)))?;
        let range = self.at..self.at + ENTRY_BYTES + name.len() + value.len();
        self.at = range.end;
        let kind = if first & FLASH_BIT == 0 { Kind::Value } else { Kind::Flash };
        Some(Entry { kind, name, value, range })
    }
}

/// The entry of the map with this name.
#[inline]
pub(super) fn find<'c>(bytes: &'c [u8], name: &str) -> Option<Entry<'c>> {
    entries(bytes).find(|entry| entry.kind == Kind::Value && entry.name == name.as_bytes())
}

/// Appends an entry; `write` appends its value. If `write` fails, or the bytes would exceed `bytes_max`, they are
/// unchanged. `name` has at most [`NAME_BYTES_MAX`] bytes.
pub(super) fn append<E: From<Full>>(
    bytes: &mut Vec<u8>,
    bytes_max: usize,
    kind: Kind,
    name: &str,
    write: impl FnOnce(&mut Room<'_>) -> Result<(), E>,
) -> Result<Range<usize>, E> {
    debug_assert!(name.len() <= NAME_BYTES_MAX);
    let start = bytes.len();
    let value_at = start + ENTRY_BYTES + name.len();
    let appended = append_within(bytes, bytes_max, kind, name, write);
    match appended {
        // A value is within `bytes_max`, and the codec asserts that this fits a u16.
        Ok(()) => {
            let length = u16::try_from(bytes.len() - value_at).unwrap_or(u16::MAX);
            bytes[value_at - 2..value_at].copy_from_slice(&length.to_le_bytes());
            Ok(start..bytes.len())
        }
        Err(error) => {
            bytes.truncate(start);
            Err(error)
        }
    }
}

fn append_within<E: From<Full>>(
    bytes: &mut Vec<u8>,
    bytes_max: usize,
    kind: Kind,
    name: &str,
    write: impl FnOnce(&mut Room<'_>) -> Result<(), E>,
) -> Result<(), E> {
    if bytes.len() + ENTRY_BYTES + name.len() > bytes_max {
        return Err(Full.into());
    }
    let mark = if kind == Kind::Flash { FLASH_BIT } else { 0 };
    bytes.push(name.len() as u8 | mark);
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(&[0; 2]);
    let mut room = Room { bytes, bytes_max, is_full: false };
    let written = write(&mut room);
    if room.is_full { Err(Full.into()) } else { written }
}

/// The bytes would exceed their bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full;

/// Writer of a value that refuses bytes beyond the bound.
pub(super) struct Room<'b> {
    bytes: &'b mut Vec<u8>,
    bytes_max: usize,
    is_full: bool,
}

impl io::Write for Room<'_> {
    #[inline]
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.write_all(part)?;
        Ok(part.len())
    }

    /// The serializer calls this for each quotation mark: the default, a loop over `write`, costs more than the bytes.
    #[inline]
    fn write_all(&mut self, part: &[u8]) -> io::Result<()> {
        if self.bytes.len() + part.len() > self.bytes_max {
            self.is_full = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(part);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const BYTES_MAX: usize = 60;

    fn with(bytes: &mut Vec<u8>, kind: Kind, name: &str, value: &str) -> Result<Range<usize>, Full> {
        append(bytes, BYTES_MAX, kind, name, |room| room.write_all(value.as_bytes()).map_err(|_| Full))
    }

    #[test]
    fn entries_come_back_in_their_order() {
        let mut bytes = vec![0; HEADER_BYTES];
        assert_eq!(with(&mut bytes, Kind::Value, "a", "12").unwrap(), 26..32);
        with(&mut bytes, Kind::Flash, "note", "hello").unwrap();
        with(&mut bytes, Kind::Value, "note", "").unwrap();
        let found: Vec<_> = entries(&bytes).map(|entry| (entry.kind, entry.name, entry.value)).collect();
        let expected: [(Kind, &[u8], &[u8]); 3] =
            [(Kind::Value, b"a", b"12"), (Kind::Flash, b"note", b"hello"), (Kind::Value, b"note", b"")];
        assert_eq!(found, expected);
        assert_eq!(find(&bytes, "note").unwrap().range.end, bytes.len());
        assert!(find(&bytes, "b").is_none());
    }

    #[test]
    fn what_does_not_fit_leaves_the_bytes_as_they_were() {
        let mut bytes = vec![0; HEADER_BYTES];
        let room = BYTES_MAX - HEADER_BYTES - ENTRY_BYTES - 1;
        assert!(with(&mut bytes, Kind::Value, "a", &"x".repeat(room + 1)).is_err());
        assert_eq!(bytes.len(), HEADER_BYTES);
        with(&mut bytes, Kind::Value, "a", &"x".repeat(room)).unwrap();
        assert!(with(&mut bytes, Kind::Value, "b", "").is_err());
        assert_eq!(bytes.len(), BYTES_MAX);
    }

    #[test]
    fn a_wrong_length_ends_the_list() {
        let mut bytes = vec![0; HEADER_BYTES];
        with(&mut bytes, Kind::Value, "a", "12").unwrap();
        for end in 0..bytes.len() {
            assert_eq!(entries(&bytes[..end]).count(), 0, "{end}");
        }
        bytes[HEADER_BYTES] = 0x7f;
        assert_eq!(entries(&bytes).count(), 0);
    }
}
