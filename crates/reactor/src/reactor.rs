//! Start-up: loops, listeners, threads; and the handle of what runs.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::broken;
use crate::core::Core;
use crate::event_loop::{ALARM, EventLoop, WAKER};
use crate::fleet::{Fleet, Loop, Member, nanoseconds};
use crate::kernel::{self, Alarm, Listening, Poller, SocketFile};
use crate::listeners::ListeningSocket;
use crate::metrics::Metrics;
use crate::protocol::Factory;
use crate::settings::Settings;

type StartTask = Arc<dyn Fn(&Loop) + Send + Sync>;

/// A set of loops that do not run yet.
///
/// ```no_run
/// # fn f(echo: std::sync::Arc<dyn reactor::Factory>) -> std::io::Result<()> {
/// let mut reactor = reactor::Reactor::new(reactor::Settings::default())?;
/// let address = reactor.listen("127.0.0.1:0".parse().unwrap(), echo)?;
/// let running = reactor.start()?;
/// running.drain(std::time::Duration::from_secs(5));
/// running.join()
/// # }
/// ```
pub struct Reactor {
    settings: Settings,
    fleet: Arc<Fleet>,
    pollers: Vec<Poller>,
    listeners: Vec<(Vec<ListeningSocket>, Arc<dyn Factory>)>,
    files: Vec<SocketFile>,
    start_tasks: Vec<StartTask>,
}

impl Reactor {
    /// Makes the loops' kernel side; fails where descriptors are short.
    pub fn new(settings: Settings) -> io::Result<Self> {
        let settings = settings.checked();
        let pollers = (0..settings.loops).map(|_| Poller::new()).collect::<io::Result<Vec<_>>>()?;
        let member = |poller: &Poller| Ok(Member::new(poller.waker(WAKER)?, poller.watched()?));
        let members = pollers.iter().map(member).collect::<io::Result<Vec<_>>>()?;
        let fleet = Fleet::new(members, settings.connections_max);
        Ok(Self { settings, fleet, pollers, listeners: Vec::new(), files: Vec::new(), start_tasks: Vec::new() })
    }

    /// Listens on `address` (port 0: any free one) with one socket for each loop, and gives the bound address. Fails
    /// with `AddrInUse` where another server has the port. Connections wait in the backlog until [`Reactor::start`].
    pub fn listen(&mut self, address: SocketAddr, factory: Arc<dyn Factory>) -> io::Result<SocketAddr> {
        let listening = Listening::bind(address, self.settings.loops, self.settings.backlog)?;
        let bound = listening.address;
        let sockets = listening.sockets.into_iter().map(ListeningSocket::Tcp).collect();
        self.listeners.push((sockets, factory));
        Ok(bound)
    }

    /// Listens on a Unix socket: a file of this path, which its owner alone may connect to, and which is removed at the end. One that
    /// a dead server left is replaced; that of a living one is `AddrInUse`. One loop accepts for all; a peer's address is 127.0.0.1.
    pub fn listen_unix(&mut self, path: &Path, factory: Arc<dyn Factory>) -> io::Result<()> {
        let (socket, file) = kernel::bind_unix(path, self.settings.backlog)?;
        self.files.push(file);
        self.listeners.push((vec![ListeningSocket::Unix(socket)], factory));
        Ok(())
    }

    /// Adds a closure that each loop runs on its own thread before its first event.
    pub fn on_start(&mut self, task: impl Fn(&Loop) + Send + Sync + 'static) {
        self.start_tasks.push(Arc::new(task));
    }

    /// The loops, which take mail already and read it once started.
    pub fn loops(&self) -> Vec<Loop> {
        all_loops(&self.fleet)
    }

