//! The same requests behind the HTTP server, so that the models can be compared as servers.
//!
//! `GET /ID` is the request with that id, and any other path is the next id, in rotation; the reply is the request's text. The
//! request is passed from its event loop to the model's executor and answered from there. The inline model is an exception: it
//! runs on the loop and blocks it while it waits. If the executor is full, the answer is 503: a server does not wait for room.

use crate::control::SOURCE_REQUESTS;
use crate::workload::{SimulatedReply, Workload};
use executor::{Coroutine, CoroutineProgress, Executor, ExecutorMetrics, Model};
use http::{HttpRequest, HttpServer, HttpSettings, LateReply, Reply, Service, Status};
use reactor::Reactor;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Settings of a lab server.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// The listening address.
    pub listen: SocketAddr,
    /// Event loops.
    pub loops: usize,
    /// The model that runs the requests.
    pub model: Model,
    /// Largest number of waiting tasks; beyond it requests are answered with 503.
    pub queue_max: usize,
    /// The steps of the requests.
    pub workload: Arc<Workload>,
}

/// A running server.
pub struct Served {
    address: SocketAddr,
    running: reactor::RunningReactor,
    executor: Arc<dyn Executor>,
}

/// Starts a server.
pub fn serve(settings: ServeSettings) -> io::Result<Served> {
    let executor = settings.model.start("lab", settings.queue_max).map_err(io::Error::other)?;
    let executor: Arc<dyn Executor> = Arc::from(executor);
    let mut reactor =
        Reactor::new(reactor::ReactorSettings { loops: settings.loops, ..reactor::ReactorSettings::default() })?;
    let requests = Requests { executor: Arc::clone(&executor), workload: settings.workload, next: AtomicU32::new(0) };
    let address = reactor.listen(settings.listen, Arc::new(HttpServer::new(requests, HttpSettings::default())))?;
    Ok(Served { address, running: reactor.start()?, executor })
}

impl Served {
    /// The listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Counters of the executor.
    pub fn metrics(&self) -> ExecutorMetrics {
        self.executor.metrics()
    }

    /// Answers the received requests, within this time limit, and ends.
    pub fn end(self, limit: Duration) -> io::Result<()> {
        self.running.drain(limit);
        let ended = self.running.join();
        self.executor.drain(Instant::now() + limit);
        ended
    }
}

struct Requests {
    executor: Arc<dyn Executor>,
    workload: Arc<Workload>,
    next: AtomicU32,
}

impl Requests {
    fn id(&self, path: &str) -> u32 {
        let next = || self.next.fetch_add(1, Ordering::Relaxed) % SOURCE_REQUESTS;
        path.trim_start_matches('/').parse().unwrap_or_else(|_| next())
    }
}

impl Service for Requests {
    type Local = ();

    fn local(&self, _: &reactor::Loop) {}

    fn call(&self, _: &mut (), request: &HttpRequest<'_>, reply: Reply<'_>) {
        let id = self.id(request.path());
        let late = Some(reply.later());
        let task = Task {
            id,
            place: 0,
            reply: SimulatedReply::default(),
            workload: Arc::clone(&self.workload),
            late,
            has_begun: false,
        };
        // A task that is dropped before its end answers then: 503 if it was refused, 500 if it panicked or a drain ended it.
        drop(self.executor.try_submit(Box::new(task)));
    }
}

/// A request in the executor, and its pending reply.
struct Task {
    id: u32,
    place: usize,
    reply: SimulatedReply,
    workload: Arc<Workload>,
    late: Option<LateReply>,
    has_begun: bool,
}

impl Coroutine for Task {
    fn resume(&mut self) -> CoroutineProgress {
        self.has_begun = true;
        let progress = self.workload.advance(self.id, &mut self.place, &mut self.reply);
        if progress == CoroutineProgress::Done
            && let Some(late) = self.late.take()
        {
            late.send(Status(200), "text/plain", std::mem::take(&mut self.reply.buffer));
        }
        progress
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(late) = self.late.take() {
            let (status, why) = match self.has_begun {
                true => (Status(500), "the task ended without a reply\n"),
                false => (Status(503), "the executor takes no more tasks now\n"),
            };
            late.send(status, "text/plain", why.as_bytes().to_vec());
        }
    }
}
