//! An attempt to log in, the rules that refuse one, and what became of it.

/// After how many failures since the last success somebody is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Failures from an address until it is banned; at least 1.
    pub ban_after: u32,
    /// Failures of a user until the account is locked; at least 1.
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
    /// What becomes of an attempt behind so many failures.
    pub fn verdict(self, failed: Failed, is_right: bool) -> Verdict {
        match is_right {
            _ if failed.of_address >= u64::from(self.ban_after) => Verdict::Banned,
            _ if failed.of_user >= u64::from(self.lock_after) => Verdict::Locked,
            true => Verdict::Success,
            false => Verdict::Wrong,
        }
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { ban_after: 10, lock_after: 3 }
    }
}

/// What is known of an attempt before it is decided.
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
    /// Whether the login exists and the password is its own.
    pub is_right: bool,
}

/// What became of an attempt. The checks are made in this order; the first that refuses decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Too many attempts from the address have failed.
    Banned,
    /// Too many attempts of the user have failed.
    Locked,
    /// There is no such login, or the password is not its own.
    Wrong,
    /// The user is logged in.
    Success,
}

impl Verdict {
    /// The word for it in a ledger.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Banned => "banned",
            Verdict::Locked => "locked",
            Verdict::Wrong => "wrong",
            Verdict::Success => "success",
        }
    }

    /// The verdict of a word.
    pub fn of_word(word: &str) -> Option<Verdict> {
        [Verdict::Banned, Verdict::Locked, Verdict::Wrong, Verdict::Success]
            .into_iter()
            .find(|verdict| verdict.word() == word)
    }

    /// What the login page says; nothing of a success.
    pub fn notice(self) -> Option<&'static str> {
        match self {
            Verdict::Banned => Some("You're banned."),
            Verdict::Locked => Some("This account is locked."),
            Verdict::Wrong => Some("Wrong username or password"),
            Verdict::Success => None,
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

/// What a ledger decided, and recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What became of the attempt.
    pub verdict: Verdict,
    /// The successful login of the user before this one, where there is one.
    pub previous: Option<Login>,
}

/// Locked users and banned addresses, each list sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Addresses that are banned.
    pub banned_ips: Vec<String>,
    /// Logins of locked users.
    pub locked_users: Vec<String>,
}
