//! Whether one plain schema accepts every document that another one accepts: then a change to it needs no check of stored
//! documents. Decided field by field; the result is `false` if unknown.

use std::cmp::Ordering;

use super::plain::{Bound, Constant, Plain, Rule};
use super::types::ANY;
use crate::catalog::FieldInfo;

/// Each schema comes with its fields, in the order of its rules.
pub(crate) fn is_looser((new, new_fields): (&Plain, &[FieldInfo]), (old, old_fields): (&Plain, &[FieldInfo])) -> bool {
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

#[cfg(test)]
mod tests {
    use super::super::Schema;

    const OLD: &str = r#"{"type":"object","additionalProperties":false,"required":["a"],"properties":{
        "a":{"type":"integer","minimum":0,"exclusiveMaximum":10},"b":{"type":"string","minLength":2,"maxLength":5},
        "c":{"enum":["x","y",1]}}}"#;

    #[track_caller]
    fn check(from: &str, to: &str, expected: bool) {
        let new = OLD.replacen(from, to, 1);
        assert_ne!(new, OLD, "{from}");
        let (old, new) = (Schema::compile(OLD).expect("a schema"), Schema::compile(&new).expect("a schema"));
        assert!(old.is_plain() && new.is_plain(), "{from} → {to}");
        assert_eq!(new.is_looser_than(&old), expected, "{from} → {to}");
        // The reverse change is tighter, unless the schemas are equivalent.
        assert!(!(expected && old.is_looser_than(&new)) || from == "\"y\",1", "{from} → {to}");
    }

    #[test]
    fn what_takes_all_that_was_taken_is_looser_and_nothing_else_is() {
        let same = Schema::compile(OLD).expect("a schema");
        assert!(same.is_looser_than(&Schema::compile(OLD).expect("a schema")));
        for (from, to, expected) in [
            ("\"additionalProperties\":false", "\"additionalProperties\":true", true),
            ("\"required\":[\"a\"]", "\"required\":[]", true),
            ("\"required\":[\"a\"]", "\"required\":[\"a\",\"b\"]", false),
            ("\"type\":\"integer\"", "\"type\":\"number\"", true),
            ("\"type\":\"integer\"", "\"type\":\"string\"", false),
            ("\"minimum\":0", "\"minimum\":-1", true),
            ("\"minimum\":0", "\"minimum\":1", false),
            ("\"minimum\":0", "\"exclusiveMinimum\":0", false),
            ("\"exclusiveMaximum\":10", "\"maximum\":10", true),
            ("\"exclusiveMaximum\":10", "\"exclusiveMaximum\":9.5", false),
            (",\"exclusiveMaximum\":10", "", true),
            ("\"minLength\":2", "\"minLength\":1", true),
            ("\"minLength\":2", "\"minLength\":3", false),
            ("\"maxLength\":5", "\"maxLength\":6", true),
            ("\"maxLength\":5", "\"maxLength\":4", false),
            ("\"y\",1", "\"y\",1.0", true),
            ("\"y\",1", "\"y\",1,null", true),
            ("\"y\",1", "\"y\"", false),
            ("{\"enum\":[\"x\",\"y\",1]}", "{}", true),
            ("\"c\":{", "\"d\":{\"type\":\"null\"},\"c\":{", true),
            ("\"c\":{", "\"d\":{},\"c\":{", true),
            (",\n        \"c\":{\"enum\":[\"x\",\"y\",1]}", "", false),
        ] {
            check(from, to, expected);
        }
    }

    #[test]
    fn a_field_of_an_open_schema_may_have_been_anything() {
        let open = Schema::compile("{}").expect("a schema");
        let looser = |text: &str| Schema::compile(text).expect("a schema").is_looser_than(&open);
        assert!(looser(r#"{"properties":{"a":{}}}"#));
        assert!(!looser(r#"{"properties":{"a":{"type":"integer"}}}"#));
        assert!(!looser(r#"{"properties":{"a":{"maxLength":9}}}"#));
        assert!(!looser(r#"{"additionalProperties":false}"#));
        assert!(!looser(r#"{"properties":{"a":{}},"required":["a"]}"#));
    }
}
