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

use super::access::Access;
use super::aggregate::AggregateKind;
use super::expr::{Affinity, Comparison, Expr};
use super::plan::{Level, Plan};
use super::row::Place;
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

/// Compiles a plan, if it is of the shape.
pub(crate) fn compile(plan: &Plan) -> Option<Compiled> {
    let sorted = !plan.order.is_empty() || plan.distinct;
    let first = plan.levels.first().filter(|_| !sorted && plan.group.is_empty())?;
    let inner = plan.levels.iter().skip(1).all(|level| matches!(level.access, Access::Key(_)));
    if !inner || plan.levels.iter().any(|level| level.left) || matches!(first.access, Access::Unique { .. }) {
        return None;
    }
    let mut compiler =
        Compiler { plan, slots: 0, terms: vec![None; plan.sources.len()], compiled: Compiled::default() };
    compiler.first(first)?;
    plan.levels.iter().enumerate().skip(1).try_for_each(|(number, level)| compiler.lookup(number, level))?;
    compiler.results()?;
    compiler.compiled.note_uses();
    Some(compiler.compiled)
}

impl Compiled {
    fn note_uses(&mut self) {
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

struct Compiler<'p> {
    plan: &'p Plan,
    slots: usize,
    /// By column: where it is, once its level was compiled.
    terms: Vec<Option<Term>>,
    compiled: Compiled,
}

impl Compiler<'_> {
    fn new_slot(&mut self) -> Option<usize> {
        self.slots += 1;
        (self.slots <= SLOTS_MAX).then_some(self.slots - 1)
    }

    /// The columns of a level that some expression reads, with their places.
    fn columns(&self, level: usize) -> Vec<(usize, Place)> {
        let mut used = vec![false; self.plan.sources.len()];
        for expr in self.plan.expressions() {
            expr.walk(&mut |part| {
                if let Expr::Column(column) | Expr::Path(column, _) = part {
                    used[*column] = true;
                }
            });
        }
        let sources = self.plan.sources.iter().enumerate();
        let here = sources.filter(|(column, source)| used[*column] && source.level == level);
        here.map(|(column, source)| (column, source.place)).collect()
    }

    fn first(&mut self, level: &Level) -> Option<()> {
        match level.access {
            Access::Index { .. } => self.index_entry(level),
            Access::Scan { .. } => {
                self.compiled.fields = self.documents(0)?;
                for (column, place) in self.columns(0) {
                    if let Place::Key(kind) = place {
                        let number = match self.compiled.key {
                            Some(slot) => slot,
                            None => self.new_slot()?,
                        };
                        self.compiled.key = Some(number);
                        self.terms[column] = Some(Term { number, form: Form::Key(kind), whole: false });
                    }
                }
                self.compiled.tests = self.tests(&[&level.before, &level.after])?;
                Some(())
            }
            _ => self.lookup(0, level),
        }
    }

    fn index_entry(&mut self, level: &Level) -> Option<()> {
        let columns = self.columns(0);
        let included = columns.iter().filter_map(|(_, place)| match place {
            Place::Included(place) => Some(place + 1),
            _ => None,
        });
        self.compiled.included = included.max().unwrap_or(0);
        self.slots = self.compiled.included;
        if self.slots > SLOTS_MAX {
            return None;
        }
        let mut places: Vec<usize> = columns.iter().filter_map(|(_, place)| ordered_place(*place)).collect();
        places.extend(level.fetch.then_some(level.key_place));
        places.sort_unstable();
        places.dedup();
        let mut behind = 0;
        for place in &places {
            let slot = self.new_slot()?;
            self.compiled.ordered.push(Ordered { skipped: place - behind, slot });
            behind = *place;
        }
        let ordered = |place: usize| {
            let number = self.compiled.ordered[places.iter().position(|known| *known == place)?].slot;
            Some(Term { number, form: Form::Ordered, whole: false })
        };
        for (column, place) in columns {
            self.terms[column] = match place {
                Place::Included(number) => Some(Term { number, form: Form::Json, whole: false }),
                Place::IndexKey(place) => ordered(place),
                _ => None,
            };
        }
        let key = ordered(level.key_place);
        if !level.fetch {
            self.compiled.tests = self.tests(&[&level.before, &level.after])?;
            return Some(());
        }
        self.compiled.tests = self.tests(&[&level.before])?;
        let fields = self.documents(0)?;
        let tests = self.tests(&[&level.after])?;
        self.compiled.lookups.push(Lookup { tree: level.tree, kind: level.key, key: key?, fields, tests, own: true });
        Some(())
    }

