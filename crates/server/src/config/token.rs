//! `[tokens.NAME]`: the SHA-256 of a token, its scopes, and its expiry.

use docs::config::{ConfigTable, Item};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use std::time::SystemTime;

/// Limit of tokens: a token in a request is compared with all of them.
const TOKENS_MAX: usize = 256;
/// Limits of a token's scopes, and of the bytes of a scope's name.
const SCOPES_MAX: usize = 32;
const SCOPE_BYTES_MAX: usize = 40;

/// Permits reading through the general API.
pub const READ: &str = "read";
/// Permits changing documents through the general API.
pub const WRITE: &str = "write";
/// Permits backups, reloads, verification.
pub const ADMIN: &str = "admin";

/// One token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenConfig {
    /// Its name in the file.
    pub name: String,
    /// The digest of its text.
    pub sha256: [u8; 32],
    /// The scopes: `read`, `write` and `admin` are those of the general API, others belong to declared endpoints.
    pub allow: Vec<String>,
    /// Expiry: from then on it is refused.
    pub until: Option<SystemTime>,
}

impl TokenConfig {
    /// Whether it has this scope.
    pub fn allows(&self, scope: &str) -> bool {
        self.allow.iter().any(|allowed| allowed == scope)
    }
}

/// Reads the section. Mistakes are recorded, and an invalid entry is left out.
pub(crate) fn read_all(root: &ConfigTable<'_>) -> Vec<TokenConfig> {
    let Some(table) = root.get("tokens").and_then(|item| item.table()) else { return Vec::new() };
    let mut entries = table.entries();
    if entries.len() > TOKENS_MAX {
        table.mistake(format!("{} tokens", entries.len()), format!("up to {TOKENS_MAX}"));
        entries.truncate(TOKENS_MAX);
    }
    let mut tokens: Vec<TokenConfig> = Vec::new();
    for item in &entries {
        let Some(token) = read(item) else { continue };
        if let Some(other) = tokens.iter().find(|other| other.sha256 == token.sha256) {
            item.mistake_in_name(
                format!("the tokens `{}` and `{}` have the same SHA-256", other.name, token.name),
                "one of them",
            );
        }
        tokens.push(token);
    }
    tokens
}

fn read(item: &Item<'_>) -> Option<TokenConfig> {
    let table = item.table()?;
    table.check_keys(&["sha256", "allow", "until"], &[]);
    let digest = table.require("sha256");
    let allow = table.require("allow");
    let until = match table.get("until") {
        Some(item) => Some(moment(&item)?),
        None => None,
    };
    Some(TokenConfig { name: item.name().to_owned(), sha256: sha256(&digest?)?, allow: scopes(&allow?)?, until })
}

fn sha256(item: &Item<'_>) -> Option<[u8; 32]> {
    let text = item.text()?;
    let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let is_hex = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    let digest = bytes.filter(|_| is_hex).and_then(|bytes| bytes.try_into().ok());
    if digest.is_none() {
        // It may be the token itself, which no message should show.
        let what = format!("`{}` is no SHA-256", item.path());
        item.mistake(what, "64 hexadecimal digits, as `sapsan token` prints them");
    }
    digest
}

fn scopes(item: &Item<'_>) -> Option<Vec<String>> {
    let texts = item.texts()?;
    if texts.is_empty() || texts.len() > SCOPES_MAX {
        item.mistake(format!("{} scopes", texts.len()), format!("1 to {SCOPES_MAX}"));
        return None;
    }
    for (text, item) in &texts {
        check_scope(text, item);
    }
    Some(texts.into_iter().map(|(text, _)| text).collect())
}

/// Records a mistake if a text cannot be a scope.
pub(crate) fn check_scope(text: &str, item: &Item<'_>) {
    if !is_scope(text) {
        let allowed = "\"read\", \"write\", \"admin\", or a name of a-z, 0-9, - and _ for declared endpoints";
        item.mistake(format!("`{}` is {text:?}", item.path()), allowed);
    }
}

/// Whether a text can be a scope's name.
pub fn is_scope(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    !text.is_empty() && text.len() <= SCOPE_BYTES_MAX && text.bytes().all(plain)
}

fn moment(item: &Item<'_>) -> Option<SystemTime> {
    let text = item.text()?;
    let moment = parse_moment(text);
    if moment.is_none() {
        let allowed = "\"YYYY-MM-DD\", the day's beginning in UTC, or \"YYYY-MM-DDTHH:MM:SSZ\"";
        item.mistake(format!("`{}` is \"{text}\"", item.path()), allowed);
    }
    moment
}

/// The expiry of a token: a day's beginning in UTC, or a time with its zone.
pub fn parse_moment(text: &str) -> Option<SystemTime> {
    let of_day = |date: Date| date.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    let timestamp = match text.parse::<Timestamp>() {
        Ok(timestamp) => timestamp,
        Err(_) if text.len() == "YYYY-MM-DD".len() => of_day(text.parse().ok()?)?,
        Err(_) => return None,
    };
    Some(SystemTime::from(timestamp))
}

#[cfg(test)]
mod tests {
    use super::{is_scope, parse_moment};
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_moment_is_a_day_or_a_time_with_its_zone() {
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(parse_moment("2027-01-01"), at(1_798_761_600));
        assert_eq!(parse_moment("2027-01-01T00:00:01Z"), at(1_798_761_601));
        assert_eq!(parse_moment("2027-01-01T01:00:00+01:00"), at(1_798_761_600));
        for wrong in ["", "2027", "2027-13-01", "2027-02-30", "2027-01-01T00:00:00", "tomorrow", "20270101"] {
            assert_eq!(parse_moment(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_scope_is_a_short_plain_name() {
        assert!(is_scope("read") && is_scope("orders-2_x"));
        for wrong in ["", "Read", "a b", "a,b", &"a".repeat(41)] {
            assert!(!is_scope(wrong), "{wrong}");
        }
    }
}
