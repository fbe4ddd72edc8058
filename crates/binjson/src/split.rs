//! Splitting a large text into documents, for imports. Only the start and the end of each document are found here. The encoder
//! checks the documents, so that several threads can share that work.
//!
//! Accepted: `[…]`, and `{"users": […], "visits": […]}`: an object of arrays, whose keys name collections.

use crate::error::{JsonError, JsonErrorKind};
use crate::skip::{skip_space, string_end, value_end};

/// One element of a top-level array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'t> {
    /// The key of its array, in the form between the quotes; `None` if the text itself is an array.
    pub array: Option<&'t [u8]>,
    /// The element's text, not yet checked.
    pub text: &'t [u8],
    /// Offset of the element in the text, to be added to the offset of an error inside it.
    pub offset: usize,
}

/// The state of the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Start,
    /// Before a key of the top-level object, the first or a later one.
    Key {
        first: bool,
    },
    /// Before an element, the first or a later one.
    Element {
        first: bool,
    },
    End,
}

/// The elements of a text's top-level arrays, in order. After an error the iterator ends.
#[derive(Debug, Clone)]
pub struct Elements<'t> {
    text: &'t [u8],
    at: usize,
    state: At,
    array: Option<&'t [u8]>,
}

impl<'t> Elements<'t> {
    /// Iterates over the arrays of `text`.
    pub fn new(text: &'t [u8]) -> Self {
        // A byte order mark is not JSON, but files exported on Windows begin with one.
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self { text, at, state: At::Start, array: None }
    }

    fn step(&mut self) -> Result<Option<Element<'t>>, JsonError> {
        loop {
            self.at = skip_space(self.text, self.at);
            match self.state {
                At::Start => self.open()?,
                At::Key { first } => self.key(first)?,
                At::Element { first } => {
                    if let Some(element) = self.element(first)? {
                        return Ok(Some(element));
                    }
                }
                At::End if self.at < self.text.len() => return self.fail(JsonErrorKind::TrailingBytes),
                At::End => return Ok(None),
            }
        }
    }

    fn open(&mut self) -> Result<(), JsonError> {
        self.state = match self.text.get(self.at) {
            Some(b'[') => At::Element { first: true },
            Some(b'{') => At::Key { first: true },
            _ => return self.fail(JsonErrorKind::UnexpectedByte),
        };
        self.at += 1;
        Ok(())
    }

    /// Reads `"key": [`, or the object's end.
    fn key(&mut self, first: bool) -> Result<(), JsonError> {
        if self.text.get(self.at) == Some(&b'}') {
            (self.state, self.at) = (At::End, self.at + 1);
            return Ok(());
        }
        if !first {
            self.expect(b',')?;
        }
        let start = self.at;
        if self.text.get(start) != Some(&b'"') {
            return self.fail(JsonErrorKind::ExpectedKey);
        }
        let Some(end) = string_end(self.text, start) else { return self.fail(JsonErrorKind::UnexpectedEnd) };
        self.array = Some(&self.text[start + 1..end - 1]);
        self.at = skip_space(self.text, end);
        self.expect(b':')?;
        self.expect(b'[')?;
        self.state = At::Element { first: true };
        Ok(())
    }

    /// Reads an element, or the array's end.
    fn element(&mut self, first: bool) -> Result<Option<Element<'t>>, JsonError> {
        if self.text.get(self.at) == Some(&b']') {
            self.state = if self.array.is_some() { At::Key { first: false } } else { At::End };
            self.at += 1;
            return Ok(None);
        }
        if !first {
            self.expect(b',')?;
        }
        let offset = self.at;
        let Some(end) = value_end(self.text, offset) else {
            // Either the value is not closed, or there is none.
            let kind = match self.text.get(offset) {
                Some(b'"' | b'{' | b'[') | None => JsonErrorKind::UnexpectedEnd,
                _ => JsonErrorKind::UnexpectedByte,
            };
            return self.fail(kind);
        };
        self.at = end;
        self.state = At::Element { first: false };
        Ok(Some(Element { array: self.array, text: &self.text[offset..end], offset }))
    }

    /// Consumes `byte` and the whitespace after it.
    fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.text.get(self.at) != Some(&byte) {
            return self.fail(JsonErrorKind::UnexpectedByte);
        }
        self.at = skip_space(self.text, self.at + 1);
        Ok(())
    }

    fn fail<T>(&mut self, kind: JsonErrorKind) -> Result<T, JsonError> {
        let kind = if self.at >= self.text.len() { JsonErrorKind::UnexpectedEnd } else { kind };
        Err(JsonError { kind, offset: self.at })
    }
}

impl<'t> Iterator for Elements<'t> {
    type Item = Result<Element<'t>, JsonError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            (self.state, self.at) = (At::End, self.text.len());
        }
        step.transpose()
    }
}

/// Calls `each` with the text and the offset of every element of the top-level arrays; an error of `each` ends the iteration.
pub fn split_array<E: From<JsonError>>(
    text: &[u8],
    mut each: impl FnMut(&[u8], usize) -> Result<(), E>,
) -> Result<(), E> {
    for element in Elements::new(text) {
        let element = element?;
        each(element.text, element.offset)?;
    }
    Ok(())
}

/// The lines of NDJSON with their offsets, without line ends; empty ones are skipped.
#[derive(Debug, Clone)]
pub struct Lines<'t> {
    text: &'t [u8],
    at: usize,
}

/// Iterates over the lines of an NDJSON text.
pub fn split_lines(text: &[u8]) -> Lines<'_> {
    Lines { text, at: if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 } }
}

impl<'t> Iterator for Lines<'t> {
    type Item = (&'t [u8], usize);

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.text.len() {
            let rest = &self.text[self.at..];
            let len = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let start = skip_space(&rest[..len], 0);
            let offset = self.at + start;
            self.at += len + 1;
            let line = rest[start..len].trim_ascii_end();
            if !line.is_empty() {
                return Some((line, offset));
            }
        }
        None
    }
}
