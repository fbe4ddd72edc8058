//! Which fields a parameter is compared with: an undeclared parameter gets the type that all its uses agree on.
//!
//! `WHERE id = :id` matches nothing if the key is an integer and `:id` is text: SQLite converts the value for a column with an
//! affinity, but fields of documents have none.

use crate::catalog::{Catalog, CollectionInfo, FieldKind};
use crate::encoding::KeyType;
use crate::sql::expressions::{Affinity, Expr};
use crate::sql::resolve::Logical;
use crate::sql::values::JsonTypes;

/// How often a parameter is used, and how often with a field of each kind of number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParameterUses {
    uses: u32,
    /// Uses that do not constrain its type: `:p IS NULL`.
    neutral: u32,
    /// Uses with a field that is always an integer, or always a number.
    integers: u32,
    numbers: u32,
}

impl ParameterUses {
    /// The sum of both.
    #[must_use]
    pub fn and(self, other: ParameterUses) -> ParameterUses {
        ParameterUses {
            uses: self.uses + other.uses,
            neutral: self.neutral + other.neutral,
            integers: self.integers + other.integers,
            numbers: self.numbers + other.numbers,
        }
    }

    /// Whether it is used with integers, and all its other uses are neutral.
    pub fn is_integer(&self) -> bool {
        self.integers > 0 && self.integers + self.neutral == self.uses
    }

    /// Whether it is used with integers or other numbers, and all its other uses are neutral.
    pub fn is_number(&self) -> bool {
        self.integers + self.numbers > 0 && self.integers + self.numbers + self.neutral == self.uses
    }

    /// The uses of one parameter in a query and its subqueries.
    pub(crate) fn of(logical: &Logical, catalog: &Catalog, slot: usize) -> ParameterUses {
        let mut compared = ParameterUses::default();
        logical.each_own(&mut |top| top.walk(&mut |part| compared.add(part, logical, catalog, slot)));
        let inner = logical.inner.iter().flat_map(|inner| &inner.members);
        inner.fold(compared, |compared, member| compared.and(ParameterUses::of(member, catalog, slot)))
    }

    fn add(&mut self, part: &Expr, logical: &Logical, catalog: &Catalog, slot: usize) {
        let is_it = |expr: &Expr| *expr == Expr::Parameter(slot);
        let mut beside = |field: &Expr, value: &Expr| {
            if is_it(value) {
                self.beside(kind_of(field, logical, catalog));
            }
        };
        match part {
            Expr::Compare(_, Affinity::None, a, b) | Expr::Is(_, Affinity::None, a, b) => {
                beside(a, b);
                beside(b, a);
            }
            Expr::In(field, Affinity::None, list) => list.iter().for_each(|value| beside(field, value)),
            Expr::Between(field, Affinity::None, low, Affinity::None, high) => {
                beside(field, low);
                beside(field, high);
            }
            Expr::IsNull(value) | Expr::NotNull(value) if is_it(value) => self.neutral += 1,
            part if is_it(part) => self.uses += 1,
            _ => {}
        }
    }

    /// Counts a use with a value of this kind.
    pub(crate) fn beside(&mut self, kind: FieldKind) {
        match kind {
            FieldKind::Integer => self.integers += 1,
            FieldKind::Number => self.numbers += 1,
            FieldKind::Computed(types) if types.within(JsonTypes::NULL) => {}
            FieldKind::Computed(types) if types.within(JsonTypes::INTEGER.or(JsonTypes::NULL)) => self.integers += 1,
            FieldKind::Computed(types) if types.within(JsonTypes::NUMBER.or(JsonTypes::NULL)) => self.numbers += 1,
            FieldKind::Text | FieldKind::Boolean | FieldKind::Any | FieldKind::Computed(_) => {}
        }
    }
}

/// The kind of a field's values, where it is present.
fn kind_of(expr: &Expr, logical: &Logical, catalog: &Catalog) -> FieldKind {
    let Expr::Column(number) = expr else { return FieldKind::Any };
    let column = &logical.columns[*number];
    field_kind(logical.tables[column.table].info(catalog), &column.name)
}

/// The same for a collection's field, by the key's type or the schema.
pub(crate) fn field_kind(info: &CollectionInfo, field: &str) -> FieldKind {
    if info.key.field == field {
        return match info.key.kind {
            KeyType::U32 | KeyType::I64 => FieldKind::Integer,
            KeyType::String => FieldKind::Text,
        };
    }
    info.field(field).map_or(FieldKind::Any, |field| field.kind)
}
