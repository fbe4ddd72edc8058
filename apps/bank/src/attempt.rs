//! A login attempt, the rules that refuse one, and its verdict.

/// Numbers of failures since the last success after which attempts are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Failures from an address after which it is banned; at least 1.
    pub ban_after: u32,
    /// Failures of a user after which the account is locked; at least 1.
    pub lock_after: u32,
}

/// Failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// From the client's address.
    pub of_address: u64,
    /// Of the user; 0 if the login does not exist.
    pub of_user: u64,
}

impl Rules {
    /// The verdict on an attempt after these failures.
    pub fn verdict(self, failed: Failed, is_right: bool) -> AttemptVerdict {
        match is_right {
            _ if failed.of_address >= u64::from(self.ban_after) => AttemptVerdict::Banned,
            _ if failed.of_user >= u64::from(self.lock_after) => AttemptVerdict::Locked,
            true => AttemptVerdict::Success,
            false => AttemptVerdict::Wrong,
        }
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { ban_after: 10, lock_after: 3 }
    }
}

/// The facts about an attempt before its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Unix time in seconds.
    pub at: i64,
    /// The user, if the login exists.
    pub user: Option<u32>,
    /// The login as it is recorded: see [`recorded_login`](crate::user::recorded_login).
    pub login: String,
    /// The client's address as text.
    pub address: String,
    /// Whether the login exists and the password is correct.
    pub is_right: bool,
}

/// The verdict on an attempt. The checks are made in this order; the first that refuses decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptVerdict {
    /// Too many attempts from the address have failed.
    Banned,
    /// Too many attempts of the user have failed.
    Locked,
    /// The login does not exist, or the password is wrong.
    Wrong,
    /// The user is logged in.
    Success,
}

impl AttemptVerdict {
    /// Its word in a ledger.
    pub fn word(self) -> &'static str {
        match self {
            AttemptVerdict::Banned => "banned",
            AttemptVerdict::Locked => "locked",
            AttemptVerdict::Wrong => "wrong",
            AttemptVerdict::Success => "success",
        }
    }

    /// The verdict of a word.
    pub fn of_word(word: &str) -> Option<AttemptVerdict> {
        [AttemptVerdict::Banned, AttemptVerdict::Locked, AttemptVerdict::Wrong, AttemptVerdict::Success]
            .into_iter()
            .find(|verdict| verdict.word() == word)
    }

    /// The notice on the login page; none after a success.
    pub fn notice(self) -> Option<&'static str> {
        match self {
            AttemptVerdict::Banned => Some("You're banned."),
            AttemptVerdict::Locked => Some("This account is locked."),
            AttemptVerdict::Wrong => Some("Wrong username or password"),
            AttemptVerdict::Success => None,
        }
    }
}

/// A successful login.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Login {
    /// Unix time in seconds.
    pub at: i64,
    /// The client's address.
    pub address: String,
}

/// A ledger's recorded decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict on the attempt.
    pub verdict: AttemptVerdict,
    /// The previous successful login of the user, if there was one.
    pub previous: Option<Login>,
}

/// Locked users and banned addresses, each list sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LockReport {
    /// Addresses that are banned.
    pub banned_ips: Vec<String>,
    /// Logins of locked users.
    pub locked_users: Vec<String>,
}
