//! A document as a row: its values by the numbers of the fields that the reader uses.
//!
//! One pass over the document finds all fields. The schema check, key, indexes, unique fields and references then access them
//! by number. Documents usually have the same shape, so each field is first compared with the field at the same position of the
//! last document.

use binjson::{JsonValue, StoredDocument, StoredName};

/// Rows of up to this many fields live on the stack.
const ROW_INLINE: usize = 16;

/// The fields that the reader of documents uses, numbered.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: Vec<String>,
    /// The names in stored (escaped) form, for comparison without unescaping.
    stored: Vec<Vec<u8>>,
    /// The number of [`binjson::MARK_NAME`], if it is among them.
    mark: Option<usize>,
}

/// The field numbers of the last document, by place in the document.
#[derive(Clone, Debug, Default)]
pub struct FieldNumbers {
    numbers: Vec<u8>,
}

/// Maximum number of numbered fields. A number fits into a byte, in which one value means "none of them".
pub const NAMES_MAX: usize = 254;
const NONE: u8 = 255;

/// A document's values by number of field.
pub struct Row<'r, 'd> {
    values: &'r [Option<JsonValue<'d>>],
    /// The first field that has no number.
    pub unknown: Option<StoredName<'d>>,
}

impl Names {
    /// The number of a name, added if it is new; `None` if there are already [`NAMES_MAX`].
    pub fn add(&mut self, name: &str) -> Option<usize> {
        if let Some(number) = self.number(name) {
            return Some(number);
        }
        if self.names.len() == NAMES_MAX {
            return None;
        }
        if name == binjson::MARK_NAME {
            self.mark = Some(self.names.len());
        }
        self.names.push(name.to_string());
        let mut quoted = Vec::new();
        binjson::append_string(&mut quoted, name);
        self.stored.push(quoted[1..quoted.len() - 1].to_vec());
        Some(self.names.len() - 1)
    }

    /// The number of a name.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// The name of a number.
    pub fn name(&self, number: usize) -> &str {
        &self.names[number]
    }

    /// Whether a number is that of the document's mark, which is no field of its JSON.
    pub(crate) fn is_mark(&self, number: usize) -> bool {
        self.mark == Some(number)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Collects a document's fields and passes the row to `each`.
    #[inline]
    pub fn with_row<'d, R>(
        &self,
        document: StoredDocument<'d>,
        shape: &mut FieldNumbers,
        each: impl FnOnce(&Row<'_, 'd>) -> R,
    ) -> R {
        let mut inline = [None; ROW_INLINE];
        let mut heap;
        let values: &mut [Option<JsonValue<'d>>] = if self.names.len() <= ROW_INLINE {
            &mut inline[..self.names.len()]
        } else {
            heap = vec![None; self.names.len()];
            &mut heap
        };
        let mut unknown = None;
        for (place, (name, value)) in document.fields().enumerate() {
            match self.find(name.stored(), place, shape) {
                Some(number) => values[number] = Some(value),
                None => unknown = unknown.or(Some(name)),
            }
        }
        if let Some(number) = self.mark {
            values[number] = document.mark();
        }
        each(&Row { values, unknown })
    }

    #[inline]
    fn find(&self, stored: &[u8], place: usize, shape: &mut FieldNumbers) -> Option<usize> {
        if let Some(&number) = shape.numbers.get(place)
            && self.stored.get(usize::from(number)).is_some_and(|known| known == stored)
        {
            return Some(usize::from(number));
        }
        let found = self.stored.iter().position(|known| known == stored);
        if place < NAMES_MAX {
            if shape.numbers.len() <= place {
                shape.numbers.resize(place + 1, NONE);
            }
            shape.numbers[place] = found.map_or(NONE, |number| number as u8);
        }
        found
    }
}

impl<'d> Row<'_, 'd> {
    /// The value of a field; `None` if it is missing.
    #[inline]
    pub fn get(&self, number: usize) -> Option<JsonValue<'d>> {
        self.values[number]
    }

    /// The stored JSON of a field; empty if it is missing.
    #[inline]
    pub fn raw(&self, number: usize) -> &'d [u8] {
        self.values[number].map_or(&[], |value| value.raw())
    }
}
