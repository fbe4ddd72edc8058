//! Status codes.

/// A status code, 200 to 599. Any other number is a bug of the service, and is sent as 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);

impl Status {
    /// Its reason phrase (RFC 9110, section 15); empty if there is none.
    pub fn reason(self) -> &'static str {
        crate::composer::reason(self)
    }
}
