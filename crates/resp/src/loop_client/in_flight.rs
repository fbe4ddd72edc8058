//! Commands that were sent, in the order of their replies.

use crate::client::{CommandError, FromReply, ServerError};
use crate::codec::ReplyView;
use reactor::Neighbourhood;
use std::collections::VecDeque;

use super::failure::Failure;

/// Receiver of one command's outcome.
pub(super) type Completion = Box<dyn FnOnce(Result<ReplyView<'_>, CommandError>, &mut Neighbourhood<'_>)>;

/// Receiver of the outcome of a command or a pipeline.
pub(super) enum Then {
    /// None: the replies are dropped.
    Nothing,
    One(Completion),
    Each(Box<dyn Gather>),
}

impl Then {
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Then::Nothing)
    }

    /// Reports that the missing replies will not arrive.
    pub(super) fn fail(self, failure: &Failure, at: &mut Neighbourhood<'_>) {
        match self {
            Then::Nothing => {}
            Then::One(completion) => completion(Err(failure.error()), at),
            Then::Each(gather) => gather.end(Some(failure), at),
        }
    }
}

/// Collects the replies of a pipeline, one by one.
pub(super) trait Gather {
    /// Takes the next reply.
    fn reply(&mut self, reply: ReplyView<'_>);
    /// All replies have arrived, or the missing ones will not.
    fn end(self: Box<Self>, failure: Option<&Failure>, at: &mut Neighbourhood<'_>);
}

/// Results of a pipeline's commands.
pub(super) struct Gathered<T, F> {
    results: Vec<Result<T, CommandError>>,
    commands: usize,
    then: F,
}

impl<T, F> Gathered<T, F> {
    pub(super) fn new(commands: usize, then: F) -> Gathered<T, F> {
        Gathered { results: Vec::new(), commands, then }
    }
}

impl<T, F> Gather for Gathered<T, F>
where
    T: FromReply,
    F: FnOnce(Result<Vec<Result<T, CommandError>>, CommandError>, &mut Neighbourhood<'_>),
{
    fn reply(&mut self, reply: ReplyView<'_>) {
        if self.results.is_empty() {
            self.results.reserve_exact(self.commands);
        }
        self.results.push(value_of(reply).and_then(|reply| T::from_reply(reply).map_err(CommandError::Conversion)));
    }

    fn end(mut self: Box<Self>, failure: Option<&Failure>, at: &mut Neighbourhood<'_>) {
        let outcome = match failure.map(|failure| (failure, failure.error())) {
            Some((_, error @ CommandError::NotSent(_))) => Err(error),
            Some((failure, _)) => {
                self.results.resize_with(self.commands, || Err(failure.error()));
                Ok(self.results)
            }
            None => Ok(self.results),
        };
        (self.then)(outcome, at);
    }
}

/// Turns an error reply into an error.
pub(super) fn value_of(reply: ReplyView<'_>) -> Result<ReplyView<'_>, CommandError> {
    match reply {
        ReplyView::Error(text) => Err(CommandError::Server(ServerError::of(text))),
        reply => Ok(reply),
    }
}

/// A command or pipeline in flight.
pub(super) struct Entry {
    pub(super) then: Then,
    /// Replies that have not arrived; at least one.
    pub(super) replies_left: usize,
    /// On the loop's clock, in nanoseconds.
    pub(super) deadline_ns: u64,
}

/// Receiver of the reply that was counted last.
pub(super) enum Taker {
    Nothing,
    One(Completion),
    /// The last reply of a pipeline.
    End(Box<dyn Gather>),
}

#[derive(Default)]
pub(super) struct InFlight {
    entries: VecDeque<Entry>,
    replies: usize,
}

impl InFlight {
    /// Number of replies that have not arrived.
    pub(super) fn len(&self) -> usize {
        self.replies
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.replies += entry.replies_left;
        self.entries.push_back(entry);
    }

    /// Counts a reply and returns its receiver. None: no command waits for one.
    #[inline]
    pub(super) fn take_reply(&mut self, reply: ReplyView<'_>) -> Option<Taker> {
        let entry = self.entries.front_mut()?;
        entry.replies_left -= 1;
        self.replies -= 1;
        if let Then::Each(gather) = &mut entry.then {
            gather.reply(reply);
        }
        if entry.replies_left > 0 {
            return Some(Taker::Nothing);
        }
        Some(match self.entries.pop_front()?.then {
            Then::Nothing => Taker::Nothing,
            Then::One(completion) => Taker::One(completion),
            Then::Each(gather) => Taker::End(gather),
        })
    }

    /// The earliest deadline; `u64::MAX` if nothing is in flight.
    pub(super) fn deadline_ns(&self) -> u64 {
        self.entries.iter().map(|entry| entry.deadline_ns).min().unwrap_or(u64::MAX)
    }

    /// All entries, in order.
    pub(super) fn take(&mut self) -> VecDeque<Entry> {
        self.replies = 0;
        std::mem::take(&mut self.entries)
    }
}
