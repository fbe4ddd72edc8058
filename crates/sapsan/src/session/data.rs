//! The session of one request: its entries, and what the reply has to say about them.

use super::codec;
use super::content::{self, Full, HEADER_BYTES, Kind, NAME_BYTES_MAX};
use super::error::SessionError;
use crate::buffer::Buffer;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Write;

/// The random name of a session: 16 bytes, shown as 32 hexadecimal digits. It changes with [`SessionData::renew`] and after
/// [`SessionData::clear`]. Key for what the server keeps of a session, such as a list of those that have ended.
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

/// A message for the next page that the client sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flash {
    /// What it is: `notice`, `error`, …
    pub kind: String,
    /// Its text, not escaped.
    pub text: String,
}

/// What the reply says about the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Removed,
    Changed,
}

/// The session of one request: a map from names to JSON values, and flash messages. Names have 1 to 64 bytes; all entries
/// together are bounded by what a cookie carries, about 2,900 bytes.
pub struct SessionData {
    /// As `content` draws it. Empty: there is no session yet.
    bytes: Buffer,
    bytes_max: usize,
    /// The client has a cookie with a session that is alive.
    came: bool,
    is_changed: bool,
    /// The cookie is to be sent again, though nothing changed.
    is_due: bool,
}

impl SessionData {
    pub(super) fn fresh(bytes: Buffer, bytes_max: usize) -> SessionData {
        SessionData { bytes, bytes_max, came: false, is_changed: false, is_due: false }
    }

    /// What stands in the place of a session that is not there: takes nothing.
    pub(super) fn none() -> SessionData {
        SessionData::fresh(Buffer::default(), HEADER_BYTES)
    }

    pub(super) fn received(bytes: Buffer, bytes_max: usize, is_due: bool) -> SessionData {
        SessionData { bytes, bytes_max, came: true, is_changed: false, is_due }
    }

    /// The value under a name; `None` where there is none. Numbers and the like are read without allocation. An error where
    /// the value is not a `T`.
    #[inline]
    pub fn get<'s, T: Deserialize<'s>>(&'s self, name: &str) -> Result<Option<T>, SessionError> {
        let Some(entry) = content::find(&self.bytes, name) else { return Ok(None) };
        match serde_json::from_slice(entry.value) {
            Ok(value) => Ok(Some(value)),
            Err(cause) => Err(SessionError::Json { name: name.to_owned(), cause }),
        }
    }

    /// Whether there is a value under a name.
    pub fn contains(&self, name: &str) -> bool {
        content::find(&self.bytes, name).is_some()
    }

    /// Sets the value under a name. The same value again is no change.
    pub fn set<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), SessionError> {
        self.begin()?;
        let before = content::find(&self.bytes, name).map(|entry| entry.range);
        // The old entry goes when the new one stands: its bytes count no more.
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

    /// Removes the value under a name; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let Some(range) = content::find(&self.bytes, name).map(|entry| entry.range) else { return false };
        self.bytes.bytes_mut().drain(range);
        self.is_changed = true;
        true
    }

    /// Ends the session: all entries and flash messages go, and the client is told to delete its cookie. What is set
    /// afterwards begins a new one. A copy of the cookie that someone kept stays right until it expires.
    pub fn clear(&mut self) {
        self.is_changed |= !self.bytes.is_empty();
        self.bytes.bytes_mut().clear();
    }

    /// Gives the session a new id and a new beginning, and keeps its entries. To be called where the user's rights change, at
    /// login above all: form tokens that were given out before count no more.
    pub fn renew(&mut self) -> Result<(), SessionError> {
        if !self.bytes.is_empty() {
            let mut id = [0; 16];
            codec::random(&mut id)?;
            content::set_id(self.bytes.bytes_mut(), id);
            content::set_begun(self.bytes.bytes_mut(), 0);
            self.is_changed = true;
        }
        Ok(())
    }

    /// The session's id; `None` where nothing was set yet.
    pub fn id(&self) -> Option<SessionId> {
        content::id(&self.bytes).map(SessionId)
    }

    /// Whether there is no value and no flash message.
    pub fn is_empty(&self) -> bool {
        content::entries(&self.bytes).next().is_none()
    }

    /// The names of all values.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let values = content::entries(&self.bytes).filter(|entry| entry.kind == Kind::Value);
        values.filter_map(|entry| std::str::from_utf8(entry.name).ok())
    }

    /// Adds a message for the next page.
    pub fn flash(&mut self, kind: &str, text: &str) -> Result<(), SessionError> {
        self.begin()?;
        self.append(self.bytes_max, Kind::Flash, kind, |room| {
            room.write_all(text.as_bytes()).map_err(|_| Refused::Full)
        })?;
        self.is_changed = true;
        Ok(())
    }

    /// Takes all flash messages, in their order: they are shown once.
    pub fn take_flashes(&mut self) -> Vec<Flash> {
        let taken = self.flashes().map(|entry| flash_of(&entry)).collect();
        loop {
            let Some(range) = self.flashes().next().map(|entry| entry.range) else { return taken };
            self.bytes.bytes_mut().drain(range);
            self.is_changed = true;
        }
    }

    /// Takes the text of the first flash message of a kind.
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

    /// The id for a form token: begins a session where there is none, and keeps it also without entries.
    pub(super) fn id_for_token(&mut self) -> Result<SessionId, SessionError> {
        self.begin()?;
        if content::set_token_flag(self.bytes.bytes_mut()) {
            self.is_changed = true;
        }
        self.id().ok_or(SessionError::NoRandomBytes)
    }

    /// Begins a session where there is none. That is no change before something is set.
    fn begin(&mut self) -> Result<(), SessionError> {
        if self.bytes.is_empty() {
            let mut id = [0; 16];
            codec::random(&mut id)?;
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

    /// Whether the reply says something of it.
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

    /// The bytes to be sent, with the times of this reply.
    pub(super) fn stamped(&self, now: u32) -> Vec<u8> {
        // Room for what the codec adds.
        let mut bytes = Vec::with_capacity(self.bytes.len() + 64);
        bytes.extend_from_slice(&self.bytes);
        if content::begun(&bytes) == 0 {
            content::set_begun(&mut bytes, now);
        }
        content::set_renewed(&mut bytes, now);
        bytes
    }
}

/// Shows names alone: values may be secret.
impl fmt::Debug for SessionData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        f.debug_struct("SessionData").field("id", &self.id()).field("names", &names).finish_non_exhaustive()
    }
}

/// Why an entry was not appended.
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
