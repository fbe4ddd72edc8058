//! The ledger in the embedded database: attempts are documents, and failures are counted by live views.
//!
//! A view cannot compute "since the last success", because that depends on the order of documents. But all attempts after the last
//! success have failed. So the failures since then are the number of attempts minus the number of the last success among them, and
//! both are aggregates:
//!
//! - Of an address, a success stores how many attempts it ends: those since the last success, this one included. The sum over all
//!   successes is the number of the last one. COUNT and SUM stand in one stored row, while MAX stores each value in a row of its own.
//! - Of a user, a success stores its number in a text with the time and the address of the login ([`Success`]). The largest text is that
//!   of the last success, so one view answers both how many attempts failed and when the user logged in last.
//!
//! A success reads these rows in its own transaction. If another attempt of the same user or address is committed in between, the
//! store runs the transaction again.

use sapsan::{Database, DatabaseError, Snapshot, Transaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{CounterVisitor, FailureCounter, Ledger, LedgerError};
use crate::attempt::{Attempt, AttemptVerdict, Decision, Failed, LockReport, Login, Rules};

/// Rows are read in pages, so that neither the rows nor the result exceed the limits of a query.
const OF_USERS: &str = "
    SELECT login AS name, attempts, last_success FROM logins WHERE login > :after ORDER BY login LIMIT 1000";
const OF_ADDRESSES: &str = "
    SELECT address AS name, attempts, last_success FROM addresses WHERE address > :after ORDER BY address LIMIT 1000";

/// See the module.
pub struct Embedded(Database);

/// A row of the view `logins` or `addresses`. `S` holds the last success.
#[derive(Deserialize)]
struct Attempts<S> {
    /// The login or the address; absent if one row was asked for.
    #[serde(default)]
    name: String,
    attempts: u64,
    last_success: Option<S>,
}

impl<S> Default for Attempts<S> {
    fn default() -> Self {
        Attempts { name: String::new(), attempts: 0, last_success: None }
    }
}

impl<S: LastSuccess> Attempts<S> {
    /// Failures since the last success.
    fn failed(&self) -> u64 {
        self.attempts.saturating_sub(self.last_success.as_ref().map_or(0, S::number))
    }
}

/// The last success as a row of a view has it.
trait LastSuccess {
    /// Its number among all attempts of the row; from 1.
    fn number(&self) -> u64;
}

impl LastSuccess for u64 {
    fn number(&self) -> u64 {
        *self
    }
}

impl LastSuccess for Success {
    fn number(&self) -> u64 {
        self.number
    }
}

/// A user's successful login as an attempt stores it: the text `NUMBER TIME ADDRESS`. The number has 20 digits, so that texts
/// compare as their numbers do.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Success {
    /// Its number among the user's attempts; from 1.
    pub(crate) number: u64,
    pub(crate) login: Login,
}

impl Success {
    /// The text that is stored.
    pub(crate) fn text(number: u64, at: i64, address: &str) -> String {
        let (mut digits, mut time) = (itoa::Buffer::new(), itoa::Buffer::new());
        let digits = digits.format(number);
        [&ZEROS[digits.len()..], digits, " ", time.format(at), " ", address].concat()
    }
}

impl TryFrom<String> for Success {
    type Error = String;

    fn try_from(text: String) -> Result<Success, String> {
        let read = || {
            let (number, login) = text.split_once(' ')?;
            let (at, address) = login.split_once(' ')?;
            let login = Login { at: at.parse().ok()?, address: address.to_owned() };
            Some(Success { number: number.parse().ok()?, login })
        };
        read().ok_or_else(|| format!("`{text}` is no success of a user: NUMBER TIME ADDRESS"))
    }
}

/// As many as a number has digits.
const ZEROS: &str = "00000000000000000000";

/// An attempt as it is stored.
#[derive(Serialize)]
struct Record<'a> {
    at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<u32>,
    login: &'a str,
    address: &'a str,
    succeeded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<u64>,
}

