//! Status codes.

/// A status code, 200 to 599. Another number is a mistake of the service, and is answered as 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);

impl Status {
    /// The words that go with it (RFC 9110, section 15); empty where there are none.
    pub fn reason(self) -> &'static str {
        crate::composer::reason(self)
    }
}
