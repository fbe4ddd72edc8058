//! `If-Match` and `If-None-Match` (RFC 9110, sections 13.1.1 and 13.1.2). An entity tag is a change number in quotes.

use crate::failure::{Failure, FailureKind};
use docs::Precondition;
use http::HttpRequest;
use std::borrow::Cow;

/// Matches every version.
const ANY: &[u8] = b"*";
/// Limit of tags in one condition.
const TAGS_MAX: usize = 64;

/// The precondition in the request's header fields. Most requests have none.
#[inline]
pub(crate) fn of(request: &HttpRequest<'_>) -> Result<Precondition, Failure> {
    if request.is_conditional() { read(request) } else { Ok(Precondition::None) }
}

#[cold]
fn read(request: &HttpRequest<'_>) -> Result<Precondition, Failure> {
    match (list(request, "If-Match"), list(request, "If-None-Match")) {
        (None, None) => Ok(Precondition::None),
        (Some(list), None) if list == ANY => Ok(Precondition::Exists),
        (None, Some(list)) if list == ANY => Ok(Precondition::Absent),
        (Some(list), None) => tags("If-Match", &list, false).map(Precondition::Matches),
        (None, Some(list)) => tags("If-None-Match", &list, true).map(Precondition::Differs),
        (Some(_), Some(_)) => Err(Failure::new(FailureKind::Invalid, "If-Match and If-None-Match exclude each other")),
    }
}

/// The result of a precondition for reading an existing document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The document is sent.
    Holds,
    /// The client has the current version.
    NotModified,
    /// The document is not the version that the client expects.
    Failed,
}

/// Checks a document by its change number.
pub(crate) fn judge(precondition: &Precondition, number: u64) -> Verdict {
    match precondition {
        Precondition::Differs(numbers) if numbers.contains(&number) => Verdict::NotModified,
        Precondition::Absent => Verdict::NotModified,
        Precondition::Matches(numbers) if !numbers.contains(&number) => Verdict::Failed,
        _ => Verdict::Holds,
    }
}

/// The value of a condition. Several lines of one name are one list (RFC 9110, section 5.3), and a list with `*` matches what `*`
/// matches.
fn list<'r>(request: &HttpRequest<'r>, name: &str) -> Option<Cow<'r, [u8]>> {
    let mut lines = request.headers().filter(|(sent, _)| sent.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let first = lines.next()?;
    Some(lines.fold(Cow::Borrowed(first), |joined, line| match (joined, line) {
        (joined, _) if *joined == *ANY => joined,
        (_, ANY) => Cow::Borrowed(line),
        (joined, line) => Cow::Owned([&*joined, b", ", line].concat()),
    }))
}

/// The value of a field that may occur once: a second one may be a proxy's, and it is unknown which one counts.
pub(crate) fn once<'r>(request: &HttpRequest<'r>, name: &str) -> Result<Option<&'r [u8]>, Failure> {
    let mut values = request.headers().filter(|(sent, _)| sent.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let first = values.next();
    match values.next() {
        None => Ok(first),
        Some(_) => Err(Failure::new(FailureKind::Invalid, format!("{name} is given more than once"))),
    }
}

/// Change numbers of a list of tags (RFC 9110, section 8.8.3; elements may be empty, section 5.6.1). A tag of another form matches
/// nothing; `If-None-Match` compares weakly.
fn tags(field: &str, list: &[u8], weak: bool) -> Result<Vec<u64>, Failure> {
    let broken = || Failure::new(FailureKind::Invalid, format!("{field} takes * or quoted tags, up to {TAGS_MAX}"));
    let (mut numbers, mut count, mut rest) = (Vec::new(), 0, list.trim_ascii());
    while let Some(first) = rest.first() {
        if *first == b',' {
            rest = rest[1..].trim_ascii_start();
            continue;
        }
        let (is_weak, quoted) = match rest.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let text = quoted.strip_prefix(b"\"").ok_or_else(broken)?;
        let end = text.iter().position(|byte| *byte == b'"').ok_or_else(broken)?;
        count += 1;
        rest = text[end + 1..].trim_ascii_start();
        if count > TAGS_MAX || !matches!(rest.first(), None | Some(b',')) {
            return Err(broken());
        }
        if weak || !is_weak {
            numbers.extend(number(&text[..end]));
        }
    }
    if count > 0 { Ok(numbers) } else { Err(broken()) }
}

/// The change number of a tag as this server writes it: digits, without leading zeros.
fn number(tag: &[u8]) -> Option<u64> {
    let is_written = tag.iter().all(u8::is_ascii_digit) && (tag.len() == 1 || tag.first() != Some(&b'0'));
    is_written.then(|| std::str::from_utf8(tag).ok()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tags {
    use super::tags;

    #[test]
    fn a_list_gives_its_numbers_and_foreign_tags_none() {
        assert_eq!(tags("If-Match", b"\"1\", \"x\",\"22\"", false).ok(), Some(vec![1, 22]));
        assert_eq!(tags("If-Match", b"W/\"1\"", false).ok(), Some(vec![]));
        assert_eq!(tags("If-None-Match", b"W/\"1\"", true).ok(), Some(vec![1]));
        assert!(tags("If-Match", b"1", false).is_err());
        assert!(tags("If-Match", b"", false).is_err());
        assert!(tags("If-Match", b" , ", false).is_err());
        assert!(tags("If-Match", b"\"1\" \"2\"", false).is_err());
        assert!(tags("If-Match", b"\"1", false).is_err());
    }

    #[test]
    fn a_comma_may_stand_in_a_tag_and_numbers_are_compared_as_they_are_written() {
        assert_eq!(tags("If-Match", b"\"a,b\",, \"7\"", false).ok(), Some(vec![7]));
        assert_eq!(tags("If-Match", b"\"+5\", \"007\", \"\", \"0\"", false).ok(), Some(vec![0]));
    }

    #[test]
    fn a_list_is_bounded() {
        let list = |count: u64| (1..=count).map(|number| format!("\"{number}\"")).collect::<Vec<_>>().join(", ");
        let most = (1..=super::TAGS_MAX as u64).collect::<Vec<_>>();
        assert_eq!(tags("If-Match", list(most.len() as u64).as_bytes(), false).ok(), Some(most.clone()));
        assert!(tags("If-Match", list(most.len() as u64 + 1).as_bytes(), false).is_err());
    }
}
