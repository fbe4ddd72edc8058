//! `Content-Type` of a form: its format, and the boundary of its parts.

use std::fmt;

use super::parameters;

/// Bytes of a boundary (RFC 2046, section 5.1.1).
const BOUNDARY_BYTES_MAX: usize = 70;

/// The format of a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormType {
    /// `application/x-www-form-urlencoded`.
    UrlEncoded,
    /// `multipart/form-data`.
    Multipart,
}

impl FormType {
    /// The format named by a Content-Type, whatever its parameters.
    pub fn of(content_type: &[u8]) -> Option<FormType> {
        let (media, _) = parameters::split(content_type);
        if media.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
            return Some(FormType::UrlEncoded);
        }
        media.eq_ignore_ascii_case(b"multipart/form-data").then_some(FormType::Multipart)
    }
}

/// Separator of the parts of a multipart form: 1 to 70 bytes from the set of RFC 2046, the last not a blank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boundary(Box<[u8]>);

/// Why a Content-Type gives no boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundaryError {
    /// It is not `multipart/form-data`.
    NotMultipart,
    /// It names no boundary.
    Missing,
    /// It names two.
    Repeated,
    /// It is malformed, or its boundary is not one that RFC 2046 allows.
    Malformed,
}

impl fmt::Display for BoundaryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BoundaryError::NotMultipart => "the Content-Type is not multipart/form-data",
            BoundaryError::Missing => "the Content-Type names no boundary",
            BoundaryError::Repeated => "the Content-Type names more than one boundary",
            BoundaryError::Malformed => {
                "the Content-Type is not multipart/form-data; boundary=TEXT with 1 to 70 bytes of RFC 2046"
            }
        })
    }
}

impl std::error::Error for BoundaryError {}

impl Boundary {
    /// The boundary named by a Content-Type.
    ///
    /// # Errors
    ///
    /// See [`BoundaryError`].
    pub fn of(content_type: &[u8]) -> Result<Boundary, BoundaryError> {
        let (media, parameters) = parameters::split(content_type);
        if !media.eq_ignore_ascii_case(b"multipart/form-data") {
            return Err(BoundaryError::NotMultipart);
        }
        let mut boundary = None;
        for parameter in parameters {
            let (name, value) = parameter.map_err(|_| BoundaryError::Malformed)?;
            if name.eq_ignore_ascii_case(b"boundary") && boundary.replace(value).is_some() {
                return Err(BoundaryError::Repeated);
            }
        }
        let boundary = boundary.ok_or(BoundaryError::Missing)?;
        let fits = (1..=BOUNDARY_BYTES_MAX).contains(&boundary.len()) && boundary.last() != Some(&b' ');
        if fits && boundary.iter().all(|&byte| is_boundary_byte(byte)) {
            Ok(Boundary(boundary.as_ref().into()))
        } else {
            Err(BoundaryError::Malformed)
        }
    }

    /// The bytes between two parts: CR LF, two hyphens, the boundary.
    pub(super) fn delimiter(&self) -> Box<[u8]> {
        [b"\r\n--", &*self.0].concat().into()
    }
}

fn is_boundary_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content_type: &str, expected: Result<&str, BoundaryError>) {
        let boundary = Boundary::of(content_type.as_bytes());
        let text = boundary.map(|boundary| String::from_utf8(boundary.0.into()).unwrap());
        assert_eq!(text.as_deref().map_err(|error| *error), expected, "{content_type}");
    }

    #[test]
    fn the_boundary_is_a_token_or_quoted() {
        check("multipart/form-data; boundary=----WebKitFormBoundaryAb1", Ok("----WebKitFormBoundaryAb1"));
        check("Multipart/Form-Data;charset=utf-8; Boundary=\"a b:c\"", Ok("a b:c"));
        check(&format!("multipart/form-data; boundary={}", "x".repeat(70)), Ok(&"x".repeat(70)));
    }

    #[test]
    fn a_wrong_boundary_is_told() {
        check("text/plain; boundary=x", Err(BoundaryError::NotMultipart));
        check("multipart/mixed; boundary=x", Err(BoundaryError::NotMultipart));
        check("", Err(BoundaryError::NotMultipart));
        check("multipart/form-data", Err(BoundaryError::Missing));
        check("multipart/form-data; boundary=x; boundary=x", Err(BoundaryError::Repeated));
        let long = "x".repeat(71);
        for boundary in ["", "\"\"", "\"a \"", "\"a\tb\"", "\"a\\\\b\"", "a:b", "\"a*b\"", "\"\u{44f}\"", &long] {
            check(&format!("multipart/form-data; boundary={boundary}"), Err(BoundaryError::Malformed));
        }
    }

    #[test]
    fn the_format_is_known_whatever_the_parameters() {
        assert_eq!(FormType::of(b"application/x-www-form-urlencoded; charset=utf-8"), Some(FormType::UrlEncoded));
        assert_eq!(FormType::of(b"MULTIPART/form-data"), Some(FormType::Multipart));
        assert_eq!(FormType::of(b"application/json"), None);
    }
}
