//! The parser: one pass over a text that checks it, minifies it and records the positions of fields and elements.
//!
//! Unchanged bytes form a *run*: nothing is copied until whitespace or an escape ends it. A text that was sent minified is one
//! run, and its bytes are copied once, from the caller's buffer into the stored document. Positions in the minified text follow
//! from the run (`written + (at - run)`), so they are known before anything is copied.
//!
//! UTF-8 is checked in advance, once for the whole text. The loops here search only for ASCII bytes and so never split a
//! character.

use crate::error::{JsonError, JsonErrorKind};
use crate::escape;
use crate::hash::key_hash_within;
use crate::limits::DEPTH_MAX;
use crate::scan::string_stop;
use crate::table;

/// Room after the minified text, so that a short run is copied as one whole block.
const COPY_BLOCK: usize = 32;

/// A field of an object that is being read.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    /// Offset of the key's opening quote in the minified text.
    pub(crate) place: u32,
    pub(crate) hash: u32,
    /// Offset of the same quote in the text as sent, for errors and for keys that are not copied yet.
    sent_at: u32,
    /// Length of the key in its stored form.
    len: u32,
}

/// An inner object or array that gets a table.
#[derive(Clone, Copy)]
pub(crate) struct Inner {
    /// Its start in the minified text.
    pub(crate) place: u32,
    /// Its members: a range of `Scratch::inner_fields` or `Scratch::inner_elements`.
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// For an array: one position is kept for every `stride` elements.
    pub(crate) stride: usize,
    pub(crate) is_object: bool,
}

/// Working memory and results of the parser, reused from text to text.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The minified text up to the current run, with [`COPY_BLOCK`] bytes of room after it.
    pub(crate) minified: Vec<u8>,
    /// Fields of the open objects; after the parse, those of the root.
    pub(crate) fields: Vec<Field>,
    elements: Vec<u32>,
    pub(crate) inner: Vec<Inner>,
    pub(crate) inner_fields: Vec<Field>,
    pub(crate) inner_elements: Vec<u32>,
    /// Hashes and indexes, for finding duplicate keys in large objects.
    sorted: Vec<u64>,
}

impl Scratch {
    /// The bytes kept between texts.
    pub(crate) fn bytes(&self) -> usize {
        self.minified.capacity()
            + (self.fields.capacity() + self.inner_fields.capacity()) * size_of::<Field>()
            + (self.elements.capacity() + self.inner_elements.capacity()) * size_of::<u32>()
            + self.inner.capacity() * size_of::<Inner>()
            + self.sorted.capacity() * size_of::<u64>()
    }

    fn clear(&mut self, text_len: usize) {
        if self.minified.len() < text_len + COPY_BLOCK {
            self.minified.resize(text_len + COPY_BLOCK, 0);
        }
        self.fields.clear();
        self.elements.clear();
        self.inner.clear();
        self.inner_fields.clear();
        self.inner_elements.clear();
    }
}

/// The text was refused; the reason is in [`Parser::error`]. Empty, so that results of the inner functions stay in registers.
struct Refused;

type Step<T> = Result<T, Refused>;

/// Returns false once the parse is cancelled.
pub(crate) type IsWanted<'w> = &'w dyn Fn() -> bool;

/// Bytes of a text between two cancellation checks: about 50 µs.
const QUESTION_BYTES: usize = 16 << 10;

struct Parser<'t, 's> {
    text: &'t [u8],
    scratch: &'s mut Scratch,
    /// Start of the current run in `text`.
    run: usize,
    /// Length of the minified text copied so far: everything before the run.
    written: usize,
    depth: usize,
    /// Bytes reserved for tables of inner objects and arrays.
    inner_bytes: usize,
    is_wanted: Option<IsWanted<'s>>,
    /// Offset of the next cancellation check; beyond every text if there is none.
    ask_at: usize,
    error: JsonError,
}

