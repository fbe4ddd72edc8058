//! The `Set-Cookie` field: attributes, name prefixes, and the checks.
//!
//! An invalid value is refused, not escaped: an application that stores arbitrary text encodes it first (base64url, say). The
//! checks are those of user agents (RFC 6265bis, sections 4.1 and 5.7): a cookie that passes here is not dropped there.

use std::fmt::{self, Write};
use std::time::SystemTime;

use httpdate::HttpDate;

use crate::parsing::chunked::is_token;

/// Most bytes of name and value together (RFC 6265bis, section 5.7): user agents drop a longer cookie.
pub(crate) const PAIR_BYTES_MAX: usize = 4096;
/// Most bytes of one attribute's value (RFC 6265bis, section 5.6): user agents ignore a longer attribute.
const ATTRIBUTE_BYTES_MAX: usize = 1024;

/// The sites from whose pages a client sends the cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// Only from pages of the same site.
    Strict,
    /// Also when a user follows a link from another site.
    Lax,
    /// From any site; the cookie must be [`SetCookie::secure`].
    None,
}

impl SameSite {
    fn name(self) -> &'static str {
        match self {
            SameSite::Strict => "Strict",
            SameSite::Lax => "Lax",
            SameSite::None => "None",
        }
    }
}

/// Why a cookie cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CookieFault {
    /// The name is empty, or has a byte that a token may not have.
    Name,
    /// The value has a byte that a cookie's value may not have.
    Value,
    /// Name and value are longer than user agents keep.
    TooLong {
        /// Bytes of name and value together.
        bytes: usize,
        /// Most of them.
        bytes_max: usize,
    },
    /// The path or domain has a byte that would end the attribute, or is longer than user agents accept.
    Attribute(&'static str),
    /// The name's prefix requires attributes that the cookie does not have.
    Prefix(&'static str),
    /// `SameSite=None` without `Secure`.
    NoneNeedsSecure,
}

impl fmt::Display for CookieFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CookieFault::Name => f.write_str("the cookie's name is empty or has a byte outside letters, digits and !#$%&'*+-.^_`|~"),
            CookieFault::Value => f.write_str(
                "the cookie's value has a byte that is not allowed (blank, \" , ; \\, control or not ASCII): encode it first",
            ),
            CookieFault::TooLong { bytes, bytes_max } => {
                write!(f, "name and value of the cookie have {bytes} bytes; browsers keep at most {bytes_max}")
            }
            CookieFault::Attribute(name) => write!(
                f,
                "the cookie's {name} has a semicolon, a control byte or a byte outside ASCII, or more than {ATTRIBUTE_BYTES_MAX} bytes"
            ),
            CookieFault::Prefix("__Host-") => {
                f.write_str("a cookie whose name begins with __Host- must be Secure, with Path=/ and without Domain")
            }
            CookieFault::Prefix(prefix) => write!(f, "a cookie whose name begins with {prefix} must be Secure"),
            CookieFault::NoneNeedsSecure => f.write_str("a cookie with SameSite=None must be Secure"),
        }
    }
}

impl std::error::Error for CookieFault {}

/// A cookie for a reply. Without attributes it lives until the browser closes, applies to the path's folder, and is visible to
/// scripts.
///
/// ```
/// use http::cookies::{SameSite, SetCookie};
/// let cookie = SetCookie::new("theme", "dark").path("/").max_age(86_400).same_site(SameSite::Lax);
/// assert_eq!(cookie.field().unwrap(), "theme=dark; Path=/; Max-Age=86400; SameSite=Lax");
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SetCookie<'c> {
    name: &'c str,
    value: &'c str,
    path: Option<&'c str>,
    domain: Option<&'c str>,
    max_age_seconds: Option<u64>,
    expires: Option<SystemTime>,
    http_only: bool,
    secure: bool,
    same_site: Option<SameSite>,
}

impl<'c> SetCookie<'c> {
    /// A cookie without attributes. Nothing is checked before [`SetCookie::field`].
    pub fn new(name: &'c str, value: &'c str) -> Self {
        SetCookie {
            name,
            value,
            path: None,
            domain: None,
            max_age_seconds: None,
            expires: None,
            http_only: false,
            secure: false,
            same_site: None,
        }
    }

    /// Makes the client delete the cookie. Path and domain must be those with which the cookie was set.
    pub fn removal(name: &'c str) -> Self {
        SetCookie::new(name, "").max_age(0).expires(SystemTime::UNIX_EPOCH)
    }

    /// `Path`: the client sends the cookie for this path and paths below it.
    pub fn path(self, path: &'c str) -> Self {
        SetCookie { path: Some(path), ..self }
    }

