//! Templates of a scenario: literal text, values that earlier steps took, and the placeholders of ammo.

use crate::ammo::{OtherBraces, Values, shown};
use std::fmt::Write as _;

/// Largest number of placeholders in one text.
const PLACEHOLDERS_MAX: usize = 64;

/// Where a text stands in a request, which decides how values are inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Header,
    /// A body of any kind: values as they are.
    Body,
    /// A body of JSON: values escaped as in a string.
    Json,
}

/// A template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Text {
    place: Place,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Literal(String),
    /// A taken value, by its index.
    Taken(usize),
    /// A placeholder of ammo, with its braces.
    Placeholder(String),
}

impl Text {
    /// Reads a template. `taken` has the names of the values that earlier steps took.
    pub(crate) fn parse(text: &str, place: Place, taken: &[String]) -> Result<Text, String> {
        let (mut pieces, mut literal, mut rest) = (Vec::new(), String::new(), text);
        while let Some(start) = rest.find('{') {
            literal.push_str(&rest[..start]);
            rest = &rest[start..];
            // A brace inside belongs to the text around the placeholder, as in JSON.
            let inner = rest.find('}').map(|end| &rest[1..end]).filter(|inner| !inner.contains('{'));
            let piece = match inner {
                Some(inner) => Piece::parse(inner, place, taken)?,
                None => None,
            };
            let Some((piece, inner)) = piece.zip(inner) else {
                if place == Place::Path {
                    return Err(format!("{:?}: a brace in a path begins a placeholder", shown(rest)));
                }
                literal.push('{');
                rest = &rest[1..];
                continue;
            };
            pieces.push(Piece::Literal(std::mem::take(&mut literal)));
            pieces.push(piece);
            rest = &rest[inner.len() + 2..];
        }
        literal.push_str(rest);
        pieces.push(Piece::Literal(literal));
        if pieces.len() > 2 * PLACEHOLDERS_MAX + 1 {
            return Err(format!("more than {PLACEHOLDERS_MAX} placeholders in one text"));
        }
        Ok(Text { place, pieces })
    }

    /// Appends the text with its values.
    pub(crate) fn append(&self, taken: &[String], values: &mut Values, out: &mut String) {
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out.push_str(text),
                Piece::Taken(index) => self.place.append(taken.get(*index).map_or("", String::as_str), out),
                // It was filled once when the file was read.
                Piece::Placeholder(text) => {
                    self.place.append(&values.fill(text, OtherBraces::Error).unwrap_or_default(), out)
                }
            }
        }
    }

    /// The text with `x` for each value, as an example that can be checked.
    pub(crate) fn example(&self) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => out.push_str(text),
                // A whole path may be taken from a reply.
                _ if self.place == Place::Path && out.is_empty() => out.push_str("/x"),
                _ => out.push('x'),
            }
        }
        out
    }
}

impl Piece {
    /// `None`: the braces are text.
    fn parse(inner: &str, place: Place, taken: &[String]) -> Result<Option<Piece>, String> {
        if let Some(index) = taken.iter().position(|name| name == inner) {
            return Ok(Some(Piece::Taken(index)));
        }
        let placeholder = format!("{{{inner}}}");
        let mut values = Values::new(0);
        values.fill(&placeholder, OtherBraces::Text)?;
        if values.used() {
            return Ok(Some(Piece::Placeholder(placeholder)));
        }
        let is_name = is_name(inner);
        if is_name || matches!(place, Place::Path) {
            return Err(format!(
                "{:?}: no earlier step takes this value, and it is none of {{int:A..B}}, {{choice:a|b}}, {{uuid}}, {{seq}}, {{seq:N}}",
                shown(&placeholder)
            ));
        }
        Ok(None)
    }
}

/// Whether a text can name a value: letters, digits and underscores, beginning with a letter.
pub(crate) fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(is_part) && text.starts_with(|first: char| first.is_ascii_alphabetic())
}

impl Place {
    /// Inserts a value so that the request stays what it is.
    fn append(self, value: &str, out: &mut String) {
        match self {
            Place::Body => out.push_str(value),
            Place::Header => out.extend(value.chars().map(|c| if c.is_ascii_control() { ' ' } else { c })),
            Place::Json => {
                let quoted = serde_json::Value::from(value).to_string();
                out.push_str(&quoted[1..quoted.len() - 1]);
            }
            Place::Path => {
                for byte in value.bytes() {
                    match byte {
                        b'!'..=b'~' if byte != b'#' => out.push(char::from(byte)),
                        // Writing into a String does not fail.
                        _ => drop(write!(out, "%{byte:02X}")),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str, place: Place, value: &str) -> Result<String, String> {
        let text = Text::parse(text, place, &["id".to_owned()])?;
        let (mut out, mut values) = (String::new(), Values::new(1));
        values.set_number(7);
        text.append(&[value.to_owned()], &mut values, &mut out);
        Ok(out)
    }

    #[test]
    fn values_are_inserted_so_that_the_request_stays_whole() {
        let check = |place, expected: &str| {
            assert_eq!(rendered("a{id}b", place, "x y\r\n\"п#/?").as_deref(), Ok(expected), "{place:?}");
        };
        check(Place::Path, "ax%20y%0D%0A\"%D0%BF%23/?b");
        check(Place::Header, "ax y  \"п#/?b");
        check(Place::Json, "ax y\\r\\n\\\"п#/?b");
        check(Place::Body, "ax y\r\n\"п#/?b");
    }

    #[test]
    fn other_placeholders_are_those_of_ammo_and_other_braces_are_text_in_a_body() {
        assert_eq!(rendered("/{seq}/{seq:10}{id}", Place::Path, "é").as_deref(), Ok("/7/16%C3%A9"));
        assert_eq!(
            rendered(r#"{"a": {"b": "{id}", "c": {}}}"#, Place::Json, "1").as_deref(),
            Ok(r#"{"a": {"b": "1", "c": {}}}"#)
        );
        assert_eq!(rendered(r#"{"a": {seq}, "b": {id}}"#, Place::Json, "1").as_deref(), Ok(r#"{"a": 7, "b": 1}"#));
        let choice = rendered("{choice:a|b}", Place::Body, "").unwrap();
        assert!(choice == "a" || choice == "b");
    }

    #[test]
    fn an_unknown_value_and_a_broken_placeholder_are_errors() {
        for (text, place, part) in [
            ("/{token}", Place::Path, "\"{token}\": no earlier step takes this value"),
            ("{token}", Place::Body, "no earlier step takes this value"),
            ("/{a b}", Place::Path, "no earlier step"),
            ("/{", Place::Path, "a brace in a path begins a placeholder"),
            ("/{a{id}", Place::Path, "a brace in a path begins a placeholder"),
            ("{int:5..1}", Place::Json, "expected {int:A..B}"),
        ] {
            let error = rendered(text, place, "").unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let many = "{id}".repeat(PLACEHOLDERS_MAX + 1);
        assert!(rendered(&many, Place::Body, "").unwrap_err().contains("more than 64 placeholders"));
    }
}
