//! Random bytes of the system, for ids, nonces and masks.

use super::error::SessionError;
use ring::rand::{SecureRandom, SystemRandom};

/// Fills `bytes` with random bytes of the system.
pub(super) fn random(bytes: &mut [u8]) -> Result<(), SessionError> {
    SystemRandom::new().fill(bytes).map_err(|_| SessionError::NoRandomBytes)
}