/// Decides an attempt by the rules and records it, inside a transaction.
///
/// # Errors
/// The database cannot be read or refuses the write.
pub fn attempt(tx: &mut Transaction<'_>, attempt: &Attempt, rules: Rules) -> Result<Decision, DatabaseError> {
    let Attempt { at, user, login, address, is_right } = attempt;
    let of_address: Attempts<u64> = tx.view_row("addresses", (address,))?.unwrap_or_default();
    let of_user: Attempts<Success> = match user {
        Some(_) => tx.view_row("logins", (login,))?.unwrap_or_default(),
        None => Attempts::default(),
    };
    let verdict = rules.verdict(Failed { of_address: of_address.failed(), of_user: of_user.failed() }, *is_right);
    let succeeded = verdict == AttemptVerdict::Success;
    let number_of_user = succeeded.then(|| Success::text(of_user.attempts + 1, *at, address));
    let run = succeeded.then_some(of_address.failed() + 1);
    let previous = of_user.last_success.filter(|_| succeeded).map(|success| success.login);
    let record = Record { at: *at, user: *user, login, address, succeeded, of_user: number_of_user, run };
    tx.insert::<i64>("attempts", &record)?;
    Ok(Decision { verdict, previous })
}

impl Embedded {
    /// The ledger of the bank's database.
    pub fn new(database: Database) -> Embedded {
        database.docs().wait_for_views();
        Embedded(database)
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.0
    }
}

/// Visits the rows of a query in pages; each page begins after the last name of the previous one.
fn pages<S: DeserializeOwned, E: From<DatabaseError>>(
    now: &Snapshot<'_>,
    sql: &str,
    visit: &mut dyn FnMut(Attempts<S>) -> Result<(), E>,
) -> Result<(), E> {
    let mut after = String::new();
    loop {
        let rows: Vec<Attempts<S>> = now.query(sql, (&after,))?;
        let Some(last) = rows.last() else { return Ok(()) };
        after.clone_from(&last.name);
        rows.into_iter().try_for_each(&mut *visit)?;
    }
}

impl Ledger for Embedded {
    fn attempt_now(&self, told: Attempt, rules: Rules) -> Result<Decision, LedgerError> {
        Ok(self.0.write(|tx| attempt(tx, &told, rules))?)
    }

    fn report(&self, rules: Rules) -> Result<LockReport, LedgerError> {
        let report = self.0.read(|now| {
            let mut report = LockReport::default();
            pages::<u64, DatabaseError>(now, OF_ADDRESSES, &mut |row| {
                report.banned_ips.extend((row.failed() >= u64::from(rules.ban_after)).then_some(row.name));
                Ok(())
            })?;
            pages::<Success, DatabaseError>(now, OF_USERS, &mut |row| {
                report.locked_users.extend((row.failed() >= u64::from(rules.lock_after)).then_some(row.name));
                Ok(())
            })?;
            Ok::<_, DatabaseError>(report)
        });
        Ok(report?)
    }

    fn counters(&self, visit: &mut CounterVisitor<'_>) -> Result<(), LedgerError> {
        self.0.read(|now| {
            pages::<Success, LedgerError>(now, OF_USERS, &mut |row| {
                let failed = row.failed();
                visit(FailureCounter::User {
                    login: row.name,
                    failed,
                    last: row.last_success.map(|success| success.login),
                })
            })?;
            pages::<u64, LedgerError>(now, OF_ADDRESSES, &mut |row| {
                let failed = row.failed();
                visit(FailureCounter::Address { address: row.name, failed })
            })
        })
    }
}

impl From<DatabaseError> for LedgerError {
    fn from(error: DatabaseError) -> LedgerError {
        if error.is_busy() { LedgerError::Busy } else { LedgerError::Failed(error.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_success_has_twenty_digits_and_is_read_back() {
        for (number, digits) in [(1, "00000000000000000001"), (u64::MAX, "18446744073709551615")] {
            let text = Success::text(number, -7, "10.0.0.1");
            assert_eq!(text, format!("{digits} -7 10.0.0.1"));
            let read = Success::try_from(text).unwrap();
            assert_eq!((read.number, read.login.at, &*read.login.address), (number, -7, "10.0.0.1"));
        }
    }
}
