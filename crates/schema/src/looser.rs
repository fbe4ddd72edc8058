//! Whether one plain schema accepts every document that another one accepts: then a change to it needs no check of stored
//! documents. Decided field by field; the result is `false` if unknown.

use std::cmp::Ordering;

use super::plain::{Bound, Constant, PlainRules, Rule};
use super::promise::FieldPromise;
use super::types::ANY;

/// Each schema comes with its fields, in the order of its rules.
pub(crate) fn is_looser(
    (new, new_fields): (&PlainRules, &[FieldPromise]),
    (old, old_fields): (&PlainRules, &[FieldPromise]),
) -> bool {
    let in_new = |name: &str| new_fields.iter().any(|field| field.name == name);
    if new.closed && !(old.closed && old_fields.iter().all(|field| in_new(&field.name))) {
        return false;
    }
    new.rules.iter().zip(new_fields).all(|(rule, field)| {
        let place = old_fields.iter().position(|old| old.name == field.name);
        match place.and_then(|place| old.rules.get(place)) {
            Some(before) => takes_all_of(rule, before),
            // If the old schema was closed, no document had the field; otherwise its values may be anything.
            None => !rule.required && (old.closed || takes_anything(rule)),
        }
    })
}

fn takes_anything(rule: &Rule) -> bool {
    let Rule { required: _, types, values, min, max, length_min, length_max } = rule;
    *types == ANY && values.is_none() && min.is_none() && max.is_none() && *length_min == 0 && *length_max == usize::MAX
}

fn takes_all_of(new: &Rule, old: &Rule) -> bool {
    let values = match (&new.values, &old.values) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(new), Some(old)) => old.iter().all(|value| new.iter().any(|other| same(other, value))),
    };
    values
        && (old.required || !new.required)
        && old.types & !new.types == 0
        && new.length_min <= old.length_min
        && new.length_max >= old.length_max
        && is_within(old.min.as_ref(), new.min.as_ref(), Ordering::Greater)
        && is_within(old.max.as_ref(), new.max.as_ref(), Ordering::Less)
}

/// Whether the new bound admits every number that the old one admits; `side` is where admitted numbers lie.
fn is_within(old: Option<&Bound>, new: Option<&Bound>, side: Ordering) -> bool {
    match (old, new) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(old), Some(new)) => match old.number.compare(new.number) {
            Ordering::Equal => old.exclusive || !new.exclusive,
            order => order == side,
        },
    }
}

fn same(a: &Constant, b: &Constant) -> bool {
    match (a, b) {
        (Constant::Null, Constant::Null) => true,
        (Constant::Boolean(a), Constant::Boolean(b)) => a == b,
        (Constant::Number(a), Constant::Number(b)) => a.compare(*b) == Ordering::Equal,
        (Constant::Text(a), Constant::Text(b)) => a == b,
        _ => false,
    }
}
