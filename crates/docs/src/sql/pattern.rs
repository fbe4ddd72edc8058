//! LIKE and GLOB. LIKE folds ASCII letters only; GLOB folds nothing.
//!
//! Both match without recursion: after a mismatch the newest `%` or `*` takes one character more, which is enough,
//! since an earlier one never has to. So the time is at most the product of both lengths.

/// The character that `text` starts with, and its length in bytes; damaged UTF-8 goes byte by byte.
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

/// The number of characters.
pub(crate) fn length(text: &[u8]) -> i64 {
    text.iter().filter(|&&b| b & 0xc0 != 0x80).count() as i64
}

/// `text LIKE pattern ESCAPE escape`.
pub(crate) fn like(pattern: &[u8], text: &[u8], escape: Option<&[u8]>) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match character(&pattern[p..]) {
            Some((c, length)) if escape == Some(c) => match character(&pattern[p + length..]) {
                Some((literal, more)) => same(literal, &text[t..]).map(|used| (length + more, used)),
                None => return false, // A dangling escape matches nothing.
            },
            Some((b"%", _)) => {
                p += 1;
                retry = Some((p, t));
                continue;
            }
            Some((b"_", _)) => character(&text[t..]).map(|(_, used)| (1, used)),
            Some((c, length)) => same(c, &text[t..]).map(|used| (length, used)),
            None if t == text.len() => return true,
            None => None,
        };
        match (step, retry) {
            (Some((in_pattern, in_text)), _) => {
                p += in_pattern;
                t += in_text;
            }
            (None, Some((after, from))) => match character(&text[from..]) {
                Some((_, used)) => {
                    retry = Some((after, from + used));
                    (p, t) = (after, from + used);
                }
                None => return false,
            },
            (None, None) => return false,
        }
    }
}

fn same(character_wanted: &[u8], text: &[u8]) -> Option<usize> {
    let (found, length) = character(text)?;
    character_wanted.eq_ignore_ascii_case(found).then_some(length)
}

/// `text GLOB pattern`.
pub(crate) fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let step = match character(&pattern[p..]) {
            Some((b"*", _)) => {
                p += 1;
                retry = Some((p, t));
                continue;
            }
            Some((b"?", _)) => character(&text[t..]).map(|(_, used)| (1, used)),
            Some((b"[", _)) => match (set(&pattern[p..], &text[t..]), character(&text[t..])) {
                (Some((true, length)), Some((_, used))) => Some((length, used)),
                _ => None,
            },
            Some((c, length)) => character(&text[t..]).filter(|(found, _)| *found == c).map(|(_, used)| (length, used)),
            None if t == text.len() => return true,
            None => None,
        };
        match (step, retry) {
            (Some((in_pattern, in_text)), _) => {
                p += in_pattern;
                t += in_text;
            }
            (None, Some((after, from))) => match character(&text[from..]) {
                Some((_, used)) => {
                    retry = Some((after, from + used));
                    (p, t) = (after, from + used);
                }
                None => return false,
            },
            (None, None) => return false,
        }
    }
}

/// Whether the text's first character is in the set `[…]` that the pattern starts with, and the set's length.
fn set(pattern: &[u8], text: &[u8]) -> Option<(bool, usize)> {
    let code = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|s| s.chars().next()).map_or(0, u32::from);
    let (wanted, _) = character(text)?;
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
