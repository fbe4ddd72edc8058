//! How a collection generates keys for documents without one; `writes/made_keys.rs` implements it.

use crate::encoding::KeyType;

/// How a collection generates keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyGeneration {
    /// The next number.
    Counter,
    /// A UUID of version 7.
    Uuid,
}

/// The names of the generators in the configuration file.
pub const GENERATORS: [(&str, KeyGeneration); 2] = [("counter", KeyGeneration::Counter), ("uuid", KeyGeneration::Uuid)];

impl KeyGeneration {
    /// Whether it generates keys of this type.
    pub fn fits(self, kind: KeyType) -> bool {
        (self == KeyGeneration::Uuid) == (kind == KeyType::String)
    }
}
