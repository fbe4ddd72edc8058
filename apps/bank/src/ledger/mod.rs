//! A ledger records every attempt to log in and knows who has failed too often.
//!
//! Deciding an attempt and recording it is one transaction: of attempts that arrive at once each sees those before it. There are two
//! ledgers, which behave alike: [`Embedded`] in the data folder, where an attempt is on disk before it is answered, and [`Redis`],
//! which keeps what Redis keeps.
//!
//! A handler must not wait, and each ledger has a way of its own for that: [`embedded::attempt`] is the inside of a transaction,
//! [`Redis::attempt`] takes a function that is told the decision.

pub mod embedded;
mod redis;

pub use embedded::Embedded;
pub use redis::{Done, Recorded, Redis, RedisError};

use std::fmt;

use crate::attempt::{Attempt, Decision, Login, Report, Rules};

/// Takes the counters of a ledger one by one.
pub type Visit<'v> = dyn FnMut(Counter) -> Result<(), LedgerError> + 'v;

/// Failures since the last success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Of a user.
    User {
        /** Login. */
        login: String,
        /** Failures. */
        failed: u64,
        /** The last success, if there was one. */
        last: Option<Login>,
    },
    /// From an address.
    Address {
        /** The address as text. */
        address: String,
        /** Failures. */
        failed: u64,
    },
}

/// Why a ledger has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerError {
    /// Too many attempts wait: try again. Nothing was recorded.
    Busy,
    /// It failed; whether the attempt was recorded is not known. What failed, and why.
    Failed(String),
}

impl fmt::Display for LedgerError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LedgerError::Busy => out.write_str("too many attempts wait: try again"),
            LedgerError::Failed(why) => out.write_str(why),
        }
    }
}

impl std::error::Error for LedgerError {}

/// What both ledgers do for threads that may wait.
pub trait Ledger: Send + Sync {
    /// Decides an attempt by the rules and records it.
    ///
    /// # Errors
    /// See [`LedgerError`].
    fn attempt_now(&self, attempt: Attempt, rules: Rules) -> Result<Decision, LedgerError>;

    /// The users that the rules lock, and the addresses that they ban.
    ///
    /// # Errors
    /// The ledger cannot be read.
    fn report(&self, rules: Rules) -> Result<Report, LedgerError>;

    /// Visits the counters of all users and addresses that ever attempted something.
    ///
    /// # Errors
    /// The ledger cannot be read, or `visit` fails.
    fn counters(&self, visit: &mut Visit<'_>) -> Result<(), LedgerError>;
}
