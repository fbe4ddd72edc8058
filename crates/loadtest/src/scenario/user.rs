//! A simulated user: where it is in the scenario, the values that it took, and when it goes on.

use super::{Scenario, Step};
use crate::ammo::Values;
use crate::source::Described;
use std::fmt::Write as _;
use std::time::Duration;

/// One user. Users of a loop share the source of random values.
#[derive(Debug, Default)]
pub(crate) struct User {
    /// Index of the next step, or of the one whose reply is awaited.
    step: usize,
    /// Number of its current pass; 0: it has not begun.
    pass: u64,
    /// Values by index. They stay from pass to pass until they are taken again; no step reads one before.
    taken: Vec<String>,
}

/// A reply, as a user sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserReply<'a> {
    pub(crate) is_right: bool,
    pub(crate) status: u16,
    pub(crate) head: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// What a reply means for its user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The user goes on after this time.
    GoesOn(Duration),
    /// It was the last step: a pass is complete, and the next one begins after this time.
    Completes(Duration),
    /// The pass is given up. The text says why, unless the status alone does.
    GivesUp(Option<String>),
}

impl User {
    /// Appends the request of the next step. `next_pass` is the number of the pass if it begins one.
    pub(crate) fn append_request(
        &mut self,
        scenario: &Scenario,
        next_pass: impl FnOnce() -> u64,
        values: &mut Values,
        scratch: &mut String,
        output: &mut Vec<u8>,
    ) -> Described {
        if self.step == 0 {
            self.pass = next_pass();
            self.taken.resize_with(scenario.taken.len(), String::new);
        }
        values.set_number(self.pass);
        let step = &scenario.steps[self.step];
        step.append(&self.taken, values, scratch, output);
        step.described
    }

    /// The reply to the request has arrived. `draw` gives a number from 0 to 1.
    pub(crate) fn replied(
        &mut self,
        scenario: &Scenario,
        reply: &UserReply<'_>,
        draw: impl FnOnce() -> f64,
    ) -> Outcome {
        let step = &scenario.steps[self.step];
        if !reply.is_right {
            self.begin_again();
            return Outcome::GivesUp(None);
        }
        for (index, take) in &step.takes {
            if let Err(reason) = take.take(reply.head, reply.body, &mut self.taken[*index]) {
                let (name, value, status) = (&step.name, &scenario.taken[*index], reply.status);
                let text = format!("step {name:?}, {value} = \"{take}\": {reason} (status {status})");
                self.begin_again();
                return Outcome::GivesUp(Some(text));
            }
        }
        let (from, to) = step.think;
        let think = if from == to { from } else { from + (to - from).mul_f64(draw()) };
        self.step += 1;
        if self.step < scenario.steps.len() {
            return Outcome::GoesOn(think);
        }
        self.begin_again();
        Outcome::Completes(think)
    }

    /// Begins the scenario again. True: a pass was under way.
    pub(crate) fn begin_again(&mut self) -> bool {
        std::mem::take(&mut self.step) > 0
    }
}

impl Step {
    /// Appends the request: the body first decides its length.
    fn append(&self, taken: &[String], values: &mut Values, scratch: &mut String, output: &mut Vec<u8>) {
        scratch.clear();
        if let Some(body) = &self.body {
            body.append(taken, values, scratch);
        }
        let body_bytes = scratch.len();
        let head_at = scratch.len();
        // Writing into a String does not fail.
        let _ = write!(scratch, "{} ", self.method);
        self.path.append(taken, values, scratch);
        scratch.push_str(" HTTP/1.1\r\n");
        for (name, value) in &self.headers {
            let _ = write!(scratch, "{name}: ");
            value.append(taken, values, scratch);
            scratch.push_str("\r\n");
        }
        if self.body.is_some() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH") {
            let _ = write!(scratch, "Content-Length: {body_bytes}\r\n");
        }
        scratch.push_str("\r\n");
        output.extend_from_slice(&scratch.as_bytes()[head_at..]);
        output.extend_from_slice(&scratch.as_bytes()[..body_bytes]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ammo::Defaults;

    const FILE: &str = r#"
        [[step]]
        name = "sign in"
        path = "/sessions"
        json = '{"user": {seq}}'
        take = { token = "json:/token" }
        think = "1s..3s"
        [[step]]
        path = "/users/{token}"
        headers = { Authorization = "Bearer {token}" }
    "#;

    fn scenario() -> Scenario {
        let defaults = Defaults::new("host", vec![("X-Run".to_owned(), "1".to_owned())]);
        Scenario::parse("file", FILE, &defaults, 1).unwrap()
    }

    fn request(user: &mut User, scenario: &Scenario, pass: u64) -> String {
        let (mut output, mut scratch) = (Vec::new(), String::new());
        user.append_request(scenario, || pass, &mut Values::new(1), &mut scratch, &mut output);
        String::from_utf8(output).unwrap()
    }

    fn replied(user: &mut User, scenario: &Scenario, is_right: bool, body: &str) -> Outcome {
        let reply = UserReply { is_right, status: 200, head: b"", body: body.as_bytes() };
        user.replied(scenario, &reply, || 0.5)
    }

    #[test]
    fn a_user_takes_the_steps_with_the_values_of_earlier_replies() {
        let (scenario, mut user) = (scenario(), User::default());
        assert_eq!(
            request(&mut user, &scenario, 5),
            "POST /sessions HTTP/1.1\r\nHost: host\r\nX-Run: 1\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"user\": 5}"
        );
        assert_eq!(replied(&mut user, &scenario, true, r#"{"token":"a b"}"#), Outcome::GoesOn(Duration::from_secs(2)));
        assert_eq!(
            request(&mut user, &scenario, 6),
            "GET /users/a%20b HTTP/1.1\r\nHost: host\r\nAuthorization: Bearer a b\r\nX-Run: 1\r\n\r\n"
        );
        assert_eq!(replied(&mut user, &scenario, true, ""), Outcome::Completes(Duration::ZERO));
        assert!(request(&mut user, &scenario, 6).ends_with("{\"user\": 6}"));
    }

    #[test]
    fn a_wrong_reply_or_a_missing_value_begins_the_scenario_again() {
        let (scenario, mut user) = (scenario(), User::default());
        request(&mut user, &scenario, 1);
        assert_eq!(replied(&mut user, &scenario, false, "{}"), Outcome::GivesUp(None));
        let Outcome::GivesUp(Some(why)) = replied(&mut user, &scenario, true, "{}") else { panic!("it goes on") };
        assert_eq!(why, "step \"sign in\", token = \"json:/token\": the body has no such value (status 200)");
        replied(&mut user, &scenario, true, r#"{"token":1}"#);
        assert!(request(&mut user, &scenario, 1).starts_with("GET /users/1 "));
        assert!(user.begin_again() && !user.begin_again());
        assert!(request(&mut user, &scenario, 2).starts_with("POST /sessions "));
    }
}
