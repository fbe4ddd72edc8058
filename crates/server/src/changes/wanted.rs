//! What a consumer of the feed asks for.

use super::place::Place;
use crate::media::NDJSON;
use docs::CollectionId;

/// How events are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Server-sent events: the HTML standard, section 9.2.
    Events,
    /// A line of JSON each.
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

/// What a consumer asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// After which place; `None`: from now on.
    pub(crate) since: Option<Place>,
    /// `None`: all.
    pub(crate) collection: Option<CollectionId>,
    pub(crate) form: Form,
}
