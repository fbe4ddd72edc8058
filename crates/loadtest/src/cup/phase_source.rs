//! The requests of one phase, as the engine's source: so many as the phase's profile plans, and what is expected of each.
//!
//! Generators apply what a POST changes to the [`World`](super::world::World) when they make it. The engine reads ahead, so the count ends here: a request
//! that is never sent must not be made.

use crate::ammo::{Request, Tags};
use crate::answers::{Comparison, Expected};
use crate::source::{Described, Source, SourceError};
use std::sync::Arc;

/// A request, and the answer that is right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shot {
    pub(crate) request: Request,
    pub(crate) expected: Expected,
}

/// Makes or reads the requests of a phase. There is no end to them.
pub(crate) trait Shots: Send {
    /// Puts the next request in place of what `shot` was.
    fn next(&mut self, shot: &mut Shot) -> Result<(), String>;
}

/// The first requests of `shots`.
pub(crate) struct PhaseSource {
    shots: Box<dyn Shots>,
    comparison: Arc<Comparison>,
    tags: Tags,
    shot: Shot,
    index: u64,
    count: u64,
}

impl PhaseSource {
    /// `count` requests; what is expected of them goes to `comparison`.
    pub(crate) fn new(shots: Box<dyn Shots>, count: u64, comparison: Arc<Comparison>) -> PhaseSource {
        PhaseSource { shots, comparison, tags: Tags::default(), shot: Shot::default(), index: 0, count }
    }
}

impl Source for PhaseSource {
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
}
