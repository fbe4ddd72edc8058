//! Start-up: loops, listeners, threads; and the handle of a running reactor.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::broken;
use crate::event_loop::core::Core;
use crate::event_loop::listeners::ListeningSocket;
use crate::event_loop::{ALARM, EventLoop, WAKER};
use crate::fleet::{Fleet, Loop, Member, nanoseconds};
use crate::kernel::{self, Alarm, Listening, Poller, SocketFile};
use crate::metrics::ReactorMetrics;
use crate::settings::{ListenerSettings, ReactorSettings};
use crate::setup::{Factory, ListenerId, Setup};

type StartTask = Arc<dyn Fn(&Loop) + Send + Sync>;
type SetUp = Arc<dyn Fn(&mut Setup<'_>) + Send + Sync>;

/// A bound listener: its sockets, one for each loop if there are as many.
struct Bound {
    sockets: Vec<ListeningSocket>,
    settings: ListenerSettings,
}

/// Limit of listeners of one reactor: their tokens precede those of states.
const LISTENERS_MAX: u16 = 1024;

/// A set of loops that do not run yet.
///
/// ```no_run
/// # fn f(echo: std::sync::Arc<dyn reactor::Factory>) -> std::io::Result<()> {
/// let mut reactor = reactor::Reactor::new(reactor::ReactorSettings::default())?;
/// let address = reactor.listen("127.0.0.1:0".parse().unwrap(), echo)?;
/// let running = reactor.start()?;
/// running.drain(std::time::Duration::from_secs(5));
/// running.join()
/// # }
/// ```
pub struct Reactor {
    settings: ReactorSettings,
    fleet: Arc<Fleet>,
    pollers: Vec<Poller>,
    listeners: Vec<Bound>,
    files: Vec<SocketFile>,
    setups: Vec<SetUp>,
    start_tasks: Vec<StartTask>,
}

impl Reactor {
    /// Creates the kernel side of the loops; fails if descriptors run out.
    pub fn new(settings: ReactorSettings) -> io::Result<Self> {
        let settings = settings.checked();
        let pollers = (0..settings.loops).map(|_| Poller::new()).collect::<io::Result<Vec<_>>>()?;
        let member = |poller: &Poller| Ok(Member::new(poller.waker(WAKER)?, poller.watched()?));
        let members = pollers.iter().map(member).collect::<io::Result<Vec<_>>>()?;
        let fleet = Fleet::new(members, settings.connections_max, settings.outgoing_max);
        Ok(Self {
            settings,
            fleet,
            pollers,
            listeners: Vec::new(),
            files: Vec::new(),
            setups: Vec::new(),
            start_tasks: Vec::new(),
        })
    }

    /// Listens on `address` (port 0: any free one) with one socket for each loop, and returns the bound address. Fails with
    /// `AddrInUse` if another server has the port. Connections wait in the backlog until [`Reactor::start`].
    pub fn listen(&mut self, address: SocketAddr, factory: Arc<dyn Factory>) -> io::Result<SocketAddr> {
        let (listener, bound) = self.bind(address, ListenerSettings::default())?;
        self.accept_by(listener, factory);
        Ok(bound)
    }

    /// The same with settings of the listener's own. Its acceptors are made when the loops are set up ([`Setup::accept`]), or by
    /// a factory ([`Reactor::accept_by`]).
    pub fn bind(&mut self, address: SocketAddr, settings: ListenerSettings) -> io::Result<(ListenerId, SocketAddr)> {
        let listening = Listening::bind(address, self.settings.loops, settings.backlog)?;
        let bound = listening.address;
        let sockets = listening.sockets.into_iter().map(ListeningSocket::Tcp).collect();
        Ok((self.add_listener(sockets, settings)?, bound))
    }

    /// Listens on a Unix socket: a file at this path to which only its owner may connect, removed at the end. The file of a dead
    /// server is replaced; that of a running server gives `AddrInUse`. One loop accepts for all; a peer's address is 127.0.0.1.
    pub fn listen_unix(&mut self, path: &Path, factory: Arc<dyn Factory>) -> io::Result<()> {
        let listener = self.bind_unix(path, ListenerSettings::default())?;
        self.accept_by(listener, factory);
        Ok(())
    }

    /// The same with settings of the listener's own: see [`Reactor::bind`].
    pub fn bind_unix(&mut self, path: &Path, settings: ListenerSettings) -> io::Result<ListenerId> {
        let (socket, file) = kernel::bind_unix(path, settings.backlog)?;
        self.files.push(file);
        self.add_listener(vec![ListeningSocket::Unix(socket)], settings)
    }

    fn add_listener(&mut self, sockets: Vec<ListeningSocket>, settings: ListenerSettings) -> io::Result<ListenerId> {
        let number = u16::try_from(self.listeners.len()).ok().filter(|number| *number < LISTENERS_MAX);
        let number = number.ok_or_else(|| io::Error::other("too many listeners"))?;
        self.listeners.push(Bound { sockets, settings });
        Ok(ListenerId(number))
    }

    /// Sets a factory that makes a listener's acceptors, one on each loop.
    pub fn accept_by(&mut self, listener: ListenerId, factory: Arc<dyn Factory>) {
        self.set_up(move |setup| {
            let acceptor = factory.acceptor(setup);
            setup.accept(listener, acceptor);
        });
    }

    /// Adds a closure that each loop runs on its own thread before its first event, to add states and acceptors to the loop. A
    /// panic in it makes the start fail.
    pub fn set_up(&mut self, set_up: impl Fn(&mut Setup<'_>) + Send + Sync + 'static) {
        self.setups.push(Arc::new(set_up));
    }

    /// Adds a closure that each loop runs on its own thread once it is set up, before its first event. A panic in it is counted.
    pub fn on_start(&mut self, task: impl Fn(&Loop) + Send + Sync + 'static) {
        self.start_tasks.push(Arc::new(task));
    }

    /// The loops. They accept mail already, and read it once started.
    pub fn loops(&self) -> Vec<Loop> {
        all_loops(&self.fleet)
    }

    /// Starts one thread for each loop, and waits until all are set up. If one fails, all end, and its error is returned once
    /// their threads have ended.
    pub fn start(mut self) -> io::Result<RunningReactor> {
        let loops = all_loops(&self.fleet);
        let pollers = std::mem::take(&mut self.pollers);
        let alarms = pollers.iter().map(|poller| Alarm::new(poller, ALARM)).collect::<io::Result<Vec<_>>>()?;
        let (ready, are_ready) = mpsc::sync_channel(loops.len());
        let mut running = RunningReactor {
            fleet: Arc::clone(&self.fleet),
            loops: loops.clone(),
            threads: Vec::new(),
            _files: std::mem::take(&mut self.files),
        };
        for (lp, (poller, alarm)) in loops.into_iter().zip(pollers.into_iter().zip(alarms)) {
            let starting = self.starting(lp, poller, alarm);
            let (name, ready) = (format!("loop-{}", starting.lp.index()), ready.clone());
            match std::thread::Builder::new().name(name).spawn(move || starting.run(ready)) {
                Ok(thread) => running.threads.push(thread),
                Err(error) => return Err(running.give_up().err().unwrap_or(error)),
            }
        }
        drop(ready);
        running.once_ready(&are_ready)
    }

    /// Start values of one loop: it takes one socket of each listener, as long as there is one.
    fn starting(&mut self, lp: Loop, poller: Poller, alarm: Alarm) -> Starting {
        let take_one = |bound: &mut Bound| (bound.sockets.pop(), bound.settings.clone());
        Starting {
            settings: self.settings.clone(),
            listeners: self.listeners.iter_mut().map(take_one).collect(),
            setups: self.setups.clone(),
            start_tasks: self.start_tasks.clone(),
            poller,
            alarm,
            lp,
        }
    }
}

fn all_loops(fleet: &Arc<Fleet>) -> Vec<Loop> {
    (0..fleet.members.len()).map(|index| Loop::new(Arc::clone(fleet), index as u16)).collect()
}

/// Start values of a loop's thread.
struct Starting {
    settings: ReactorSettings,
    listeners: Vec<(Option<ListeningSocket>, ListenerSettings)>,
    setups: Vec<SetUp>,
    start_tasks: Vec<StartTask>,
    poller: Poller,
    alarm: Alarm,
    lp: Loop,
}

impl Starting {
    /// Runs a loop's thread. Returns an error if the loop ended by itself.
    fn run(self, ready: SyncSender<()>) -> io::Result<()> {
        let lp = self.lp.clone();
        // Everything that the loop owns is dropped with it; what it shares with others (mailboxes, counters) is never left
        // half-done.
        let ended = catch_unwind(AssertUnwindSafe(|| self.run_loop(ready))).unwrap_or_else(|panic| {
            let text = broken::text_of(&*panic);
            Err(io::Error::other(format!("it panicked: {text}")))
        });
        ended.map_err(|error| {
            let index = lp.index();
            tracing::error!(index, %error, "an event loop ended by itself: all loops end");
            lp.fleet().loop_broke(index);
            io::Error::new(error.kind(), format!("event loop {index} ended by itself: {error}"))
        })
    }

    fn run_loop(mut self, ready: SyncSender<()>) -> io::Result<()> {
        self.pin();
        self.ask_for_slices();
        let (setups, start_tasks) = (std::mem::take(&mut self.setups), std::mem::take(&mut self.start_tasks));
        let lp = self.lp.clone();
        let mut setup = Setup::new(&lp, self.listeners.len());
        setups.iter().for_each(|set_up| set_up(&mut setup));
        let mut event_loop = self.event_loop(setup)?;
        event_loop.call_states(|state, at| state.started(at));
        for task in start_tasks {
            event_loop.run_task(Box::new(move |lp| task(lp)));
        }
        event_loop.call_states(|state, at| state.before_wait(at));
        // If another loop has failed meanwhile, nobody receives this; the drain of this loop is in its mailbox.
        let _ = ready.send(());
        drop(ready);
        event_loop.run()
    }

    fn pin(&self) {
        if !self.settings.pin.is_empty() {
            let cpu = self.settings.pin[self.lp.index() % self.settings.pin.len()];
            if let Err(error) = kernel::pin_to(cpu) {
                tracing::warn!(cpu, %error, "loop is not pinned");
            }
        }
    }

    fn ask_for_slices(&self) {
        if let Some(length) = self.settings.time_slice
            && let Err(error) = kernel::ask_for_slices(length)
        {
            tracing::warn!(?length, %error, "loop has no time slices of its own length");
        }
    }

    /// The loop with the states and acceptors from its setup.
    fn event_loop(self, setup: Setup<'_>) -> io::Result<EventLoop> {
        let (states, acceptors) = (setup.states, setup.acceptors);
        let mut event_loop = EventLoop::new(Core::new(self.settings, self.lp, self.poller), self.alarm);
        let core = &event_loop.core;
        for state in states {
            event_loop.hooks.add(state, &core.poller)?;
        }
        for (number, ((socket, settings), acceptor)) in self.listeners.into_iter().zip(acceptors).enumerate() {
            let acceptor = acceptor.ok_or_else(|| io::Error::other(format!("listener {number} has no acceptor")))?;
            let traffic = settings.traffic.map_or_else(|| Arc::clone(&core.traffic), |own| Arc::new(own.checked()));
            let own = (traffic, settings.tls, settings.connections_beyond);
            event_loop.listeners.add(socket, acceptor, own, &core.poller)?;
        }
        Ok(event_loop)
    }
}

/// A running reactor.
pub struct RunningReactor {
    fleet: Arc<Fleet>,
    loops: Vec<Loop>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// Removed at the end.
    _files: Vec<SocketFile>,
}

impl RunningReactor {
    /// Waits until each loop is set up.
    fn once_ready(self, are_ready: &Receiver<()>) -> io::Result<RunningReactor> {
        if self.threads.iter().all(|_| are_ready.recv().is_ok()) {
            return Ok(self);
        }
        self.give_up()?;
        Err(io::Error::other("an event loop ended while it started"))
    }

    /// Ends a failed start: no thread is left.
    fn give_up(self) -> io::Result<()> {
        self.drain(Duration::ZERO);
        self.join()
    }

    /// One handle for each loop.
    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    /// Asks every loop to accept the backlog, close its listeners, let the connections finish, and end; connections that are left
    /// after `limit` are closed. Does not wait: see [`RunningReactor::join`]. A later call can only shorten the limit.
    pub fn drain(&self, limit: Duration) {
        self.fleet.drain(kernel::now_ns().saturating_add(nanoseconds(limit)));
    }

    /// Sets a closure that is called on the thread of the first loop that ends by itself, after a panic or an error of the
    /// kernel; if one has ended already, it is called here. When a loop ends by itself, all others end too, and
    /// [`RunningReactor::join`] returns the error.
    pub fn on_broken(&self, call: impl FnOnce() + Send + 'static) {
        self.fleet.broken.on_broken(Box::new(call));
    }

    /// Waits until every loop has ended (after [`RunningReactor::drain`]).
    pub fn join(self) -> io::Result<()> {
        let mut ended = Ok(());
        for thread in self.threads {
            let this =
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a loop's thread panicked while it ended")));
            ended = ended.and(this);
        }
        ended
    }

    /// The counters of all loops.
    pub fn metrics(&self) -> ReactorMetrics {
        ReactorMetrics { loops: self.fleet.members.iter().map(Member::metrics).collect() }
    }
}
