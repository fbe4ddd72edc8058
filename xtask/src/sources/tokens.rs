//! Words and punctuation of a Rust source, without comments, strings and characters.

/// One token of a source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword, a name or a number.
    Word(&'a str),
    /// `::`
    Colons,
    /// Any other sign.
    Sign(char),
}

/// Splits a source into tokens. Lifetimes are dropped with the strings: they look alike at their start.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = if let Some(after) = skipped(rest, first) {
            after
        } else if is_word(first) {
            let (word, after) = split_word(rest);
            tokens.push(Token::Word(word));
            after
        } else if let Some(after) = rest.strip_prefix("::") {
            tokens.push(Token::Colons);
            after
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Sign(first));
            }
            &rest[first.len_utf8()..]
        };
    }
    tokens
}

fn is_word(sign: char) -> bool {
    sign == '_' || sign.is_alphanumeric()
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|sign| !is_word(sign)).unwrap_or(text.len()))
}

/// The text behind a comment, a string, a character or a lifetime, if one stands here.
fn skipped(text: &str, first: char) -> Option<&str> {
    match first {
        '/' if text.starts_with("//") => Some(text.find('\n').map_or("", |end| &text[end..])),
        '/' if text.starts_with("/*") => Some(text.find("*/").map_or("", |end| &text[end + 2..])),
        '"' => Some(after_string(&text[1..])),
        '\'' => Some(after_quote(&text[1..])),
        'r' | 'b' | 'c' => prefixed(text),
        _ => None,
    }
}

/// Behind a string whose opening quote is consumed.
fn after_string(text: &str) -> &str {
    let mut signs = text.char_indices();
    while let Some((at, sign)) = signs.next() {
        match sign {
            '\\' => drop(signs.next()),
            '"' => return &text[at + 1..],
            _ => {}
        }
    }
    ""
}

/// Behind a character or the name of a lifetime, whose quote is consumed.
fn after_quote(text: &str) -> &str {
    let mut signs = text.char_indices();
    let Some((_, first)) = signs.next() else { return "" };
    if first == '\\' {
        // The escaped sign may itself be a quote.
        signs.next();
        return signs.find(|(_, sign)| *sign == '\'').map_or("", |(at, _)| &text[at + 1..]);
    }
    match signs.next() {
        Some((at, '\'')) => &text[at + 1..],
        _ => split_word(text).1,
    }
}

/// Behind a string or a character with a prefix: `b"…"`, `b'…'`, `r#"…"#` and their kind.
fn prefixed(text: &str) -> Option<&str> {
    let (word, after) = split_word(text);
    if !matches!(word, "r" | "b" | "c" | "br" | "cr") {
        return None;
    }
    if let Some(quoted) = after.strip_prefix('\'') {
        return Some(after_quote(quoted));
    }
    if !word.ends_with('r') {
        return Some(after_string(after.strip_prefix('"')?));
    }
    let hashes = after.len() - after.trim_start_matches('#').len();
    let raw = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(raw.find(&end).map_or("", |at| &raw[at + end.len()..]))
}

#[cfg(test)]
mod splitting {
    use super::{Token, tokens};

    #[test]
    fn comments_strings_characters_and_lifetimes_are_no_words() {
        let text = concat!(
            "// use a::b;\n/* use c */ use d::e; \"use \\\" f\" '\"' '\\'' &'static g b\"h\" ",
            "r#\"i \"j\"#b'k' c\"l\" crate_m"
        );
        let words = tokens(text).into_iter().filter_map(|token| match token {
            Token::Word(word) => Some(word),
            _ => None,
        });
        assert_eq!(words.collect::<Vec<_>>(), ["use", "d", "e", "g", "crate_m"]);
    }
}
