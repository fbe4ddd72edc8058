//! The bank: database, ledger and rules together.

use std::net::IpAddr;
use std::path::Path;

use sapsan::Database;

use crate::attempt::{Attempt, Rules};
use crate::clock;
use crate::ledger::{Embedded, Ledger, Redis};
use crate::user::{User, recorded_login};

/// The configuration of the database.
const CONFIG: &str = include_str!("../bank.toml");

/// See the module.
pub struct Bank {
    embedded: Embedded,
    /// The ledger in Redis, if one is used.
    redis: Option<Redis>,
    rules: Rules,
}

impl Bank {
    /// Opens a data folder, and Redis if it is used for the ledger.
    ///
    /// # Errors
    /// Something cannot be opened; the text says what.
    pub fn open(folder: &Path, redis: Option<&str>, rules: Rules) -> Result<Bank, String> {
        let embedded = Embedded::new(open_database(folder)?);
        let redis = redis.map(open_redis).transpose()?;
        Ok(Bank { embedded, redis, rules })
    }

    /// The database: the customers, and the embedded ledger.
    pub fn database(&self) -> &Database {
        self.embedded.database()
    }

    /// The ledger in Redis, if one is used.
    pub fn redis(&self) -> Option<&Redis> {
        self.redis.as_ref()
    }

    /// The ledger in use.
    pub fn ledger(&self) -> &dyn Ledger {
        match &self.redis {
            Some(redis) => redis,
            None => &self.embedded,
        }
    }

    /// The rules for refusing attempts.
    pub fn rules(&self) -> Rules {
        self.rules
    }
}

/// An attempt at the current time; `user` is the login's user, if it exists.
pub fn attempt_of(login: &str, password: &str, user: Option<&User>, client: IpAddr) -> Attempt {
    Attempt {
        at: clock::now(),
        user: user.map(|user| user.id),
        login: recorded_login(login),
        address: client.to_canonical().to_string(),
        is_right: user.is_some_and(|user| user.is_right(password)),
    }
}

/// Opens or creates the bank's database in a folder.
///
/// # Errors
/// The folder is in use, damaged, or belongs to another program.
pub fn open_database(folder: &Path) -> Result<Database, String> {
    Database::open(folder, CONFIG).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Opens the ledger in Redis.
///
/// # Errors
/// See [`Redis::open`].
pub fn open_redis(address: &str) -> Result<Redis, String> {
    Redis::open(address).map_err(|error| format!("{address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The number of a success among all attempts from its address was stored as `of_address`; without `run`, each attempt from an
    /// address would count as a failure.
    #[test]
    fn a_data_folder_with_other_fields_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let older = CONFIG.replace("run        =", "of_address =").replace("SUM(run)", "MAX(of_address)");
        let database = Database::open(folder.path(), &older).unwrap();
        let attempt =
            json!({"at": 1, "user": 1, "login": "ann", "address": "10.0.0.1", "succeeded": true, "of_address": 1});
        database.write(|tx| tx.insert::<i64>("attempts", &attempt)).unwrap();
        drop(database);
        let refused = open_database(folder.path()).err().unwrap();
        assert!(refused.contains("of_address"), "{refused}");
    }
}
