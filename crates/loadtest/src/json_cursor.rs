//! A pull reader of JSON text: enters objects and arrays, skips unwanted values, returns one element's text at a time.
//!
//! For files that are larger than memory and of which one array matters (a HAR's entries, the contest's data). It holds one key
//! or one element. An element's text is delimited by its brackets and quotation marks but not validated: the caller parses it.
//! Skipped values are not validated either.

use binjson::ValueScan;
use std::io::{self, BufRead};

/// Largest element in bytes: an entry of a HAR may hold a whole image.
pub(crate) const ELEMENT_BYTES_MAX: usize = 64 << 20;
/// Largest key in bytes.
const KEY_BYTES_MAX: usize = 4096;

/// Walks through the JSON text of `reader`.
pub(crate) struct JsonCursor<R> {
    reader: R,
    /// Whether the next key or element is the first of its container, so that no comma precedes it.
    first: bool,
}

impl<R: BufRead> JsonCursor<R> {
    pub(crate) fn new(reader: R) -> JsonCursor<R> {
        JsonCursor { reader, first: true }
    }

    /// Enters the next object.
    pub(crate) fn enter_object(&mut self) -> io::Result<()> {
        self.expect(b'{')
    }

    /// Enters the next array.
    pub(crate) fn enter_array(&mut self) -> io::Result<()> {
        self.expect(b'[')
    }

    /// The next key of the current object; the cursor is then before its value. `None`: the object has ended.
    pub(crate) fn next_key(&mut self) -> io::Result<Option<String>> {
        if !self.separated(b'}')? {
            return Ok(None);
        }
        let mut key = Vec::new();
        self.value(&mut Some(&mut key), KEY_BYTES_MAX)?;
        self.expect(b':')?;
        serde_json::from_slice(&key).map(Some).map_err(|_| wrong("expected a key in quotation marks"))
    }

    /// Skips the next value.
    pub(crate) fn skip_value(&mut self) -> io::Result<()> {
        self.value(&mut None, usize::MAX)
    }

    /// Reads the text of the next element of the current array into `element`. False: the array has ended.
    pub(crate) fn next_element(&mut self, element: &mut Vec<u8>) -> io::Result<bool> {
        element.clear();
        if !self.separated(b']')? {
            return Ok(false);
        }
        self.value(&mut Some(element), ELEMENT_BYTES_MAX)?;
        Ok(true)
    }

    /// Skips the comma before the next item. False: the container ends with `end` instead.
    fn separated(&mut self, end: u8) -> io::Result<bool> {
        let first = std::mem::replace(&mut self.first, false);
        let byte = self.peek()?.ok_or_else(cut_short)?;
        if byte == end {
            self.reader.consume(1);
            return Ok(false);
        }
        if !first {
            self.expect(b',')?;
            self.first = false;
        }
        Ok(true)
    }

    fn expect(&mut self, expected: u8) -> io::Result<()> {
        let byte = self.peek()?.ok_or_else(cut_short)?;
        if byte != expected {
            return Err(wrong(&format!("expected {:?}, found {:?}", char::from(expected), char::from(byte))));
        }
        self.reader.consume(1);
        self.first = matches!(expected, b'{' | b'[');
        Ok(())
    }

    /// The next byte that is not white space, without consuming it.
    fn peek(&mut self) -> io::Result<Option<u8>> {
        loop {
            let bytes = self.reader.fill_buf()?;
            let Some(blanks) = bytes.iter().position(|byte| !byte.is_ascii_whitespace()) else {
                let length = bytes.len();
                if length == 0 {
                    return Ok(None);
                }
                self.reader.consume(length);
                continue;
            };
            let byte = bytes[blanks];
            self.reader.consume(blanks);
            return Ok(Some(byte));
        }
    }

    /// Reads one value into `text`, or skips it.
    fn value(&mut self, text: &mut Option<&mut Vec<u8>>, bytes_max: usize) -> io::Result<()> {
        self.peek()?.ok_or_else(cut_short)?;
        let mut scan = ValueScan::default();
        loop {
            let bytes = self.reader.fill_buf()?;
            if bytes.is_empty() {
                return Err(cut_short());
            }
            let end = scan.end_in(bytes);
            let length = end.unwrap_or(bytes.len());
            if let Some(text) = text {
                if text.len() + length > bytes_max {
                    return Err(wrong(&format!("longer than {bytes_max} bytes")));
                }
                text.extend_from_slice(&bytes[..length]);
            }
            self.reader.consume(length);
            if end.is_some() {
                return Ok(());
            }
        }
    }
}

fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the JSON ends too early")
}

fn wrong(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.to_owned())
}

#[cfg(test)]
mod walking {
    use super::JsonCursor;
    use proptest::prelude::*;
    use std::io::BufReader;

    /// Elements of the array at `path`, read through a buffer of a few bytes.
    fn elements(text: &str, path: &[&str], buffer: usize) -> std::io::Result<Vec<String>> {
        let mut cursor = JsonCursor::new(BufReader::with_capacity(buffer, text.as_bytes()));
        for step in path {
            cursor.enter_object()?;
            loop {
                match cursor.next_key()? {
                    Some(key) if key == *step => break,
                    Some(_) => cursor.skip_value()?,
                    None => return Ok(vec!["no such key".to_owned()]),
                }
            }
        }
        cursor.enter_array()?;
        let (mut all, mut element) = (Vec::new(), Vec::new());
        while cursor.next_element(&mut element)? {
            all.push(String::from_utf8_lossy(&element).into_owned());
        }
        Ok(all)
    }

    #[test]
    fn elements_of_an_array_deep_inside_come_one_by_one() {
        let text = r#" {"a": [1, {"b": "]}\""}], "log": {"n": null, "t": -1.5e3 , "entries" : [ {"x": "\\"}, 2,"s", [] , true ] , "z": 1}}"#;
        for buffer in [1, 2, 7, 4096] {
            let all = elements(text, &["log", "entries"], buffer).expect("JSON");
            assert_eq!(all, [r#"{"x": "\\"}"#, "2", "\"s\"", "[]", "true"]);
        }
        assert_eq!(elements("[]", &[], 3).expect("JSON"), Vec::<String>::new());
        assert_eq!(elements(r#"{"a":1}"#, &["b"], 3).expect("JSON"), ["no such key"]);
    }

    #[test]
    fn text_that_is_cut_short_or_has_no_such_shape_is_an_error() {
        for text in ["", "[", "[1", "[1 2]", "[1,", "{}", "[\"a"] {
            assert!(elements(text, &[], 4).is_err(), "{text}");
        }
        assert!(elements(r#"{"a" 1}"#, &["b"], 4).is_err());
    }

    proptest! {
        #[test]
        fn what_serde_writes_is_cut_as_it_was_put_together(
            values in proptest::collection::vec(("[ -~]{0,8}", any::<i64>()), 0..6), buffer in 1usize..20
        ) {
            let values: Vec<_> = values.into_iter().map(|(text, n)| serde_json::json!({"t": text, "n": [n]})).collect();
            let text = serde_json::json!({"skip": &values, "want": &values}).to_string();
            let all = elements(&text, &["want"], buffer).expect("JSON");
            prop_assert_eq!(all, values.iter().map(ToString::to_string).collect::<Vec<_>>());
        }

        #[test]
        fn any_text_ends(text in "[\\[\\]{}\",:\\\\a1 ]{0,30}") {
            let _ = elements(&text, &["a"], 3);
            let _ = elements(&text, &[], 3);
        }
    }
}
