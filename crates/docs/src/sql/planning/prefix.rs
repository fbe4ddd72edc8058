//! The fixed prefix of a pattern as a range: `name GLOB 'abc*'` is `name >= 'abc' AND name < 'abd'`.
//!
//! - A pattern is matched with the text of a number, but a range compares its value. If a field may hold numbers, the prefix
//!   must be one that no number's text has.
//! - LIKE ignores the case of ASCII letters, an index does not: only the part of its pattern before the first such letter is
//!   used.
//! - If the pattern is only a prefix, the range replaces it. Otherwise the pattern stays, and the range narrows the scan.

use crate::catalog::{Catalog, FieldKind};
use crate::sql::expressions::{Affinity, Comparison, Expr};
use crate::sql::resolve::{Logical, RowSource};
use crate::sql::values::OwnedValue;

/// The same predicate with the range that it implies, if a key or an index of the field's collection may use it.
pub(super) fn with_range(condition: Expr, logical: &Logical, catalog: &Catalog) -> Vec<Expr> {
    let beginning = match &condition {
        Expr::Glob(text, pattern) => beginning(text, pattern, of_glob),
        Expr::Like(text, pattern, None) => beginning(text, pattern, of_like),
        _ => None,
    };
    let Some((column, start, is_all)) =
        beginning.filter(|(column, start, _)| is_useful(*column, start, logical, catalog))
    else {
        return vec![condition];
    };
    let compare = |comparison, end: String| {
        let end = Expr::Literal(OwnedValue::Text(end.into_bytes().into()));
        Expr::Compare(comparison, Affinity::None, Box::new(Expr::Column(column)), Box::new(end))
    };
    let mut range: Vec<Expr> = next(&start).map(|end| compare(Comparison::Less, end)).into_iter().collect();
    range.insert(0, compare(Comparison::GreaterOrEqual, start));
    range.extend((!is_all).then_some(condition));
    range
}

/// The column, the fixed prefix, and whether the pattern is only that prefix.
fn beginning(text: &Expr, pattern: &Expr, of: impl Fn(&str) -> (&str, bool)) -> Option<(usize, String, bool)> {
    let (Expr::Column(column), Expr::Literal(OwnedValue::Text(pattern))) = (text, pattern) else { return None };
    let (start, is_all) = of(std::str::from_utf8(pattern).ok()?);
    (!start.is_empty()).then(|| (*column, start.to_owned(), is_all))
}

fn of_glob(pattern: &str) -> (&str, bool) {
    let end = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    (&pattern[..end], &pattern[end..] == "*")
}

fn of_like(pattern: &str) -> (&str, bool) {
    let end = pattern.find(|c: char| matches!(c, '%' | '_') || c.is_ascii_alphabetic()).unwrap_or(pattern.len());
    (&pattern[..end], &pattern[end..] == "%")
}

/// Whether an access path may use the range, and the range excludes no match.
fn is_useful(column: usize, start: &str, logical: &Logical, catalog: &Catalog) -> bool {
    let column = &logical.columns[column];
    let RowSource::Collection(number) = &logical.tables[column.table].origin else { return false };
    let info = &catalog.collections[*number];
    let is_text = info.field(&column.name).is_some_and(|field| field.kind == FieldKind::Text);
    let is_indexed =
        info.key.field == column.name || info.indexes.iter().any(|index| index.fields.contains(&column.name));
    is_indexed && (is_text || !start.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
}

/// The least text above all texts with this prefix; `None` if there is none.
fn next(start: &str) -> Option<String> {
    let mut start = start.to_owned();
    while let Some(last) = start.pop() {
        // UTF-8 sorts in the order of code points, without the surrogates.
        let above = match last {
            char::MAX => None,
            '\u{d7ff}' => Some('\u{e000}'),
            last => char::from_u32(u32::from(last) + 1),
        };
        if let Some(above) = above {
            start.push(above);
            return Some(start);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_text_is_above_all_that_begin_so() {
        let check = |start: &str, expected: Option<&str>| assert_eq!(next(start).as_deref(), expected, "{start}");
        check("abc", Some("abd"));
        check("z", Some("{"));
        check("a\u{7f}", Some("a\u{80}"));
        check("a\u{d7ff}", Some("a\u{e000}"));
        check("a\u{10ffff}", Some("b"));
        check("\u{10ffff}\u{10ffff}", None);
    }

    #[test]
    fn a_pattern_tells_how_its_texts_begin() {
        assert_eq!(of_glob("abc*"), ("abc", true));
        assert_eq!(of_glob("abc*d"), ("abc", false));
        assert_eq!(of_glob("abc"), ("abc", false));
        assert_eq!(of_glob("[a]*"), ("", false));
        assert_eq!(of_like("2024-%"), ("2024-", true));
        assert_eq!(of_like("аб%"), ("аб", true));
        assert_eq!(of_like("аbв%"), ("а", false));
        assert_eq!(of_like("а_%"), ("а", false));
    }
}
