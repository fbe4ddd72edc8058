//! A compiled plan of a common shape: rows are found by one range and then by keys, and each field has a slot.
//!
//! For each row and each use of a field, the interpreter walks the frames to the field's level and looks up its source there. A
//! compiled plan has all this decided once. That is possible if the plan has
//!
//! - one outermost range of an index or of documents, or one key, and inside it only lookups by key (inner joins),
//! - predicates that compare a field with a field or a constant, or test it for NULL,
//! - outputs, or arguments of aggregates without GROUP BY, that are fields or constants,
//! - and neither a sort nor DISTINCT.
//!
//! An entry is decoded into a row of slots, whose uses are known before the first row. Any other plan is interpreted
//! (`execution/nest.rs`). The results are equal; the tests run both.

use binjson::FieldName;

use crate::encoding::KeyType;
use crate::engine::TreeId;
use crate::sql::expressions::{AggregateKind, Comparison, Expr};

/// Most fields of a row. It is small because a row of slots is made for each entry.
pub(crate) const SLOTS_MAX: usize = 8;
/// Most constants.
pub(crate) const KNOWN_MAX: usize = 16;

/// The encoding of a slot or of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotEncoding {
    /// JSON text as stored; empty if the field is missing.
    Json,
    /// The rest of an index entry's key, beginning with the value; or a number as written.
    Ordered,
    /// A document's key.
    Key(KeyType),
    /// A value that is constant during the execution, by its number.
    Known,
}

/// An operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    pub(crate) number: usize,
    pub(crate) form: SlotEncoding,
    /// It is an integer key, taken from the value that was looked up. That value may be a real, because 5.0 finds 5.
    pub(crate) whole: bool,
}

/// A predicate of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    /// NULL on either side fails it.
    Compare(Comparison, Term, Term),
    /// The term is NULL (true), or is not (false).
    Null(Term, bool),
}

/// A field that is read from a document.
#[derive(Clone, Debug)]
pub(crate) struct CompiledField {
    pub(crate) name: FieldName,
    /// The number of its column, and of its cache.
    pub(crate) column: usize,
    pub(crate) slot: usize,
}

/// A value of an index entry's key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordered {
    /// Values between the previous one (or the key's start) and this one.
    pub(crate) skipped: usize,
    pub(crate) slot: usize,
}

/// A lookup of one document by its key.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    pub(crate) tree: TreeId,
    pub(crate) kind: KeyType,
    pub(crate) key: Term,
    pub(crate) fields: Vec<CompiledField>,
    pub(crate) tests: Vec<Test>,
    /// It is an index entry's own document: it must exist, and is counted with the entry.
    pub(crate) own: bool,
}

/// A plan of the shape that the module documentation describes.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompiledPlan {
    /// Number of included fields of an index entry, which are the first slots.
    pub(crate) included: usize,
    pub(crate) ordered: Vec<Ordered>,
    /// If a slot has an indexed field: the number of all included fields, after which an entry has the numbers that its key does not
    /// tell.
    pub(crate) untold: Option<usize>,
    /// The slot of the document's key, in a range of documents.
    pub(crate) key: Option<usize>,
    /// Fields of the document, in a range of documents.
    pub(crate) fields: Vec<CompiledField>,
    /// Predicates on the entries of the range.
    pub(crate) tests: Vec<Test>,
    pub(crate) lookups: Vec<Lookup>,
    pub(crate) outputs: Vec<Term>,
    pub(crate) aggregates: Vec<(AggregateKind, Option<Term>)>,
    pub(crate) known: Vec<Expr>,
    /// The entry's tests, or the key of the first lookup, use values of the entry's key.
    pub(crate) tests_key: bool,
    /// No test after the first lookup, and no later lookup's key, uses a field of the entry; only results may.
    pub(crate) skips_entry: bool,
}

impl CompiledPlan {
    /// Estimate of its bytes in memory, without its constants.
    pub(super) fn bytes(&self) -> usize {
        let of = |fields: &[CompiledField], tests: &[Test]| {
            let names: usize = fields.iter().map(|field| size_of::<CompiledField>() + field.name.stored().len()).sum();
            names + size_of_val(tests)
        };
        let lookups = self.lookups.iter().map(|lookup| size_of::<Lookup>() + of(&lookup.fields, &lookup.tests));
        size_of::<CompiledPlan>()
            + of(&self.fields, &self.tests)
            + lookups.sum::<usize>()
            + size_of_val(&self.ordered[..])
            + size_of_val(&self.outputs[..])
            + size_of_val(&self.aggregates[..])
    }

    /// Records which fields of the entry are used, when all else is compiled.
    pub(super) fn note_uses(&mut self) {
        let Some((first, inner)) = self.lookups.split_first() else { return };
        let entry = self.included + self.ordered.len();
        let of_entry = |term: &Term| term.form != SlotEncoding::Known && term.number < entry;
        let is_ordered = |term: &Term| term.form == SlotEncoding::Ordered;
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
