//! Why an application does not start.

use std::fmt;

/// Why an application does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The application has mistakes: all that were found.
    Application(Vec<String>),
    /// An address cannot be listened on.
    Listen {
        /// The address as given.
        address: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The system refuses threads or descriptors.
    System(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Application(mistakes) => {
                write!(f, "the application does not start:")?;
                mistakes.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
            }
            StartError::Listen { address, source } => write!(f, "cannot listen on {address}: {source}"),
            StartError::System(error) => write!(f, "the application does not start: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> StartError {
        StartError::System(error)
    }
}
