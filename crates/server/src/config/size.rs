//! Sizes as people write them: `512`, `"64KB"`, `"1GB"` (powers of 1,000) or `"64KiB"` (powers of 1,024).

use docs::config::Item;
use std::ops::RangeInclusive;

const UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

/// Reads a size within a range.
pub(super) fn read(item: &Item<'_>, range: RangeInclusive<u64>) -> Option<u64> {
    let allowed =
        || format!("bytes as a number or with KB, MB, GB, KiB, MiB, GiB, from {} to {}", range.start(), range.end());
    let bytes = match item.value().as_str() {
        Some(text) => parse(text),
        None if item.value().is_integer() => {
            let most = i64::try_from(*range.end()).unwrap_or(i64::MAX);
            return item.integer(0..=most).and_then(|bytes| u64::try_from(bytes).ok());
        }
        None => {
            item.mismatch(&allowed());
            return None;
        }
    };
    let found = bytes.filter(|bytes| range.contains(bytes));
    if found.is_none() {
        item.mistake(format!("`{}` is {:?}", item.path(), item.value().as_str().unwrap_or_default()), allowed());
    }
    found
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, factor) =
        UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor))).unwrap_or((text, 1));
    digits.trim().parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod parsing {
    use super::parse;

    #[test]
    fn units_multiply_and_nonsense_is_none() {
        for (text, bytes) in [
            ("17", Some(17)),
            ("64KB", Some(64_000)),
            ("2 MiB", Some(2 << 20)),
            ("1GB", Some(1_000_000_000)),
            ("5B", Some(5)),
        ] {
            assert_eq!(parse(text), bytes, "{text}");
        }
        for text in ["", "MB", "1.5MB", "-1", "1TB", "99999999999GB"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
