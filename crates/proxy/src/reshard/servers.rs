//! The servers of a plan: what they are, and whether two of them are one.
//!
//! A server says by `run_id` of `INFO server` which process it is; a proxy says it of each of its nodes. If one of two servers gives no
//! `run_id`, their addresses are compared.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use resp::{Client, ClientSettings, CommandError, Endpoint, ReplyValue};

use super::error::address;
use super::{CopyPlan, ReshardError};

/// How long a server may take to connect and to answer INFO.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// The line of INFO before a server's `run_id`.
const RUN_ID: &str = "run_id:";

/// A client that connects in a single attempt. A server that cannot be reached ends the run at once; a lost connection is reopened.
pub(super) fn client(settings: &ClientSettings) -> Client {
    Client::new(connecting_once(settings, settings.timeout))
}

/// These settings with another time limit, and a pause before a second attempt to connect that is longer.
fn connecting_once(settings: &ClientSettings, timeout: Duration) -> ClientSettings {
    let pause = timeout.saturating_mul(4);
    ClientSettings { timeout, backoff_min: pause, backoff_max: pause, ..settings.clone() }
}

/// Checks whether each server of a plan answers within a time.
///
/// # Errors
/// [`ReshardError::Unanswered`] names the first that does not.
pub fn check_answers(plan: &CopyPlan, time_max: Duration) -> Result<(), ReshardError> {
    for settings in std::iter::once(&plan.source).chain(&plan.nodes) {
        match Client::new(connecting_once(settings, time_max)).command::<ReplyValue>("PING") {
            Ok(_) | Err(CommandError::Server(_)) => {}
            Err(error) => return Err(unanswered(settings, error)),
        }
    }
    Ok(())
}

fn unanswered(settings: &ClientSettings, error: CommandError) -> ReshardError {
    ReshardError::Unanswered { address: address(&settings.endpoint), error }
}

/// The servers of a plan, as they answered at the beginning.
pub(super) struct Servers {
    source: Server,
    nodes: Vec<Server>,
}

/// The processes that a source consisted of at the beginning.
///
/// A key that the source does not have is removed from its node only if these processes still answer **after** the source said so:
/// a source that was restarted may have lost its keys.
#[derive(Clone, Debug)]
pub(super) struct SourceIdentity {
    address: String,
    run_ids: BTreeSet<String>,
}

impl SourceIdentity {
    /// Checks, by a connection to the source, that they still answer.
    pub(super) fn check(&self, source: &mut Client) -> Result<(), ReshardError> {
        if run_ids(source).map_err(ReshardError::Source)? == self.run_ids {
            Ok(())
        } else {
            Err(ReshardError::SourceRestarted { source: self.address.clone() })
        }
    }
}

/// A server, and the processes that answer there.
struct Server {
    client: Client,
    run_ids: BTreeSet<String>,
}

impl Server {
    /// Asks a server, in a single attempt, which processes it consists of.
    fn ask(settings: &ClientSettings) -> Result<Server, ReshardError> {
        let mut client = Client::new(connecting_once(settings, ANSWER_TIME_MAX.min(settings.timeout)));
        let run_ids = run_ids(&mut client).map_err(|error| unanswered(settings, error))?;
        Ok(Server { client, run_ids })
    }

    /// Whether another process answers than the last time. A server that gives no `run_id` is always taken to be the same.
    fn has_changed(&mut self) -> Result<bool, ReshardError> {
        let settings = self.settings().clone();
        let now = run_ids(&mut self.client).map_err(|error| {
            // The next attempt must not wait for the pause after this one.
            self.client = Client::new(settings.clone());
            unanswered(&settings, error)
        })?;
        let has_changed = now != self.run_ids;
        self.run_ids = now;
        Ok(has_changed)
    }

    fn settings(&self) -> &ClientSettings {
        self.client.settings()
    }

    /// Whether a key that is written to one of them is on the other.
    fn shares_keys(&self, other: &Server) -> bool {
        if self.settings().database != other.settings().database {
            return false;
        }
        if self.run_ids.is_empty() || other.run_ids.is_empty() {
            return is_same(&self.settings().endpoint, &other.settings().endpoint);
        }
        !self.run_ids.is_disjoint(&other.run_ids)
    }
}

impl Servers {
    /// Asks every server; none of the nodes may be the source, and no two nodes one server.
    pub(super) fn ask(plan: &CopyPlan) -> Result<Servers, ReshardError> {
        let source = Server::ask(&plan.source)?;
        let mut nodes: Vec<Server> = Vec::with_capacity(plan.nodes.len());
        for settings in &plan.nodes {
            let node = Server::ask(settings)?;
            let name = address(&settings.endpoint);
            if node.shares_keys(&source) {
                return Err(ReshardError::SourceIsNode { node: name });
            }
            if let Some(same) = nodes.iter().find(|other| other.shares_keys(&node)) {
                return Err(ReshardError::SameNode { node: name, same: address(&same.settings().endpoint) });
            }
            nodes.push(node);
        }
        Ok(Servers { source, nodes })
    }

    /// What the source is, for the checks before keys are removed.
    pub(super) fn source(&self) -> SourceIdentity {
        SourceIdentity { address: address(&self.source.settings().endpoint), run_ids: self.source.run_ids.clone() }
    }

    /// Checks that they are still the same processes. A node's change is reported once.
    pub(super) fn check(&mut self) -> Result<(), ReshardError> {
        if self.source.has_changed()? {
            return Err(ReshardError::SourceRestarted { source: address(&self.source.settings().endpoint) });
        }
        for node in &mut self.nodes {
            if node.has_changed()? {
                return Err(ReshardError::NodeRestarted { node: address(&node.settings().endpoint) });
            }
        }
        Ok(())
    }
}

/// The processes that answer; none if the server does not say.
fn run_ids(client: &mut Client) -> Result<BTreeSet<String>, CommandError> {
    match client.command::<String>(("INFO", "server")) {
        Ok(info) => Ok(info.lines().filter_map(|line| line.strip_prefix(RUN_ID)).map(str::to_owned).collect()),
        Err(CommandError::Server(_) | CommandError::Conversion(_)) => Ok(BTreeSet::new()),
        Err(error) => Err(error),
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
        let server = |address: &str, run_ids: &[&str]| Server {
            client: Client::new(of(address)),
            run_ids: run_ids.iter().map(|id| (*id).to_owned()).collect(),
        };
        let plain = server("redis://127.0.0.1:6379", &[]);
        assert!(plain.shares_keys(&server("redis://127.0.0.1:6379", &["a"])));
        assert!(!plain.shares_keys(&server("redis://127.0.0.1:6380", &["a"])));
        assert!(!plain.shares_keys(&server("redis://127.0.0.1:6379/1", &[])));
        // A proxy is all of its nodes.
        let proxy = server("redis://127.0.0.1:6390", &["a", "b"]);
        assert!(proxy.shares_keys(&server("redis://127.0.0.1:6379", &["b"])));
        assert!(!proxy.shares_keys(&server("redis://127.0.0.1:6390", &["c"])));
    }
}
