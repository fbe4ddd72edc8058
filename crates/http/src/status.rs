//! Status codes.

/// A status code, 200 to 599. Another number is a mistake of the service, and is answered as 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);
