//! Tags: names under which requests are counted. The default is the method and the shape of the path.
//!
//! The shape of a path is the path with value segments replaced: numbers by `{int}`, UUIDs by `{uuid}`, long hexadecimal
//! text by `{hex}`. So `/users/1/visits?x=2` and `/users/2/visits` have one tag, `GET /users/{int}/visits`.

use crate::source::TagNames;
use std::collections::HashMap;
use std::sync::Arc;

/// Longest tag in bytes; a longer one is truncated.
pub const TAG_BYTES_MAX: usize = 120;
/// Hexadecimal text of at least this length counts as a value: an object id has 24 digits, a short word of a..f has fewer.
const HEX_DIGITS_MIN: usize = 16;

/// Largest number of different tags in a run; requests with further ones are counted together. Each has a histogram for each loop.
pub const TAGS_MAX: usize = 200;

/// The tags of a run, numbered in the order of their first use.
#[derive(Debug, Default)]
pub struct Tags {
    numbers: HashMap<String, u32>,
    names: Arc<TagNames>,
}

impl Tags {
    /// The number of `tag`. All tags beyond [`TAGS_MAX`] share that number.
    pub fn number(&mut self, tag: &str) -> u32 {
        if let Some(number) = self.numbers.get(tag) {
            return *number;
        }
        let number = self.numbers.len().min(TAGS_MAX) as u32;
        if self.numbers.len() < TAGS_MAX {
            self.numbers.insert(tag.to_owned(), number);
            self.names.push(tag);
        }
        number
    }

    /// The names by number, which grow while numbers are given.
    pub fn names(&self) -> Arc<TagNames> {
        Arc::clone(&self.names)
    }
}

/// Appends method and shape of the target's path.
pub(crate) fn append_shape(method: &str, target: &str, out: &mut String) {
    let path = &target[..target.find(['?', '#']).unwrap_or(target.len())];
    out.push_str(method);
    out.push(' ');
    for (index, segment) in path.split('/').enumerate() {
        if index > 0 {
            out.push('/');
        }
        out.push_str(shape(segment));
        if out.len() > TAG_BYTES_MAX {
            break;
        }
    }
    out.truncate(cut(out).len());
}

/// The part of `tag` that is kept.
pub(crate) fn cut(tag: &str) -> &str {
    &tag[..tag.floor_char_boundary(TAG_BYTES_MAX)]
}

fn shape(segment: &str) -> &str {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits(segment) || segment.strip_prefix('-').is_some_and(digits) {
        "{int}"
    } else if is_uuid(segment) {
        "{uuid}"
    } else if segment.len() >= HEX_DIGITS_MIN && segment.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        "{hex}"
    } else {
        segment
    }
}

fn is_uuid(segment: &str) -> bool {
    let hyphen = |index: usize| matches!(index, 8 | 13 | 18 | 23);
    let fits = |(index, byte): (usize, u8)| if hyphen(index) { byte == b'-' } else { byte.is_ascii_hexdigit() };
    segment.len() == 36 && segment.bytes().enumerate().all(fits)
}

#[cfg(test)]
mod shapes {
    use super::{TAG_BYTES_MAX, TAGS_MAX, Tags, append_shape};

    #[track_caller]
    fn check(target: &str, shape: &str) {
        let mut tag = String::new();
        append_shape("GET", target, &mut tag);
        assert_eq!(tag, format!("GET {shape}"));
    }

    #[test]
    fn values_in_a_path_are_replaced_and_the_query_is_left_out() {
        check("/users/17/visits?fromDate=3", "/users/{int}/visits");
        check("/a/-5/", "/a/{int}/");
        check("/o/67e55044-10b1-426f-9247-bb680e5fe0c8", "/o/{uuid}");
        check("/o/507f1f77bcf86cd799439011", "/o/{hex}");
        check("/feed/cafe", "/feed/cafe");
        check("/", "/");
    }

    #[test]
    fn a_long_tag_is_cut_between_characters() {
        let mut tag = String::new();
        append_shape("GET", &format!("/{}", "п".repeat(400)), &mut tag);
        assert!(tag.len() <= TAG_BYTES_MAX && tag.starts_with("GET /п"), "{tag}");
    }

    #[test]
    fn tags_are_numbered_up_to_a_bound() {
        let mut tags = Tags::default();
        let numbers: Vec<u32> = (0..TAGS_MAX + 5).map(|tag| tags.number(&tag.to_string())).collect();
        assert_eq!((numbers[0], numbers[TAGS_MAX - 1]), (0, TAGS_MAX as u32 - 1));
        assert!(numbers[TAGS_MAX..].iter().all(|number| *number == TAGS_MAX as u32));
        assert_eq!(tags.number("7"), 7);
    }
}
