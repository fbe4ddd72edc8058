//! One pass through the ammo: each request with its expected answer.

use super::error::AmmoError;
use super::request::PreparedRequest;
use super::template::Values;
use super::{Records, SkippedRecords};
use crate::answers::{AnswerLines, Expected};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Handling of a broken record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnBroken {
    /// The run ends with an error that has the record's number.
    #[default]
    Stop,
    /// The record is skipped and counted. For access logs, which contain what any client has sent.
    Skip,
}

/// A request, with its expected answer if known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    pub(crate) request: PreparedRequest,
    pub(crate) expected: Option<Expected>,
}

impl Item {
    /// Bytes that the item takes in a window.
    pub(crate) fn bytes(&self) -> usize {
        let body = self.expected.as_ref().and_then(|expected| expected.body.as_ref());
        size_of::<Item>() + self.request.bytes.len() + self.request.tag.len() + body.map_or(0, Vec::len)
    }
}

/// A pass in progress.
pub(crate) struct Pass {
    pub(crate) records: Box<dyn Records>,
    pub(crate) answers: Option<AnswerLines>,
    pub(crate) on_broken: OnBroken,
    pub(crate) counts: Arc<SkippedRecords>,
}

impl Pass {
    /// Replaces `item` by the next request. False: the pass has ended.
    pub(crate) fn next(&mut self, values: &mut Values, item: &mut Item) -> Result<bool, AmmoError> {
        loop {
            match self.records.next(values, &mut item.request) {
                Ok(true) => break,
                Ok(false) => return self.end().map(|()| false),
                Err(error) if error.ends_input() || self.on_broken == OnBroken::Stop => return Err(error),
                Err(_) => {
                    self.counts.broken.fetch_add(1, Ordering::Relaxed);
                    // A skipped record's answer is skipped too.
                    self.answer()?;
                }
            }
        }
        values.advance();
        item.expected = self.answer()?;
        match &item.expected {
            Some(expected) => self.check_pair(&item.request, expected).map(|()| true),
            None => Ok(true),
        }
    }

    fn answer(&mut self) -> Result<Option<Expected>, AmmoError> {
        let Some(answers) = &mut self.answers else { return Ok(None) };
        let answer = answers.next()?;
        let missing = || format!("{} has no answer for it: it ends after line {}", answers.name(), answers.number());
        answer.map(Some).ok_or_else(|| self.records.fault(missing()))
    }

    /// Requests and answers are paired by their order; method and target reveal where the two files diverge.
    fn check_pair(&self, request: &PreparedRequest, expected: &Expected) -> Result<(), AmmoError> {
        let (method, target) = request.method_and_target();
        let answers = self.answers.as_ref();
        match method == expected.method && target == expected.target {
            true => Ok(()),
            false => Err(answers.map_or_else(
                || self.records.fault("its answer is another request's".to_owned()),
                |answers| {
                    let (of, here) = (format!("{} {}", expected.method, expected.target), format!("{method} {target}"));
                    answers.fault(format!("the answer is one to {of:?}, but this request is {here:?}"))
                },
            )),
        }
    }

    fn end(&mut self) -> Result<(), AmmoError> {
        let Some(answers) = &mut self.answers else { return Ok(()) };
        match answers.next()? {
            None => Ok(()),
            Some(_) => Err(answers.fault("the ammo ended before this answer".to_owned())),
        }
    }
}
