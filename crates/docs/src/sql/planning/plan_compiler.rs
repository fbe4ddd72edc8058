//! Compiles plans of the shape that `compiled_plan.rs` describes.

use super::access::Access;
use super::compiled_plan::{
    CompiledField, CompiledPlan, KNOWN_MAX, Lookup, Ordered, SLOTS_MAX, SlotEncoding, Term, Test,
};
use super::plan::{Level, Plan};
use crate::encoding::KeyType;
use crate::sql::expressions::{Affinity, Comparison, Expr, FieldPlace};

/// Compiles a plan, if it has that shape.
pub(crate) fn compile(plan: &Plan) -> Option<CompiledPlan> {
    let sorted = !plan.order.is_empty() || plan.distinct;
    let first = plan.levels.first().filter(|_| !sorted && plan.group.is_empty())?;
    let inner = plan.levels.iter().skip(1).all(|level| matches!(level.access, Access::Key(_)));
    if !inner || plan.levels.iter().any(|level| level.left) || matches!(first.access, Access::Unique { .. }) {
        return None;
    }
    let mut compiler =
        Compiler { plan, slots: 0, terms: vec![None; plan.sources.len()], compiled: CompiledPlan::default() };
    compiler.first(first)?;
    plan.levels.iter().enumerate().skip(1).try_for_each(|(number, level)| compiler.lookup(number, level))?;
    compiler.results()?;
    compiler.compiled.note_uses();
    Some(compiler.compiled)
}

struct Compiler<'p> {
    plan: &'p Plan,
    slots: usize,
    /// By column: its term, once its level was compiled.
    terms: Vec<Option<Term>>,
    compiled: CompiledPlan,
}

impl Compiler<'_> {
    fn new_slot(&mut self) -> Option<usize> {
        self.slots += 1;
        (self.slots <= SLOTS_MAX).then_some(self.slots - 1)
    }

    /// The columns of a level that some expression uses, with their places.
    fn columns(&self, level: usize) -> Vec<(usize, FieldPlace)> {
        let used = self.plan.used_columns(self.plan.sources.len());
        let sources = self.plan.sources.iter().enumerate();
        let here = sources.filter(|(column, source)| used[*column] && source.level == level);
        here.map(|(column, source)| (column, source.place)).collect()
    }

    fn first(&mut self, level: &Level) -> Option<()> {
        match level.access {
            Access::Index { .. } | Access::Points(_) if level.access.index().is_some() => self.index_entry(level),
            Access::Scan { .. } => {
                self.compiled.fields = self.documents(0)?;
                for (column, place) in self.columns(0) {
                    if let FieldPlace::Key(kind) = place {
                        let number = match self.compiled.key {
                            Some(slot) => slot,
                            None => self.new_slot()?,
                        };
                        self.compiled.key = Some(number);
                        self.terms[column] = Some(Term { number, form: SlotEncoding::Key(kind), whole: false });
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
            FieldPlace::Included(place) => Some(place + 1),
            _ => None,
        });
        self.compiled.included = included.max().unwrap_or(0);
        self.slots = self.compiled.included;
        if self.slots > SLOTS_MAX {
            return None;
        }
        let mut places = Vec::new();
        for (_, place) in &columns {
            if let FieldPlace::IndexKey { place, included } = *place {
                places.push(place);
                self.compiled.untold = self.compiled.untold.or((place < level.key_place).then_some(included));
            }
        }
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
            Some(Term { number, form: SlotEncoding::Ordered, whole: false })
        };
        for (column, place) in columns {
            self.terms[column] = match place {
                FieldPlace::Included(number) => Some(Term { number, form: SlotEncoding::Json, whole: false }),
                FieldPlace::IndexKey { place, .. } => ordered(place),
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
            if let FieldPlace::Key(kind) = place {
                self.terms[column] = Some(Term { whole: kind != KeyType::String, ..key });
            }
        }
        let fields = self.documents(number)?;
        let tests = self.tests(&[&level.before, &level.after])?;
        self.compiled.lookups.push(Lookup { tree: level.tree, kind: level.key, key, fields, tests, own: false });
        Some(())
    }

    /// Assigns slots to the fields that are read from a level's document.
    fn documents(&mut self, level: usize) -> Option<Vec<CompiledField>> {
        let mut fields = Vec::new();
        for (column, place) in self.columns(level) {
            if place == FieldPlace::Document {
                let slot = self.new_slot()?;
                self.terms[column] = Some(Term { number: slot, form: SlotEncoding::Json, whole: false });
                fields.push(CompiledField { name: self.plan.sources[column].name.clone(), column, slot });
            }
        }
        Some(fields)
    }

    fn term(&mut self, expr: &Expr) -> Option<Term> {
        match expr {
            Expr::Column(column) => self.terms[*column],
            Expr::Literal(_) | Expr::Parameter(_) | Expr::Constant(_) | Expr::Outer(_) => {
                let number = self.compiled.known.len();
                self.compiled.known.push(expr.clone());
                (number < KNOWN_MAX).then_some(Term { number, form: SlotEncoding::Known, whole: false })
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
                    // A constant is put on the right, where the quick comparisons expect it.
                    let swap = a.form == SlotEncoding::Known;
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
            // As a constant it would lose its stored form.
            if plan.outputs.iter().any(|output| matches!(output, Expr::Outer(_))) {
                return None;
            }
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
