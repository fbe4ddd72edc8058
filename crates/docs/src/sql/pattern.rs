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

/// What a pattern goes on with, against the text there.
enum Piece {
    /// `%` or `*`: any number of characters.
    Any,
    /// It matches, and takes so many bytes of the pattern and of the text.
    Matches(usize, usize),
    Differs,
    /// Nothing matches whatever comes.
    Never,
}

impl Piece {
    fn of(length: usize, used: Option<usize>) -> Piece {
        used.map_or(Piece::Differs, |used| Piece::Matches(length, used))
    }
}

/// Walks a pattern along a text; `piece` looks at what is left of both, the pattern not being at its end.
#[inline]
fn matches(pattern: &[u8], text: &[u8], piece: impl Fn(&[u8], &[u8]) -> Piece) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let found = match &pattern[p..] {
            [] if t == text.len() => return true,
            [] => Piece::Differs,
            pattern => piece(pattern, &text[t..]),
        };
        match (found, retry) {
            (Piece::Any, _) => {
                p += 1;
                retry = Some((p, t));
            }
            (Piece::Matches(in_pattern, in_text), _) => {
                p += in_pattern;
                t += in_text;
            }
            (Piece::Differs, Some((after, from))) => match character(&text[from..]) {
                Some((_, used)) => {
                    retry = Some((after, from + used));
                    (p, t) = (after, from + used);
                }
                None => return false,
            },
            (Piece::Differs, None) | (Piece::Never, _) => return false,
        }
    }
}

/// `text LIKE pattern ESCAPE escape`.
pub(crate) fn like(pattern: &[u8], text: &[u8], escape: Option<&[u8]>) -> bool {
    matches(pattern, text, |pattern, text| match character(pattern) {
        Some((c, length)) if escape == Some(c) => match character(&pattern[length..]) {
            Some((literal, more)) => Piece::of(length + more, same(literal, text)),
            None => Piece::Never, // A dangling escape matches nothing.
        },
        Some((b"%", _)) => Piece::Any,
        Some((b"_", _)) => Piece::of(1, character(text).map(|(_, used)| used)),
        Some((c, length)) => Piece::of(length, same(c, text)),
        None => Piece::Differs,
    })
}

fn same(character_wanted: &[u8], text: &[u8]) -> Option<usize> {
    let (found, length) = character(text)?;
    character_wanted.eq_ignore_ascii_case(found).then_some(length)
}

/// `text GLOB pattern`.
pub(crate) fn glob(pattern: &[u8], text: &[u8]) -> bool {
    matches(pattern, text, |pattern, text| match character(pattern) {
        Some((b"*", _)) => Piece::Any,
        Some((b"?", _)) => Piece::of(1, character(text).map(|(_, used)| used)),
        Some((b"[", _)) => match (set(pattern, text), character(text)) {
            (Some((true, length)), Some((_, used))) => Piece::Matches(length, used),
            _ => Piece::Differs,
        },
        Some((c, length)) => Piece::of(length, character(text).filter(|(found, _)| *found == c).map(|(_, used)| used)),
        None => Piece::Differs,
    })
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
