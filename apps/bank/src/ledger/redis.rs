//! The ledger in Redis: a counter of failures for each login and address, and a stream of all attempts.
//!
//! | key | type | holds |
//! |---|---|---|
//! | `bank:addresses` | sorted set | failures since the last success, by address |
//! | `bank:logins` | sorted set | the same by login of users |
//! | `bank:last` | hash | `UNIX-SECONDS ADDRESS` of the last success, by login |
//! | `bank:attempts` | stream | each attempt |
//!
//! A script decides and records an attempt. Redis runs a script atomically, so attempts do not interleave. One thread owns the
//! connection and sends all waiting attempts as one pipeline. The settings of the
//! Redis server decide when an attempt is durable.

use std::fmt;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use resp::{Client, ClientSettings, CommandError, Pipeline, ReplyValue};

use super::{CounterVisitor, FailureCounter, Ledger, LedgerError};
use crate::attempt::{Attempt, AttemptVerdict, Decision, LockReport, Login, Rules};

const ADDRESSES: &str = "bank:addresses";
const LOGINS: &str = "bank:logins";
const LAST: &str = "bank:last";
const ATTEMPTS: &str = "bank:attempts";
const SCRIPT: &str = include_str!("attempt.lua");

/// Largest number of attempts that wait for the connection; more are refused.
const WAITING_MAX: usize = 4096;
/// Largest number of attempts in one pipeline.
const PIPELINE_MAX: usize = 256;
/// Largest number of attempts in one pipeline of an import.
const IMPORT_PIPELINE_MAX: usize = 2000;

/// Receives the decision on an attempt, once. Runs on the ledger's thread, and must not block.
pub type DecisionCallback = Box<dyn FnOnce(Result<Decision, LedgerError>) + Send>;

/// Why the ledger cannot be opened or filled.
#[derive(Debug)]
pub enum RedisError {
    /// The server is unreachable, or refuses a command.
    Redis(CommandError),
    /// No thread can be started.
    Thread(std::io::Error),
}

impl fmt::Display for RedisError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RedisError::Redis(error) => write!(out, "Redis: {error}"),
            RedisError::Thread(error) => write!(out, "a thread for Redis: {error}"),
        }
    }
}

impl std::error::Error for RedisError {}

impl From<CommandError> for RedisError {
    fn from(error: CommandError) -> RedisError {
        RedisError::Redis(error)
    }
}

/// See the module.
pub struct Redis {
    queue: SyncSender<Job>,
    /// A separate connection for reports and exports, which may take long.
    reader: Mutex<Client>,
    /// Ends when the queue has no sender any more.
    _thread: JoinHandle<()>,
}

struct Job {
    attempt: Attempt,
    rules: Rules,
    done: DecisionCallback,
}

/// An attempt of a log, with a known outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The attempt.
    pub attempt: Attempt,
    /// Whether the user was logged in.
    pub succeeded: bool,
}

impl Redis {
    /// Connects to an address such as `redis://127.0.0.1:6379`; `HOST:PORT` is accepted, too.
    ///
    /// # Errors
    /// The address is wrong, the server is unreachable, or it refuses the script.
    pub fn open(address: &str) -> Result<Redis, RedisError> {
        let address = if address.contains("://") { address.to_owned() } else { format!("redis://{address}") };
        let settings = ClientSettings::of(&address).map_err(CommandError::from)?;
        let (mut writer, mut reader) = (Client::new(settings.clone()), Client::new(settings));
        let digest = load(&mut writer)?;
        reader.command::<()>(("PING",))?;
        let (queue, waiting) = mpsc::sync_channel(WAITING_MAX);
        let run = move || work(&mut writer, digest, &waiting);
        let thread = std::thread::Builder::new().name("bank-redis".to_owned()).spawn(run);
        let thread = thread.map_err(RedisError::Thread)?;
        Ok(Redis { queue, reader: Mutex::new(reader), _thread: thread })
    }

    /// Decides an attempt by the rules and records it; `done` receives the decision, possibly before this returns. Does not
    /// block.
    pub fn attempt(&self, attempt: Attempt, rules: Rules, done: DecisionCallback) {
        match self.queue.try_send(Job { attempt, rules, done }) {
            Ok(()) => {}
            Err(TrySendError::Full(job)) => (job.done)(Err(LedgerError::Busy)),
            Err(TrySendError::Disconnected(job)) => {
                (job.done)(Err(LedgerError::Failed("the thread of Redis has ended".to_owned())));
            }
        }
    }

