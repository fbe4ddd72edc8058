//! `If-Match` and `If-None-Match` (RFC 9110, sections 13.1.1 and 13.1.2). An entity tag is a change number in quotes.

use crate::failure::{Failure, Kind};
use docs::Precondition;
use http::Request;

/// Most tags in one header field.
const TAGS_MAX: usize = 64;

/// The entity tag of a change number.
pub(super) fn tag(change_number: u64) -> String {
    format!("\"{change_number}\"")
}

/// What the request's header fields ask of the stored document.
pub(super) fn read(request: &Request<'_>) -> Result<Precondition, Failure> {
    match (request.header("if-match"), request.header("if-none-match")) {
        (None, None) => Ok(Precondition::None),
        (Some(b"*"), None) => Ok(Precondition::Exists),
        (None, Some(b"*")) => Ok(Precondition::Absent),
        (Some(list), None) => tags("If-Match", list, false).map(Precondition::Matches),
        (None, Some(list)) => tags("If-None-Match", list, true).map(Precondition::Differs),
        (Some(_), Some(_)) => Err(Failure::new(Kind::Invalid, "If-Match and If-None-Match exclude each other")),
    }
}

/// Change numbers of a list of tags. A tag that is none of ours matches nothing; `If-None-Match` compares weakly.
fn tags(field: &str, list: &[u8], weak: bool) -> Result<Vec<u64>, Failure> {
    let broken = || Failure::new(Kind::Invalid, format!("{field} takes * or quoted tags, up to {TAGS_MAX}"));
    let list = std::str::from_utf8(list).map_err(|_| broken())?;
    let mut numbers = Vec::new();
    for (place, tag) in list.split(',').map(str::trim).enumerate() {
        let strong = if weak { tag.strip_prefix("W/").unwrap_or(tag) } else { tag };
        let inner = strong.strip_prefix("W/").unwrap_or(strong);
        let text = inner.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or_else(broken)?;
        if place == TAGS_MAX {
            return Err(broken());
        }
        if !strong.starts_with("W/") {
            numbers.extend(text.parse::<u64>().ok());
        }
    }
    Ok(numbers)
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
    }
}
