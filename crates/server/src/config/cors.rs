//! `[server] cors`: the pages of other origins that may use declared endpoints, and how.

use docs::config::{ConfigTable, Item};

/// Limit of origins, and of header fields.
const LIST_MAX: usize = 64;
/// Header fields that pages may send by default.
const HEADERS_DEFAULT: [&str; 4] = ["Authorization", "Content-Type", "If-Match", "If-None-Match"];
/// How long browsers may cache the answer by default. Most cache it for at most two hours.
const MAX_AGE_SECONDS_DEFAULT: u32 = 600;

/// The setting, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsConfig {
    /// `scheme://host[:port]` each, or only `*`: any.
    pub origins: Vec<String>,
    /// Methods that pages may use; `None`: those of the route.
    pub methods: Option<Vec<String>>,
    /// Header fields that pages may send.
    pub headers: Vec<String>,
    /// Whether browsers may send cookies.
    pub credentials: bool,
    /// How long browsers may cache the answer.
    pub max_age_seconds: u32,
}

/// Reads the setting.
pub(super) fn read(item: &Item<'_>) -> Option<CorsConfig> {
    let table = item.table()?;
    table.check_keys(&["origins", "methods", "headers", "credentials", "max_age"], &[]);
    let origins = list(&table, "origins", "\"*\", or origins as in \"https://app.example\"", is_origin);
    if table.require("origins").is_some() && origins.as_ref().is_some_and(Vec::is_empty) {
        table.mistake("`cors` with no origins: no page may do anything", "one at least, or no `cors`");
    }
    let methods = list(&table, "methods", "GET, HEAD, POST, PUT, PATCH, DELETE", |text| {
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"].contains(&text)
    });
    let headers = list(&table, "headers", "names of header fields", is_token);
    let credentials = table.get("credentials").and_then(|item| item.boolean()).unwrap_or(false);
    let origins = origins?;
    if origins.iter().any(|origin| origin == "*") && (credentials || origins.len() > 1) {
        let what = "any origin beside `credentials` or other origins";
        table.mistake(what, "origins that are named where browsers send cookies; \"*\" alone");
    }
    let max_age = table.get("max_age").and_then(|item| item.integer(0..=86_400));
    Some(CorsConfig {
        origins,
        methods,
        headers: headers.unwrap_or_else(|| HEADERS_DEFAULT.map(str::to_owned).to_vec()),
        credentials,
        max_age_seconds: max_age.and_then(|number| u32::try_from(number).ok()).unwrap_or(MAX_AGE_SECONDS_DEFAULT),
    })
}

/// A list of texts, each checked by `is_right`.
fn list(table: &ConfigTable<'_>, key: &str, allowed: &str, is_right: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let item = table.get(key)?;
    let mut texts = item.texts()?;
    if texts.len() > LIST_MAX {
        item.mistake(format!("{} of `{}`", texts.len(), item.path()), format!("up to {LIST_MAX}"));
        texts.truncate(LIST_MAX);
    }
    for (text, item) in texts.iter().filter(|(text, _)| !is_right(text)) {
        item.mistake(format!("`{}` is {text:?}", item.path()), allowed);
    }
    Some(texts.into_iter().map(|(text, _)| text).collect())
}

/// Whether a text is `*`, or an origin as browsers send it: in lower case, without a path, and without the scheme's default port.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return text == "*" };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._:[]".contains(&byte);
    let own_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "/",
    };
    let is_scheme =
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_lowercase() || b"+-.".contains(&byte));
    is_scheme && !authority.is_empty() && authority.bytes().all(plain) && !authority.ends_with(own_port)
}

fn is_token(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}
