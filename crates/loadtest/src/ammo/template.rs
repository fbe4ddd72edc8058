//! Templates: text with placeholders for values that differ from request to request.
//!
//! | placeholder | value |
//! |---|---|
//! | `{int:A..B}` | a random integer from A to B, both included |
//! | `{choice:a\|b\|c}` | one of the texts between the bars |
//! | `{uuid}` | a random UUID, version 4 |
//! | `{seq}`, `{seq:N}` | the number of the request, from 1 or from N |
//!
//! Random values come from one generator with a seed, so that a run can be repeated. In a URL any other pair of braces is an
//! error: a URL has none (RFC 3986), and a mistyped placeholder would be sent unchanged. In a body other braces are text, because
//! JSON uses them.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt::Write as _;

/// Longest placeholder in bytes, its choices included.
const PLACEHOLDER_BYTES_MAX: usize = 4096;

/// Beginnings of the placeholders with random values.
const RANDOM: [&[u8]; 3] = [b"{int:", b"{choice:", b"{uuid}"];

/// The source of placeholder values.
#[derive(Debug)]
pub(crate) struct Values {
    random: ChaCha8Rng,
    /// Number of the current request.
    number: u64,
    /// Whether a placeholder has been filled.
    used: bool,
}

/// Meaning of braces that are not a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherBraces {
    Error,
    Text,
}

impl Values {
    pub(crate) fn new(seed: u64) -> Values {
        Values { random: ChaCha8Rng::seed_from_u64(seed), number: 1, used: false }
    }

    /// Moves on to the next request.
    pub(crate) fn advance(&mut self) {
        self.number += 1;
    }

    /// Sets the number of the request.
    pub(crate) fn set_number(&mut self, number: u64) {
        self.number = number;
    }

    /// Whether any text so far had a placeholder.
    pub(crate) fn used(&self) -> bool {
        self.used
    }

    /// `text` with its placeholders filled.
    pub(crate) fn fill(&mut self, text: &str, other: OtherBraces) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('{') {
            out.push_str(&rest[..start]);
            rest = &rest[start..];
            // A placeholder is short: otherwise a body of only opening braces would be searched to its end for each of them.
            let near = &rest.as_bytes()[..rest.len().min(PLACEHOLDER_BYTES_MAX)];
            let end = memchr::memchr(b'}', near).map(|end| end + 1);
            let filled = end.and_then(|end| Placeholder::parse(&rest[1..end - 1])).transpose()?;
            match (filled, end, other) {
                (Some(placeholder), Some(end), _) => {
                    self.append(&placeholder, &mut out);
                    rest = &rest[end..];
                }
                (_, _, OtherBraces::Error) => {
                    return Err(format!(
                        "{:?} is no placeholder: {{int:A..B}}, {{choice:a|b}}, {{uuid}}, {{seq}}, {{seq:N}}",
                        super::request::shown(&rest[..end.unwrap_or(rest.len())])
                    ));
                }
                (_, _, OtherBraces::Text) => {
                    out.push('{');
                    rest = &rest[1..];
                }
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    fn append(&mut self, placeholder: &Placeholder<'_>, out: &mut String) {
        self.used = true;
        // Writing into a String does not fail.
        let _ = match placeholder {
            Placeholder::Int(from, to) => write!(out, "{}", self.random.random_range(*from..=*to)),
            Placeholder::Choice(texts) => {
                let chosen = self.random.random_range(0..texts.split('|').count());
                write!(out, "{}", texts.split('|').nth(chosen).unwrap_or_default())
            }
            Placeholder::Uuid => write_uuid(self.random.random(), out),
            Placeholder::Sequence(from) => write!(out, "{}", from.saturating_add(self.number.saturating_sub(1))),
        };
    }
}

/// Whether a text has a placeholder with a random value.
pub(crate) fn has_random_placeholder(text: &[u8]) -> bool {
    RANDOM.iter().any(|beginning| memchr::memmem::find(text, beginning).is_some())
}

/// A placeholder, without its braces.
#[derive(Debug, PartialEq, Eq)]
enum Placeholder<'a> {
    Int(i64, i64),
    Choice(&'a str),
    Uuid,
    Sequence(u64),
}

impl Placeholder<'_> {
    /// `None`: the text is not a placeholder. An error: it is one, but malformed.
    fn parse(text: &str) -> Option<Result<Placeholder<'_>, String>> {
        let (name, argument) = text.split_once(':').map_or((text, None), |(name, argument)| (name, Some(argument)));
        let fault = |expected: &str| Err(format!("{{{text}}}: expected {expected}"));
        Some(match (name, argument) {
            ("int", Some(range)) => match parse_range(range) {
                Some((from, to)) => Ok(Placeholder::Int(from, to)),
                None => fault("{int:A..B}, two integers, A not above B"),
            },
            ("choice", Some(texts)) => Ok(Placeholder::Choice(texts)),
            ("uuid", None) => Ok(Placeholder::Uuid),
            ("seq", None) => Ok(Placeholder::Sequence(1)),
            ("seq", Some(from)) => match from.parse() {
                Ok(from) => Ok(Placeholder::Sequence(from)),
                Err(_) => fault("{seq:N}, an integer"),
            },
            _ => return None,
        })
    }
}

