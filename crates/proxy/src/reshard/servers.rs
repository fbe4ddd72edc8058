//! The servers of a plan: connections to them, what they are, and whether two of them are one.
//!
//! A server says by `run_id` of `INFO server` which process it is; a proxy says it of each of its nodes. If one of two servers gives no
//! `run_id`, their addresses are compared.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use resp::{Client, ClientSettings, CommandError, Endpoint, FromReply, Pipeline, ReplyValue, ServerError, ToArguments};

use super::error::{ServerRole, address};
use super::{CopyPlan, ReshardError};

/// How long a server may take to connect and to answer INFO.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// The line of INFO before a server's `run_id`.
const RUN_ID: &str = "run_id:";
/// Clocks that differ by less are the same: servers are expected to synchronize theirs.
const CLOCK_DIFFERENCE_MS: i64 = 1_000;

/// A connection to a server of the plan. Its errors name the server.
///
/// Each attempt to connect is a single one: a server that cannot be reached ends the run at once. A lost connection is reopened.
pub(super) struct Server {
    client: Client,
    role: ServerRole,
}

impl Server {
    pub(super) fn new(settings: &ClientSettings, role: ServerRole) -> Server {
        Server { client: Client::new(connecting_once(settings, settings.timeout)), role }
    }

    pub(super) fn settings(&self) -> &ClientSettings {
        self.client.settings()
    }

    pub(super) fn address(&self) -> String {
        address(&self.settings().endpoint)
    }

    /// An error of this server.
    pub(super) fn error(&self, error: CommandError) -> ReshardError {
        ReshardError::Server { role: self.role, address: self.address(), error }
    }

    /// Executes a command.
    pub(super) fn command<T: FromReply>(&mut self, command: impl ToArguments) -> Result<T, ReshardError> {
        self.client.command(command).map_err(|error| self.error(error))
    }

