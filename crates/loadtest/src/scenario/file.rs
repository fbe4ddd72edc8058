//! Reading a scenario's file: TOML, checked as a whole before the load.

use super::text::is_name;
use super::{Place, STEPS_MAX, Scenario, Step, TAKEN_MAX, Take, Text};
use crate::ammo::{Defaults, Draft, PreparedRequest, Tags, append_shape};
use crate::duration;
use crate::source::Described;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use toml::Spanned;

/// An error in a scenario's file. Its text names the file and the line, and says what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError(String);

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    step: Vec<Spanned<StepText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepText {
    name: Option<String>,
    method: Option<String>,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    json: Option<String>,
    expect_status: Option<u16>,
    #[serde(default)]
    take: BTreeMap<String, String>,
    think: Option<String>,
}

pub(super) fn parse(name: &str, text: &str, defaults: &Defaults, seed: u64) -> Result<Scenario, ScenarioError> {
    let at = |position: usize, reason: String| {
        let line = text.bytes().take(position).filter(|byte| *byte == b'\n').count() + 1;
        ScenarioError(format!("{name}, line {line}: {reason}"))
    };
    let file: File = toml::from_str(text)
        .map_err(|error| at(error.span().map_or(0, |span| span.start), error.message().replace('\n', " ")))?;
    if file.step.is_empty() || file.step.len() > STEPS_MAX {
        return Err(at(0, format!("a scenario has 1 to {STEPS_MAX} steps, each begun by [[step]]")));
    }
    let mut scenario = Scenario { steps: Vec::new(), taken: Vec::new(), tags: Tags::default(), seed };
    for step in file.step {
        let position = step.span().start;
        let step = step.into_inner();
        let made = add_step(&mut scenario, step, defaults);
        made.map_err(|reason| at(position, format!("step {}: {reason}", scenario.steps.len() + 1)))?;
    }
    Ok(scenario)
}

fn add_step(scenario: &mut Scenario, step: StepText, defaults: &Defaults) -> Result<(), String> {
    if step.body.is_some() && step.json.is_some() {
        return Err("body and json are both given: a request has one body".to_owned());
    }
    let is_json = step.json.is_some();
    let place = if is_json { Place::Json } else { Place::Body };
    let taken = &scenario.taken;
    let body = step.body.or(step.json).map(|body| Text::parse(&body, place, taken)).transpose()?;
    let method = step.method.unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.to_owned());
    let path = Text::parse(&step.path, Place::Path, taken).map_err(|reason| format!("path: {reason}"))?;
    let headers = headers(step.headers, is_json, defaults, taken)?;
    let example = example(&method, &path, &headers)?;
    let expected_status = match step.expect_status {
        Some(status) if !(200..=599).contains(&status) => {
            return Err(format!("expect_status {status} is not between 200 and 599"));
        }
        status => status.unwrap_or(0),
    };
    let think = step.think.as_deref().map_or(Ok((Duration::ZERO, Duration::ZERO)), think)?;
    let name = step.name.unwrap_or_else(|| shape(&method, &step.path));
    let takes = takes(step.take, &mut scenario.taken)?;
    let tag = scenario.tags.number(&name);
    let described = Described { index: 0, tag, expected_status, is_head: method == "HEAD", closes: example.closes };
    scenario.steps.push(Step { name, method, path, headers, body, described, takes, think });
    Ok(())
}

/// Method and shape of a path, as ammo without tags has it.
fn shape(method: &str, path: &str) -> String {
    let mut name = String::new();
    append_shape(method, path, &mut name);
    name
}

/// The header fields of a step's request, without Content-Length: `Host`, the step's own fields, and the fields of the command line
/// that the step does not name.
fn headers(
    own: BTreeMap<String, String>,
    is_json: bool,
    defaults: &Defaults,
    taken: &[String],
) -> Result<Vec<(String, Text)>, String> {
    let names = |name: &str| own.keys().any(|own| own.eq_ignore_ascii_case(name));
    if let Some(framing) = own.keys().find(|name| is_framing(name)) {
        return Err(format!("headers: {framing} is made of the body: leave it out"));
    }
    let host = (!names("host")).then(|| ("Host".to_owned(), defaults.host.clone()));
    let body_type =
        (is_json && !names("content-type")).then(|| ("Content-Type".to_owned(), "application/json".to_owned()));
    let given = defaults.headers.iter().filter(|(name, _)| !names(name) && !name.eq_ignore_ascii_case("host"));
    let all = host.into_iter().chain(own.clone()).chain(given.cloned()).chain(body_type);
    all.map(|(name, value)| {
        let value = Text::parse(&value, Place::Header, taken).map_err(|reason| format!("headers, {name}: {reason}"))?;
        Ok((name, value))
    })
    .collect()
}

fn is_framing(name: &str) -> bool {
    ["content-length", "transfer-encoding"].iter().any(|framing| name.eq_ignore_ascii_case(framing))
}

