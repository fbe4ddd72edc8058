//! LIKE and GLOB. LIKE folds ASCII letters only; GLOB folds nothing.
//!
//! Both match without recursion. After a mismatch, the latest `%` or `*` takes one more character; an earlier one never has to.
//! The number of comparisons may still reach the product of both lengths, which could be hours for one row. So the bytes
//! compared in vain are limited in proportion to the text ([`COMPARED_PER_BYTE_MAX`]), whatever the query's deadline. Every
//! comparison also ticks the query's meter.

use crate::sql::limits::{COMPARED_PER_BYTE_MAX, Fault, Meter};

/// Bytes of a pattern that may be compared in vain with any text: some hundredths of a second.
const COMPARED_LEAST: usize = 1 << 20;
/// Bytes of a pattern that are compared between two ticks: some microseconds.
const TICK_BYTES: usize = 256;
/// Units of work of one tick.
const UNITS_PER_TICK: u64 = 64;

/// The first character of `text`, and its length in bytes. Invalid UTF-8 is taken byte by byte.
#[inline]
pub(crate) fn character(text: &[u8]) -> Option<(&[u8], usize)> {
    let &first = text.first()?;
    let length = match first {
        0..0x80 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
        _ => 1,
    };
    let length = length.min(text.len());
    Some((&text[..length], length))
}

/// The part of a text before its first NUL. Several functions of SQLite end there, and so do ours.
#[inline]
pub(crate) fn until_nul(text: &[u8]) -> &[u8] {
    memchr::memchr(0, text).map_or(text, |end| &text[..end])
}

/// The number of characters.
pub(crate) fn length(text: &[u8]) -> i64 {
    text.iter().filter(|&&b| b & 0xc0 != 0x80).count() as i64
}

/// The result of matching the next piece of a pattern with the text.
enum Piece {
    /// `%` or `*`: any number of characters.
    Any,
    /// It matches, and consumes so many bytes of the pattern and of the text.
    Matches(usize, usize),
    /// It does not match; so many bytes of the pattern were compared.
    Differs(usize),
    /// Nothing can match.
    Never,
}

impl Piece {
    /// Bytes of the pattern that were compared.
    fn length(&self) -> usize {
        match self {
            Piece::Matches(length, _) | Piece::Differs(length) => *length,
            Piece::Any | Piece::Never => 1,
        }
    }

    fn of(length: usize, used: Option<usize>) -> Piece {
        used.map_or(Piece::Differs(length), |used| Piece::Matches(length, used))
    }
}

/// Matches a pattern with a text; `piece` matches the next piece. It is never called at the pattern's end.
#[inline]
fn matches(
    pattern: &[u8],
    text: &[u8],
    meter: &Meter<'_>,
    piece: impl Fn(&[u8], &[u8]) -> Piece,
) -> Result<bool, Fault> {
    let compared_max = text.len().saturating_mul(COMPARED_PER_BYTE_MAX).max(COMPARED_LEAST);
    let (mut p, mut t, mut compared) = (0, 0, 0);
    let mut retry: Option<(usize, usize)> = None;
    let mut unticked = 0;
    loop {
        if unticked >= TICK_BYTES {
            meter.tick((unticked / TICK_BYTES) as u64 * UNITS_PER_TICK)?;
            unticked = 0;
        }
        let found = match &pattern[p..] {
            [] if t == text.len() => return Ok(true),
            [] => Piece::Differs(1),
            pattern => piece(pattern, &text[t..]),
        };
        unticked += found.length();
        match (found, retry) {
            (Piece::Any, _) => {
                p += 1;
                retry = Some((p, t));
            }
            (Piece::Matches(in_pattern, in_text), _) => {
                p += in_pattern;
                t += in_text;
            }
            // The text ends before the pattern; for a later start it would end even earlier.
            (Piece::Differs(_), _) if t == text.len() => return Ok(false),
            (Piece::Differs(told_by), Some((after, from))) => {
                compared += p - after + told_by;
                if compared > compared_max {
                    return Err(Fault::PatternTooCostly);
                }
                let Some((_, used)) = character(&text[from..]) else { return Ok(false) };
                retry = Some((after, from + used));
                (p, t) = (after, from + used);
            }
            (Piece::Differs(_), None) | (Piece::Never, _) => return Ok(false),
        }
    }
}

/// `text LIKE pattern ESCAPE escape`.
pub(crate) fn like(pattern: &[u8], text: &[u8], escape: Option<&[u8]>, meter: &Meter<'_>) -> Result<bool, Fault> {
    let (pattern, text) = (until_nul(pattern), until_nul(text));
    matches(pattern, text, meter, |pattern, text| match character(pattern) {
        Some((c, length)) if escape == Some(c) => match character(&pattern[length..]) {
            Some((literal, more)) => Piece::of(length + more, same(literal, text)),
            None => Piece::Never, // A dangling escape matches nothing.
        },
        Some((b"%", _)) => Piece::Any,
        Some((b"_", _)) => Piece::of(1, character(text).map(|(_, used)| used)),
        Some((c, length)) => Piece::of(length, same(c, text)),
        None => Piece::Never,
    })
}

fn same(character_wanted: &[u8], text: &[u8]) -> Option<usize> {
    let (found, length) = character(text)?;
    character_wanted.eq_ignore_ascii_case(found).then_some(length)
}