    /// `Domain`: the client sends the cookie to this host and its subdomains; without it only to the replying host.
    pub fn domain(self, domain: &'c str) -> Self {
        SetCookie { domain: Some(domain), ..self }
    }

    /// `Max-Age`, in seconds; 0 deletes the cookie.
    pub fn max_age(self, seconds: u64) -> Self {
        SetCookie { max_age_seconds: Some(seconds), ..self }
    }

    /// `Expires`. Clients that know `Max-Age` prefer that. A time after the year 9999 is left out.
    pub fn expires(self, at: SystemTime) -> Self {
        SetCookie { expires: Some(at), ..self }
    }

    /// `HttpOnly`: scripts do not see the cookie.
    pub fn http_only(self) -> Self {
        SetCookie { http_only: true, ..self }
    }

    /// `Secure`: the client sends the cookie over TLS only (browsers also to localhost).
    pub fn secure(self) -> Self {
        SetCookie { secure: true, ..self }
    }

    /// `SameSite`. Without it browsers assume [`SameSite::Lax`], or send the cookie from any site as they used to.
    pub fn same_site(self, same_site: SameSite) -> Self {
        SetCookie { same_site: Some(same_site), ..self }
    }

    /// The field's value, for `reply.header("Set-Cookie", …)`.
    pub fn field(&self) -> Result<String, CookieFault> {
        let mut field = String::with_capacity(self.name.len() + self.value.len() + 100);
        self.append_to(&mut field)?;
        Ok(field)
    }

    /// The same, appended to `field`. On an error `field` is unchanged.
    pub fn append_to(&self, field: &mut String) -> Result<(), CookieFault> {
        self.check()?;
        self.write(field).unwrap_or_else(|fmt::Error| unreachable!("writing to a String cannot fail"));
        Ok(())
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        out.extend([self.name, "=", self.value]);
        if let Some(path) = self.path {
            out.extend(["; Path=", path]);
        }
        if let Some(domain) = self.domain {
            out.extend(["; Domain=", domain]);
        }
        if let Some(seconds) = self.max_age_seconds {
            out.extend(["; Max-Age=", itoa::Buffer::new().format(seconds)]);
        }
        if let Some(at) = self.expires.filter(|&at| has_http_date(at)) {
            write!(out, "; Expires={}", HttpDate::from(at))?;
        }
        for (is_set, attribute) in [(self.http_only, "; HttpOnly"), (self.secure, "; Secure")] {
            if is_set {
                out.push_str(attribute);
            }
        }
        if let Some(same_site) = self.same_site {
            out.extend(["; SameSite=", same_site.name()]);
        }
        Ok(())
    }

    /// Checks as [`SetCookie::field`] does, without writing.
    pub fn check(&self) -> Result<(), CookieFault> {
        if self.name.is_empty() || !self.name.bytes().all(is_token) {
            return Err(CookieFault::Name);
        }
        // Without an early end, so that several bytes are compared at once.
        if !self.value.bytes().fold(true, |are_allowed, byte| are_allowed & is_cookie_octet(byte)) {
            return Err(CookieFault::Value);
        }
        let bytes = self.name.len() + self.value.len();
        if bytes > PAIR_BYTES_MAX {
            return Err(CookieFault::TooLong { bytes, bytes_max: PAIR_BYTES_MAX });
        }
        check_attribute("Path", self.path)?;
        check_attribute("Domain", self.domain)?;
        if self.same_site == Some(SameSite::None) && !self.secure {
            return Err(CookieFault::NoneNeedsSecure);
        }
        self.check_prefix()
    }

    /// RFC 6265bis, section 4.1.3. User agents compare prefixes without regard to case.
    fn check_prefix(&self) -> Result<(), CookieFault> {
        let begins = |prefix: &str| {
            self.name.get(..prefix.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(prefix))
        };
        if begins("__Host-") && !(self.secure && self.path == Some("/") && self.domain.is_none()) {
            return Err(CookieFault::Prefix("__Host-"));
        }
        if begins("__Secure-") && !self.secure {
            return Err(CookieFault::Prefix("__Secure-"));
        }
        Ok(())
    }
}

fn check_attribute(name: &'static str, value: Option<&str>) -> Result<(), CookieFault> {
    let fits = |value: &str| {
        let is_clean = value.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b';');
        // Blanks at the ends would be trimmed, and an empty value would mean the default: neither is intended.
        is_clean && !value.is_empty() && value.trim() == value && value.len() <= ATTRIBUTE_BYTES_MAX
    };
    if value.is_none_or(fits) { Ok(()) } else { Err(CookieFault::Attribute(name)) }
}

/// A byte that a value may have (RFC 6265bis, section 4.1.1).
#[inline]
fn is_cookie_octet(byte: u8) -> bool {
    let is_mark = (byte == b'"') | (byte == b',') | (byte == b';') | (byte == b'\\');
    byte.is_ascii_graphic() & !is_mark
}