    /// Whether the ledger has no attempts.
    ///
    /// # Errors
    /// Redis does not answer.
    pub fn is_empty(&self) -> Result<bool, RedisError> {
        Ok(self.reader().command::<u64>(("EXISTS", ADDRESSES))? == 0)
    }

    /// Records attempts of a log, in order; returns their number.
    ///
    /// # Errors
    /// Redis does not answer; earlier attempts may be recorded.
    pub fn record_all<E: From<RedisError>>(
        &self,
        attempts: &mut dyn Iterator<Item = Result<Recorded, E>>,
    ) -> Result<u64, E> {
        let (mut pipeline, mut reader) = (Pipeline::new(), self.reader());
        let (mut waiting, mut count) = (0, 0);
        for attempt in attempts {
            add_recorded(&mut pipeline, &attempt?);
            (waiting, count) = (waiting + 1, count + 1);
            if waiting == IMPORT_PIPELINE_MAX {
                send(&mut reader, &mut pipeline)?;
                waiting = 0;
            }
        }
        send(&mut reader, &mut pipeline)?;
        Ok(count)
    }

    fn reader(&self) -> MutexGuard<'_, Client> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Visits the members of a sorted set with at least this many failures, as a consistent snapshot.
    fn members(&self, key: &str, least: u32, visit: &mut Members<'_>) -> Result<(), LedgerError> {
        let mut reader = self.reader();
        // A single command: pages by rank would skip members whose neighbours gain failures meanwhile.
        let all: Vec<String> = reader.command(("ZRANGE", key, least, "+inf", "BYSCORE", "WITHSCORES"))?;
        for pair in all.chunks_exact(2) {
            let failed = pair[1].parse().map_err(|_| unexpected("a counter", &pair[1]))?;
            visit(&mut reader, &pair[0], failed)?;
        }
        Ok(())
    }

    fn names(&self, key: &str, least: u32) -> Result<Vec<String>, LedgerError> {
        let mut names = Vec::new();
        self.members(key, least, &mut |_, name, _| {
            names.push(name.to_owned());
            Ok(())
        })?;
        names.sort_unstable();
        Ok(names)
    }
}

/// Receives a member and its failures; may send further commands.
type Members<'v> = dyn FnMut(&mut Client, &str, u64) -> Result<(), LedgerError> + 'v;

impl Ledger for Redis {
    fn attempt_now(&self, attempt: Attempt, rules: Rules) -> Result<Decision, LedgerError> {
        let (tell, told) = mpsc::sync_channel(1);
        // The caller may have gone.
        self.attempt(attempt, rules, Box::new(move |decision| drop(tell.send(decision))));
        told.recv().unwrap_or_else(|_| Err(LedgerError::Failed("the thread of Redis dropped the attempt".to_owned())))
    }

    fn report(&self, rules: Rules) -> Result<LockReport, LedgerError> {
        let banned_ips = self.names(ADDRESSES, rules.ban_after)?;
        Ok(LockReport { banned_ips, locked_users: self.names(LOGINS, rules.lock_after)? })
    }

    fn counters(&self, visit: &mut CounterVisitor<'_>) -> Result<(), LedgerError> {
        self.members(LOGINS, 0, &mut |reader, login, failed| {
            let last: Option<String> = reader.command(("HGET", LAST, login))?;
            let last = last.map(|text| login_of(&text)).transpose()?;
            visit(FailureCounter::User { login: login.to_owned(), failed, last })
        })?;
        self.members(ADDRESSES, 0, &mut |_, address, failed| {
            visit(FailureCounter::Address { address: address.to_owned(), failed })
        })
    }
}

impl From<CommandError> for LedgerError {
    fn from(error: CommandError) -> LedgerError {
        LedgerError::Failed(format!("Redis: {error}"))
    }
}

/// Loads the script; returns the name by which it is called.
fn load(client: &mut Client) -> Result<String, CommandError> {
    client.command(("SCRIPT", "LOAD", SCRIPT))
}

/// Serves the queue until it has no sender any more.
fn work(client: &mut Client, mut digest: String, waiting: &Receiver<Job>) {
    let (mut pipeline, mut jobs) = (Pipeline::new(), Vec::new());
    while let Ok(first) = waiting.recv() {
        jobs.push(first);
        jobs.extend(waiting.try_iter().take(PIPELINE_MAX - 1));
        run(client, &mut digest, &mut pipeline, &mut jobs);
    }
}

