//! The server: a service with its settings, as a factory for the reactor's listeners.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use reactor::{Accept, ConnectionId, Factory, Loop, LoopContext, LoopState, Message, Protocol, Setup};

use crate::addresses::Addresses;
use crate::connection::Connection;
use crate::connection::crowd::Leave;
use crate::connection::shared::Shared;
use crate::connection::worker::Worker;
use crate::metrics::latency::{Latencies, SeriesTotal};
use crate::metrics::{HttpMetrics, MetricsTotal};
use crate::service::Service;
use crate::settings::HttpSettings;

/// An HTTP server. Pass it to `Reactor::listen`, in an `Arc`, for one address or several; `Service::local` is called once for
/// each loop and listener.
pub struct HttpServer<S: Service> {
    service: Arc<S>,
    settings: Arc<HttpSettings>,
    addresses: Arc<Addresses>,
    /// Its connections have no address in `addresses`.
    is_beside: bool,
    metrics: Arc<Mutex<Vec<Arc<HttpMetrics>>>>,
}

impl<S: Service> HttpServer<S> {
    /// A server for a service.
    pub fn new(service: S, settings: HttpSettings) -> Self {
        HttpServer {
            service: Arc::new(service),
            addresses: Addresses::new(&settings.limits),
            settings: Arc::new(settings),
            is_beside: false,
            metrics: Arc::default(),
        }
    }

    /// A server for another service, for a listener of its own: settings and counters are shared. Its connections count for
    /// [`crate::ClientLimits::connections_max`] but for no address: clients of the first listener cannot keep them out.
    pub fn beside<T: Service>(&self, service: T) -> HttpServer<T> {
        HttpServer {
            service: Arc::new(service),
            settings: Arc::clone(&self.settings),
            addresses: Arc::clone(&self.addresses),
            is_beside: true,
            metrics: Arc::clone(&self.metrics),
        }
    }

    /// The service.
    pub fn service(&self) -> &Arc<S> {
        &self.service
    }

    /// The counters, summed over all loops.
    pub fn metrics(&self) -> MetricsTotal {
        let loops = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        MetricsTotal::of(loops.iter().map(Arc::as_ref))
    }

    /// Replies by series, status and latency, summed over all loops.
    pub fn series(&self) -> Vec<SeriesTotal> {
        let loops = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        Latencies::total(loops.iter().map(|metrics| &metrics.latencies))
    }
}

impl<S: Service> Factory for HttpServer<S> {
    fn acceptor(&self, setup: &mut Setup<'_>) -> Box<dyn Accept> {
        let lp = setup.lp();
        let metrics = Arc::new(HttpMetrics::default());
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&metrics));
        let worker = Worker::new(lp.clone(), Arc::clone(&self.settings), metrics);
        let local = RefCell::new(self.service.local(lp));
        let shared = Rc::new(Shared { worker, service: Arc::clone(&self.service), local });
        setup.add_state(Box::new(Hooks(Rc::clone(&shared))));
        let (addresses, is_beside) = (Arc::clone(&self.addresses), self.is_beside);
        Box::new(Acceptor { shared, addresses, is_beside, asked_ns: 0 })
    }
}

/// The service's hooks in the loop.
struct Hooks<S: Service>(Rc<Shared<S>>);

impl<S: Service> LoopState for Hooks<S> {
    fn completions(&self) -> Option<RawFd> {
        self.0.service.completions(&self.0.local.borrow())
    }

    fn completed(&mut self, _at: &mut LoopContext<'_>) {
        self.0.service.completed(&mut self.0.local.borrow_mut());
    }

    fn before_wait(&mut self, _at: &mut LoopContext<'_>) {
        self.0.service.tick_ended(&mut self.0.local.borrow_mut());
    }
}

struct Acceptor<S: Service> {
    shared: Rc<Shared<S>>,
    addresses: Arc<Addresses>,
    is_beside: bool,
    /// When connections were last asked to leave.
    asked_ns: u64,
}

/// While there are more connections than places, some are asked to leave as often.
const ASK_NS: u64 = 10_000_000;

impl<S: Service> Acceptor<S> {
    fn ask_to_leave(&mut self, is_full: bool) {
        let worker = &self.shared.worker;
        self.asked_ns = worker.lp.now_ns();
        let mut crowd = worker.crowd.borrow_mut();
        let mut asked = crowd.next();
        if is_full {
            asked.extend(crowd.reserved());
        }
        for id in asked {
            worker.lp.send(id, Message { tag: 0, payload: Box::new(Leave { is_full }) });
        }
    }
}

impl<S: Service> Accept for Acceptor<S> {
    fn accept(&mut self, peer: SocketAddr, id: ConnectionId, _lp: &Loop) -> Option<Box<dyn Protocol>> {
        let worker = &self.shared.worker;
        let address = (!self.is_beside).then(|| reactor::host(peer.ip()));
        let Some(admission) = self.addresses.admit(address) else {
            worker.metrics.turned_away.add(1);
            return None;
        };
        worker.metrics.accepted.add(1);
        worker.crowd.borrow_mut().enter(id, admission.is_reserved());
        let connection = Connection::new(Rc::clone(&self.shared), id, peer, admission);
        if self.addresses.are_short() && worker.lp.now_ns().saturating_sub(self.asked_ns) >= ASK_NS {
            self.ask_to_leave(false);
        }
        Some(Box::new(connection))
    }

    fn crowded(&mut self) {
        self.ask_to_leave(true);
    }
}
