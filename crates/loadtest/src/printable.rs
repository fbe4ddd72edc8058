//! Untrusted text for a terminal: reasons of the system, addresses, names of phases.
//!
//! A control character could move the cursor, hide a line or rename the window. It is shown as `�`, as are the marks that change
//! the direction of text.

use std::borrow::Cow;

/// `text` without characters that control a terminal.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_obeyed) {
        Cow::Owned(text.chars().map(|character| if is_obeyed(character) { '\u{fffd}' } else { character }).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// The first `width` characters of `text`; the last of them is `…` if `text` is longer.
pub(crate) fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if text.chars().count() <= width {
        return Cow::Borrowed(text);
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        short.push('…');
    }
    Cow::Owned(short)
}

fn is_obeyed(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_marks_of_direction_are_replaced() {
        assert_eq!(printable("a\u{1b}[2Jb\u{202e}c\n"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert!(matches!(printable("Füße 200"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_long_text_ends_in_an_ellipsis() {
        assert_eq!([cut("abcd", 4), cut("abcd", 3), cut("abcd", 0)], ["abcd", "ab…", ""]);
    }
}