/// `text GLOB pattern`.
pub(crate) fn glob(pattern: &[u8], text: &[u8], meter: &Meter<'_>) -> Result<bool, Fault> {
    let (pattern, text) = (until_nul(pattern), until_nul(text));
    matches(pattern, text, meter, |pattern, text| match character(pattern) {
        Some((b"*", _)) => Piece::Any,
        Some((b"?", _)) => Piece::of(1, character(text).map(|(_, used)| used)),
        Some((b"[", _)) => match character(text) {
            None => Piece::Differs(1),
            Some((found, used)) => match set(pattern, found) {
                Some((true, length)) => Piece::Matches(length, used),
                Some((false, length)) => Piece::Differs(length),
                None => Piece::Never, // A set that is not closed matches nothing.
            },
        },
        Some((c, length)) => Piece::of(length, character(text).filter(|(found, _)| *found == c).map(|(_, used)| used)),
        None => Piece::Never,
    })
}

/// Whether a character is in the set `[…]` at the beginning of the pattern, and the set's length; `None`: the set is not closed.
fn set(pattern: &[u8], wanted: &[u8]) -> Option<(bool, usize)> {
    let code = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|s| s.chars().next()).map_or(0, u32::from);
    let wanted = code(wanted);
    let mut at = 1;
    let next = |at: &mut usize| {
        let (c, length) = character(&pattern[*at..])?;
        *at += length;
        Some(code(c))
    };
    let (mut seen, mut prior) = (false, 0);
    let mut c = next(&mut at)?;
    let invert = c == u32::from(b'^');
    if invert {
        c = next(&mut at)?;
    }
    if c == u32::from(b']') {
        seen = wanted == c;
        c = next(&mut at)?;
    }
    while c != u32::from(b']') {
        let range = c == u32::from(b'-') && prior > 0 && !matches!(pattern.get(at), None | Some(b']'));
        if range {
            let end = next(&mut at)?;
            seen |= (prior..=end).contains(&wanted);
            prior = 0;
        } else {
            seen |= wanted == c;
            prior = c;
        }
        c = next(&mut at)?;
    }
    Some((seen != invert, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::limits::PATTERN_BYTES_MAX;
    use proptest::prelude::*;

    fn like(pattern: &[u8], text: &[u8], escape: Option<&[u8]>) -> Result<bool, Fault> {
        super::like(pattern, text, escape, &Meter::unbounded())
    }

    fn glob(pattern: &[u8], text: &[u8]) -> Result<bool, Fault> {
        super::glob(pattern, text, &Meter::unbounded())
    }

    fn texts(parts: &'static [&'static str], length: usize) -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(parts), 0..length).prop_map(|parts| parts.concat())
    }

    fn oracle(sql: &str, values: &[&str]) -> bool {
        thread_local!(static SQLITE: rusqlite::Connection = rusqlite::Connection::open_in_memory().unwrap());
        SQLITE.with(|sqlite| {
            let mut statement = sqlite.prepare_cached(sql).unwrap();
            statement.query_row(rusqlite::params_from_iter(values), |row| row.get(0)).unwrap()
        })
    }

    const LETTERS: &[&str] = &["a", "A", "b", "я", "Я", "日", "%", "_", "!", "*", "[", "]", "-", "^"];
    const LIKE: &[&str] = &["a", "A", "b", "я", "日", "%", "%", "%", "_", "!", "!%", "!_", "!a"];
    const GLOB: &[&str] =
        &["a", "b", "я", "日", "*", "*", "*", "?", "[", "]", "[a-я]", "[^a]", "[]a]", "[a-", "-", "^", "A"];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn like_is_that_of_sqlite(pattern in texts(LIKE, 9), text in texts(LETTERS, 12)) {
            let (own, theirs) = (like(pattern.as_bytes(), text.as_bytes(), None), oracle("SELECT ?1 LIKE ?2", &[&text, &pattern]));
            prop_assert_eq!(own, Ok(theirs));
            let own = like(pattern.as_bytes(), text.as_bytes(), Some(b"!"));
            prop_assert_eq!(own, Ok(oracle("SELECT ?1 LIKE ?2 ESCAPE '!'", &[&text, &pattern])));
        }

        #[test]
        fn glob_is_that_of_sqlite(pattern in texts(GLOB, 9), text in texts(LETTERS, 12)) {
            prop_assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), Ok(oracle("SELECT ?1 GLOB ?2", &[&text, &pattern])));
        }
    }

    #[test]
    fn what_one_text_may_cost_is_bounded() {
        let long = "a".repeat(1 << 20);
        let text = long.as_bytes();
        // Neither many pieces nor pieces that nearly match everywhere are a problem.
        assert_eq!(like("%a".repeat(25_000).as_bytes(), text, None), Ok(true));
        assert_eq!(like(("%a".repeat(24_999) + "%b").as_bytes(), text, None), Ok(false));
        assert_eq!(glob(b"*aaaaaaaaaaaab*", text), Ok(false));
        let near = "a".repeat(40_000) + "b";
        assert_eq!(like(format!("%{near}%").as_bytes(), text, None), Err(Fault::PatternTooCostly));
        assert_eq!(glob(format!("*{near}*").as_bytes(), text), Err(Fault::PatternTooCostly));
        assert_eq!(glob(format!("*[{}]*", "b".repeat(40_000)).as_bytes(), text), Err(Fault::PatternTooCostly));
        assert_eq!(glob(format!("*[{}*", "b".repeat(40_000)).as_bytes(), text), Ok(false));
        assert_eq!(like(format!("%{near}%").as_bytes(), &text[..40_020], None), Ok(false));
        assert_eq!(like(&[b'a'; PATTERN_BYTES_MAX], &[b'a'; PATTERN_BYTES_MAX], None), Ok(true));
    }
}
