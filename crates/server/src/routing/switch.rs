//! The HTTP server's service: for each loop, the routing of the newest configuration.
//!
//! A loop checks for a newer one before each request and at the end of each tick, with one load. A request that has begun
//! continues with its configuration, and so does its work on other threads. Sleeping loops are woken; otherwise they would hold
//! the old configuration, with its memory and its view of the files, until their next request (`lifecycle::reload`).

use super::routes::Routing;
use crate::access::sender::Listener;
use crate::service::kept_request::KeptRequest;
use crate::service::rerouting::{PoolQuery, PoolStep, Rerouting};
use crate::service::{self, Local};
use http::{HttpRequest, LateReply, Reply, RequestOrder};
use reactor::Loop;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// See the module's documentation.
pub(crate) struct Switch {
    current: RwLock<Arc<Routing>>,
    /// Number of configurations so far.
    number: AtomicU64,
    /// The loops that use it, to wake them.
    loops: Mutex<Vec<Loop>>,
}

/// State of a loop.
pub(crate) struct LoopRouting {
    routing: Arc<Routing>,
    number: u64,
    local: Local,
}

impl Switch {
    pub(crate) fn new(routing: Routing) -> Switch {
        Switch { current: RwLock::new(Arc::new(routing)), number: AtomicU64::new(0), loops: Mutex::default() }
    }

    pub(crate) fn current(&self) -> Arc<Routing> {
        self.numbered().0
    }

    /// The current one, with its number.
    fn numbered(&self) -> (Arc<Routing>, u64) {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&current), self.number.load(Ordering::Acquire))
    }

    /// Makes later requests use this routing.
    pub(crate) fn put(&self, routing: Routing) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(routing);
        self.number.fetch_add(1, Ordering::Release);
        drop(current);
        // The loops check at the end of their ticks.
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        loops.iter().for_each(|lp| lp.run(Box::new(|_| {})));
    }

    fn turn(&self, lp: &Loop, listener: Listener) -> LoopRouting {
        let mut loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        if loops.iter().all(|known| known.index() != lp.index()) {
            loops.push(lp.clone());
        }
        drop(loops);
        let (routing, number) = self.numbered();
        let local = Local::new(&routing.service, lp, listener);
        LoopRouting { routing, number, local }
    }

    #[inline]
    fn look(&self, turn: &mut LoopRouting) {
        if self.number.load(Ordering::Acquire) != turn.number {
            self.renew(turn);
        }
    }

    #[cold]
    fn renew(&self, turn: &mut LoopRouting) {
        let (routing, number) = self.numbered();
        // If no reader is free, this request continues with the old one.
        let Ok(session) = service::session(&routing.service.database, turn.local.listener) else { return };
        if let Some(direct) = &mut turn.local.direct {
            let old = &turn.routing.service;
            direct.move_on((&old.database, &old.errors), &routing.service.database);
        }
        turn.local.renew(session);
        (turn.routing, turn.number) = (routing, number);
    }
}

impl http::Service for Switch {
    type Local = LoopRouting;

    fn local(&self, lp: &Loop) -> LoopRouting {
        self.turn(lp, Listener::Public)
    }

    #[inline]
    fn order(&self, turn: &mut LoopRouting, request: &HttpRequest<'_>) -> RequestOrder {
        self.look(turn);
        turn.routing.order(request)
    }

    fn takes_pieces(&self, _: &mut LoopRouting, request: &HttpRequest<'_>) -> bool {
        Routing::takes_pieces(request)
    }

    fn is_vital(&self, request: &HttpRequest<'_>) -> bool {
        VITAL.contains(&request.path())
    }

    #[inline]
    fn foresee(&self, turn: &mut LoopRouting, method: http::Method, path: &str, query: &str) {
        turn.routing.foresee(&mut turn.local, method, path, query);
    }

    #[inline]
    fn prepare(&self, turn: &mut LoopRouting) {
        turn.local.session.fetch();
    }

    #[inline]
    fn call(&self, turn: &mut LoopRouting, request: &HttpRequest<'_>, reply: Reply<'_>) {
        turn.routing.call(&mut turn.local, request, reply);
    }

    #[inline]
    fn became_alone(&self, turn: &mut LoopRouting) -> bool {
        turn.local.long_writes.take_note()
    }

    fn completions(&self, turn: &LoopRouting) -> Option<RawFd> {
        turn.local.completions()
    }

    fn completed(&self, turn: &mut LoopRouting) {
        turn.routing.completed(&mut turn.local);
    }

    #[inline]
    fn tick_ended(&self, turn: &mut LoopRouting) {
        turn.local.tick_ended();
        self.look(turn);
    }
}

impl Rerouting for Switch {
    fn route_again(&self, request: &KeptRequest, ends: Instant, late: LateReply) -> Option<PoolStep> {
        let (query, late) = self.current().route_again(request, ends, late)?;
        Some((query as Arc<dyn PoolQuery>, late))
    }
}

/// Requests that are answered even if there are too many connections: an operator needs them then.
const VITAL: [&str; 2] = ["/_/health", "/_/metrics"];

/// Only the general API, behind the listener of `[server] admin`.
pub(crate) struct AdminEntrance(pub(crate) Arc<Switch>);

impl http::Service for AdminEntrance {
    type Local = LoopRouting;

    fn local(&self, lp: &Loop) -> LoopRouting {
        self.0.turn(lp, Listener::Admin)
    }

    fn order(&self, turn: &mut LoopRouting, request: &HttpRequest<'_>) -> RequestOrder {
        http::Service::order(&*self.0, turn, request)
    }

    fn takes_pieces(&self, _: &mut LoopRouting, request: &HttpRequest<'_>) -> bool {
        Routing::takes_pieces(request)
    }

    fn is_vital(&self, request: &HttpRequest<'_>) -> bool {
        VITAL.contains(&request.path())
    }

    fn call(&self, turn: &mut LoopRouting, request: &HttpRequest<'_>, reply: Reply<'_>) {
        turn.routing.call_admin(&mut turn.local, request, reply);
    }

    fn became_alone(&self, turn: &mut LoopRouting) -> bool {
        http::Service::became_alone(&*self.0, turn)
    }

    fn tick_ended(&self, turn: &mut LoopRouting) {
        http::Service::tick_ended(&*self.0, turn);
    }
}
