//! How a collection generates keys for documents without one; `writes/made_keys.rs` implements it.

use crate::encoding::KeyType;

/// How a collection generates keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generate {
    /// The next number.
    Counter,
    /// A UUID of version 7.
    Uuid,
}

/// The names of the generators in the configuration file.
pub const GENERATORS: [(&str, Generate); 2] = [("counter", Generate::Counter), ("uuid", Generate::Uuid)];

impl Generate {
    /// Whether it generates keys of this type.
    pub fn fits(self, kind: KeyType) -> bool {
        (self == Generate::Uuid) == (kind == KeyType::String)
    }
}
