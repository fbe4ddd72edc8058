//! Files that are read again beside the clients.

use crate::check::settled;
use crate::client::Shared;
use crate::history::History;
use crate::http::Client;
use crate::settings::Settings;
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pause before a refused reload is tried again, or the next one is due.
const PAUSE: Duration = Duration::from_millis(10);
/// Items of one group by an index, and none of their documents: any index that begins with the group serves it.
const BY_GROUP: &str = "EXPLAIN SELECT id FROM items WHERE grp = 3";

/// Reads other files into a server.
pub(crate) struct Reloader<'r> {
    pub(crate) address: SocketAddr,
    pub(crate) shared: &'r Shared,
    pub(crate) settings: &'r mut Settings,
    pub(crate) history: &'r mut History,
    pub(crate) random: ChaCha8Rng,
    pub(crate) config: PathBuf,
    /// The server's folder for backups.
    pub(crate) backups: PathBuf,
    pub(crate) was_killed: &'r AtomicBool,
    pub(crate) reloads: u32,
    /// Plans that were looked at.
    pub(crate) plans: u64,
}

impl Reloader<'_> {
    /// Reloads so many times while so many operations are answered; returns how many were done, and the plans.
    pub(crate) fn run(mut self, count: u32, operations: u64) -> Result<(u32, u64), String> {
        for turn in 0..count {
            let due = operations * u64::from(turn) / u64::from(count);
            while self.shared.answered.load(Ordering::SeqCst) < due && !self.is_over() {
                std::thread::sleep(PAUSE);
            }
            if self.is_over() {
                break;
            }
            self.reload()?;
        }
        Ok((self.reloads, self.plans))
    }

    fn is_over(&self) -> bool {
        self.shared.is_over() || self.was_killed.load(Ordering::SeqCst)
    }

    fn reload(&mut self) -> Result<(), String> {
        let new = self.settings.changed(&mut self.random);
        self.reload_to(new)
    }

    /// Has the server read this file.
    pub(crate) fn reload_to(&mut self, new: Settings) -> Result<(), String> {
        let keeps_an_index = self.settings.indexes_groups() && new.indexes_groups();
        self.history.begin(self.shared.tick(), self.settings, &new);
        *self.settings = new;
        let text = self.settings.text(self.backups.to_str().expect("a path in UTF-8"));
        // By a rename: a server that is killed and started again finds a whole file.
        let next = self.config.with_extension("next");
        std::fs::write(&next, text).and_then(|()| std::fs::rename(&next, &self.config)).expect("a file");
        let (address, is_done) = (self.address, AtomicBool::new(false));
        let plans = std::thread::scope(|scope| {
            let plans = keeps_an_index.then(|| scope.spawn(|| watch_plans(address, &is_done)));
            let outcome = self.ask_and_settle();
            is_done.store(true, Ordering::SeqCst);
            let plans = plans.map_or(Ok(0), |plans| plans.join().expect("no panic"));
            outcome.and(plans)
        })?;
        self.plans += plans;
        Ok(())
    }

    /// Until the server has read the file and decided about all its rules.
    fn ask_and_settle(&mut self) -> Result<(), String> {
        let mut client = Client::new(self.address);
        loop {
            let Ok(reply) = client.ask("POST", "/_/config/reload?allow-drop=true", b"") else { return Ok(()) };
            match reply.status {
                200 => break,
                // Some rule is refused because of stored documents; the rest of the file is in force.
                409 if reply.json()["refused"].is_array() => break,
                // A statement that writes took too long: nothing is changed.
                409 if !reply.json()["would_drop"].is_array() && !self.is_over() => std::thread::sleep(PAUSE),
                503 if !self.is_over() => std::thread::sleep(PAUSE),
                409 | 503 if self.is_over() => return Ok(()),
                _ => return Err(format!("a reload is answered {}: {}", reply.status, reply.text())),
            }
        }
        self.reloads += 1;
        if let Some(rules) = settled(self.address, || self.is_over())? {
            self.history.settle(self.shared.tick(), self.settings, &rules.refused, false);
        }
        Ok(())
    }
}

/// Demands that a query which both files have an index for uses one all the while; returns the number of its plans.
fn watch_plans(address: SocketAddr, is_done: &AtomicBool) -> Result<u64, String> {
    let mut client = Client::new(address);
    let body = json!({ "sql": BY_GROUP }).to_string();
    let mut plans = 0;
    while !is_done.load(Ordering::SeqCst) {
        let Ok(reply) = client.ask("POST", "/_/query", body.as_bytes()) else { break };
        if reply.status == 200 {
            plans += 1;
            if !reply.text().contains("INDEX") {
                return Err(format!("while one index replaces another: {BY_GROUP}: {}", reply.text()));
            }
        }
        std::thread::sleep(PAUSE);
    }
    Ok(plans)
}
