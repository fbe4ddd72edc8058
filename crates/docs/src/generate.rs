//! How a collection makes keys for documents that come without one; `made_keys.rs` does it.

use crate::key::KeyType;

/// How a collection makes keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generate {
    /// The next number.
    Counter,
    /// A UUID of version 7.
    Uuid,
}

/// The names of the ways, as the configuration file has them.
pub const GENERATORS: [(&str, Generate); 2] = [("counter", Generate::Counter), ("uuid", Generate::Uuid)];

impl Generate {
    /// Whether it makes keys of this type.
    pub fn fits(self, kind: KeyType) -> bool {
        (self == Generate::Uuid) == (kind == KeyType::String)
    }
}
