//! Media types of replies, and the row formats that belong to them.

use http::HttpRequest;
use std::cmp::Reverse;

/// The media type of every document and result.
pub(crate) const JSON: &str = "application/json";
/// The media type of lines of JSON.
pub const NDJSON: &str = "application/x-ndjson";
const CSV: &str = "text/csv; charset=utf-8";

/// Format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowFormat {
    /// An array of objects.
    Json,
    /// One object on each line.
    Lines,
    /// RFC 4180, with a head line.
    Csv,
}

impl RowFormat {
    /// The format for a request's Accept fields (RFC 9110, 12.5.1): the one with the highest weight, and among equal ones the
    /// first named. JSON if none of the formats is accepted.
    pub(crate) fn of_accept(request: &HttpRequest<'_>) -> RowFormat {
        let fields = request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("accept"));
        RowFormat::of_fields(fields.map(|(_, value)| value))
    }

    fn of_fields<'f>(fields: impl Iterator<Item = &'f [u8]>) -> RowFormat {
        let fields: Vec<_> = fields.map(String::from_utf8_lossy).collect();
        let ranges: Vec<Range<'_>> = fields.iter().flat_map(|field| field.split(',')).map(Range::of).collect();
        let mut best = (RowFormat::Json, 0, usize::MAX);
        for shape in [RowFormat::Json, RowFormat::Lines, RowFormat::Csv] {
            let named =
                ranges.iter().enumerate().map(|(place, range)| (shape.nearness(range.media), place, range.weight));
            // The most specific matching range counts; among equal ones the first.
            let Some((Some(_), place, weight)) = named.max_by_key(|(near, place, _)| (*near, Reverse(*place))) else {
                continue;
            };
            if (weight, Reverse(place)) > (best.1, Reverse(best.2)) && weight > 0 {
                best = (shape, weight, place);
            }
        }
        best.0
    }

    /// How specifically a media range matches the format, if it does.
    fn nearness(self, range: &str) -> Option<u8> {
        let names: &[&str] = match self {
            RowFormat::Json => &["application/json"],
            RowFormat::Lines => &["application/x-ndjson", "application/ndjson"],
            RowFormat::Csv => &["text/csv"],
        };
        let is_kind = |name: &&str| {
            let kind = range.strip_suffix("/*");
            kind.is_some_and(|kind| name.split('/').next().is_some_and(|own| own.eq_ignore_ascii_case(kind)))
        };
        if names.iter().any(|name| name.eq_ignore_ascii_case(range)) {
            Some(2)
        } else if names.iter().any(is_kind) {
            Some(1)
        } else {
            (range == "*/*").then_some(0)
        }
    }

    /// The media type of the format.
    pub(crate) fn media(self) -> &'static str {
        match self {
            RowFormat::Json => JSON,
            RowFormat::Lines => NDJSON,
            RowFormat::Csv => CSV,
        }
    }
}

/// A media range of an Accept field, with its weight in thousandths.
struct Range<'f> {
    media: &'f str,
    weight: u16,
}

impl Range<'_> {
    fn of(text: &str) -> Range<'_> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        Range { media, weight: weight.map_or(1000, thousandths) }
    }
}

/// `0.5` as 500. An invalid weight counts as 0.
fn thousandths(weight: &str) -> u16 {
    let (whole, part) = weight.split_once('.').unwrap_or((weight, ""));
    if !matches!(whole, "0" | "1") || part.len() > 3 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return 0;
    }
    format!("{whole}{part:0<3}").parse().map_or(0, |weight: u16| weight.min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_weight_is_chosen_then_the_order() {
        for (fields, shape) in [
            (&[][..], RowFormat::Json),
            (&[""], RowFormat::Json),
            (&["*/*"], RowFormat::Json),
            (&["text/html, */*"], RowFormat::Json),
            (&["text/html"], RowFormat::Json),
            (&["text/csv"], RowFormat::Csv),
            (&["Text/CSV ; charset=utf-8"], RowFormat::Csv),
            (&["text/*"], RowFormat::Csv),
            (&["application/*"], RowFormat::Json),
            (&["application/x-ndjson"], RowFormat::Lines),
            (&["application/ndjson;q=0.1"], RowFormat::Lines),
            (&["text/csv;q=0"], RowFormat::Json),
            (&["text/csv;q=0.000, */*"], RowFormat::Json),
            (&["text/csv, application/x-ndjson"], RowFormat::Csv),
            (&["application/x-ndjson, text/csv"], RowFormat::Lines),
            (&["text/csv, application/json"], RowFormat::Csv),
            (&["application/json, text/csv"], RowFormat::Json),
            (&["text/csv;q=0.5, application/json;q=0.4"], RowFormat::Csv),
            (&["text/csv; q=0.5, application/json; Q=0.51"], RowFormat::Json),
            (&["application/json;q=0.9", "text/csv"], RowFormat::Csv),
            (&["application/json;q=0, */*;q=0.1"], RowFormat::Lines),
            (&["application/json;q=0, application/*, text/csv;q=0.9"], RowFormat::Lines),
            (&["text/csv, */*;q=0.1"], RowFormat::Csv),
            (&["text/csv;q=0.1, */*"], RowFormat::Json),
            (&["text/csv;q=high, application/x-ndjson;q=0.001"], RowFormat::Lines),
            (&["text/csvx"], RowFormat::Json),
        ] {
            assert_eq!(RowFormat::of_fields(fields.iter().map(|field| field.as_bytes())), shape, "{fields:?}");
        }
    }
}