fn parse_range(range: &str) -> Option<(i64, i64)> {
    let (from, to) = range.split_once("..")?;
    let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    (from <= to).then_some((from, to))
}

/// RFC 9562, section 5.4: four bits are the version, two the variant, the rest is random.
fn write_uuid(random: u128, out: &mut String) -> std::fmt::Result {
    let bits = random & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
    let [a, b, c, d] = [bits >> 96, bits >> 80 & 0xffff, bits >> 64 & 0xffff, bits >> 48 & 0xffff];
    write!(out, "{a:08x}-{b:04x}-{c:04x}-{d:04x}-{:012x}", bits & 0xffff_ffff_ffff)
}

#[cfg(test)]
mod filling {
    use super::{OtherBraces, Values};
    use proptest::prelude::*;

    fn fill(text: &str, other: OtherBraces) -> Result<String, String> {
        Values::new(7).fill(text, other)
    }

    #[test]
    fn integers_lie_in_their_range_and_reach_both_ends() {
        let mut values = Values::new(1);
        let mut drawn: Vec<String> =
            (0..200).map(|_| values.fill("{int:-1..1}", OtherBraces::Error).expect("a template")).collect();
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn, ["-1", "0", "1"]);
    }

    #[test]
    fn choices_may_be_empty_and_a_sequence_counts_requests() {
        let mut values = Values::new(1);
        let mut line = || {
            let filled = values.fill("{choice:a|}/{seq}/{seq}/{seq:10}", OtherBraces::Error).expect("a template");
            values.advance();
            filled
        };
        let lines = [line(), line(), line(), line(), line(), line()];
        assert!(lines[0].ends_with("/1/1/10") && lines[5].ends_with("/6/6/15"), "{lines:?}");
        assert!(lines.iter().any(|line| line.starts_with("a/")) && lines.iter().any(|line| line.starts_with('/')));
    }

    #[test]
    fn a_uuid_has_version_four_and_differs_each_time() {
        let mut values = Values::new(1);
        let uuid = values.fill("{uuid}", OtherBraces::Error).expect("a template");
        let other = values.fill("{uuid}", OtherBraces::Error).expect("a template");
        assert_ne!(uuid, other);
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"), "{uuid}");
        assert!(matches!(&uuid[19..20], "8" | "9" | "a" | "b"), "{uuid}");
    }

    #[test]
    fn a_seed_gives_the_same_values_again_and_another_seed_others() {
        let with = |seed| Values::new(seed).fill("{uuid}{int:0..999999}", OtherBraces::Error);
        assert_eq!(with(3), with(3));
        assert_ne!(with(3), with(4));
    }

    #[test]
    fn other_braces_are_text_in_a_body_and_an_error_in_a_url() {
        assert_eq!(fill(r#"{"id": {seq}, "a": {}}"#, OtherBraces::Text).as_deref(), Ok(r#"{"id": 1, "a": {}}"#));
        for text in ["/{itn:1..2}", "/{}", "/{int}", "/{uuid:1}", "/{"] {
            let problem = fill(text, OtherBraces::Error).expect_err(text);
            assert!(problem.contains("is no placeholder"), "{problem}");
        }
    }

    #[test]
    fn a_placeholder_with_a_fault_is_an_error_everywhere() {
        for text in ["{int:5..1}", "{int:a..b}", "{int:1}", "{seq:x}"] {
            assert!(fill(text, OtherBraces::Text).expect_err(text).contains("expected"));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_filled_or_refused(text in "[{}:.|a-z0-9 \u{43f}-]{0,40}") {
            let _ = fill(&text, OtherBraces::Error);
            let _ = fill(&text, OtherBraces::Text);
        }

        #[test]
        fn text_without_braces_stays_as_it_is(text in "[^{]{0,40}") {
            prop_assert_eq!(fill(&text, OtherBraces::Error), Ok(text));
        }
    }
}
