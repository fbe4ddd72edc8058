//! The ledger in the embedded database: attempts are documents, and failures are counted by live views.
//!
//! A view cannot compute "since the last success", because that depends on the order of documents. But a success stores its
//! number among all attempts of its user, and all attempts after the last success have failed. So the failures since then are the
//! number of attempts minus the largest number of a success, which are COUNT and MAX. The number is read from the view in the
//! transaction that writes the success. If another attempt of the same user or address is committed in between, the store runs
//! the transaction again.

use sapsan::{Database, DatabaseError, Transaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Counter, Ledger, LedgerError, Visit};
use crate::attempt::{Attempt, Decision, Failed, Login, Report, Rules, Verdict};

const SUCCESS: &str = "SELECT at, address FROM attempts WHERE login = :login AND of_user = :number";
const BANNED: &str = "SELECT address AS name FROM address_failures WHERE failed >= :least";
const LOCKED: &str = "SELECT login AS name FROM login_failures WHERE failed >= :least";
/// Counters are read in pages, so that no result exceeds the limit of a query.
const OF_USERS: &str = "
    SELECT l.login AS name, l.attempts - ifnull(l.until_success, 0) AS failed, s.at, s.address
    FROM logins AS l LEFT JOIN attempts AS s ON s.login = l.login AND s.of_user = l.until_success
    WHERE l.login > :after ORDER BY l.login LIMIT 1000";
const OF_ADDRESSES: &str = "
    SELECT address AS name, attempts - ifnull(until_success, 0) AS failed
    FROM addresses WHERE address > :after ORDER BY address LIMIT 1000";

/// See the module.
pub struct Embedded(Database);

/// A row of the views `logins` and `addresses`.
#[derive(Default, Deserialize)]
struct Attempts {
    attempts: u64,
    until_success: Option<u64>,
}

impl Attempts {
    fn failed(&self) -> u64 {
        self.attempts.saturating_sub(self.until_success.unwrap_or(0))
    }
}

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
    of_user: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_address: Option<u64>,
}

/// Decides an attempt by the rules and records it, inside a transaction.
///
/// # Errors
/// The database cannot be read or rejects the write.
pub fn attempt(tx: &mut Transaction<'_>, attempt: &Attempt, rules: Rules) -> Result<Decision, DatabaseError> {
    let Attempt { at, user, login, address, is_right } = attempt;
    let of_address: Attempts = tx.view_row("addresses", (address,))?.unwrap_or_default();
    let of_user: Attempts = match user {
        Some(_) => tx.view_row("logins", (login,))?.unwrap_or_default(),
        None => Attempts::default(),
    };
    let verdict = rules.verdict(Failed { of_address: of_address.failed(), of_user: of_user.failed() }, *is_right);
    let succeeded = verdict == Verdict::Success;
    let previous = match of_user.until_success.filter(|_| succeeded) {
        Some(number) => tx.row(SUCCESS, (login, number))?,
        None => None,
    };
    let number = |of: &Attempts| succeeded.then_some(of.attempts + 1);
    let (of_user, of_address) = (number(&of_user), number(&of_address));
    let record = Record { at: *at, user: *user, login, address, succeeded, of_user, of_address };
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

    /// Visits the rows of a query in pages; each page begins after the last name of the previous one.
    fn pages(&self, sql: &str, visit: &mut dyn FnMut(Failures) -> Result<(), LedgerError>) -> Result<(), LedgerError> {
        let mut after = String::new();
        loop {
            let rows: Vec<Failures> = self.query(sql, (&after,))?;
            let Some(last) = rows.last() else { return Ok(()) };
            after.clone_from(&last.name);
            rows.into_iter().try_for_each(&mut *visit)?;
        }
    }

    fn names(&self, sql: &str, least: u32) -> Result<Vec<String>, LedgerError> {
        let rows: Vec<Name> = self.query(sql, (least,))?;
        let mut names: Vec<String> = rows.into_iter().map(|row| row.name).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn query<T: DeserializeOwned>(
        &self,
        sql: &str,
        parameters: impl sapsan::Parameters,
    ) -> Result<Vec<T>, LedgerError> {
        Ok(self.0.query(sql, parameters)?)
    }
}

impl Ledger for Embedded {
    fn attempt_now(&self, told: Attempt, rules: Rules) -> Result<Decision, LedgerError> {
        Ok(self.0.write(|tx| attempt(tx, &told, rules))?)
    }

    fn report(&self, rules: Rules) -> Result<Report, LedgerError> {
        let banned_ips = self.names(BANNED, rules.ban_after)?;
        Ok(Report { banned_ips, locked_users: self.names(LOCKED, rules.lock_after)? })
    }

    fn counters(&self, visit: &mut Visit<'_>) -> Result<(), LedgerError> {
        self.pages(OF_USERS, &mut |row| {
            let last = row.at.zip(row.address).map(|(at, address)| Login { at, address });
            visit(Counter::User { login: row.name, failed: row.failed, last })
        })?;
        self.pages(OF_ADDRESSES, &mut |row| visit(Counter::Address { address: row.name, failed: row.failed }))
    }
}

impl From<DatabaseError> for LedgerError {
    fn from(error: DatabaseError) -> LedgerError {
        if error.is_busy() { LedgerError::Busy } else { LedgerError::Failed(error.to_string()) }
    }
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct Failures {
    name: String,
    failed: u64,
    at: Option<i64>,
    address: Option<String>,
}