/// Runs all jobs as one pipeline. If Redis was restarted and no longer knows the script, the affected jobs are run once more.
fn run(client: &mut Client, digest: &mut String, pipeline: &mut Pipeline, jobs: &mut Vec<Job>) {
    let forgotten = run_once(client, digest, pipeline, std::mem::take(jobs));
    if forgotten.is_empty() {
        return;
    }
    match load(client) {
        Ok(loaded) => {
            *digest = loaded;
            let forgotten = run_once(client, digest, pipeline, forgotten);
            fail(forgotten, "Redis forgets the script at once");
        }
        Err(error) => fail(forgotten, &format!("Redis: {error}")),
    }
}

/// Returns the jobs for which Redis does not know the script.
fn run_once(client: &mut Client, digest: &str, pipeline: &mut Pipeline, jobs: Vec<Job>) -> Vec<Job> {
    pipeline.clear();
    for job in &jobs {
        add(pipeline, digest, job);
    }
    let results = match client.pipeline::<ReplyValue>(pipeline) {
        Ok(results) => results,
        Err(error) => {
            fail(jobs, &format!("Redis: {error}"));
            return Vec::new();
        }
    };
    let mut forgotten = Vec::new();
    for (job, result) in jobs.into_iter().zip(results) {
        match result {
            Err(CommandError::Server(error)) if error.code() == "NOSCRIPT" => forgotten.push(job),
            Err(error) => (job.done)(Err(error.into())),
            Ok(value) => (job.done)(decision(&value)),
        }
    }
    forgotten
}

fn fail(jobs: Vec<Job>, why: &str) {
    for job in jobs {
        (job.done)(Err(LedgerError::Failed(why.to_owned())));
    }
}

fn add(pipeline: &mut Pipeline, digest: &str, job: &Job) {
    let (attempt, rules) = (&job.attempt, job.rules);
    let user = attempt.user.map(|user| user.to_string()).unwrap_or_default();
    let keys = ("EVALSHA", digest, 4, ADDRESSES, LOGINS, LAST, ATTEMPTS);
    let of_attempt = (attempt.at, user.as_str(), attempt.login.as_str(), attempt.address.as_str());
    pipeline.add((keys, of_attempt, u32::from(attempt.is_right), rules.ban_after, rules.lock_after));
}

fn decision(value: &ReplyValue) -> Result<Decision, LedgerError> {
    let ReplyValue::Array(parts) = value else { return Err(unexpected("a decision", value)) };
    let [ReplyValue::Bulk(word), previous] = parts.as_slice() else { return Err(unexpected("a decision", value)) };
    let verdict = std::str::from_utf8(word).ok().and_then(AttemptVerdict::of_word);
    let previous = match previous {
        ReplyValue::Bulk(text) => Some(login_of(&String::from_utf8_lossy(text))?),
        _ => None,
    };
    verdict.map(|verdict| Decision { verdict, previous }).ok_or_else(|| unexpected("a decision", value))
}

/// Parses a login from its text in Redis: `UNIX-SECONDS ADDRESS`.
fn login_of(text: &str) -> Result<Login, LedgerError> {
    let parts = text.split_once(' ').and_then(|(at, address)| Some((at.parse().ok()?, address.to_owned())));
    parts.map(|(at, address)| Login { at, address }).ok_or_else(|| unexpected("a last success", text))
}

fn unexpected(what: &str, value: impl fmt::Debug) -> LedgerError {
    LedgerError::Failed(format!("Redis has {what} that the bank did not write: {value:?}"))
}

/// The commands that record an attempt with a known outcome.
fn add_recorded(pipeline: &mut Pipeline, recorded: &Recorded) {
    let Recorded { attempt, succeeded } = recorded;
    let (address, login) = (attempt.address.as_str(), attempt.login.as_str());
    let user = attempt.user.map(|user| user.to_string()).unwrap_or_default();
    let of_attempt = ("at", attempt.at, "user", user.as_str(), "login", login, "address", address);
    pipeline.add(("XADD", ATTEMPTS, "*", of_attempt, "succeeded", u32::from(*succeeded)));
    let keys = [(ADDRESSES, address), (LOGINS, login)];
    for (key, name) in keys.into_iter().take(if attempt.user.is_some() { 2 } else { 1 }) {
        if *succeeded {
            pipeline.add(("ZADD", key, 0, name));
        } else {
            pipeline.add(("ZINCRBY", key, 1, name));
        }
    }
    if *succeeded {
        pipeline.add(("HSET", LAST, login, format!("{} {address}", attempt.at)));
    }
}

/// Sends a pipeline and ignores its replies, except errors.
fn send(client: &mut Client, pipeline: &mut Pipeline) -> Result<(), RedisError> {
    let results = client.pipeline::<()>(pipeline)?;
    pipeline.clear();
    results.into_iter().try_for_each(|result| result.map_err(RedisError::from))
}
