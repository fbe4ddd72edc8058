//! Patterns of keys, with the meaning that they have for KEYS and SCAN.
//!
//! | in the pattern | matches |
//! |---|---|
//! | `*` | any bytes, or none |
//! | `?` | any byte |
//! | `[a-c]`, `[^a-c]` | a byte of the class, or none of it |
//! | `\x` | `x` |

/// Whether a key matches a pattern.
pub(super) fn matches(pattern: &[u8], key: &[u8]) -> bool {
    let (mut at, mut byte) = (0, 0);
    // Behind the last star, and the byte of the key from which the rest of the pattern was tried.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let rest = pattern.get(at..).unwrap_or_default();
        if rest.first() == Some(&b'*') {
            at += 1;
            star = Some((at, byte));
        } else if byte == key.len() {
            return rest.is_empty();
        } else if let Some(length) = one(rest, key[byte]) {
            (at, byte) = (at + length, byte + 1);
        } else if let Some((behind, from)) = star {
            star = Some((behind, from + 1));
            (at, byte) = (behind, from + 1);
        } else {
            return false;
        }
    }
}

/// The length of the pattern's first element if it matches this byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (has_byte, length) = class_has(class, byte);
            has_byte.then_some(1 + length)
        }
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

/// Whether a class, which begins behind `[`, has a byte; and its length. Without `]` it reaches to the end of the pattern.
fn class_has(class: &[u8], byte: u8) -> (bool, usize) {
    let is_negated = class.first() == Some(&b'^');
    let (mut at, mut has_byte) = (usize::from(is_negated), false);
    loop {
        let length = match class.get(at..).unwrap_or_default() {
            [] => break,
            [b'\\', escaped, ..] => {
                has_byte |= *escaped == byte;
                2
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                has_byte |= (*from.min(to)..=*from.max(to)).contains(&byte);
                3
            }
            [literal, ..] => {
                has_byte |= *literal == byte;
                1
            }
        };
        at += length;
    }
    (has_byte != is_negated, at)
}
