//! The bank's customers, and their passwords.

use sapsan::DatabaseError;
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Longest login in bytes.
pub const LOGIN_BYTES_MAX: usize = 255;

/// Number of digits of a password's hash.
pub const HASH_DIGITS: usize = 64;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// A customer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct User {
    /// The number in `users.tsv`.
    pub id: u32,
    /// Text that is hashed after the password.
    pub salt: String,
    /// SHA-256 in lower-case hexadecimal digits.
    pub hash: String,
}

/// SHA-256 of `PASSWORD:SALT`, in lower-case hexadecimal digits. The contest requires it. It is unfit for a new system: an
/// attacker's machine computes billions of such hashes a second.
pub fn hash(password: &str, salt: &str) -> String {
    digits(password, salt).map(char::from).iter().collect()
}

fn digits(password: &str, salt: &str) -> [u8; HASH_DIGITS] {
    let digest = Sha256::new().chain_update(password).chain_update(":").chain_update(salt).finalize();
    let mut digits = [0; HASH_DIGITS];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(digest) {
        pair[0] = HEX[usize::from(byte >> 4)];
        pair[1] = HEX[usize::from(byte & 15)];
    }
    digits
}

impl User {
    /// Whether a password is correct. Takes the same time for every wrong one.
    pub fn is_right(&self, password: &str) -> bool {
        let (own, given) = (self.hash.as_bytes(), digits(password, &self.salt));
        let differing = own.iter().zip(&given).fold(0, |bits, (own, given)| bits | (own ^ given));
        own.len() == given.len() && differing == 0
    }
}

/// The login as it is recorded: a longer one is cut at a character boundary, and NUL, which a document cannot hold, is replaced.
/// A login that is changed by this belongs to no user.
pub fn recorded_login(login: &str) -> String {
    let mut end = login.len().min(LOGIN_BYTES_MAX);
    while !login.is_char_boundary(end) {
        end -= 1;
    }
    login[..end].replace('\0', "\u{fffd}")
}

/// The user of a login; `get` looks it up by its key.
///
/// # Errors
/// The errors of `get`.
pub fn find(
    login: &str,
    get: impl FnOnce(&str) -> Result<Option<User>, DatabaseError>,
) -> Result<Option<User>, DatabaseError> {
    if login.len() > LOGIN_BYTES_MAX { Ok(None) } else { get(login) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_right_where_its_hash_with_the_salt_is_the_stored_one() {
        // printf '%s' 'ilovecake:pepper' | sha256sum
        let expected = "e870857d0a7fa703e4a40fbd8d3a3180b9fcc4ef4b635807608b1791ec5f0741";
        assert_eq!(hash("ilovecake", "pepper"), expected);
        let user = User { id: 1, salt: "pepper".to_owned(), hash: hash("ilovecake", "pepper") };
        assert!(user.is_right("ilovecake"));
        assert!(!user.is_right("ilovecake "));
        assert!(!user.is_right(""));
        assert!(!User { hash: String::new(), ..user }.is_right("ilovecake"));
    }

    #[test]
    fn a_long_login_is_cut_between_characters_and_nul_is_replaced() {
        assert_eq!(recorded_login("ann"), "ann");
        assert_eq!(recorded_login("a\0n"), "a\u{fffd}n");
        let long = "é".repeat(200);
        assert_eq!(recorded_login(&long).len(), 254);
    }
}
