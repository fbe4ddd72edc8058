//! `[errors]`: statuses and body of a declared endpoint's failures.

use crate::failure::ErrorRules;
use docs::config::ConfigTable;

/// Bytes of a fixed error body.
const BODY_BYTES_MAX: usize = 4096;

/// Reads the section; missing keys keep their defaults.
pub(crate) fn read(table: &ConfigTable<'_>) -> ErrorRules {
    table.check_keys(&["invalid", "conflict", "not_found", "body"], &[]);
    let mut rules = ErrorRules::default();
    for (name, status) in
        [("invalid", &mut rules.invalid), ("conflict", &mut rules.conflict), ("not_found", &mut rules.not_found)]
    {
        let given = table.get(name).and_then(|item| item.integer(400..=599));
        *status = given.and_then(|code| u16::try_from(code).ok()).unwrap_or(*status);
    }
    if let Some(item) = table.get("body")
        && let Some(text) = item.text()
    {
        if text.len() > BODY_BYTES_MAX {
            item.mistake(format!("`{}` has {} bytes", item.path(), text.len()), format!("at most {BODY_BYTES_MAX}"));
        }
        rules.body = Some(text.to_owned());
    }
    rules
}