/// Parses `text` and returns its minified form; the fields of a root object and the contents of inner tables are in `scratch`.
pub(crate) fn parse<'a>(
    text: &'a [u8],
    scratch: &'a mut Scratch,
    is_wanted: Option<IsWanted<'_>>,
) -> Result<(&'a [u8], &'a Scratch), JsonError> {
    scratch.clear(text.len());
    let error = JsonError { kind: JsonErrorKind::UnexpectedEnd, offset: text.len() };
    let ask_at = if is_wanted.is_some() { QUESTION_BYTES } else { usize::MAX };
    let mut parser =
        Parser { text, scratch: &mut *scratch, run: 0, written: 0, depth: 0, inner_bytes: 0, is_wanted, ask_at, error };
    let Ok(end) = parser.document() else { return Err(parser.error) };
    let (run, written) = (parser.run, parser.written);
    if written == 0 {
        return Ok((&text[run..end], scratch));
    }
    parser.copy_run(end);
    let len = parser.written;
    let scratch = &*scratch;
    Ok((&scratch.minified[..len], scratch))
}

impl Parser<'_, '_> {
    fn document(&mut self) -> Step<usize> {
        let start = self.skip_space(0);
        let end = self.value(start)?;
        let text_end = self.run.max(end);
        let behind = self.skip_space_uncopied(end);
        if behind != self.text.len() { self.fail(JsonErrorKind::TrailingBytes, behind) } else { Ok(text_end) }
    }

    /// Checks for cancellation at intervals.
    #[inline(always)]
    fn ask(&mut self, at: usize) -> Step<()> {
        if at < self.ask_at { Ok(()) } else { self.ask_now(at) }
    }

    #[cold]
    #[inline(never)]
    fn ask_now(&mut self, at: usize) -> Step<()> {
        self.ask_at = at + QUESTION_BYTES;
        if self.is_wanted.is_none_or(|is_wanted| is_wanted()) { Ok(()) } else { self.fail(JsonErrorKind::Unwanted, at) }
    }

    /// The byte at `at`; after the end 0, which is invalid everywhere.
    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    /// The offset in the minified text of the byte at `at` of the text.
    #[inline(always)]
    fn place(&self, at: usize) -> u32 {
        (self.written + at - self.run) as u32
    }

    #[cold]
    #[inline(never)]
    fn fail<T>(&mut self, kind: JsonErrorKind, at: usize) -> Step<T> {
        let ended = at >= self.text.len();
        let kind = match kind {
            JsonErrorKind::UnexpectedByte | JsonErrorKind::ExpectedKey if ended => JsonErrorKind::UnexpectedEnd,
            JsonErrorKind::UnexpectedByte if self.text.starts_with(b"\xef\xbb\xbf") && at == 0 => {
                JsonErrorKind::ByteOrderMark
            }
            kind => kind,
        };
        self.error = JsonError { kind, offset: at.min(self.text.len()) };
        Err(Refused)
    }

    /// Ends the run at `end` by copying it.
    #[inline]
    fn copy_run(&mut self, end: usize) {
        let len = end - self.run;
        let into = &mut self.scratch.minified[self.written..];
        match (self.text[self.run..].first_chunk::<COPY_BLOCK>(), into.first_chunk_mut::<COPY_BLOCK>()) {
            (Some(from), Some(into)) if len <= COPY_BLOCK => *into = *from,
            _ => into[..len].copy_from_slice(&self.text[self.run..end]),
        }
        self.written += len;
        self.run = end;
    }

    /// Skips whitespace at `at`: returns the offset after it, where a new run begins.
    #[inline(always)]
    fn skip_space(&mut self, at: usize) -> usize {
        if self.byte(at) > b' ' { at } else { self.skip_space_run(at) }
    }

    #[inline(never)]
    fn skip_space_run(&mut self, at: usize) -> usize {
        let end = self.skip_space_uncopied(at);
        if end != at {
            self.copy_run(at);
            self.run = end;
        }
        end
    }

    fn skip_space_uncopied(&self, mut at: usize) -> usize {
        while matches!(self.byte(at), b' ' | b'\n' | b'\r' | b'\t') {
            at += 1;
        }
        at
    }

