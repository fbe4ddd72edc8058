//! Makes the source refuse writes, so that no client's write is acknowledged there after its last changes were read.
//!
//! `min-replicas-to-write` is set to a number that no server reaches: every write is then answered NOREPLICAS, until the setting is
//! changed, whatever this process does. Pausing clients (CLIENT PAUSE) was rejected: the pause ends by itself, and the writes that waited
//! are then executed and acknowledged by the source.
//!
//! Before Redis 7, scripts may write nevertheless; [`Fence::scripts_may_write`] tells whether the source is such a server.

use resp::{ClientSettings, CommandError, ReplyValue, ServerError};

use super::ReshardError;
use super::error::ServerRole;
use super::servers::Server;

/// The number of replicas without which a server refuses writes.
const SETTING: &str = "min-replicas-to-write";
/// No server has so many.
const UNREACHABLE: &str = "2147483647";
/// How long a replica may be silent and still counts; 0 switches the check off.
const LAG_SETTING: &str = "min-replicas-max-lag";
const LAG_SECONDS: &str = "10";
/// The code of the errors that writes get.
const REFUSED: &str = "NOREPLICAS";
/// A key that nobody uses: removing it changes nothing, if the source executes the command after all.
const PROBE: &str = "sapsan-reshard:is-this-write-refused";

/// A source that refuses writes.
#[derive(Debug)]
pub(super) struct Fence {
    /// The settings before.
    former: Vec<(&'static str, String)>,
    /// Whether the source lets scripts write.
    pub(super) scripts_may_write: bool,
}

impl Fence {
    /// Checks that the source's settings may be changed; changes nothing.
    pub(super) fn check(source: &mut Server) -> Result<(), ReshardError> {
        let former = setting(source, SETTING)?;
        set(source, SETTING, &former)
    }

    /// Makes the source refuse writes, and shows by a write that it does. After an error it executes them as before.
    pub(super) fn raise(source: &mut Server) -> Result<Fence, ReshardError> {
        let mut fence = Fence { former: Vec::new(), scripts_may_write: false };
        match fence.close(source) {
            Ok(()) => Ok(fence),
            Err(error) => {
                fence.lift(source.settings());
                Err(error)
            }
        }
    }

    fn close(&mut self, source: &mut Server) -> Result<(), ReshardError> {
        self.change(source, SETTING, UNREACHABLE)?;
        if setting(source, LAG_SETTING)? == "0" {
            self.change(source, LAG_SETTING, LAG_SECONDS)?;
        }
        let write: Result<i64, ServerError> = source.ask(("DEL", PROBE))?;
        if !write.is_err_and(|error| error.code() == REFUSED) {
            return Err(ReshardError::NotFenced(format!("it executes writes although {SETTING} is {UNREACHABLE}")));
        }
        let script: Result<ReplyValue, ServerError> =
            source.ask(("EVAL", "return redis.call('DEL', KEYS[1])", 1, PROBE))?;
        self.scripts_may_write = script.is_ok();
        Ok(())
    }

    fn change(&mut self, source: &mut Server, name: &'static str, value: &str) -> Result<(), ReshardError> {
        self.former.push((name, setting(source, name)?));
        set(source, name, value)
    }

    /// Lets the source execute writes again. A source that cannot be reached keeps refusing them.
    pub(super) fn lift(&self, source: &ClientSettings) {
        let mut source = Server::new(source, ServerRole::Source);
        for (name, value) in &self.former {
            let _ = set(&mut source, name, value);
        }
    }

    /// The command that lets the source execute writes again.
    pub(super) fn lifted_by(&self) -> String {
        self.former.iter().map(|(name, value)| format!("CONFIG SET {name} {value}")).collect::<Vec<_>>().join("; ")
    }
}

fn setting(source: &mut Server, name: &str) -> Result<String, ReshardError> {
    let pair: Result<Vec<String>, ServerError> = source.ask(("CONFIG", "GET", name))?;
    let value = pair.map_err(refused)?.into_iter().nth(1);
    value.ok_or_else(|| ReshardError::NotFenced(format!("it has no setting {name}")))
}

fn set(source: &mut Server, name: &str, value: &str) -> Result<(), ReshardError> {
    source.ask::<()>(("CONFIG", "SET", name, value))?.map_err(refused)
}

fn refused(error: ServerError) -> ReshardError {
    ReshardError::NotFenced(CommandError::Server(error).to_string())
}