    /// Starts one thread for each loop.
    pub fn start(self) -> io::Result<Running> {
        let mut running = Running {
            fleet: Arc::clone(&self.fleet),
            loops: all_loops(&self.fleet),
            threads: Vec::new(),
            _files: self.files,
        };
        let mut listeners = self.listeners;
        for (lp, poller) in all_loops(&self.fleet).into_iter().zip(self.pollers) {
            let starting = Starting {
                settings: self.settings.clone(),
                // Each loop takes one socket of each address, as long as there is one.
                listeners: listeners
                    .iter_mut()
                    .map(|(sockets, factory)| (sockets.pop(), Arc::clone(factory)))
                    .collect(),
                start_tasks: self.start_tasks.clone(),
                alarm: Alarm::new(&poller, ALARM)?,
                poller,
                lp,
            };
            let thread = std::thread::Builder::new()
                .name(format!("loop-{}", starting.lp.index()))
                .spawn(move || starting.run())
                .inspect_err(|_| running.drain(Duration::ZERO))?;
            running.threads.push(thread);
        }
        Ok(running)
    }
}

fn all_loops(fleet: &Arc<Fleet>) -> Vec<Loop> {
    (0..fleet.members.len()).map(|index| Loop::new(Arc::clone(fleet), index as u16)).collect()
}

/// What a loop's thread begins with.
struct Starting {
    settings: Settings,
    listeners: Vec<(Option<ListeningSocket>, Arc<dyn Factory>)>,
    start_tasks: Vec<StartTask>,
    poller: Poller,
    alarm: Alarm,
    lp: Loop,
}

impl Starting {
    /// The life of a loop's thread. Ends with an error where the loop ended by itself.
    fn run(self) -> io::Result<()> {
        let lp = self.lp.clone();
        // All that the loop owns is dropped with it; what it shares with others (mailboxes, counters) is never left half-done.
        let ended = catch_unwind(AssertUnwindSafe(|| self.run_loop())).unwrap_or_else(|panic| {
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

    fn run_loop(self) -> io::Result<()> {
        if !self.settings.pin.is_empty() {
            let cpu = self.settings.pin[self.lp.index() % self.settings.pin.len()];
            if let Err(error) = kernel::pin_to(cpu) {
                tracing::warn!(cpu, %error, "loop is not pinned");
            }
        }
        let mut event_loop = EventLoop::new(Core::new(self.settings, self.lp.clone(), self.poller), self.alarm);
        for (socket, factory) in self.listeners {
            let acceptor = factory.acceptor(&self.lp);
            event_loop.listeners.add(socket, acceptor, &event_loop.core.poller)?;
        }
        for task in self.start_tasks {
            event_loop.run_task(Box::new(move |lp| task(lp)));
        }
        event_loop.run()
    }
}

/// The loops at work.
pub struct Running {
    fleet: Arc<Fleet>,
    loops: Vec<Loop>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// Removed at the end.
    _files: Vec<SocketFile>,
}

impl Running {
    /// One handle for each loop.
    pub fn loops(&self) -> &[Loop] {
        &self.loops
    }

    /// Asks every loop to accept what is queued, close its listeners, let the connections finish, and end; those that
    /// are left after `limit` are cut. Does not wait: see [`Running::join`]. Asked again, it can only shorten the limit.
    pub fn drain(&self, limit: Duration) {
        self.fleet.drain(kernel::now_ns().saturating_add(nanoseconds(limit)));
    }

    /// Has `call` called on the thread of the first loop that ends by itself, after a panic or an error of the kernel; here, if one
    /// has. A loop that ends has all others end, too; [`Running::join`] then returns the error.
    pub fn on_broken(&self, call: impl FnOnce() + Send + 'static) {
        self.fleet.broken.on_broken(Box::new(call));
    }

    /// Waits until every loop has ended (after [`Running::drain`]).
    pub fn join(self) -> io::Result<()> {
        for thread in self.threads {
            thread.join().map_err(|_| io::Error::other("a loop's thread panicked while it ended"))??;
        }
        Ok(())
    }

    /// The counters of all loops.
    pub fn metrics(&self) -> Metrics {
        Metrics { loops: self.fleet.members.iter().map(Member::metrics).collect() }
    }
}
