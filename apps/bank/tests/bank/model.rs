//! The expected answers of a ledger, computed by the simplest program: it keeps all attempts and searches them
//! from the end.

use bank::attempt::{Attempt, AttemptVerdict, Decision, LockReport, Login, Rules};

#[derive(Default)]
pub(crate) struct Model {
    attempts: Vec<(Attempt, bool)>,
}

impl Model {
    pub(crate) fn attempt(&mut self, attempt: &Attempt, rules: Rules) -> Decision {
        let verdict = self.verdict(attempt, rules);
        let previous = self.last_success(&attempt.login).filter(|_| verdict == AttemptVerdict::Success);
        self.attempts.push((attempt.clone(), verdict == AttemptVerdict::Success));
        Decision { verdict, previous }
    }

    fn verdict(&self, attempt: &Attempt, rules: Rules) -> AttemptVerdict {
        if self.failed(|other| other.address == attempt.address) >= rules.ban_after as usize {
            return AttemptVerdict::Banned;
        }
        let of_user = self.failed(|other| other.user.is_some() && other.login == attempt.login);
        match (attempt.user, attempt.is_right) {
            (Some(_), _) if of_user >= rules.lock_after as usize => AttemptVerdict::Locked,
            (Some(_), true) => AttemptVerdict::Success,
            _ => AttemptVerdict::Wrong,
        }
    }

    /// Attempts of some kind since the last success among them.
    fn failed(&self, is_of_kind: impl Fn(&Attempt) -> bool) -> usize {
        let of_kind = self.attempts.iter().rev().filter(|(attempt, _)| is_of_kind(attempt));
        of_kind.take_while(|(_, succeeded)| !succeeded).count()
    }

    fn last_success(&self, login: &str) -> Option<Login> {
        let found = self.attempts.iter().rev().find(|(attempt, succeeded)| *succeeded && attempt.login == login);
        found.map(|(attempt, _)| Login { at: attempt.at, address: attempt.address.clone() })
    }

    pub(crate) fn report(&self, rules: Rules) -> LockReport {
        let addresses = self.attempts.iter().map(|(attempt, _)| &attempt.address);
        let logins =
            self.attempts.iter().filter(|(attempt, _)| attempt.user.is_some()).map(|(attempt, _)| &attempt.login);
        let refused = |names: Vec<&String>, failed: &dyn Fn(&str) -> usize, least: u32| -> Vec<String> {
            let mut names: Vec<String> = names.into_iter().cloned().collect();
            names.sort_unstable();
            names.dedup();
            names.retain(|name| failed(name) >= least as usize);
            names
        };
        let of_address = |name: &str| self.failed(|attempt| attempt.address == name);
        let of_login = |name: &str| self.failed(|attempt| attempt.user.is_some() && attempt.login == name);
        LockReport {
            banned_ips: refused(addresses.collect(), &of_address, rules.ban_after),
            locked_users: refused(logins.collect(), &of_login, rules.lock_after),
        }
    }
}
