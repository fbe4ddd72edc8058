//! The threads of an open store: started after recovery, and ended in order when the last handle is dropped.

use std::sync::Arc;

use crate::base::error::StoreError;
use crate::base::limits::COMMITTERS;
use crate::base::sync::thread;
use crate::base::sync::thread::JoinHandle;
use crate::engine::Engine;
use crate::engine::options::Durability;

/// The engine with its threads.
pub(crate) struct Running {
    engine: Arc<Engine>,
    committers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts the threads of an opened store.
    pub(crate) fn start(engine: Engine) -> Result<Running, StoreError> {
        let mut running = Running { engine: Arc::new(engine), committers: Vec::new(), others: Vec::new() };
        for _ in 0..COMMITTERS {
            let thread = running.spawn("store-commit", Engine::run_committer)?;
            running.committers.push(thread);
        }
        let checkpointer = running.spawn("store-ckpt", Engine::run_checkpointer)?;
        running.others.push(checkpointer);
        let space_keeper = running.spawn("store-space", Engine::run_space_keeper)?;
        running.others.push(space_keeper);
        if let Durability::Interval(_) = running.engine.options.durability {
            let syncer = running.spawn("store-sync", Engine::run_syncer)?;
            running.others.push(syncer);
        }
        Ok(running)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn spawn(
        &self,
        name: &'static str,
        life: impl FnOnce(&Engine) + Send + 'static,
    ) -> Result<JoinHandle<()>, StoreError> {
        let engine = Arc::clone(&self.engine);
        thread::Builder::new()
            .name(name.to_string())
            .spawn(move || {
                // Any panic of the thread stops the store, because other threads may wait for its work or rely on it.
                let _watch = engine.fail_stop.watch(name);
                life(&engine);
            })
            .map_err(|error| StoreError::io(format!("start thread {name}"), error))
    }
}

impl Drop for Running {
    /// Commits and acknowledges queued transactions, stops the other threads, and ends the log with an empty batch.
    fn drop(&mut self) {
        self.engine.refuse_new();
        let committers = std::mem::take(&mut self.committers).into_iter();
        committers.for_each(join);
        self.engine.stop_others();
        std::mem::take(&mut self.others).into_iter().for_each(join);
        self.engine.close_log();
    }
}

fn join(thread: JoinHandle<()>) {
    // The last clone may be dropped in a transaction's `finish`, which runs on one of these threads.
    if thread.thread().id() != thread::current().id() && thread.join().is_err() {
        tracing::error!("a thread of the store panicked");
    }
}
