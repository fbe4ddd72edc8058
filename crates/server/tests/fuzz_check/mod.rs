//! Properties that hold for any text as a configuration file; used by the tests here and by a target of `fuzz/`.

use docs::config::{Config, MISTAKES_MAX, Mistakes};
use server::ServerStartError;
use server::config::ServiceConfig;
use std::path::Path;

/// A name without a folder: whatever the text names, it finds nothing of the machine beside it.
const NAME: &str = "no-such-folder/fuzz.toml";

/// Mistakes have places inside the text, in order, and descriptions.
fn check_mistakes(text: &str, mistakes: &Mistakes) {
    assert!(!mistakes.list.is_empty() && mistakes.list.len() <= MISTAKES_MAX, "{mistakes}");
    let mut last = (1, 1);
    for mistake in &mistakes.list {
        let line = text.split('\n').nth(mistake.line.wrapping_sub(1));
        let columns = line.map_or(0, |line| line.chars().count() + 1);
        assert!((1..=columns).contains(&mistake.column), "outside the text: {mistake}");
        assert!(!mistake.what.is_empty() && mistake.file == NAME, "{mistake}");
        assert!((mistake.line, mistake.column) >= last, "out of order: {mistakes}");
        last = (mistake.line, mistake.column);
    }
}

/// Reads a text as a whole file and as its documents alone. Returns whether it was accepted.
pub(crate) fn check_config(text: &str) -> bool {
    let docs = Config::parse(Path::new(NAME), text);
    if let Err(mistakes) = &docs {
        check_mistakes(text, mistakes);
    }
    match ServiceConfig::parse(Path::new(NAME), text.to_owned()) {
        Err(mistakes) => check_mistakes(text, &mistakes),
        Ok(config) => {
            assert!(
                docs.is_ok(),
                "the whole is taken and its part is not: {}",
                docs.err().map_or(String::new(), |m| m.to_string())
            );
            // SQL's mistakes come here; each has the place of its endpoint.
            match server::check(&config) {
                Err(ServerStartError::Config(mistakes)) => check_mistakes(text, &mistakes),
                Err(other) => panic!("nothing else can be wrong without a data folder: {other}"),
                Ok(()) => {}
            }
            return true;
        }
    }
    false
}
