//! Turns the path of a request into the name of a file.
//!
//! A path is decoded once, segment by segment, and the decoded text is checked. Text that a file system could interpret in
//! another way is no name: `.` and `..`, empty segments, escaped slashes, backslashes, NUL and other control characters. Names
//! that begin with a dot are hidden, unless [`super::Files::hidden`] is on.

use super::Options;
use crate::query::decode_path;

/// Limit of a name's bytes: half of a Linux path (4096), the rest is for the folder.
const NAME_BYTES_MAX: usize = 2048;

/// A checked name: relative, with single slashes between its segments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Location<'t> {
    name: &'t str,
    /// The path ends with a slash (or is empty): the folder's own file is requested.
    is_folder: bool,
}

impl<'t> Location<'t> {
    /// Reads a path as sent. `text` is overwritten if the name differs from the path. `None`: no file can have this name.
    pub(super) fn read(path: &'t str, options: Options, text: &'t mut String) -> Option<Location<'t>> {
        let (path, is_folder) = match path.strip_suffix('/') {
            Some("") => return None,
            Some(folder) => (folder, true),
            None => (path, path.is_empty()),
        };
        if path.len() > NAME_BYTES_MAX || is_folder && options.index_name().is_none() {
            return None;
        }
        if !is_folder && !path.contains('%') {
            is_name(path, options).then_some(())?;
            return Some(Location { name: path, is_folder });
        }
        text.clear();
        let mut scratch = Vec::new();
        for segment in path.split('/').filter(|_| !path.is_empty()) {
            let segment = decode_path(segment, &mut scratch).ok()?;
            is_segment(segment, options).then_some(())?;
            text.push_str(segment);
            text.push('/');
        }
        match options.index_name() {
            Some(index) if is_folder => text.push_str(index),
            _ => drop(text.pop()),
        }
        Some(Location { name: text, is_folder })
    }

    pub(super) fn name(&self) -> &'t str {
        self.name
    }

    pub(super) fn is_folder(&self) -> bool {
        self.is_folder
    }
}

fn is_name(path: &str, options: Options) -> bool {
    path.split('/').all(|segment| is_segment(segment, options))
}

fn is_segment(segment: &str, options: Options) -> bool {
    let is_dots = matches!(segment, "." | "..");
    let is_hidden = segment.starts_with('.') && !options.hidden;
    let is_odd = |byte: u8| byte < b' ' || matches!(byte, b'/' | b'\\' | 0x7f);
    !segment.is_empty() && !is_dots && !is_hidden && !segment.bytes().any(is_odd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Options = Options { index: false, hidden: false, immutable: true };
    const OPEN: Options = Options { index: true, hidden: true, immutable: true };

    #[track_caller]
    fn check(path: &str, options: Options, expected: Option<&str>) {
        let mut text = "left over".to_owned();
        assert_eq!(Location::read(path, options, &mut text).map(|location| location.name()), expected, "{path:?}");
    }

    #[test]
    fn names_are_decoded_once() {
        check("css/site.css", PLAIN, Some("css/site.css"));
        check("a%20b%2Ecss", PLAIN, Some("a b.css"));
        check("%d1%8f.txt", PLAIN, Some("\u{44f}.txt"));
        check("a%2520b", PLAIN, Some("a%20b"));
        check("a+b", PLAIN, Some("a+b"));
        check("a..b/c...", PLAIN, Some("a..b/c..."));
    }

    #[test]
    fn a_folder_has_a_file_of_its_own_where_the_switch_is_on() {
        check("", PLAIN, None);
        check("css/", PLAIN, None);
        check("", OPEN, Some("index.html"));
        check("css/", OPEN, Some("css/index.html"));
        check("a%20b/", OPEN, Some("a b/index.html"));
        check("/", OPEN, None);
        check("css//", OPEN, None);
    }

    #[test]
    fn hidden_names_have_a_switch_and_dots_have_none() {
        for path in [".env", "a/.git/config", "%2eenv", ".well-known/a"] {
            check(path, PLAIN, None);
        }
        check("%2eenv", OPEN, Some(".env"));
        for path in ["..", ".", "a/../b", "a/./b", "%2e%2e/b", "a/.%2E", "%2e"] {
            check(path, OPEN, None);
        }
    }

    #[test]
    fn what_a_file_system_could_read_in_another_way_is_no_name() {
        for path in ["/a", "a//b", "a%2fb", "%2F", "a%5cb", "a\\b", "a%00", "a%0a", "a%7f", "%", "a%f", "%ff", "%c0%ae"]
        {
            check(path, OPEN, None);
        }
        check(&"a".repeat(NAME_BYTES_MAX + 1), OPEN, None);
    }

    proptest! {
        #[test]
        fn a_name_never_leads_up_or_to_the_root(path in "[a%25eEfF./\\\\0-9]{0,24}", index in any::<bool>()) {
            let mut text = String::new();
            let options = Options { index, ..OPEN };
            if let Some(location) = Location::read(&path, options, &mut text) {
                let name = std::path::Path::new(location.name());
                let is_plain = |part| matches!(part, std::path::Component::Normal(_));
                prop_assert!(name.components().all(is_plain) && !location.name().is_empty(), "{:?}", location);
            }
        }
    }
}
