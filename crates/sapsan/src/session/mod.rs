//! Sessions in a cookie: a small map that the client keeps, signed or encrypted by the application's keys.
//!
//! | subject | file |
//! |---|---|
//! | keys: where they come from, rotation | `key` |
//! | settings of an application: cookie, expiry | `settings` |
//! | cookie text to bytes and back, with the keys | `codec` |
//! | the layout of the bytes; entries of the map | `content` |
//! | the session of one request: reading, changing, what its reply sends | `data` |
//!
//! What holds everywhere: an invalid cookie (forged, damaged, too long, expired, of another format) counts as no session,
//! and is never an error. The server stores nothing, so a copy of a cookie stays valid until it expires, even after the
//! session was cleared or changed ("replay"). A session that must end at once needs a record in the database, under
//! [`SessionData::id`].
//!
//! This room imports `reply` only. It knows no application: `arguments/session.rs` gives handlers their [`crate::Session`].

mod codec;
mod content;
mod data;
mod error;
mod key;
mod random;
mod settings;
#[cfg(test)]
mod tests;

pub(crate) use codec::Codec;
pub use data::{Flash, SessionData, SessionId};
pub use error::SessionError;
pub use key::{KeyFault, Keys};
pub(crate) use settings::MISSING;
pub use settings::{Sessions, SessionsFault};
