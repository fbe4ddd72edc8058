//! Conversion of replies to Rust types.
//!
//! RESP2 and RESP3 give the same values here: a map is also read from an array of alternating keys and values, a double
//! from its text, a boolean from 1 and 0. A reply that does not fit is a [`Mismatch`], which describes the reply.

use super::error::{Mismatch, ServerError};
use super::value::ReplyValue;
use crate::codec::{Elements, ReplyView};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash};

/// Bytes of a value that a [`Mismatch`] shows.
const SHOWN_BYTES_MAX: usize = 40;

/// A type that replies are converted to.
pub trait FromReply: Sized {
    /// Converts.
    ///
    /// # Errors
    /// The reply is of another type, or out of the type's range.
    fn from_reply(view: ReplyView<'_>) -> Result<Self, Mismatch>;
}

fn mismatch<T>(expected: &'static str, view: ReplyView<'_>) -> Result<T, Mismatch> {
    Err(Mismatch { expected, got: describe(view) })
}

/// Type and beginning of a reply.
fn describe(view: ReplyView<'_>) -> String {
    let shown = |bytes: &[u8]| {
        let end = bytes.len().min(SHOWN_BYTES_MAX);
        format!("\"{}{}\"", bytes[..end].escape_ascii(), if end < bytes.len() { "…" } else { "" })
    };
    match view {
        ReplyView::Null => "null".to_owned(),
        ReplyView::Simple(text) => format!("simple string {}", shown(text)),
        ReplyView::Error(text) => format!("error {}", shown(text)),
        ReplyView::Integer(integer) => format!("integer {integer}"),
        ReplyView::Bulk(bytes) => format!("bulk string {}", shown(bytes)),
        ReplyView::Array(elements) => format!("array of {}", elements.len()),
        ReplyView::Map(elements) => format!("map of {}", elements.len() / 2),
        ReplyView::Set(elements) => format!("set of {}", elements.len()),
        ReplyView::Push(elements) => format!("push of {}", elements.len()),
        ReplyView::Double(double) => format!("double {double}"),
        ReplyView::Boolean(boolean) => format!("boolean {boolean}"),
        ReplyView::BigNumber(digits) => format!("big number {}", shown(digits)),
        ReplyView::Verbatim { text, .. } => format!("verbatim string {}", shown(text)),
    }
}

/// Any reply but an error.
impl FromReply for () {
    fn from_reply(view: ReplyView<'_>) -> Result<(), Mismatch> {
        match view {
            ReplyView::Error(_) => mismatch("no error", view),
            _ => Ok(()),
        }
    }
}

impl FromReply for ReplyValue {
    fn from_reply(view: ReplyView<'_>) -> Result<ReplyValue, Mismatch> {
        Ok(ReplyValue::from(view))
    }
}

/// Integers, also from text, which is how GET returns numbers.
macro_rules! integer {
    ($($type:ty: $name:literal)*) => {$(
        impl FromReply for $type {
            fn from_reply(view: ReplyView<'_>) -> Result<$type, Mismatch> {
                let integer = match view {
                    ReplyView::Integer(integer) => <$type>::try_from(integer).ok(),
                    ReplyView::BigNumber(text) => parse(text),
                    _ => view.text().and_then(parse),
                };
                integer.map_or_else(|| mismatch($name, view), Ok)
            }
        }
    )*};
}

integer! {
    i8: "an integer of 8 bits" i16: "an integer of 16 bits" i32: "an integer of 32 bits" i64: "an integer of 64 bits"
    u16: "an unsigned integer of 16 bits" u32: "an unsigned integer of 32 bits" u64: "an unsigned integer of 64 bits"
    i128: "an integer of 128 bits" usize: "an unsigned integer of the machine's size"
}

fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl FromReply for f64 {
    fn from_reply(view: ReplyView<'_>) -> Result<f64, Mismatch> {
        let double = match view {
            ReplyView::Double(double) => Some(double),
            ReplyView::Integer(integer) => Some(integer as f64),
            _ => view.text().and_then(parse),
        };
        double.map_or_else(|| mismatch("a number", view), Ok)
    }
}

/// `OK` is true and null is false, so `SET … NX` shows whether the key was set.
impl FromReply for bool {
    fn from_reply(view: ReplyView<'_>) -> Result<bool, Mismatch> {
        match view {
            ReplyView::Boolean(boolean) => Ok(boolean),
            ReplyView::Integer(integer @ (0 | 1)) => Ok(integer == 1),
            ReplyView::Simple(b"OK") => Ok(true),
            ReplyView::Null => Ok(false),
            _ => mismatch("a boolean", view),
        }
    }
}

impl FromReply for String {
    fn from_reply(view: ReplyView<'_>) -> Result<String, Mismatch> {
        let text = match view {
            ReplyView::Integer(integer) => Some(integer.to_string()),
            ReplyView::Double(double) => Some(double.to_string()),
            ReplyView::BigNumber(text) => String::from_utf8(text.to_vec()).ok(),
            _ => view.text().and_then(|text| String::from_utf8(text.to_vec()).ok()),
        };
        text.map_or_else(|| mismatch("text in UTF-8", view), Ok)
    }
}

/// Bytes.
impl FromReply for Vec<u8> {
    fn from_reply(view: ReplyView<'_>) -> Result<Vec<u8>, Mismatch> {
        view.text().map_or_else(|| mismatch("a string of bytes", view), |text| Ok(text.to_vec()))
    }
}

impl<T: FromReply> FromReply for Option<T> {
    fn from_reply(view: ReplyView<'_>) -> Result<Option<T>, Mismatch> {
        match view {
            ReplyView::Null => Ok(None),
            _ => T::from_reply(view).map(Some),
        }
    }
}

/// An error reply among others, such as that of a command in a transaction.
impl<T: FromReply> FromReply for Result<T, ServerError> {
    fn from_reply(view: ReplyView<'_>) -> Result<Result<T, ServerError>, Mismatch> {
        match view {
            ReplyView::Error(text) => Ok(Err(ServerError::of(text))),
            _ => T::from_reply(view).map(Ok),
        }
    }
}

fn elements<'b>(expected: &'static str, view: ReplyView<'b>) -> Result<Elements<'b>, Mismatch> {
    view.elements().map_or_else(|| mismatch(expected, view), Ok)
}

/// A list. `u8` has no conversion of its own, so `Vec<u8>` is bytes, not a list.
impl<T: FromReply> FromReply for Vec<T> {
    fn from_reply(view: ReplyView<'_>) -> Result<Vec<T>, Mismatch> {
        elements("a list", view)?.map(T::from_reply).collect()
    }
}

impl<T: FromReply + Hash + Eq, S: BuildHasher + Default> FromReply for HashSet<T, S> {
    fn from_reply(view: ReplyView<'_>) -> Result<HashSet<T, S>, Mismatch> {
        elements("a set", view)?.map(T::from_reply).collect()
    }
}

impl<T: FromReply + Ord> FromReply for BTreeSet<T> {
    fn from_reply(view: ReplyView<'_>) -> Result<BTreeSet<T>, Mismatch> {
        elements("a set", view)?.map(T::from_reply).collect()
    }
}

/// Keys and values of a map or of an array that alternates them.
fn pairs<K: FromReply, V: FromReply>(
    view: ReplyView<'_>,
) -> Result<impl Iterator<Item = Result<(K, V), Mismatch>>, Mismatch> {
    let mut elements = elements("a map", view)?;
    if !elements.len().is_multiple_of(2) {
        return mismatch("keys and values by turns", view);
    }
    Ok(std::iter::from_fn(move || {
        let (key, value) = (elements.next()?, elements.next()?);
        Some(K::from_reply(key).and_then(|key| Ok((key, V::from_reply(value)?))))
    }))
}

impl<K: FromReply + Hash + Eq, V: FromReply, S: BuildHasher + Default> FromReply for HashMap<K, V, S> {
    fn from_reply(view: ReplyView<'_>) -> Result<HashMap<K, V, S>, Mismatch> {
        pairs(view)?.collect()
    }
}

impl<K: FromReply + Ord, V: FromReply> FromReply for BTreeMap<K, V> {
    fn from_reply(view: ReplyView<'_>) -> Result<BTreeMap<K, V>, Mismatch> {
        pairs(view)?.collect()
    }
}

macro_rules! tuple {
    ($count:literal: $($name:ident),*) => {
        impl<$($name: FromReply),*> FromReply for ($($name,)*) {
            fn from_reply(view: ReplyView<'_>) -> Result<Self, Mismatch> {
                const EXPECTED: &str = concat!("a list of ", $count);
                let mut elements = elements(EXPECTED, view)?;
                if elements.len() != $count {
                    return mismatch(EXPECTED, view);
                }
                Ok(($($name::from_reply(elements.next().expect("as many as were counted"))?,)*))
            }
        }
    };
}

tuple!(1: A);
tuple!(2: A, B);
tuple!(3: A, B, C);
tuple!(4: A, B, C, D);
tuple!(5: A, B, C, D, E);
tuple!(6: A, B, C, D, E, F);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::FrameLimits;

