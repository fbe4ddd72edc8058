//! Clients shared among threads, a bounded number of them.

use super::client::Client;
use super::error::{CommandError, NotSent};
use super::settings::{ClientSettings, deadline};
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A bounded number of clients of one server. The most recently used client is given out first, so that a light load uses
/// few connections. Clients reconnect by themselves, so the pool needs no health checks.
#[derive(Debug)]
pub struct ClientPool {
    settings: ClientSettings,
    clients_max: usize,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Client>,
    /// Clients that exist, idle or given out.
    clients: usize,
}

impl ClientPool {
    /// A pool of at most `clients_max` clients, at least one. None is connected yet.
    pub fn new(settings: ClientSettings, clients_max: usize) -> ClientPool {
        ClientPool { settings, clients_max: clients_max.max(1), state: Mutex::default(), returned: Condvar::new() }
    }

    /// Takes a client for the caller alone, until it is dropped. Waits up to `ClientSettings::timeout` if all are given out.
    ///
    /// # Errors
    /// [`NotSent::PoolExhausted`].
    pub fn get(&self) -> Result<PooledClient<'_>, CommandError> {
        let deadline = deadline(Instant::now(), self.settings.timeout);
        let mut state = self.lock();
        loop {
            if let Some(client) = state.idle.pop() {
                return Ok(PooledClient { pool: self, client: Some(client) });
            }
            if state.clients < self.clients_max {
                state.clients += 1;
                return Ok(PooledClient { pool: self, client: Some(Client::new(self.settings.clone())) });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(NotSent::PoolExhausted.into());
            }
            state = self.returned.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Every change under this lock is a single step, so a panic elsewhere leaves the state consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client of a pool, returned to it on drop. State that a command changed directly (`SELECT`, `MULTI`) stays with the
/// client.
#[derive(Debug)]
pub struct PooledClient<'p> {
    pool: &'p ClientPool,
    /// None only during the drop.
    client: Option<Client>,
}

impl Deref for PooledClient<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("a client until it is dropped")
    }
}

impl DerefMut for PooledClient<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        self.client.as_mut().expect("a client until it is dropped")
    }
}

impl Drop for PooledClient<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.idle.extend(self.client.take());
        self.pool.returned.notify_one();
    }
}
