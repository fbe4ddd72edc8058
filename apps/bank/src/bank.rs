//! The bank: its database, its ledger and its rules in one.

use std::net::IpAddr;
use std::path::Path;

use sapsan::Database;

use crate::attempt::{Attempt, Rules};
use crate::clock;
use crate::ledger::{Embedded, Ledger, Redis};
use crate::user::{User, recorded_login};

/// What the database keeps.
const CONFIG: &str = include_str!("../bank.toml");

/// See the module's text.
pub struct Bank {
    embedded: Embedded,
    /// The ledger, where it is in Redis.
    redis: Option<Redis>,
    rules: Rules,
}

impl Bank {
    /// Opens a data folder, and Redis where that is to be the ledger.
    ///
    /// # Errors
    /// What cannot be opened, in words.
    pub fn open(folder: &Path, redis: Option<&str>, rules: Rules) -> Result<Bank, String> {
        let embedded = Embedded::new(open_database(folder)?);
        let redis = redis.map(open_redis).transpose()?;
        Ok(Bank { embedded, redis, rules })
    }

    /// The database: the customers, and the embedded ledger.
    pub fn database(&self) -> &Database {
        self.embedded.database()
    }

    /// The ledger in Redis, if it is there.
    pub fn redis(&self) -> Option<&Redis> {
        self.redis.as_ref()
    }

    /// The ledger, wherever it is.
    pub fn ledger(&self) -> &dyn Ledger {
        match &self.redis {
            Some(redis) => redis,
            None => &self.embedded,
        }
    }

    /// After how many failures somebody is refused.
    pub fn rules(&self) -> Rules {
        self.rules
    }
}

/// An attempt that is made now: `user` is the login's, if it exists.
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
/// The folder is in use, damaged, or another program's.
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
