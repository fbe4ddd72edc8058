//! Sizes in configuration files: `512`, `"64KB"`, `"1GB"` (powers of 1,000) or `"64KiB"` (powers of 1,024).

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
    let (least, most) = (written(*range.start()), written(*range.end()));
    let allowed = || format!("bytes as a number or with KB, MB, GB, KiB, MiB, GiB, from {least} to {most}");
    let bytes = match item.value().as_str() {
        Some(text) => parse(text),
        None if item.value().is_integer() => {
            let bound = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            return item.integer(bound(*range.start())..=bound(*range.end())).map(i64::unsigned_abs);
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

/// A size in the largest unit of which it is a multiple.
pub(crate) fn written(bytes: u64) -> String {
    let units = UNITS.iter().filter(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    let largest = units.max_by_key(|(_, factor)| *factor);
    largest.map_or_else(|| bytes.to_string(), |(unit, factor)| format!("{} {unit}", bytes / factor))
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let (digits, factor) =
        UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor))).unwrap_or((text, 1));
    digits.trim().parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod parsing {
    use super::{parse, written};

    #[test]
    fn a_bound_is_told_in_the_largest_unit_that_shows_it_whole() {
        for (bytes, text) in [(64 << 20, "64 MiB"), (1 << 40, "1024 GiB"), (1_000, "1 KB"), (1_001, "1001 B"), (0, "0")]
        {
            assert_eq!(written(bytes), text);
        }
    }

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