    /// Parses the value at `at` and returns the offset after it.
    #[inline]
    fn value(&mut self, at: usize) -> Step<usize> {
        match self.byte(at) {
            b'"' => self.string(at),
            b'{' => self.nested(at, Self::object),
            b'[' => self.nested(at, Self::array),
            b'-' | b'0'..=b'9' => self.number(at),
            b't' => self.literal(at, b"true"),
            b'f' => self.literal(at, b"false"),
            b'n' => self.literal(at, b"null"),
            _ => self.no_value(at),
        }
    }

    /// The error for a byte that begins no value. Number formats of other languages are reported as bad numbers, `Null` as an
    /// unexpected byte.
    #[cold]
    fn no_value(&mut self, at: usize) -> Step<usize> {
        let rest = self.text.get(at..).unwrap_or_default();
        let numbers: [&[u8]; 4] = [b"+", b".", b"NaN", b"Inf"];
        let is_number = numbers.iter().any(|number| rest.starts_with(number));
        self.fail(if is_number { JsonErrorKind::BadNumber } else { JsonErrorKind::UnexpectedByte }, at)
    }

    fn literal(&mut self, at: usize, word: &[u8]) -> Step<usize> {
        let end = at + word.len();
        if self.text.get(at..end) == Some(word) {
            return Ok(end);
        }
        let right = word.iter().zip(&self.text[at..]).take_while(|(a, b)| a == b).count();
        self.fail(JsonErrorKind::UnexpectedByte, at + right)
    }

    #[inline]
    fn number(&mut self, at: usize) -> Step<usize> {
        let digits = at + usize::from(self.byte(at) == b'-');
        let mut end = self.digits(digits);
        if end == digits || (self.byte(digits) == b'0' && end > digits + 1) {
            return self.fail(JsonErrorKind::BadNumber, at);
        }
        if matches!(self.byte(end), b'.' | b'e' | b'E') {
            end = self.fraction(at, end)?;
        }
        Ok(end)
    }

    fn fraction(&mut self, at: usize, integer_end: usize) -> Step<usize> {
        let mut end = integer_end;
        if self.byte(end) == b'.' {
            end = self.digits(integer_end + 1);
            if end == integer_end + 1 {
                return self.fail(JsonErrorKind::BadNumber, at);
            }
        }
        if matches!(self.byte(end), b'e' | b'E') {
            let first = end + 1 + usize::from(matches!(self.byte(end + 1), b'+' | b'-'));
            end = self.digits(first);
            if end == first {
                return self.fail(JsonErrorKind::BadNumber, at);
            }
        }
        Ok(end)
    }

    #[inline]
    fn digits(&self, mut at: usize) -> usize {
        while self.byte(at).is_ascii_digit() {
            at += 1;
        }
        at
    }

    /// Parses the string whose opening quote is at `at`.
    #[inline]
    fn string(&mut self, at: usize) -> Step<usize> {
        let stop = string_stop(self.text, at + 1);
        if self.byte(stop) == b'"' { Ok(stop + 1) } else { self.escaped_string(stop) }
    }

    #[inline(never)]
    fn escaped_string(&mut self, mut stop: usize) -> Step<usize> {
        loop {
            match self.byte(stop) {
                b'"' => return Ok(stop + 1),
                b'\\' => stop = string_stop(self.text, self.escape(stop)?),
                _ if stop >= self.text.len() => return self.fail(JsonErrorKind::UnexpectedEnd, stop),
                _ => return self.fail(JsonErrorKind::ControlCharacter, stop),
            }
        }
    }

    /// Parses the escape at `at`, and `\u` escapes directly after it.
    fn escape(&mut self, at: usize) -> Step<usize> {
        match self.byte(at + 1) {
            b'u' => self.unicode_escapes(at),
            b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(at + 2),
            b'/' => {
                self.copy_run(at);
                self.run = at + 1;
                Ok(at + 2)
            }
            _ if at + 1 >= self.text.len() => self.fail(JsonErrorKind::UnexpectedEnd, at + 1),
            _ => self.fail(JsonErrorKind::BadEscape, at),
        }
    }

