//! The session as an argument of a handler, and behind a late reply.

use super::codec::Codec;
use super::data::{Flash, SessionData, SessionId};
use super::error::SessionError;
use crate::build::Needs;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::extract::Extract;
use crate::late::Responder;
use crate::request::Request;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::{RefCell, RefMut};
use std::fmt;

/// The session of the request's client: see [`SessionData`] for what each call does. The cookie is looked at when the first argument
/// of this type is taken, and the reply says what changed, also where a later argument or the handler itself refuses. A reply with a
/// status of 500 and above changes nothing.
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
        let codec = request.built.protection.sessions().ok_or_else(|| Error::internal(MISSING))?;
        let session = Session { exchange: &request.exchange, codec };
        let mut exchange = request.exchange.borrow_mut();
        if exchange.session.is_none() {
            exchange.session = Some(codec.load(request.http));
        }
        Ok(session)
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.that(needs.built.protection.has_sessions, MISSING);
    }
}

const MISSING: &str = "sessions are missing: give their keys by App::sessions";

impl Session<'_> {
    /// The session, borrowed for longer than a call. Another call on a [`Session`] of this request panics meanwhile.
    pub fn data(&self) -> RefMut<'_, SessionData> {
        // It was put there when this argument was taken, and nothing takes it out.
        RefMut::map(self.exchange.borrow_mut(), |exchange| exchange.session.get_or_insert_with(SessionData::none))
    }

    /// The value under a name; `None` where there is none.
    #[inline]
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, SessionError> {
        self.data().get(name)
    }

    /// Whether there is a value under a name.
    pub fn contains(&self, name: &str) -> bool {
        self.data().contains(name)
    }

    /// Sets the value under a name.
    pub fn set<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> Result<(), SessionError> {
        self.data().set(name, value)
    }

    /// Removes the value under a name; whether there was one.
    pub fn remove(&self, name: &str) -> bool {
        self.data().remove(name)
    }

    /// Ends the session and has the client delete its cookie.
    pub fn clear(&self) {
        self.data().clear();
    }

    /// Gives the session a new id: to be called at login.
    pub fn renew(&self) -> Result<(), SessionError> {
        self.data().renew()
    }

    /// The session's id; `None` where nothing was set yet.
    pub fn id(&self) -> Option<SessionId> {
        self.data().id()
    }

    /// Adds a message for the next page.
    pub fn flash(&self, kind: &str, text: &str) -> Result<(), SessionError> {
        self.data().flash(kind, text)
    }

    /// Takes all flash messages: they are shown once.
    pub fn take_flashes(&self) -> Vec<Flash> {
        self.data().take_flashes()
    }

    /// Takes the text of the first flash message of a kind.
    pub fn take_flash(&self, kind: &str) -> Option<String> {
        self.data().take_flash(kind)
    }

    /// A token for a form of this session, for a hidden field: see [`crate::FormTokens`]. Begins a session where there is none.
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

impl Responder {
    /// The session, where the handler took it as an argument: changed here, it goes with the late reply.
    ///
    /// ```
    /// # use sapsan::{Later, Redirect, Session, later};
    /// fn login(_session: Session<'_>) -> Later {
    ///     later(|mut responder| {
    ///         if let Some(session) = responder.session() {
    ///             session.flash("notice", "Welcome").ok();
    ///         }
    ///         responder.send(Redirect::to("/"));
    ///     })
    /// }
    /// ```
    pub fn session(&mut self) -> Option<&mut SessionData> {
        self.exchange.session()
    }
}

impl Exchange {
    /// The session, where the handler took it as an argument.
    pub fn session(&mut self) -> Option<&mut SessionData> {
        self.session.as_mut()
    }
}

/// 500, and its words in the log.
impl From<SessionError> for Error {
    fn from(error: SessionError) -> Error {
        Error::internal(error)
    }
}
