//! Sessions in a cookie: a small map that the client keeps, signed or encrypted by the application's keys.
//!
//! | subject | file |
//! |---|---|
//! | keys: where they come from, rotation | `key` |
//! | what an application sets: cookie, expiry | `settings` |
//! | bytes to cookie text and back, by the keys | `codec` |
//! | the layout of the bytes; entries of the map | `content` |
//! | the session of one request: reading, changing, what its reply says | `data` |
//! | the session as an argument of a handler | `argument` |
//!
//! What holds everywhere: a cookie that is not wholly right (forged, damaged, too long, expired, of another format) is no
//! session, and never an error. The server keeps nothing: so a cookie that a client has kept is right until it expires,
//! also after the session was cleared or changed ("replay"). What must end at once is kept in the database, under
//! [`SessionData::id`].

mod argument;
mod codec;
mod content;
mod data;
mod error;
mod key;
mod settings;
#[cfg(test)]
mod tests;

pub use argument::Session;
pub(crate) use codec::Codec;
pub use data::{Flash, SessionData, SessionId};
pub use error::SessionError;
pub use key::{KeyFault, Keys};
pub use settings::{Sessions, SessionsFault};