    /// A sequence of `\uXXXX`: many libraries write whole Cyrillic words this way.
    fn unicode_escapes(&mut self, mut at: usize) -> Step<usize> {
        self.copy_run(at);
        loop {
            let (character, end) = match escape::unicode_escape(self.text, at) {
                Ok(read) => read,
                Err(kind) => return self.fail(kind, at),
            };
            let (form, len) = escape::stored_form(character);
            // No escape's stored form is longer than the escape, so there is room.
            self.scratch.minified[self.written..self.written + len].copy_from_slice(&form[..len]);
            self.written += len;
            self.run = end;
            at = end;
            if self.byte(at) != b'\\' || self.byte(at + 1) != b'u' {
                return Ok(at);
            }
        }
    }

    #[inline]
    fn nested(&mut self, at: usize, read: fn(&mut Self, usize) -> Step<usize>) -> Step<usize> {
        if self.depth == DEPTH_MAX {
            return self.fail(JsonErrorKind::TooDeep, at);
        }
        self.depth += 1;
        let end = read(self, at)?;
        self.depth -= 1;
        Ok(end)
    }

    fn object(&mut self, open: usize) -> Step<usize> {
        let (place, first) = (self.place(open), self.scratch.fields.len());
        let mut at = self.skip_space(open + 1);
        if self.byte(at) == b'}' {
            return Ok(at + 1);
        }
        loop {
            self.ask(at)?;
            at = self.key(at)?;
            at = self.skip_space(at);
            if self.byte(at) != b':' {
                return self.fail(JsonErrorKind::UnexpectedByte, at);
            }
            at = self.skip_space(at + 1);
            at = self.value(at)?;
            at = self.skip_space(at);
            match self.byte(at) {
                b',' => at = self.skip_space(at + 1),
                b'}' => break,
                _ => return self.fail(JsonErrorKind::UnexpectedByte, at),
            }
        }
        self.refuse_duplicates(first)?;
        if self.depth > 1 {
            self.keep_object(place, at + 1, first);
            self.scratch.fields.truncate(first);
        }
        Ok(at + 1)
    }

    /// Parses a key and records its field.
    #[inline]
    fn key(&mut self, at: usize) -> Step<usize> {
        if self.byte(at) != b'"' {
            return self.fail(JsonErrorKind::ExpectedKey, at);
        }
        let place = self.place(at);
        let end = self.string(at)?;
        let (window, len) = if self.run <= at {
            (&self.text[at + 1..], end - at - 2)
        } else {
            self.copy_run(end);
            let first = place as usize + 1;
            (&self.scratch.minified[first..], self.written - 1 - first)
        };
        let hash = key_hash_within(window, len);
        self.scratch.fields.push(Field { place, hash, sent_at: at as u32, len: len as u32 });
        Ok(end)
    }

    fn array(&mut self, open: usize) -> Step<usize> {
        let (place, first) = (self.place(open), self.scratch.elements.len());
        let mut at = self.skip_space(open + 1);
        if self.byte(at) == b']' {
            return Ok(at + 1);
        }
        loop {
            self.ask(at)?;
            let element = self.place(at);
            self.scratch.elements.push(element);
            at = self.value(at)?;
            at = self.skip_space(at);
            match self.byte(at) {
                b',' => at = self.skip_space(at + 1),
                b']' => break,
                _ => return self.fail(JsonErrorKind::UnexpectedByte, at),
            }
        }
        self.keep_array(place, at + 1, first);
        self.scratch.elements.truncate(first);
        Ok(at + 1)
    }

    /// Keeps the fields from `first` on if the inner object that begins at `place` gets a table.
    fn keep_object(&mut self, place: u32, end: usize, first: usize) {
        let count = self.scratch.fields.len() - first;
        if self.deserves_table(place, end, |_, width| table::object_bytes(count, width)) {
            let Scratch { fields, inner, inner_fields, .. } = &mut *self.scratch;
            inner.push(Inner { place, first: inner_fields.len(), count, stride: 1, is_object: true });
            inner_fields.extend_from_slice(&fields[first..]);
        }
    }