    fn read<T: FromReply>(bytes: &str) -> Result<T, Mismatch> {
        let (view, _) = ReplyView::parse(bytes.as_bytes(), FrameLimits::default()).unwrap().unwrap();
        T::from_reply(view)
    }

    #[track_caller]
    fn check<T: FromReply + PartialEq + std::fmt::Debug>(bytes: &str, expected: T) {
        assert_eq!(read::<T>(bytes), Ok(expected));
    }

    #[track_caller]
    fn check_mismatch<T: FromReply + std::fmt::Debug>(bytes: &str, expected: &str) {
        assert_eq!(read::<T>(bytes).unwrap_err().to_string(), expected);
    }

    #[test]
    fn numbers_come_as_integers_and_as_text() {
        check(":5\r\n", 5i64);
        check("$2\r\n-7\r\n", -7i32);
        check("(18446744073709551615\r\n", u64::MAX);
        check(",2.5\r\n", 2.5);
        check("$4\r\n1e-1\r\n", 0.1);
        check(":3\r\n", 3.0);
        check_mismatch::<i64>("$3\r\n1.5\r\n", "expected an integer of 64 bits, got bulk string \"1.5\"");
        check_mismatch::<u32>(":-1\r\n", "expected an unsigned integer of 32 bits, got integer -1");
        check_mismatch::<i8>(":128\r\n", "expected an integer of 8 bits, got integer 128");
        check_mismatch::<i64>("_\r\n", "expected an integer of 64 bits, got null");
        check_mismatch::<f64>("*0\r\n", "expected a number, got array of 0");
    }

