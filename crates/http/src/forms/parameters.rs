//! Parameters of a header field's value: `TYPE *( OWS ";" OWS [ NAME "=" VALUE ] )` (RFC 9110, section 5.6.6).
//!
//! A value is a token or a quoted string. In a quoted string a backslash escapes a quotation mark or a backslash;
//! before any other byte it stands for itself, since old browsers sent `C:\folder\file.txt` unescaped.

use std::borrow::Cow;

use crate::parsing::chunked::is_token;

/// The value is not a type with parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The type, and its parameters.
pub(super) fn split(value: &[u8]) -> (&[u8], Parameters<'_>) {
    let end = value.iter().position(|&byte| byte == b';').unwrap_or(value.len());
    (value[..end].trim_ascii(), Parameters { rest: &value[end..] })
}

/// Names (as sent) and values (unescaped), in their order. Ends after the first error.
pub(super) struct Parameters<'v> {
    rest: &'v [u8],
}

impl<'v> Parameters<'v> {
    fn read(&mut self, rest: &'v [u8]) -> Result<(&'v [u8], Cow<'v, [u8]>), Malformed> {
        let name_bytes = rest.iter().take_while(|&&byte| is_token(byte)).count();
        let (name, rest) = rest.split_at(name_bytes);
        let rest = rest.strip_prefix(b"=").filter(|_| !name.is_empty()).ok_or(Malformed)?;
        let (value, rest) = match rest.strip_prefix(b"\"") {
            Some(quoted) => unquote(quoted)?,
            None => {
                let bytes = rest.iter().take_while(|&&byte| is_token(byte)).count();
                let (token, rest) = rest.split_at(bytes);
                if token.is_empty() {
                    return Err(Malformed);
                }
                (Cow::Borrowed(token), rest)
            }
        };
        self.rest = rest;
        Ok((name, value))
    }
}

impl<'v> Iterator for Parameters<'v> {
    type Item = Result<(&'v [u8], Cow<'v, [u8]>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = self.rest.trim_ascii_start();
        let mut is_separated = false;
        while let Some(behind) = rest.strip_prefix(b";") {
            is_separated = true;
            rest = behind.trim_ascii_start();
        }
        self.rest = b"";
        if rest.is_empty() {
            return None;
        }
        Some(if is_separated { self.read(rest) } else { Err(Malformed) })
    }
}

/// The text of a quoted string after its opening mark, and the rest after its closing one.
fn unquote(quoted: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), Malformed> {
    let plain = memchr::memchr2(b'"', b'\\', quoted).ok_or(Malformed)?;
    if quoted[plain] == b'"' {
        return Ok((Cow::Borrowed(&quoted[..plain]), &quoted[plain + 1..]));
    }
    let (mut text, mut rest) = (quoted[..plain].to_vec(), &quoted[plain..]);
    loop {
        rest = match rest {
            [b'"', behind @ ..] => return Ok((Cow::Owned(text), behind)),
            [b'\\', byte @ (b'"' | b'\\'), behind @ ..] | [byte, behind @ ..] => {
                text.push(*byte);
                behind
            }
            [] => return Err(Malformed),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, expected: Option<&str>) {
        let (kind, parameters) = split(value.as_bytes());
        let read = |parameter: Result<(&[u8], Cow<'_, [u8]>), Malformed>| {
            let (name, value) = parameter.ok()?;
            Some(format!(" {}<{}>", String::from_utf8_lossy(name), String::from_utf8_lossy(&value)))
        };
        let list: Option<String> = parameters.map(read).collect();
        assert_eq!(list.map(|list| format!("{}{list}", String::from_utf8_lossy(kind))).as_deref(), expected, "{value}");
    }

    #[test]
    fn tokens_and_quoted_strings_are_values() {
        check("form-data", Some("form-data"));
        check("a; b=c;d=\"e f\" ; g=\"\"", Some("a b<c> d<e f> g<>"));
        check("a ;; b=c; ", Some("a b<c>"));
        check(r#"a; b="x\"y\\z";c=";=,""#, Some("a b<x\"y\\z> c<;=,>"));
        check(r#"a; b="C:\new\file.txt""#, Some(r"a b<C:\new\file.txt>"));
    }

    #[test]
    fn anything_else_is_malformed() {
        for value in [
            "a; b",
            "a; b=",
            "a; =c",
            "a; b =c",
            "a; b= c",
            "a; b=\"c",
            r#"a; b="c\""#,
            "a; b=\"c\"d",
            "a; b=c d=e",
            "a; b=c,",
        ] {
            check(value, None);
        }
    }
}
