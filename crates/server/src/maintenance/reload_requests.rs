//! Requests for a reload on their way to the thread that reloads (`lifecycle::reload`), and counters of completed and refused
//! ones.

use crate::access::token::Permit;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::requests::params::echo;
use http::{HttpRequest, LateReply, Reply, query};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

/// Limit of waiting requests.
pub(crate) const WAITING_MAX: usize = 8;

/// The parameter that permits a reload to drop what the file no longer declares.
const ALLOW_DROP: &str = "allow-drop";
/// The parameters of the query.
pub(crate) const PARAMETERS: [&str; 1] = [ALLOW_DROP];

/// Work for the thread.
pub(crate) enum ReloadTask {
    Reload {
        late: Option<LateReply>,
        /// The permission of the request: it may end while the request waits.
        permit: Permit,
        /// Whether the folder may lose what the file no longer declares.
        may_drop: bool,
    },
    Stop,
}

/// The queue of the thread, and its counters.
#[derive(Default)]
pub(crate) struct Reloads {
    pub(crate) tasks: OnceLock<SyncSender<ReloadTask>>,
    pub(crate) done: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Reloads {
    /// Requests a reload; it is answered when it is done or refused.
    pub(crate) fn ask(&self, request: &HttpRequest<'_>, (permit, reply): (Permit, Reply<'_>)) {
        let may_drop = match may_drop(request.query()) {
            Ok(may_drop) => may_drop,
            Err(failure) => return refusal::fail(&failure, reply),
        };
        let Some(tasks) = self.tasks.get() else {
            return refusal::fail(&Failure::new(FailureKind::Unavailable, "the server is starting"), reply);
        };
        let refused = match tasks.try_send(ReloadTask::Reload { late: Some(reply.later()), permit, may_drop }) {
            Ok(()) => return,
            Err(TrySendError::Full(ask) | TrySendError::Disconnected(ask)) => ask,
        };
        if let ReloadTask::Reload { late: Some(late), .. } = refused {
            let busy = Failure::new(FailureKind::Busy, "other reloads wait already");
            refusal::refuse(&ErrorRules::default(), late, &busy);
        }
    }

    /// The same with only a log line as answer. A signal carries no permission, so nothing may be dropped.
    pub(crate) fn ask_by_signal(&self) {
        if let Some(tasks) = self.tasks.get() {
            // If the queue is full, the file will be read after this moment anyway.
            let _ = tasks.try_send(ReloadTask::Reload { late: None, permit: Permit::default(), may_drop: false });
        }
    }

    /// Completed and refused reloads.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }
}

/// Reads the parameters of a request.
fn may_drop(text: &str) -> Result<bool, Failure> {
    let (mut may_drop, mut scratch) = (None, Vec::new());
    for (name, value) in query::pairs(text) {
        let value = query::decode(value, &mut scratch)
            .map_err(|error| Failure::new(FailureKind::Invalid, format!("parameter `{}`: {error}", echo(name))))?;
        let given = match (name, value) {
            // Any other name has been refused.
            (_, "true") => true,
            (_, "false") => false,
            _ => {
                let detail = format!("{ALLOW_DROP} is `{}`; allowed: true, false", echo(value));
                return Err(Failure::new(FailureKind::Invalid, detail));
            }
        };
        if may_drop.replace(given).is_some() {
            return Err(Failure::new(
                FailureKind::Invalid,
                format!("parameter `{ALLOW_DROP}` is given more than once"),
            ));
        }
    }
    Ok(may_drop.unwrap_or(false))
}
