//! Prometheus's text format, restricted to samples: lines of `name{label="value"} number timestamp`.
//!
//! <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>
//!
//! Comments, types and help are skipped, as are lines that are not samples: an odd line must not cost the others. The parser
//! keeps no state and does not recurse; the length of a line is bounded by [`LINE_BYTES_MAX`].

/// Longer lines are skipped.
const LINE_BYTES_MAX: usize = 4096;

/// One sample of a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample<'a> {
    /// Name and labels, as on the page.
    pub(super) series: &'a str,
    /// The name alone.
    pub(super) name: &'a str,
    /// Its value, which may be infinite or not a number.
    pub(super) value: f64,
}

/// The samples of a page, in its order.
pub(super) fn samples(page: &str) -> impl Iterator<Item = Sample<'_>> {
    page.lines().filter(|line| line.len() <= LINE_BYTES_MAX).filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim_start();
    let name = &line[..line.find(|character| !is_of_name(character)).unwrap_or(line.len())];
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let series = &line[..name.len() + labels_length(&line[name.len()..])?];
    let value = line[series.len()..].split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { series, name, value })
}

fn is_of_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_' || character == ':'
}

/// Length of the labels at the beginning of `rest`; zero if there are none. None: they do not end.
fn labels_length(rest: &str) -> Option<usize> {
    if !rest.starts_with('{') {
        return Some(0);
    }
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'}' if !is_quoted => return Some(at + 1),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(line: &str) -> Option<(&str, &str, f64)> {
        samples(line).next().map(|sample| (sample.series, sample.name, sample.value))
    }

    #[test]
    fn samples_are_read_with_labels_and_timestamps() {
        assert_eq!(one("up 1"), Some(("up", "up", 1.0)));
        assert_eq!(one("  a:b_c{x=\"1\"} 2.5e3 1700000000000"), Some(("a:b_c{x=\"1\"}", "a:b_c", 2500.0)));
        assert_eq!(one(r#"a{x="}\" {"} -1"#), Some((r#"a{x="}\" {"}"#, "a", -1.0)));
        assert_eq!(one("a +Inf").unwrap().2, f64::INFINITY);
        assert!(one("a NaN").unwrap().2.is_nan());
    }

    #[test]
    fn lines_that_are_no_sample_are_skipped() {
        let page = "# HELP a x\n# TYPE a gauge\n\na\na x\n9a 1\na{x=\"1 1\n<html>\nb 2\n";
        assert_eq!(samples(page).map(|sample| sample.name).collect::<Vec<_>>(), ["b"]);
        let long = format!("a{{x=\"{}\"}} 1\nb 2", "y".repeat(LINE_BYTES_MAX));
        assert_eq!(samples(&long).map(|sample| sample.name).collect::<Vec<_>>(), ["b"]);
    }

    proptest! {
        #[test]
        fn no_page_makes_the_parser_panic(page in "(?s)[a-b0-9{}\"\\\\= \n#é\u{1b}.eE+-]{0,200}") {
            for sample in samples(&page) {
                prop_assert!(page.contains(sample.series) && sample.series.starts_with(sample.name));
            }
        }

        #[test]
        fn what_is_written_is_read(
            name in "[a-z_][a-z0-9_]{0,20}", label in "[^\n\r]{0,40}", value in -1e12..1e12_f64,
        ) {
            let escaped = label.replace('\\', "\\\\").replace('"', "\\\"");
            let series = format!("{name}{{l=\"{escaped}\"}}");
            // Unicode has line ends that this format lacks; `lines` knows only and \r .
            let page = format!("{series} {value}\n");
            let found: Vec<_> = samples(&page).collect();
            prop_assert_eq!(found, vec![Sample { series: &series, name: &name, value }]);
        }
    }
}
