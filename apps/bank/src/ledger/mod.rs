//! A ledger records every login attempt and counts failures.
//!
//! An attempt is decided and recorded in one transaction: among simultaneous attempts, each sees those before it. There are two
//! ledgers with the same behaviour: [`Embedded`] in the data folder, where an attempt is durable before it is answered, and
//! [`Redis`], where the settings of the Redis server decide when an attempt is durable.
//!
//! A handler must not block, and each ledger has its own interface for that: [`embedded::attempt`] runs inside a transaction,
//! [`Redis::attempt`] takes a function that receives the decision.

pub mod embedded;
mod redis;

pub use embedded::Embedded;
pub use redis::{DecisionCallback, Recorded, Redis, RedisError};

use std::fmt;

use crate::attempt::{Attempt, Decision, LockReport, Login, Rules};

/// Receives the counters of a ledger one by one.
pub type CounterVisitor<'v> = dyn FnMut(FailureCounter) -> Result<(), LedgerError> + 'v;

/// Failures since the last success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCounter {
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

/// Why a ledger cannot answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerError {
    /// Too many attempts are waiting: try again. Nothing was recorded.
    Busy,
    /// The ledger failed; whether the attempt was recorded is unknown. The text says what failed, and why.
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

/// Operations of both ledgers for threads that may block.
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
    fn report(&self, rules: Rules) -> Result<LockReport, LedgerError>;

    /// Visits the counters of all users and addresses that have ever made an attempt.
    ///
    /// # Errors
    /// The ledger cannot be read, or `visit` fails.
    fn counters(&self, visit: &mut CounterVisitor<'_>) -> Result<(), LedgerError>;
}