    /// The same for an array.
    fn keep_array(&mut self, place: u32, end: usize, first: usize) {
        let count = self.scratch.elements.len() - first;
        if self.deserves_table(place, end, |text_len, width| table::array_bytes(count, text_len, width)) {
            let stride = table::array_stride(count, (self.place(end) - place) as usize);
            let Scratch { elements, inner, inner_elements, .. } = &mut *self.scratch;
            inner.push(Inner { place, first: inner_elements.len(), count, stride, is_object: false });
            inner_elements.extend(elements[first..].iter().step_by(stride).skip(1));
        }
    }

    /// Whether a table for the value from `place` to `end` keeps the tables under a sixteenth of the value and of the text so
    /// far.
    fn deserves_table(&mut self, place: u32, end: usize, bytes: impl Fn(usize, usize) -> usize) -> bool {
        let end = self.place(end) as usize;
        let text_len = end - place as usize;
        if text_len < table::INNER_TEXT_MIN {
            return false;
        }
        // Decided by minified lengths alone: the stored form must not depend on whitespace.
        let cost = bytes(text_len, table::width_for(end));
        let affordable = cost <= text_len / 16 && self.inner_bytes + cost <= end / 16;
        if affordable {
            self.inner_bytes += cost;
        }
        affordable
    }

    /// Refuses the object whose fields begin at `first` if two of its keys are the same.
    #[inline]
    fn refuse_duplicates(&mut self, first: usize) -> Step<()> {
        let fields = &self.scratch.fields[first..];
        if fields.len() > PAIRWISE_FIELDS_MAX {
            return self.refuse_duplicates_sorted(first);
        }
        let mut seen = [0u64; 4];
        for (index, field) in fields.iter().enumerate() {
            let (word, bit) = ((field.hash >> 6 & 3) as usize, 1u64 << (field.hash & 63));
            if seen[word] & bit != 0 {
                let twin = fields[..index].iter().any(|other| other.hash == field.hash && self.same_key(other, field));
                if twin {
                    let at = field.sent_at as usize;
                    return self.fail(JsonErrorKind::DuplicateKey, at);
                }
            }
            seen[word] |= bit;
        }
        Ok(())
    }

    /// The same for many fields: sorts them by hash, and equal hashes by their keys, so that no choice of keys makes it slow.
    #[inline(never)]
    fn refuse_duplicates_sorted(&mut self, first: usize) -> Step<()> {
        let mut sorted = std::mem::take(&mut self.scratch.sorted);
        let fields = &self.scratch.fields[first..];
        sorted.clear();
        sorted.extend(fields.iter().enumerate().map(|(index, field)| u64::from(field.hash) << 32 | index as u64));
        sorted.sort_unstable();
        let mut twin = None;
        for group in sorted.chunk_by_mut(|a, b| a >> 32 == b >> 32).filter(|group| group.len() > 1) {
            let field = |entry: u64| &fields[entry as u32 as usize];
            group.sort_unstable_by(|&a, &b| self.key_bytes(field(a)).cmp(self.key_bytes(field(b))).then(a.cmp(&b)));
            for pair in group.windows(2) {
                if self.same_key(field(pair[0]), field(pair[1])) {
                    let at = field(pair[1]).sent_at;
                    twin = Some(twin.map_or(at, |earlier: u32| earlier.min(at)));
                }
            }
        }
        self.scratch.sorted = sorted;
        twin.map_or(Ok(()), |at| self.fail(JsonErrorKind::DuplicateKey, at as usize))
    }

    fn same_key(&self, a: &Field, b: &Field) -> bool {
        self.key_bytes(a) == self.key_bytes(b)
    }

    /// A key in its stored form: from the copied text, or, in the current run, from the text as sent.
    fn key_bytes(&self, field: &Field) -> &[u8] {
        let (text, first) = if (field.place as usize) < self.written {
            (&self.scratch.minified[..], field.place as usize + 1)
        } else {
            (self.text, field.sent_at as usize + 1)
        };
        &text[first..first + field.len as usize]
    }
}

/// Up to this many fields duplicate keys are found by a small filter and comparisons; beyond, by sorting.
const PAIRWISE_FIELDS_MAX: usize = 64;
