//! Default protection around every handler: origin checks, form tokens, security headers, and the cookie of the session.
//!
//! `policy` puts them together: it checks each request, and adds header fields to each reply. The other files are the settings
//! of one check each; `exempt` has the paths that a check skips.
//!
//! This room imports `reply` and `session`. It knows requests as the crate `http` has them, and no route or handler.

mod exempt;
mod form_tokens;
mod origins;
mod policy;
mod security_headers;

pub use form_tokens::FormTokens;
pub use origins::Origins;
pub(crate) use policy::{Protection, ProtectionSettings};
pub use security_headers::SecurityHeaders;
