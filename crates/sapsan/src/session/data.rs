//! The session of one request: its entries, and what the reply must tell the client about them.

use super::content::{self, Full, HEADER_BYTES, Kind, NAME_BYTES_MAX};
use super::error::SessionError;
use super::random::random;
use crate::reply::Buffer;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;

/// The random id of a session: 16 bytes, shown as 32 hexadecimal digits. It changes with [`SessionData::renew`] and after
/// [`SessionData::clear`]. It can serve as a key for data that the server keeps about a session, such as a list of ended
/// sessions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A message for the next page that the client requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flash {
    /// Its kind: `notice`, `error`, …
    pub kind: String,
    /// Its text, not escaped.
    pub text: String,
}

/// What the reply tells the client about the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Removed,
    Changed,
}

/// The session of one request: a map from names to JSON values, and flash messages. Names have 1 to 64 bytes; all entries
/// together are bounded by the cookie's size, about 2,900 bytes.
pub struct SessionData {
    /// Layout: see `content`. Empty if there is no session yet.
    bytes: Buffer,
    bytes_max: usize,
    /// The client sent the cookie of a valid session.
    came: bool,
    is_changed: bool,
    /// The cookie has to be sent again, even if nothing changed.
    is_due: bool,
}

impl SessionData {
    pub(super) fn fresh(bytes: Buffer, bytes_max: usize) -> SessionData {
        SessionData { bytes, bytes_max, came: false, is_changed: false, is_due: false }
    }

    /// Placeholder for a session that is not there. It has no room for entries.
    pub(crate) fn none() -> SessionData {
        SessionData::fresh(Buffer::default(), HEADER_BYTES)
    }

    pub(super) fn received(bytes: Buffer, bytes_max: usize, is_due: bool) -> SessionData {
        SessionData { bytes, bytes_max, came: true, is_changed: false, is_due }
    }

    /// The value of this name; `None` if there is none. Numbers and the like are read without allocation. It is an error if
    /// the value is not a `T`.
    #[inline]
    pub fn get<'s, T: Deserialize<'s>>(&'s self, name: &str) -> Result<Option<T>, SessionError> {
        let Some(entry) = content::find(&self.bytes, name) else { return Ok(None) };
        match serde_json::from_slice(entry.value) {
            Ok(value) => Ok(Some(value)),
            Err(cause) => Err(SessionError::Json { name: name.to_owned(), cause }),
        }
    }

    /// Whether there is a value of this name.
    pub fn contains(&self, name: &str) -> bool {
        content::find(&self.bytes, name).is_some()
    }

