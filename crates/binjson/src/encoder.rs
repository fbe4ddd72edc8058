//! Encoding a JSON text as a stored document.

use crate::error::{JsonError, JsonErrorKind};
use crate::limits::TEXT_BYTES_MAX;
use crate::parser::{self, IsWanted, Scratch};
use crate::table;
use crate::tag::{FORMAT_VERSION, TAG_NESTED, TAG_OBJECT};

/// Memory that an encoder keeps between texts; if a huge document needed more, all of it is freed afterwards.
pub const SCRATCH_BYTES_KEPT_MAX: usize = 256 << 10;

/// Turns JSON texts into stored documents, and reuses its working memory.
#[derive(Default)]
pub struct Encoder {
    scratch: Scratch,
    directory: Vec<(u32, u32)>,
    nested: Vec<u8>,
    /// The text of a merge, before it is encoded.
    pub(crate) merged: Vec<u8>,
}

/// Appends the stored form of the JSON `text` to `out`. To encode many texts, keep an [`Encoder`].
pub fn encode(text: &[u8], out: &mut Vec<u8>) -> Result<(), JsonError> {
    Encoder::new().encode(text, out)
}

impl Encoder {
    /// An encoder without allocated memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the stored form of the JSON `text` to `out`; on an error `out` is unchanged.
    pub fn encode(&mut self, text: &[u8], out: &mut Vec<u8>) -> Result<(), JsonError> {
        self.encode_asking(text, out, None)
    }

    /// The same for a long text; between members of an object or an array it calls `is_wanted` repeatedly. Once that returns
    /// false, the result is [`JsonErrorKind::Unwanted`].
    pub fn encode_while(
        &mut self,
        text: &[u8],
        out: &mut Vec<u8>,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), JsonError> {
        self.encode_asking(text, out, Some(is_wanted))
    }

    fn encode_asking(
        &mut self,
        text: &[u8],
        out: &mut Vec<u8>,
        is_wanted: Option<IsWanted<'_>>,
    ) -> Result<(), JsonError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(JsonError { kind: JsonErrorKind::TooLarge, offset: TEXT_BYTES_MAX });
        }
        if let Err(error) = simdutf8::compat::from_utf8(text) {
            return Err(JsonError { kind: JsonErrorKind::BadUtf8, offset: error.valid_up_to() });
        }
        let result = parser::parse(text, &mut self.scratch, is_wanted)
            .map(|(text, scratch)| append_document(out, text, scratch, &mut self.directory, &mut self.nested));
        self.give_back();
        result
    }

    pub(crate) fn give_back(&mut self) {
        let kept = self.scratch.bytes()
            + self.nested.capacity()
            + self.merged.capacity()
            + self.directory.capacity() * size_of::<(u32, u32)>();
        if kept > SCRATCH_BYTES_KEPT_MAX {
            *self = Self::default();
        }
    }
}

fn append_document(
    out: &mut Vec<u8>,
    text: &[u8],
    scratch: &Scratch,
    directory: &mut Vec<(u32, u32)>,
    nested: &mut Vec<u8>,
) {
    let width = table::width_for(text.len());
    let is_object = text.first() == Some(&b'{');
    let width_code = width.trailing_zeros() as u8;
    let mut tag = FORMAT_VERSION << 4 | width_code;
    tag |= if is_object { TAG_OBJECT } else { 0 };
    tag |= if scratch.inner.is_empty() { 0 } else { TAG_NESTED };
    let fields = &scratch.fields;
    out.reserve(16 + text.len() + table::body_bytes(fields.len(), width) + text.len() / 16);
    out.push(tag);
    if is_object {
        table::append_number(out, fields.len() as u32, width);
    }
    if !scratch.inner.is_empty() {
        fill_nested(nested, directory, scratch, text, width);
        table::append_number(out, nested.len() as u32, width);
    }
    if is_object {
        table::append_body(out, fields.iter().map(|field| (field.place, field.hash)), width);
    }
    if !scratch.inner.is_empty() {
        out.extend_from_slice(nested);
    }
    out.extend_from_slice(text);
}

/// Writes the nested tables: the directory, in the order of the text, then the tables, in the order in which they were closed.
fn fill_nested(nested: &mut Vec<u8>, directory: &mut Vec<(u32, u32)>, scratch: &Scratch, text: &[u8], width: usize) {
    nested.clear();
    directory.clear();
    table::append_number(nested, scratch.inner.len() as u32, width);
    let tables_at = nested.len() + scratch.inner.len() * 2 * width;
    nested.resize(tables_at, 0);
    for inner in &scratch.inner {
        directory.push((inner.place, (nested.len() - tables_at) as u32));
        if inner.is_object {
            let fields = &scratch.inner_fields[inner.first..inner.first + inner.count];
            table::append_number(nested, inner.count as u32, width);
            table::append_body(nested, fields.iter().map(|field| (field.place, field.hash)), width);
        } else {
            nested.push(inner.stride.trailing_zeros() as u8);
            table::append_number(nested, inner.count as u32, width);
            let kept = table::array_positions(inner.count, inner.stride);
            for &place in &scratch.inner_elements[inner.first..inner.first + kept] {
                table::append_number(nested, place, width);
            }
        }
    }
    directory.sort_unstable();
    let entries = &mut nested[width..tables_at];
    for (entry, (place, offset)) in entries.chunks_exact_mut(2 * width).zip(directory.iter()) {
        entry[..width].copy_from_slice(&place.to_le_bytes()[..width]);
        entry[width..].copy_from_slice(&offset.to_le_bytes()[..width]);
    }
    debug_assert!(nested.len() <= text.len());
}

#[cfg(test)]
mod tests {
    use crate::document::StoredDocument;

    #[test]
    fn long_inner_objects_and_arrays_have_tables_wherever_they_nest() {
        let words = "long enough for a table of its own ".repeat(12);
        let list = format!("[{}1]", "12345678,".repeat(100));
        let text = format!(r#"{{"a":{{"w":"{words}","b":{{"w":"{words}","list":{list}}}}},"c":{{"w":"{words}"}}}}"#);
        let mut out = Vec::new();
        assert_eq!(super::encode(text.as_bytes(), &mut out), Ok(()));
        let document = StoredDocument::from_bytes(&out).expect("just encoded");
        let tables = document.nested_tables();
        let objects: Vec<usize> = text.match_indices(r#"{"w":"#).map(|(place, _)| place).collect();
        assert_eq!(objects.len(), 3);
        for place in objects {
            assert!(tables.object(place, text.len()).is_some(), "object at {place}");
        }
        assert!(text.find('[').is_some_and(|place| tables.array(place).is_some_and(|table| table.count == 101)));
    }
}
