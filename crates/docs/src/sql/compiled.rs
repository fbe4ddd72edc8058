//! A plan of the common shape, compiled: a row is found by one range and then by keys, and each field has a slot.
//!
//! The general way asks for a field by walking the frames to its level and looking what kind of place it has there, for
//! each row and each use. Where a plan has
//!
//! - one outermost range of an index, or of documents, or one key, and inside it only lookups by key (inner joins),
//! - conditions that compare a field with a field or with a value known ahead, or test it for NULL,
//! - outputs, or arguments of aggregates without GROUP BY, that are fields or values known ahead,
//! - and neither a sort nor DISTINCT,
//!
//! all that is decided here, once for a plan: an entry is laid out into a row of slots, and what is done with a slot is
//! known before the first row. Any other plan runs the general way (`nest.rs`), with equal answers; the tests run both.

use binjson::FieldName;

use super::aggregate::AggregateKind;
use super::expr::{Comparison, Expr};
use crate::engine::TreeId;
use crate::key::KeyType;

/// Most fields of a row. A row of slots is made for each entry, so it is kept short.
pub(crate) const SLOTS_MAX: usize = 8;
/// Most values known ahead.
pub(crate) const KNOWN_MAX: usize = 16;

/// How the bytes of a slot, or a known value, are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// JSON text as stored; empty where the field is missing.
    Json,
    /// The rest of an index entry's key, which begins with the value.
    Ordered,
    /// A document's key.
    Key(KeyType),
    /// A value known ahead, by its number.
    Known,
}

/// What an operand is read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) number: usize,
    pub(crate) form: Form,
    /// It is an integer key that was found by this value, which may be a real: 5.0 finds 5.
    pub(crate) whole: bool,
}

/// A condition of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    /// NULL on either side fails it.
    Compare(Comparison, Term, Term),
    /// The term is NULL, or is not.
    Null(Term, bool),
}

/// A field taken out of a document.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: FieldName,
    /// The number of its column, which is that of its cache.
    pub(crate) column: usize,
    pub(crate) slot: usize,
}

/// A value of an index entry's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordered {
    /// Values between the one before (or the key's start) and it.
    pub(crate) skipped: usize,
    pub(crate) slot: usize,
}

/// One document looked up by its key.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    pub(crate) tree: TreeId,
    pub(crate) kind: KeyType,
    pub(crate) key: Term,
    pub(crate) fields: Vec<Field>,
    pub(crate) tests: Vec<Test>,
    /// It is an index entry's own document: there, and counted with the entry.
    pub(crate) own: bool,
}

/// A plan of the shape that the module's text names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compiled {
    /// Included fields that an index entry's first slots are.
    pub(crate) included: usize,
    pub(crate) ordered: Vec<Ordered>,
    /// The slot of the document's key, in a range of documents.
    pub(crate) key: Option<usize>,
    /// Fields of the document, in a range of documents.
    pub(crate) fields: Vec<Field>,
    /// Conditions on what the range gives.
    pub(crate) tests: Vec<Test>,
    pub(crate) lookups: Vec<Lookup>,
    pub(crate) outputs: Vec<Term>,
    pub(crate) aggregates: Vec<(AggregateKind, Option<Term>)>,
    pub(crate) known: Vec<Expr>,
    /// What an index entry's tests, and its first lookup, take of its key.
    pub(crate) tests_key: bool,
    /// Nothing between the first lookup's key and the results takes any field of the entry.
    pub(crate) skips_entry: bool,
}

impl Compiled {
    /// About how many bytes it has in memory, its known values apart.
    pub(super) fn bytes(&self) -> usize {
        let of = |fields: &[Field], tests: &[Test]| {
            let names: usize = fields.iter().map(|field| size_of::<Field>() + field.name.stored().len()).sum();
            names + size_of_val(tests)
        };
        let lookups = self.lookups.iter().map(|lookup| size_of::<Lookup>() + of(&lookup.fields, &lookup.tests));
        size_of::<Compiled>()
            + of(&self.fields, &self.tests)
            + lookups.sum::<usize>()
            + size_of_val(&self.ordered[..])
            + size_of_val(&self.outputs[..])
            + size_of_val(&self.aggregates[..])
    }

    /// Notes what of the entry is taken, once all else is there.
    pub(super) fn note_uses(&mut self) {
        let Some((first, inner)) = self.lookups.split_first() else { return };
        let entry = self.included + self.ordered.len();
        let of_entry = |term: &Term| term.form != Form::Known && term.number < entry;
        let is_ordered = |term: &Term| term.form == Form::Ordered;
        self.tests_key = is_ordered(&first.key) || self.tests.iter().any(|test| test.takes(&is_ordered));
        let takes = |tests: &[Test]| tests.iter().any(|test| test.takes(&of_entry));
        self.skips_entry =
            !takes(&first.tests) && !inner.iter().any(|lookup| of_entry(&lookup.key) || takes(&lookup.tests));
    }
}

impl Test {
    fn takes(&self, what: &impl Fn(&Term) -> bool) -> bool {
        match self {
            Test::Compare(_, left, right) => what(left) || what(right),
            Test::Null(term, _) => what(term),
        }
    }
}
