//! Cookies (RFC 6265bis): those of a request, and the `Set-Cookie` field of a reply.
//!
//! | subject | file |
//! |---|---|
//! | cookies that a client sent, read without allocation | `received` |
//! | `Set-Cookie`: attributes, name prefixes, what is refused | `set_cookie` |

mod received;
mod set_cookie;

pub use received::{Cookie, Cookies, find, of_request, pairs};
pub use set_cookie::{CookieFault, SameSite, SetCookie};
