//! The session as an argument of a handler, and in a late reply.

use super::extract::Extract;
use crate::dispatch::{Exchange, Needs, Request};
use crate::reply::Error;
use crate::session::{Codec, Flash, MISSING, SessionData, SessionError, SessionId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::{RefCell, RefMut};
use std::fmt;

/// The session of the request's client; [`SessionData`] documents each call. The cookie is read when the first argument of this type
/// is extracted. The reply sends what changed, even if a later argument or the handler itself fails with a status below 500. A reply
/// with a status of 500 and above changes nothing.
///
/// ```
/// use sapsan::{Redirect, Session, SessionError};
/// fn count(session: Session<'_>) -> Result<String, SessionError> {
///     let visits = session.get::<u64>("visits")?.unwrap_or(0) + 1;
///     session.set("visits", &visits)?;
///     Ok(format!("visit {visits}"))
/// }
///
/// fn logout(session: Session<'_>) -> Redirect {
///     session.clear();
///     Redirect::to("/")
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Session<'r> {
    exchange: &'r RefCell<Exchange>,
    codec: &'r Codec,
}

impl Extract for Session<'_> {
    type Item<'r> = Session<'r>;

    #[inline]
    fn extract<'r>(request: &'r Request<'_>) -> Result<Session<'r>, Error> {
        let codec = request.resources.protection.sessions().ok_or_else(|| Error::internal(MISSING))?;
        let session = Session { exchange: &request.exchange, codec };
        let mut exchange = request.exchange.borrow_mut();
        if exchange.session.is_none() {
            exchange.session = Some(codec.load(request.http));
        }
        Ok(session)
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.that(needs.resources.protection.has_sessions, MISSING);
    }
}

impl Session<'_> {
    /// The session, borrowed for longer than one call. Another call on a [`Session`] of this request panics meanwhile.
    pub fn data(&self) -> RefMut<'_, SessionData> {
        // Extracting this argument put the session there, and nothing removes it.
        RefMut::map(self.exchange.borrow_mut(), |exchange| exchange.session.get_or_insert_with(SessionData::none))
    }

    /// The value of this name; `None` if there is none.
    #[inline]
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, SessionError> {
        self.data().get(name)
    }

    /// Whether there is a value of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.data().contains(name)
    }

    /// Sets the value of a name.
    pub fn set<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> Result<(), SessionError> {
        self.data().set(name, value)
    }

    /// Removes the value of a name. Returns whether there was one.
    pub fn remove(&self, name: &str) -> bool {
        self.data().remove(name)
    }

    /// Ends the session; the reply makes the client delete its cookie.
    pub fn clear(&self) {
        self.data().clear();
    }

    /// Gives the session a new id. Call it at login.
    pub fn renew(&self) -> Result<(), SessionError> {
        self.data().renew()
    }

    /// The session's id; `None` if no session has begun, or after it was cleared.
    pub fn id(&self) -> Option<SessionId> {
        self.data().id()
    }

    /// Adds a flash message, for the next page.
    pub fn flash(&self, kind: &str, text: &str) -> Result<(), SessionError> {
        self.data().flash(kind, text)
    }

    /// Removes all flash messages and returns them: they are shown once.
    pub fn take_flashes(&self) -> Vec<Flash> {
        self.data().take_flashes()
    }

    /// Removes the first flash message of a kind and returns its text.
    pub fn take_flash(&self, kind: &str) -> Option<String> {
        self.data().take_flash(kind)
    }

    /// A form token of this session, for a hidden field: see [`crate::FormTokens`]. Begins a session if there is none.
    pub fn form_token(&self) -> Result<String, SessionError> {
        self.codec.form_token(&mut self.data())
    }

    /// Whether a text is a form token of this session.
    pub fn is_form_token(&self, text: &str) -> bool {
        self.codec.is_form_token(&self.data(), text.as_bytes())
    }
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.data(), f)
    }
}