/// Encodes a request of the step with example values. The error says what of the step cannot be sent.
fn example(method: &str, path: &Text, headers: &[(String, Text)]) -> Result<PreparedRequest, String> {
    let headers = headers.iter().map(|(name, value)| (name.clone(), value.example())).collect();
    let draft = Draft { headers, ..Draft::of_url(method, &path.example()) };
    if draft.host.is_some() {
        return Err(
            "path: write a path, which begins with /; connections go to the address of the command line".to_owned()
        );
    }
    let mut request = PreparedRequest::default();
    draft.encode(&Defaults::default(), &mut request)?;
    Ok(request)
}

/// Parses the values that a step takes from its reply, and adds their names to `taken`, the names of earlier steps.
fn takes(texts: BTreeMap<String, String>, taken: &mut Vec<String>) -> Result<Vec<(usize, Take)>, String> {
    let mut takes = Vec::new();
    for (name, text) in texts {
        if !is_name(&name) {
            return Err(format!(
                "take: {name:?} is no name of a value: letters, digits and _, beginning with a letter"
            ));
        }
        let take = Take::parse(&text).map_err(|reason| format!("take, {name}: {reason}"))?;
        let index = taken.iter().position(|known| *known == name).unwrap_or(taken.len());
        if index == taken.len() {
            taken.push(name);
        }
        takes.push((index, take));
    }
    if taken.len() > TAKEN_MAX {
        return Err(format!("take: a scenario takes at most {TAKEN_MAX} values"));
    }
    Ok(takes)
}

/// A time, or a range of times.
fn think(text: &str) -> Result<(Duration, Duration), String> {
    let one = |text: &str| duration::parse(text).map_err(|reason| format!("think: {reason}"));
    let (from, to) = match text.split_once("..") {
        Some((from, to)) => (one(from)?, one(to)?),
        None => (one(text)?, one(text)?),
    };
    if from > to { Err(format!("think: {text:?}: the first time is longer than the second")) } else { Ok((from, to)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<Scenario, String> {
        Scenario::parse("file", text, &Defaults::new("host", Vec::new()), 1).map_err(|error| error.to_string())
    }

    #[test]
    fn names_methods_and_times_have_defaults() {
        let scenario =
            parsed("[[step]]\npath = \"/users/1\"\n[[step]]\npath = \"/a\"\nbody = \"x\"\nthink = \"1s\"\n").unwrap();
        let [first, second] = scenario.steps.as_slice() else { panic!("{scenario:?}") };
        assert_eq!(
            (first.name.as_str(), first.method.as_str(), first.think.1),
            ("GET /users/{int}", "GET", Duration::ZERO)
        );
        assert_eq!((second.name.as_str(), second.think.0), ("POST /a", Duration::from_secs(1)));
        assert_eq!((first.described.tag, second.described.tag), (0, 1));
    }

    #[track_caller]
    fn check_fault(text: &str, line: usize, part: &str) {
        let error = parsed(text).unwrap_err();
        assert!(error.starts_with(&format!("file, line {line}: ")) && error.contains(part), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn a_fault_is_an_error_with_its_line_and_what_is_allowed() {
        check_fault("", 1, "each begun by [[step]]");
        check_fault("[[step]]\npath = \n", 2, "");
        check_fault("[[step]]\npath = \"/\"\n[[step]]\nurl = \"/\"\n", 4, "unknown field `url`");
        check_fault("[[step]]\nmethod = \"GET\"\n", 1, "missing field `path`");
        let step = |more: &str| format!("[[step]]\npath = \"/\"\n\n[[step]]\npath = \"/\"\n{more}\n");
        for (more, part) in [
            ("body = \"{token}\"", "step 2: \"{token}\": no earlier step takes this value"),
            ("headers = { A = \"{token}\" }", "headers, A: \"{token}\": no earlier step"),
            ("headers = { \"a b\" = \"c\" }", "no name of a header field"),
            ("headers = { Content-Length = \"5\" }", "made of the body"),
            ("method = \"G T\"", "no method"),
            ("body = \"a\"\njson = \"b\"", "body and json are both given"),
            ("take = { token = \"/token\" }", "take, token: \"/token\": write json:/POINTER"),
            ("take = { \"a-b\" = \"json:/a\" }", "letters, digits and _"),
            ("expect_status = 20", "not between 200 and 599"),
            ("think = \"3\"", "think: `3` has no unit: write 3s"),
            ("think = \"3s..1s\"", "the first time is longer than the second"),
        ] {
            check_fault(&step(more), 4, part);
        }
        check_fault("[[step]]\npath = \"users\"\n", 1, "begins with /");
        check_fault("[[step]]\npath = \"http://a/b\"\n", 1, "write a path");
        check_fault(
            "[[step]]\npath = \"/{token}\"\ntake = { token = \"json:/a\" }\n",
            1,
            "no earlier step takes this value",
        );
        check_fault(&"[[step]]\npath = \"/\"\n".repeat(STEPS_MAX + 1), 1, "1 to 100 steps");
    }

    proptest! {
        #[test]
        fn any_text_is_a_scenario_or_an_error(text in r#"(\[\[step\]\]\n(path|body|json|think|method) = "[ -~]{0,9}"\n){0,3}.{0,20}"#) {
            let _ = parsed(&text);
        }
    }
}
