//! The requests of one phase, as the engine's source: as many as the phase's profile plans, with their expected answers.
//!
//! Generators apply the changes of a POST to the [`World`](super::world::World) when they make it. A request that is made
//! must therefore be sent, although the engine reads ahead. So this source makes exactly as many as the phase plans.

use crate::ammo::{PreparedRequest, Tags};
use crate::answers::{Comparison, Expected};
use crate::source::{Described, RequestSource, SourceError, TagNames};
use std::sync::Arc;

/// A request and its expected answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shot {
    pub(crate) request: PreparedRequest,
    pub(crate) expected: Expected,
}

/// Makes or reads the requests of a phase, endlessly.
pub(crate) trait Shots: Send {
    /// Replaces `shot` by the next request.
    fn next(&mut self, shot: &mut Shot) -> Result<(), String>;
}

/// The first `count` requests of `shots`.
pub(crate) struct PhaseSource {
    shots: Box<dyn Shots>,
    comparison: Arc<Comparison>,
    tags: Tags,
    shot: Shot,
    index: u64,
    count: u64,
}

impl PhaseSource {
    /// `count` requests; their expected answers are added to `comparison`.
    pub(crate) fn new(shots: Box<dyn Shots>, count: u64, comparison: Arc<Comparison>) -> PhaseSource {
        PhaseSource { shots, comparison, tags: Tags::default(), shot: Shot::default(), index: 0, count }
    }
}

impl RequestSource for PhaseSource {
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Described>, SourceError> {
        if self.index == self.count {
            return Ok(None);
        }
        self.shots.next(&mut self.shot).map_err(SourceError)?;
        let (index, Shot { request, expected }) = (self.index, &mut self.shot);
        self.index += 1;
        bytes.extend_from_slice(&request.bytes);
        let described = Described {
            index,
            tag: self.tags.number(&request.tag),
            expected_status: expected.status,
            is_head: false,
            closes: request.closes,
        };
        self.comparison.expect(index, &request.bytes, std::mem::take(expected));
        Ok(Some(described))
    }
    fn tags(&self) -> Option<Arc<TagNames>> {
        Some(self.tags.names())
    }
}
