//! The request of a consumer of the feed.

use super::feed_position::FeedPosition;
use crate::replies::media::NDJSON;
use docs::CollectionId;

/// Framing of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Server-sent events: the HTML standard, section 9.2.
    Events,
    /// One line of JSON for each event.
    Lines,
}

impl Form {
    pub(crate) fn media(self) -> &'static str {
        match self {
            Form::Events => "text/event-stream",
            Form::Lines => NDJSON,
        }
    }
}

/// The request of a consumer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerRequest {
    /// The position to begin after; `None`: from now on.
    pub(crate) since: Option<FeedPosition>,
    /// `None`: all.
    pub(crate) collection: Option<CollectionId>,
    pub(crate) form: Form,
}