    /// Sets the value of a name. Setting an equal value is no change.
    pub fn set<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), SessionError> {
        self.begin()?;
        let before = content::find(&self.bytes, name).map(|entry| entry.range);
        // The old entry is removed after the new one is written, so its bytes do not count.
        let bytes_max = self.bytes_max + before.as_ref().map_or(0, ExactSizeIterator::len);
        let written = self
            .append(bytes_max, Kind::Value, name, |room| serde_json::to_writer(room, value).map_err(Refused::Json))?;
        match before {
            Some(before) if self.bytes[before.clone()] == self.bytes[written.clone()] => {
                self.bytes.bytes_mut().truncate(written.start);
            }
            Some(before) => {
                self.bytes.bytes_mut().drain(before);
                self.is_changed = true;
            }
            None => self.is_changed = true,
        }
        Ok(())
    }

    /// Removes the value of a name. Returns whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(range) = content::find(&self.bytes, name).map(|entry| entry.range) else { return false };
        self.bytes.bytes_mut().drain(range);
        self.is_changed = true;
        true
    }

    /// Ends the session: removes all entries and flash messages; the reply makes the client delete its cookie. Setting a
    /// value afterwards begins a new session. A copy of the old cookie stays valid until it expires.
    pub fn clear(&mut self) {
        self.is_changed |= !self.bytes.is_empty();
        self.bytes.bytes_mut().clear();
    }

    /// Gives the session a new id and a new start time, and keeps its entries. Call it when the user's rights change, above
    /// all at login. Form tokens that were made before become invalid.
    pub fn renew(&mut self) -> Result<(), SessionError> {
        if !self.bytes.is_empty() {
            let mut id = [0; 16];
            random(&mut id)?;
            content::set_id(self.bytes.bytes_mut(), id);
            content::set_begun(self.bytes.bytes_mut(), 0);
            self.is_changed = true;
        }
        Ok(())
    }

    /// The session's id; `None` if no session has begun, or after it was cleared.
    pub fn id(&self) -> Option<SessionId> {
        content::id(&self.bytes).map(SessionId)
    }

    /// Whether there is neither a value nor a flash message.
    pub fn is_empty(&self) -> bool {
        content::entries(&self.bytes).next().is_none()
    }

    /// The names of all values.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let values = content::entries(&self.bytes).filter(|entry| entry.kind == Kind::Value);
        values.filter_map(|entry| std::str::from_utf8(entry.name).ok())
    }

    /// Adds a flash message, for the next page.
    pub fn flash(&mut self, kind: &str, text: &str) -> Result<(), SessionError> {
        self.begin()?;
        self.append(self.bytes_max, Kind::Flash, kind, |room| {
            room.write_all(text.as_bytes()).map_err(|_| Refused::Full)
        })?;
        self.is_changed = true;
        Ok(())
    }

    /// Removes all flash messages and returns them, in their order: they are shown once.
    pub fn take_flashes(&mut self) -> Vec<Flash> {
        let taken = self.flashes().map(|entry| flash_of(&entry)).collect();
        loop {
            let Some(range) = self.flashes().next().map(|entry| entry.range) else { return taken };
            self.bytes.bytes_mut().drain(range);
            self.is_changed = true;
        }
    }

    /// Removes the first flash message of a kind and returns its text.
    #[inline]
    pub fn take_flash(&mut self, kind: &str) -> Option<String> {
        let found = self.flashes().find(|entry| entry.name == kind.as_bytes())?;
        let (text, range) = (flash_of(&found).text, found.range);
        self.bytes.bytes_mut().drain(range);
        self.is_changed = true;
        Some(text)
    }

    fn flashes(&self) -> impl Iterator<Item = content::Entry<'_>> {
        content::entries(&self.bytes).filter(|entry| entry.kind == Kind::Flash)
    }

    /// The id for a form token. Begins a session if there is none, and marks it to be kept even without entries.
    pub(super) fn id_for_token(&mut self) -> Result<SessionId, SessionError> {
        self.begin()?;
        if content::set_token_flag(self.bytes.bytes_mut()) {
            self.is_changed = true;
        }
        self.id().ok_or(SessionError::NoRandomBytes)
    }

    /// Begins a session if there is none. This counts as a change only once something is set.
    fn begin(&mut self) -> Result<(), SessionError> {
        if self.bytes.is_empty() {
            let mut id = [0; 16];
            random(&mut id)?;
            content::put_header(self.bytes.bytes_mut(), id);
        }
        Ok(())
    }

    fn append(
        &mut self,
        bytes_max: usize,
        kind: Kind,
        name: &str,
        write: impl FnOnce(&mut content::Room<'_>) -> Result<(), Refused>,
    ) -> Result<std::ops::Range<usize>, SessionError> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(SessionError::Name(name.to_owned()));
        }
        content::append(self.bytes.bytes_mut(), bytes_max, kind, name, write).map_err(|refused| match refused {
            Refused::Json(cause) => SessionError::Json { name: name.to_owned(), cause },
            Refused::Full => {
                let own = content::find(&self.bytes, name).filter(|_| kind == Kind::Value);
                let bytes_used = self.bytes.len() - HEADER_BYTES - own.map_or(0, |entry| entry.range.len());
                SessionError::TooLarge { name: name.to_owned(), bytes_max: self.bytes_max - HEADER_BYTES, bytes_used }
            }
        })
    }

    /// Whether the reply has to mention the session.
    #[inline]
    pub(crate) fn is_to_be_sent(&self) -> bool {
        self.is_changed || self.is_due
    }

    pub(super) fn change(&self) -> Change {
        let is_void = self.is_empty() && !content::has_token_flag(&self.bytes);
        match (self.is_changed, is_void) {
            (true, false) => Change::Changed,
            (true, true) if self.came => Change::Removed,
            (false, false) if self.is_due => Change::Changed,
            _ => Change::Nothing,
        }
    }

    /// The session's bytes for the cookie, with the times of this reply.
    pub(super) fn stamped(&self, now: u32) -> Vec<u8> {
        // With room for the signature or tag that the codec adds.
        let mut bytes = Vec::with_capacity(self.bytes.len() + 64);
        bytes.extend_from_slice(&self.bytes);
        if content::begun(&bytes) == 0 {
            content::set_begun(&mut bytes, now);
        }
        content::set_renewed(&mut bytes, now);
        bytes
    }
}

/// Shows only names: values may be secret.
impl fmt::Debug for SessionData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        f.debug_struct("SessionData").field("id", &self.id()).field("names", &names).finish_non_exhaustive()
    }
}

/// Why an entry could not be appended.
enum Refused {
    Full,
    Json(serde_json::Error),
}

impl From<Full> for Refused {
    fn from(Full: Full) -> Refused {
        Refused::Full
    }
}

fn flash_of(entry: &content::Entry<'_>) -> Flash {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Flash { kind: text(entry.name), text: text(entry.value) }
}
