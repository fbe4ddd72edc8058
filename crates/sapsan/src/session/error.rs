//! Why a session cannot be read or changed.

use crate::reply::Error;
use std::fmt;

/// Why a session cannot be read or changed. After an error the session is unchanged.
#[derive(Debug)]
#[non_exhaustive]
pub enum SessionError {
    /// With this value the cookie would be longer than browsers keep.
    TooLarge {
        /// The name of the value.
        name: String,
        /// Bytes allowed for all entries together: names, values, and three for each entry.
        bytes_max: usize,
        /// Bytes of the other entries.
        bytes_used: usize,
    },
    /// A name is empty or longer than 64 bytes.
    Name(String),
    /// The value of this name does not fit the requested type, or cannot be written as JSON.
    Json {
        /// The name.
        name: String,
        /// The error of serde.
        cause: serde_json::Error,
    },
    /// The system returned no random bytes.
    NoRandomBytes,
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::TooLarge { name, bytes_max, bytes_used } => write!(
                f,
                "session: `{name}` does not fit: a session's entries have at most {bytes_max} bytes, for a cookie carries them, and the \
                 others have {bytes_used}; keep large values in the database, and their key in the session"
            ),
            SessionError::Name(name) => {
                write!(f, "session: the name `{name}` has {} bytes; 1 to 64 are allowed", name.len())
            }
            SessionError::Json { name, cause } => write!(f, "session: the value of `{name}`: {cause}"),
            SessionError::NoRandomBytes => f.write_str("session: the system gives no random bytes"),
        }
    }
}

impl std::error::Error for SessionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SessionError::Json { cause, .. } => Some(cause),
            _ => None,
        }
    }
}

/// 500; the error's text goes to the log.
impl From<SessionError> for Error {
    fn from(error: SessionError) -> Error {
        Error::internal(error)
    }
}
