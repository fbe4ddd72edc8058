//! Scenarios: steps that a simulated user takes one after another, with values from earlier replies and with think time.
//!
//! ```toml
//! [[step]]
//! name = "sign in"                       # the tag of its requests; without one, method and shape of the path
//! method = "POST"                        # default: GET, or POST with a body
//! path = "/sessions"
//! headers = { X-Client = "load" }
//! json = '{"user": "{choice:ann|bob}"}'  # or body = "any text"
//! expect_status = 201                    # default: any that the run expects
//! take = { token = "json:/token", id = "header:X-Id", next = 'regex:href="([^"]*)"' }
//! think = "500ms..2s"                    # after the reply; one time, or a range from which it is drawn
//! ```
//!
//! Path, values of header fields and bodies are templates: `{token}` is a value that an earlier step took, the other placeholders
//! are those of ammo (`ammo/template.rs`), with `{seq}` as the number of the pass. A value is inserted so that it cannot break the
//! request: percent-encoded in a path where it must be, escaped in `json`, without line breaks in a header field.
//!
//! A step fails if its reply is not as expected, or if a value to take is not in it, which counts as a wrong answer. The user then
//! begins again with the first step. The whole file is checked before the load; an error names the line.

mod file;
mod take;
mod text;
mod user;

pub use file::ScenarioError;

pub(crate) use user::{Outcome, User, UserReply};

use crate::ammo::{Defaults, Tags};
use crate::source::{Described, RequestSource, SourceError, TagNames};
use std::sync::Arc;
use std::time::Duration;
use take::Take;
use text::{Place, Text};

/// Largest number of steps.
pub const STEPS_MAX: usize = 100;
/// Largest number of values that the steps of a scenario take.
pub const TAKEN_MAX: usize = 100;

/// A scenario that is ready to run.
#[derive(Debug)]
pub struct Scenario {
    steps: Vec<Step>,
    /// Names of the values that steps take, by index.
    taken: Vec<String>,
    /// Number of each step's tag.
    tags: Tags,
    seed: u64,
}

/// One step.
#[derive(Debug)]
struct Step {
    name: String,
    method: String,
    path: Text,
    /// Header fields but `Content-Length`, as (name, value).
    headers: Vec<(String, Text)>,
    body: Option<Text>,
    described: Described,
    /// Values to take from the reply, each with its index.
    takes: Vec<(usize, Take)>,
    think: (Duration, Duration),
}

impl Scenario {
    /// Reads a scenario. `name` is the file's name in errors; `seed` decides random values.
    pub fn parse(name: &str, text: &str, defaults: &Defaults, seed: u64) -> Result<Scenario, ScenarioError> {
        file::parse(name, text, defaults, seed)
    }

    /// The seed of one loop: each has its own random values.
    pub(crate) fn seed_of(&self, loop_index: usize) -> u64 {
        self.seed.wrapping_add(loop_index as u64)
    }
}

/// The source of a load of users: it has only the names of the steps, because each user makes its requests itself.
#[derive(Debug)]
pub struct StepNames(Arc<TagNames>);

impl StepNames {
    /// The names of this scenario's steps.
    pub fn of(scenario: &Scenario) -> StepNames {
        StepNames(scenario.tags.names())
    }
}

impl RequestSource for StepNames {
    fn next(&mut self, _bytes: &mut Vec<u8>) -> Result<Option<Described>, SourceError> {
        Ok(None)
    }

    fn tags(&self) -> Option<Arc<TagNames>> {
        Some(Arc::clone(&self.0))
    }
}
