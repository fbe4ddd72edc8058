//! `sapsan token NAME --allow read,write`: a new token, and the lines that the file needs for it.

use crate::cli::Token;
use crate::console::{Outcome, output};
use server::config::{is_scope, parse_moment};
use server::token::{NewToken, RANDOM_BYTES};
use std::time::SystemTime;

pub(crate) fn run(arguments: &Token) -> Outcome {
    let name = &arguments.name;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || !name.bytes().all(plain) {
        return Err(format!("{name:?} is no name of a token: a-z, A-Z, 0-9, - and _ are allowed"));
    }
    if let Some(scope) = arguments.allow.iter().find(|scope| !is_scope(scope)) {
        return Err(format!("--allow: {scope:?} is no scope: read, write, admin, or a name of a-z, 0-9, - and _"));
    }
    if let Some(until) = arguments.until.as_ref().filter(|until| parse_moment(until).is_none()) {
        return Err(format!("--until: {until:?} is no time: YYYY-MM-DD or YYYY-MM-DDTHH:MM:SSZ"));
    }
    if let Some(until) = arguments.until.as_ref().filter(|until| is_over(until)) {
        output::notice(format_args!("note: --until {until} has passed: this token is refused from the beginning"));
    }
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|error| format!("the system gives no random bytes: {error}"))?;
    let token = NewToken::new(&random);
    let allow: Vec<String> = arguments.allow.iter().map(|scope| format!("\"{scope}\"")).collect();
    let until = arguments.until.as_ref().map(|until| format!("\nuntil  = \"{until}\"")).unwrap_or_default();
    output::line(format_args!(
        "The token, which is shown this once:\n\n{}\n\nFor the config file, which needs no secret:\n\n\
         [tokens.{name}]\nsha256 = \"{}\"\nallow  = [{}]{until}",
        token.text,
        token.sha256,
        allow.join(", "),
    ))
}

fn is_over(until: &str) -> bool {
    parse_moment(until).is_some_and(|moment| moment <= SystemTime::now())
}
