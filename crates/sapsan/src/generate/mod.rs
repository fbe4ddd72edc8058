//! Seeded test data: the same seed gives the same bytes on every machine.

mod calendar;
mod forum_users;
mod forum_words;
mod names;
mod travels;

pub(crate) use forum_users::ForumUsers;
pub(crate) use travels::{Counts, Travels};