/// Whether a time can be written as an HTTP date, which has four digits for the year.
fn has_http_date(at: SystemTime) -> bool {
    const YEAR_10000: u64 = 253_402_300_800;
    at.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|since| since.as_secs() < YEAR_10000)
}

#[cfg(test)]
mod tests {
    use super::super::pairs;
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn everything<'c>() -> SetCookie<'c> {
        let cookie = SetCookie::new("a", "b").path("/p").domain("example.org").max_age(60);
        cookie.expires(SystemTime::UNIX_EPOCH).http_only().secure().same_site(SameSite::Strict)
    }

    #[track_caller]
    fn check_refused(cookie: SetCookie<'_>, expected: CookieFault) {
        let mut field = "before".to_owned();
        assert_eq!(cookie.append_to(&mut field), Err(expected));
        assert_eq!(field, "before");
    }

    #[test]
    fn attributes_stand_behind_the_pair_in_a_fixed_order() {
        assert_eq!(SetCookie::new("a", "").field().unwrap(), "a=");
        assert_eq!(
            everything().field().unwrap(),
            "a=b; Path=/p; Domain=example.org; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT; HttpOnly; Secure; \
             SameSite=Strict"
        );
    }

    #[test]
    fn a_removal_is_past_by_both_attributes() {
        let field = SetCookie::removal("a").path("/").field().unwrap();
        assert_eq!(field, "a=; Path=/; Max-Age=0; Expires=Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn a_date_that_has_no_form_is_left_out() {
        for at in [
            SystemTime::UNIX_EPOCH - Duration::from_secs(1),
            SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800),
        ] {
            assert_eq!(SetCookie::new("a", "b").expires(at).field().unwrap(), "a=b");
        }
    }

    #[test]
    fn bytes_that_would_break_the_field_are_refused() {
        for name in ["", "a b", "a=", "a;", "я", "a\r\n"] {
            check_refused(SetCookie::new(name, "b"), CookieFault::Name);
        }
        for value in [" ", "a,b", "a;b", "\"a\"", "a\\b", "a\r\nb", "я", "\0"] {
            check_refused(SetCookie::new("a", value), CookieFault::Value);
        }
        for path in ["", "/;b", "/\r\n", "/я", "/ ", &"/".repeat(ATTRIBUTE_BYTES_MAX + 1)] {
            check_refused(SetCookie::new("a", "b").path(path), CookieFault::Attribute("Path"));
            check_refused(SetCookie::new("a", "b").domain(path), CookieFault::Attribute("Domain"));
        }
        assert!(SetCookie::new("a", "b").path(&"/".repeat(ATTRIBUTE_BYTES_MAX)).field().is_ok());
    }

    #[test]
    fn a_pair_longer_than_browsers_keep_is_refused() {
        let value = "b".repeat(PAIR_BYTES_MAX);
        let fault = CookieFault::TooLong { bytes: PAIR_BYTES_MAX + 1, bytes_max: PAIR_BYTES_MAX };
        check_refused(SetCookie::new("a", &value), fault);
        assert!(SetCookie::new("a", &value[1..]).field().is_ok());
    }

    #[test]
    fn name_prefixes_ask_for_their_attributes() {
        let host = SetCookie::new("__Host-a", "b");
        assert!(host.secure().path("/").field().is_ok());
        for wrong in [host.path("/"), host.secure(), host.secure().path("/a"), host.secure().path("/").domain("a.b")] {
            check_refused(wrong, CookieFault::Prefix("__Host-"));
        }
        check_refused(SetCookie::new("__host-a", "b"), CookieFault::Prefix("__Host-"));
        check_refused(SetCookie::new("__Secure-a", "b"), CookieFault::Prefix("__Secure-"));
        assert!(SetCookie::new("__Secure-a", "b").secure().field().is_ok());
        check_refused(SetCookie::new("a", "b").same_site(SameSite::None), CookieFault::NoneNeedsSecure);
    }

    proptest! {
        #[test]
        fn what_is_set_comes_back_and_never_breaks_the_head(name in "\\PC{0,8}|[a-z_-]{1,8}", value in "\\PC{0,12}|[!-~]{0,12}") {
            let cookie = SetCookie::new(&name, &value).path("/");
            if let Ok(field) = cookie.field() {
                prop_assert!(field.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
                let sent = field.split(';').next().unwrap();
                let back: Vec<_> = pairs(sent.as_bytes()).map(|cookie| (cookie.name, cookie.value)).collect();
                prop_assert_eq!(back, vec![(name.as_str(), value.as_bytes())]);
            }
        }
    }
}