    #[test]
    fn texts_and_bytes_are_copied() {
        check("+OK\r\n", "OK".to_owned());
        check("=6\r\ntxt:hi\r\n", "hi".to_owned());
        check("$3\r\n\u{e4}b\r\n", "äb".to_owned());
        check("$2\r\nab\r\n", b"ab".to_vec());
        check(":5\r\n", "5".to_owned());
        check_mismatch::<String>("$-1\r\n", "expected text in UTF-8, got null");
        let long = format!("$60\r\n{}\r\n", "x".repeat(60));
        check_mismatch::<i64>(
            &long,
            &format!("expected an integer of 64 bits, got bulk string \"{}…\"", "x".repeat(40)),
        );
    }

    #[test]
    fn null_is_none_and_ok_is_true() {
        check("$-1\r\n", None::<String>);
        check("$1\r\na\r\n", Some("a".to_owned()));
        check("+OK\r\n", true);
        check("_\r\n", false);
        check("#t\r\n", true);
        check(":0\r\n", false);
        check_mismatch::<bool>(":2\r\n", "expected a boolean, got integer 2");
        check("*2\r\n:1\r\n:2\r\n", ());
    }

    #[test]
    fn lists_maps_and_tuples_hold_converted_values() {
        check("*3\r\n$1\r\na\r\n$-1\r\n$1\r\nb\r\n", vec![Some("a".to_owned()), None, Some("b".to_owned())]);
        check("*0\r\n", Vec::<i64>::new());
        let map = HashMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]);
        check("%2\r\n+a\r\n:1\r\n+b\r\n:2\r\n", map.clone());
        check("*4\r\n+a\r\n:1\r\n+b\r\n:2\r\n", map);
        check("~2\r\n:1\r\n:2\r\n", BTreeSet::from([1i64, 2]));
        check("*2\r\n$1\r\n0\r\n*1\r\n$1\r\nk\r\n", (0u64, vec!["k".to_owned()]));
        check_mismatch::<HashMap<String, i64>>("*1\r\n:1\r\n", "expected keys and values by turns, got array of 1");
        check_mismatch::<(i64, i64)>("*1\r\n:1\r\n", "expected a list of 2, got array of 1");
        check_mismatch::<Vec<i64>>("*1\r\n+x\r\n", "expected an integer of 64 bits, got simple string \"x\"");
    }

    #[test]
    fn errors_inside_of_lists_are_values_where_they_are_asked_for() {
        let replies: Vec<Result<i64, ServerError>> = read("*2\r\n:1\r\n-ERR no\r\n").unwrap();
        assert_eq!(replies[0], Ok(1));
        assert_eq!(replies[1].as_ref().unwrap_err().code(), "ERR");
        check_mismatch::<()>("-ERR no\r\n", "expected no error, got error \"ERR no\"");
    }
}