    fn lookup(&mut self, number: usize, level: &Level) -> Option<()> {
        let Access::Key(value) = &level.access else { return None };
        let key = self.term(value)?;
        for (column, place) in self.columns(number) {
            if let Place::Key(kind) = place {
                self.terms[column] = Some(Term { whole: kind != KeyType::String, ..key });
            }
        }
        let fields = self.documents(number)?;
        let tests = self.tests(&[&level.before, &level.after])?;
        self.compiled.lookups.push(Lookup { tree: level.tree, kind: level.key, key, fields, tests, own: false });
        Some(())
    }

    /// Slots for the fields that a level's document gives.
    fn documents(&mut self, level: usize) -> Option<Vec<Field>> {
        let mut fields = Vec::new();
        for (column, place) in self.columns(level) {
            if place == Place::Document {
                let slot = self.new_slot()?;
                self.terms[column] = Some(Term { number: slot, form: Form::Json, whole: false });
                fields.push(Field { name: self.plan.sources[column].name.clone(), column, slot });
            }
        }
        Some(fields)
    }

    fn term(&mut self, expr: &Expr) -> Option<Term> {
        match expr {
            Expr::Column(column) => self.terms[*column],
            Expr::Literal(_) | Expr::Parameter(_) | Expr::Constant(_) => {
                let number = self.compiled.known.len();
                self.compiled.known.push(expr.clone());
                (number < KNOWN_MAX).then_some(Term { number, form: Form::Known, whole: false })
            }
            _ => None,
        }
    }

    fn tests(&mut self, conditions: &[&Vec<Expr>]) -> Option<Vec<Test>> {
        let mut tests = Vec::new();
        for condition in conditions.iter().copied().flatten() {
            match condition {
                Expr::Compare(comparison, Affinity::None, a, b) => {
                    let (a, b) = (self.term(a)?, self.term(b)?);
                    // What is known ahead stands on the right, where the quick ways look for it.
                    let swap = a.form == Form::Known;
                    let (comparison, a, b) = if swap { (comparison.mirrored(), b, a) } else { (*comparison, a, b) };
                    tests.push(Test::Compare(comparison, a, b));
                }
                Expr::Between(value, Affinity::None, low, Affinity::None, high) => {
                    let (value, low, high) = (self.term(value)?, self.term(low)?, self.term(high)?);
                    tests.push(Test::Compare(Comparison::GreaterOrEqual, value, low));
                    tests.push(Test::Compare(Comparison::LessOrEqual, value, high));
                }
                Expr::IsNull(value) => tests.push(Test::Null(self.term(value)?, true)),
                Expr::NotNull(value) => tests.push(Test::Null(self.term(value)?, false)),
                _ => return None,
            }
        }
        Some(tests)
    }

    fn results(&mut self) -> Option<()> {
        let plan = self.plan;
        if !plan.grouped {
            let outputs: Option<Vec<Term>> = plan.outputs.iter().map(|output| self.term(output)).collect();
            self.compiled.outputs = outputs?;
            return Some(());
        }
        for call in &plan.aggregates {
            if !call.is_plain() {
                return None;
            }
            let argument = match &call.argument {
                Some(argument) => Some(self.term(argument)?),
                None => None,
            };
            self.compiled.aggregates.push((call.kind, argument));
        }
        Some(())
    }
}

fn ordered_place(place: Place) -> Option<usize> {
    match place {
        Place::IndexKey(place) => Some(place),
        _ => None,
    }
}