    /// Executes a command that the server may refuse.
    pub(super) fn ask<T: FromReply>(
        &mut self,
        command: impl ToArguments,
    ) -> Result<Result<T, ServerError>, ReshardError> {
        match self.client.command(command) {
            Ok(reply) => Ok(Ok(reply)),
            Err(CommandError::Server(refusal)) => Ok(Err(refusal)),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Executes commands, each of which the server may refuse.
    pub(super) fn pipeline<T: FromReply>(
        &mut self,
        pipeline: &Pipeline,
    ) -> Result<Vec<Result<T, ServerError>>, ReshardError> {
        let results = self.client.pipeline(pipeline).map_err(|error| self.error(error))?;
        let outcome = |result| match result {
            Ok(reply) => Ok(Ok(reply)),
            Err(CommandError::Server(refusal)) => Ok(Err(refusal)),
            Err(error) => Err(self.error(error)),
        };
        results.into_iter().map(outcome).collect()
    }

    /// Executes commands, none of which the server may refuse.
    pub(super) fn all<T: FromReply>(&mut self, pipeline: &Pipeline) -> Result<Vec<T>, ReshardError> {
        let results = self.pipeline(pipeline)?;
        let outcome = |result: Result<T, ServerError>| result.map_err(|error| self.error(CommandError::Server(error)));
        results.into_iter().map(outcome).collect()
    }

    /// The server's clock, in milliseconds since 1970.
    pub(super) fn time_ms(&mut self) -> Result<i64, ReshardError> {
        let (seconds, microseconds): (i64, i64) = self.command("TIME")?;
        Ok(seconds * 1_000 + microseconds / 1_000)
    }

    /// The processes that answer; none if the server does not say.
    fn run_ids(&mut self) -> Result<BTreeSet<String>, ReshardError> {
        match self.client.command::<String>(("INFO", "server")) {
            Ok(info) => Ok(info.lines().filter_map(|line| line.strip_prefix(RUN_ID)).map(str::to_owned).collect()),
            Err(CommandError::Server(_) | CommandError::Conversion(_)) => Ok(BTreeSet::new()),
            Err(error) => Err(self.error(error)),
        }
    }
}

/// These settings with another time limit, and a pause before a second attempt to connect that is longer.
fn connecting_once(settings: &ClientSettings, timeout: Duration) -> ClientSettings {
    let pause = timeout.saturating_mul(4);
    ClientSettings { timeout, backoff_min: pause, backoff_max: pause, ..settings.clone() }
}

/// By how much the node's clock is ahead of the source's, in milliseconds; 0 if the difference is small or cannot be measured.
pub(super) fn clock_offset(source: &mut Server, node: &mut Server) -> Result<i64, ReshardError> {
    let (began, here, there) = (Instant::now(), source.time_ms()?, node.time_ms()?);
    let (offset, elapsed) = (there - here, i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX));
    Ok(if offset.abs() <= elapsed.saturating_add(CLOCK_DIFFERENCE_MS) { 0 } else { offset })
}

/// Checks whether each server of a plan answers within a time.
///
/// # Errors
/// [`ReshardError::Server`] names the first that does not.
pub fn check_answers(plan: &CopyPlan, time_max: Duration) -> Result<(), ReshardError> {
    let source = std::iter::once((&plan.source, ServerRole::Source));
    for (settings, role) in source.chain(plan.nodes.iter().map(|node| (node, ServerRole::Node))) {
        let mut server = Server::new(&ClientSettings { timeout: time_max, ..settings.clone() }, role);
        let _: Result<ReplyValue, ServerError> = server.ask("PING")?;
    }
    Ok(())
}

/// The servers of a plan, as they answered at the beginning.
pub(super) struct Servers {
    source: Process,
    nodes: Vec<Process>,
    /// By how much the clock of each node is ahead of the source's, in milliseconds.
    clock_offsets: Vec<i64>,
}

/// What a copy must know of the servers.
///
/// A key that the source does not have is removed from its node only if the source's processes still answer **after** the source
/// said so: a source that was restarted may have lost its keys.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    address: String,
    run_ids: BTreeSet<String>,
    clock_offsets: Vec<i64>,
}

impl Origin {
    /// Checks, by a connection to the source, that its processes still answer.
    pub(super) fn check(&self, source: &mut Server) -> Result<(), ReshardError> {
        if source.run_ids()? == self.run_ids {
            Ok(())
        } else {
            Err(ReshardError::SourceRestarted { source: self.address.clone() })
        }
    }

    /// By how much the clock of a node is ahead of the source's, in milliseconds.
    pub(super) fn clock_offset(&self, node: usize) -> i64 {
        self.clock_offsets.get(node).copied().unwrap_or_default()
    }
}

/// A server, and the processes that answer there.
struct Process {
    server: Server,
    run_ids: BTreeSet<String>,
}

impl Process {
    /// Asks a server, in a single attempt, which processes it consists of.
    fn ask(settings: &ClientSettings, role: ServerRole) -> Result<Process, ReshardError> {
        let timeout = ANSWER_TIME_MAX.min(settings.timeout);
        let mut server = Server::new(&ClientSettings { timeout, ..settings.clone() }, role);
        let run_ids = server.run_ids()?;
        Ok(Process { server, run_ids })
    }

    /// Whether another process answers than the last time. A server that gives no `run_id` is always taken to be the same.
    fn has_changed(&mut self) -> Result<bool, ReshardError> {
        let now = self.server.run_ids().inspect_err(|_| {
            // The next attempt must not wait for the pause after this one.
            self.server = Server::new(self.server.settings(), self.server.role);
        })?;
        let has_changed = now != self.run_ids;
        self.run_ids = now;
        Ok(has_changed)
    }

