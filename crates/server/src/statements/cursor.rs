//! Cursors: the end of a page of rows, as a text that clients send back.
//!
//! A cursor contains a position (`docs::sql::Paged`) and a checksum of the statement and its parameters: with others it is
//! refused.
//!
//! ```text
//!  in hexadecimal: FNV-1a of all below (8 bytes) | the last row's values of the pages' ORDER BY terms
//! ```

use docs::sql::{OwnedValue, Value, decode_place, encode_place};
use std::fmt::Write as _;

const CHECK_BYTES: usize = 8;
/// To be changed when the server completes ORDER BY by other terms. Cursors of older servers are then refused, because their
/// values belong to the old terms.
const ORDER: &[u8] = b"2";

/// Checksum of a statement and its parameters. FNV-1a detects mistakes, not attacks: a client that may request one page may
/// request any page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatementChecksum(u64);

impl StatementChecksum {
    /// The checksum of a statement.
    pub(crate) fn of(sql: &str) -> StatementChecksum {
        StatementChecksum(0xcbf2_9ce4_8422_2325).and(ORDER).and(sql.as_bytes())
    }

    /// Adds further bytes.
    pub(crate) fn and(self, bytes: &[u8]) -> StatementChecksum {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        StatementChecksum(bytes.iter().fold(self.0, step))
    }

    /// Adds the value of one more parameter.
    pub(super) fn and_value(self, value: &Value<'_>) -> StatementChecksum {
        match value {
            Value::Null => self.and(&[0]),
            Value::Integer(integer) => self.and(&[1]).and(&integer.to_le_bytes()),
            Value::Real(real) => self.and(&[2]).and(&real.to_bits().to_le_bytes()),
            Value::Text(text) => self.and(&[3]).and(&text.len().to_le_bytes()).and(text),
        }
    }
}

/// The cursor of a page that ended at this position.
pub(crate) fn write(place: &[OwnedValue], of: StatementChecksum) -> String {
    let mut bytes = vec![0; CHECK_BYTES];
    encode_place(place, &mut bytes);
    let check = of.and(&bytes[CHECK_BYTES..]).0;
    bytes[..CHECK_BYTES].copy_from_slice(&check.to_le_bytes());
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing into a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The position of a cursor; `None`: it is no cursor of this server, or belongs to another statement.
pub(crate) fn read(cursor: &str, of: StatementChecksum) -> Option<Vec<OwnedValue>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let pairs = cursor.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    });
    let bytes: Vec<u8> = pairs.collect::<Option<_>>()?;
    let (check, values) = bytes.split_first_chunk::<CHECK_BYTES>()?;
    (u64::from_le_bytes(*check) == of.and(values).0).then(|| decode_place(values)).flatten()
}

#[cfg(test)]
mod tests {
    use super::{StatementChecksum, read, write};
    use docs::sql::{OwnedValue, Value};

    #[test]
    fn a_cursor_is_read_again_and_every_change_of_it_is_told() {
        let end =
            [OwnedValue::Integer(-5), OwnedValue::Text("é".as_bytes().into()), OwnedValue::Null, OwnedValue::Real(0.5)];
        let of = StatementChecksum::of("SELECT 1");
        let text = write(&end, of);
        let found = read(&text, of).expect("its own");
        assert_eq!(format!("{found:?}"), format!("{end:?}"));
        let others = [StatementChecksum::of("SELECT 2"), of.and_value(&Value::Null), of.and_value(&Value::Integer(0))];
        assert!(others.iter().all(|other| read(&text, *other).is_none()));
        assert!(read("", of).is_none() && read("0g", of).is_none());
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            assert!(read(&String::from_utf8(other).expect("ASCII"), of).is_none(), "{at}");
            assert!(read(&text[..at], of).is_none(), "{at}");
        }
    }
}
