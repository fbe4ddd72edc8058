//! `--expect-body` and `--expect-body-part`: one expectation for the bodies of all right replies, without a file of answers.

use super::compare;
use super::difference::{SHOWN_BYTES_MAX, Shown, cut};
use crate::source::{Observed, Observer, ReplyVerdict};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Number of unexpected bodies that are kept and shown.
const KEPT_MAX: usize = 10;

/// What each body must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyExpectation {
    /// The whole body, compared as answers are: by bytes, or as JSON.
    pub whole: Option<Vec<u8>>,
    /// Texts that the body contains.
    pub parts: Vec<Vec<u8>>,
}

impl BodyExpectation {
    /// Why a body is wrong. `None`: it is right.
    fn fault(&self, body: &[u8]) -> Option<String> {
        let missing = self.parts.iter().find(|part| memchr::memmem::find(body, part).is_none());
        let missing = missing.map(|part| format!("the body lacks {:?}", Shown(part).to_string()));
        missing.or_else(|| self.whole.as_ref().and_then(|whole| compare::difference(whole, body)))
    }
}

/// Bodies of a run that were not as expected.
#[derive(Clone, Debug, Default)]
pub struct UnexpectedBodies {
    /// The first ones: why, status, body (cut to [`SHOWN_BYTES_MAX`]).
    pub kept: Vec<(String, u16, Vec<u8>)>,
    /// Number of wrong bodies.
    pub count: u64,
    /// Bodies that were checked.
    pub checked: u64,
    /// Bodies that are longer than the engine keeps, so that they were not checked.
    pub unchecked: u64,
}

impl fmt::Display for UnexpectedBodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (why, status, body) in &self.kept {
            writeln!(f, "{why}\n  received  {status} {}", Shown(body))?;
        }
        write!(f, "{} of {} bodies are not as expected", self.count, self.checked)?;
        if self.count > self.kept.len() as u64 {
            write!(f, "; the first {} are shown", self.kept.len())?;
        }
        match self.unchecked {
            0 => Ok(()),
            count => write!(f, "; {count} were too long to be checked and count by their status"),
        }
    }
}

/// The check of one run's bodies.
#[derive(Clone, Debug, Default)]
pub struct BodyCheck {
    expectation: Arc<BodyExpectation>,
    found: Arc<Mutex<UnexpectedBodies>>,
}

impl BodyCheck {
    /// A check of this expectation. Clones share what they find.
    pub fn new(expectation: BodyExpectation) -> BodyCheck {
        BodyCheck { expectation: Arc::new(expectation), found: Arc::default() }
    }

    /// What was found so far.
    pub fn found(&self) -> UnexpectedBodies {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, UnexpectedBodies> {
        // Consistent between calls, so a panic of another thread does no harm.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for BodyCheck {
    fn observe(&mut self, observed: &Observed<'_>) -> ReplyVerdict {
        let Some(reply) = &observed.reply else { return ReplyVerdict::Unknown };
        let fault = self.expectation.fault(reply.body);
        let mut found = self.lock();
        if reply.is_cut && fault.is_some() {
            found.unchecked += 1;
            return ReplyVerdict::Unknown;
        }
        found.checked += 1;
        // A right body with a wrong status is wrong: the status alone decides.
        let Some(why) = fault else { return ReplyVerdict::Unknown };
        found.count += 1;
        if found.kept.len() < KEPT_MAX {
            found.kept.push((why, reply.status, cut(reply.body)));
        }
        ReplyVerdict::Wrong
    }
}

const _: () = assert!(KEPT_MAX * SHOWN_BYTES_MAX < 1 << 20);

#[cfg(test)]
mod checking {
    use super::{BodyCheck, BodyExpectation, KEPT_MAX};
    use crate::source::{Observed, ObservedReply, Observer as _, ReplyVerdict};

    fn verdict(check: &mut BodyCheck, body: &str, is_cut: bool) -> ReplyVerdict {
        let reply = Some(ObservedReply { status: 200, body: body.as_bytes(), is_cut });
        check.observe(&Observed { index: 0, tag: 0, reply })
    }

    #[test]
    fn a_body_is_wrong_if_it_differs_or_lacks_a_part_and_otherwise_the_status_decides() {
        let whole = BodyExpectation { whole: Some(br#"{"a": 1}"#.to_vec()), ..BodyExpectation::default() };
        let mut check = BodyCheck::new(whole);
        assert_eq!(verdict(&mut check, r#"{"a":1.0}"#, false), ReplyVerdict::Unknown);
        assert_eq!(verdict(&mut check, r#"{"a":2}"#, false), ReplyVerdict::Wrong);
        let parts = BodyExpectation { whole: None, parts: vec![b"\"ok\"".to_vec(), b"b".to_vec()] };
        let mut parts = BodyCheck::new(parts);
        assert_eq!(verdict(&mut parts, r#"b"ok""#, false), ReplyVerdict::Unknown);
        assert_eq!(verdict(&mut parts, "\"ok\"\u{1b}", false), ReplyVerdict::Wrong);
        assert_eq!(parts.observe(&Observed { index: 0, tag: 0, reply: None }), ReplyVerdict::Unknown);
        let text = parts.found().to_string();
        assert!(text.contains("the body lacks \"b\"\n  received  200 \"ok\"\\u{1b}"), "{text}");
        assert!(
            text.ends_with("1 of 2 bodies are not as expected") && check.found().to_string().contains("differ at $.a")
        );
    }

    #[test]
    fn a_body_that_was_cut_is_wrong_for_certain_only_if_it_is_whole() {
        let mut check = BodyCheck::new(BodyExpectation { whole: None, parts: vec![b"b".to_vec()] });
        assert_eq!(verdict(&mut check, "abc", true), ReplyVerdict::Unknown);
        assert_eq!(verdict(&mut check, "acc", true), ReplyVerdict::Unknown);
        let found = check.found();
        assert_eq!((found.checked, found.unchecked, found.count), (1, 1, 0));
        (0..50).for_each(|_| assert_eq!(verdict(&mut check, "x", false), ReplyVerdict::Wrong));
        assert_eq!((check.found().kept.len(), check.found().count), (KEPT_MAX, 50));
        assert!(check.found().to_string().contains("the first 10 are shown; 1 were too long"));
    }
}