    /// Whether a key that is written to one of them is on the other.
    fn shares_keys(&self, other: &Process, all_databases: bool) -> bool {
        let (own, others) = (self.server.settings(), other.server.settings());
        if own.database != others.database && !all_databases {
            return false;
        }
        if self.run_ids.is_empty() || other.run_ids.is_empty() {
            return is_same(&own.endpoint, &others.endpoint);
        }
        !self.run_ids.is_disjoint(&other.run_ids)
    }
}

impl Servers {
    /// Asks every server; none of the nodes may be the source, and no two nodes one server.
    pub(super) fn ask(plan: &CopyPlan) -> Result<Servers, ReshardError> {
        let mut source = Process::ask(&plan.source, ServerRole::Source)?;
        let mut nodes: Vec<Process> = Vec::with_capacity(plan.nodes.len());
        for settings in &plan.nodes {
            let node = Process::ask(settings, ServerRole::Node)?;
            if node.shares_keys(&source, plan.all_databases) {
                return Err(ReshardError::SourceIsNode { node: node.server.address() });
            }
            if let Some(same) = nodes.iter().find(|other| other.shares_keys(&node, plan.all_databases)) {
                return Err(ReshardError::SameNode { node: node.server.address(), same: same.server.address() });
            }
            nodes.push(node);
        }
        let clock_offsets = nodes.iter_mut().map(|node| clock_offset(&mut source.server, &mut node.server));
        let clock_offsets = clock_offsets.collect::<Result<Vec<i64>, ReshardError>>()?;
        Ok(Servers { source, nodes, clock_offsets })
    }

    /// What a copy must know of them.
    pub(super) fn origin(&self) -> Origin {
        let (address, run_ids) = (self.source.server.address(), self.source.run_ids.clone());
        Origin { address, run_ids, clock_offsets: self.clock_offsets.clone() }
    }

    /// Checks that they are still the same processes. A node's change is reported once.
    pub(super) fn check(&mut self) -> Result<(), ReshardError> {
        if self.source.has_changed()? {
            return Err(ReshardError::SourceRestarted { source: self.source.server.address() });
        }
        for node in &mut self.nodes {
            if node.has_changed()? {
                return Err(ReshardError::NodeRestarted { node: node.server.address() });
            }
        }
        Ok(())
    }
}

/// Whether two addresses lead to the same server.
fn is_same(one: &Endpoint, other: &Endpoint) -> bool {
    let resolved = |host: &str, port: u16| -> Vec<SocketAddr> {
        (host, port).to_socket_addrs().map_or_else(|_| Vec::new(), Iterator::collect)
    };
    match (one, other) {
        (Endpoint::Tcp { host: a, port: x }, Endpoint::Tcp { host: b, port: y }) => {
            let other = resolved(b, *y);
            x == y && (a == b || resolved(a, *x).iter().any(|address| other.contains(address)))
        }
        (Endpoint::Unix(a), Endpoint::Unix(b)) => {
            a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_compared_where_no_run_id_is_given() {
        let of = |address: &str| ClientSettings::of(address).unwrap();
        let server = |address: &str, run_ids: &[&str]| Process {
            server: Server::new(&of(address), ServerRole::Node),
            run_ids: run_ids.iter().map(|id| (*id).to_owned()).collect(),
        };
        let plain = server("redis://127.0.0.1:6379", &[]);
        assert!(plain.shares_keys(&server("redis://127.0.0.1:6379", &["a"]), false));
        assert!(!plain.shares_keys(&server("redis://127.0.0.1:6380", &["a"]), false));
        let other_database = server("redis://127.0.0.1:6379/1", &[]);
        assert!(!plain.shares_keys(&other_database, false) && plain.shares_keys(&other_database, true));
        // A proxy is all of its nodes.
        let proxy = server("redis://127.0.0.1:6390", &["a", "b"]);
        assert!(proxy.shares_keys(&server("redis://127.0.0.1:6379", &["b"]), false));
        assert!(!proxy.shares_keys(&server("redis://127.0.0.1:6390", &["c"]), false));
    }
}
