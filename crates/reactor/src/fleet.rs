//! The loops of one reactor as seen from any thread: their mail, counters, the count of open connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::broken::Broken;
use crate::connection::socket::Socket;
use crate::kernel;
use crate::lag::Lag;
use crate::mailbox::Mailbox;
use crate::metrics::{Counters, LoopMetrics};
use crate::protocol::{ConnectionId, Message, Protocol};
use crate::settings::Outgoing;
use crate::timers::wheel::TICK_NS;

/// Work for a loop's thread.
pub type Task = Box<dyn FnOnce(&Loop) + Send>;
/// Makes the protocol of an outgoing connection, on the loop's thread.
pub type Open = Box<dyn FnOnce(ConnectionId, &Loop) -> Box<dyn Protocol> + Send>;

/// One piece of mail.
pub(crate) enum Mail {
    Message {
        to: ConnectionId,
        message: Message,
    },
    Task(Task),
    /// A closure to run later.
    At {
        at_ns: u64,
        task: Task,
    },
    Connect {
        to: Box<Outgoing>,
        open: Open,
    },
    /// A connection accepted by another loop for this one; already counted as this loop's.
    Accepted {
        listener: u16,
        stream: Socket,
        peer: SocketAddr,
    },
    Drain {
        deadline_ns: u64,
    },
}

/// The part of a loop that other threads reach. Fields written by different threads lie on different cache lines.
pub(crate) struct Member {
    pub(crate) mailbox: Mailbox<Mail>,
    pub(crate) counters: Counters,
    own: OwnFields,
    open: OpenCount,
    lag: Watched,
}

/// What other threads read to find out whether the loop waits for a processor.
#[repr(align(128))]
struct Watched {
    lag: Lag,
    poller: mio::Registry,
}

/// Fields that only the loop's own thread writes.
#[repr(align(128))]
struct OwnFields {
    now_ns: AtomicU64,
    polls_again: AtomicBool,
}

#[repr(align(128))]
struct OpenCount(AtomicUsize);

impl Member {
    /// `poller`: another handle of the loop's poller.
    pub(crate) fn new(waker: mio::Waker, poller: mio::Registry) -> Self {
        Self {
            mailbox: Mailbox::new(waker),
            counters: Counters::default(),
            own: OwnFields { now_ns: AtomicU64::new(kernel::now_ns()), polls_again: AtomicBool::new(false) },
            open: OpenCount(AtomicUsize::new(0)),
            lag: Watched { lag: Lag::default(), poller },
        }
    }

    pub(crate) fn set_now(&self, now_ns: u64) {
        self.own.now_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Whether [`Loop::poll_again`] was called since the last poll.
    pub(crate) fn take_poll_again(&self) -> bool {
        let polls_again = self.own.polls_again.load(Ordering::Relaxed);
        if polls_again {
            self.own.polls_again.store(false, Ordering::Relaxed);
        }
        polls_again
    }

    pub(crate) fn metrics(&self) -> LoopMetrics {
        self.counters.read(self.open.0.load(Ordering::Relaxed), &self.mailbox.wakes)
    }
}

/// Which side opened a connection. Each origin has its own limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Accepted,
    Outgoing,
}

/// All loops of a reactor.
pub(crate) struct Fleet {
    pub(crate) members: Vec<Member>,
    pub(crate) broken: Broken,
    accepted: Bounded,
    outgoing: Bounded,
}

/// Open connections of one origin on all loops, and their limit.
struct Bounded {
    open: AtomicUsize,
    max: usize,
}

impl Bounded {
    fn new(max: usize) -> Self {
        Self { open: AtomicUsize::new(0), max }
    }
}

impl Fleet {
    pub(crate) fn new(members: Vec<Member>, connections_max: usize, outgoing_max: usize) -> Arc<Self> {
        let (accepted, outgoing) = (Bounded::new(connections_max), Bounded::new(outgoing_max));
        Arc::new(Self { members, broken: Broken::default(), accepted, outgoing })
    }

    fn bounded(&self, origin: Origin) -> &Bounded {
        match origin {
            Origin::Accepted => &self.accepted,
            Origin::Outgoing => &self.outgoing,
        }
    }

    /// Reserves one of `connections_max` or `outgoing_max`, or of as many `beyond`, before the descriptor exists.
    pub(crate) fn reserve(&self, origin: Origin, beyond: usize) -> bool {
        let bounded = self.bounded(origin);
        if bounded.open.fetch_add(1, Ordering::Relaxed) < bounded.max.saturating_add(beyond) {
            return true;
        }
        self.give_back(origin);
        false
    }

    pub(crate) fn give_back(&self, origin: Origin) {
        self.bounded(origin).open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a reserved connection on the loop that will own it.
    pub(crate) fn book(&self, index: usize) {
        self.members[index].open.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves the count of a connection to another loop.
    pub(crate) fn rebook(&self, from: usize, to: usize) {
        self.members[from].open.0.fetch_sub(1, Ordering::Relaxed);
        self.book(to);
    }

    /// Asks every loop to drain.
    pub(crate) fn drain(&self, deadline_ns: u64) {
        for member in &self.members {
            // A loop that refuses mail has ended already.
            let _ = member.mailbox.push(Mail::Drain { deadline_ns });
        }
    }

    /// A loop has ended by itself: see [`crate::broken`].
    pub(crate) fn loop_broke(&self, index: usize) {
        self.members[index].mailbox.close();
        self.drain(0);
        self.broken.set();
    }

    /// A counted connection is gone.
    pub(crate) fn release(&self, index: usize, origin: Origin) {
        self.members[index].open.0.fetch_sub(1, Ordering::Relaxed);
        self.give_back(origin);
    }

    /// Chooses the loop for a connection accepted by loop `here`: `here`, unless it has at least two connections more than the
    /// least loaded loop. So few connections are spread evenly, and many stay where the kernel's hash put them. Two loops that
    /// accept at the same moment may choose the same third loop; the next connections even that out.
    pub(crate) fn place(&self, here: usize) -> usize {
        let open = |index: usize| self.members[index].open.0.load(Ordering::Relaxed);
        let mine = open(here);
        let least = (0..self.members.len()).min_by_key(|index| open(*index)).unwrap_or(here);
        // The new connection is counted: this loop would have `mine + 1`.
        if mine > open(least) { least } else { here }
    }
}

/// A handle of a loop, for its own thread and for others: cheap to clone, `Send + Sync`.
#[derive(Clone)]
pub struct Loop {
    fleet: Arc<Fleet>,
    index: u16,
}

impl Loop {
    pub(crate) fn new(fleet: Arc<Fleet>, index: u16) -> Self {
        Self { fleet, index }
    }

    pub(crate) fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    pub(crate) fn member(&self) -> &Member {
        &self.fleet.members[usize::from(self.index)]
    }

    /// Index of this loop in the reactor.
    pub fn index(&self) -> usize {
        usize::from(self.index)
    }

    /// How many loops the reactor has.
    pub fn loops_count(&self) -> usize {
        self.fleet.members.len()
    }

    /// Another loop of the same reactor.
    pub fn sibling(&self, index: usize) -> Option<Loop> {
        let found = (index < self.fleet.members.len()).then(|| u16::try_from(index).ok()).flatten()?;
        Some(Self::new(Arc::clone(&self.fleet), found))
    }

    /// Sends a message to a connection of this reactor, on the loop that its id names, from any thread. It costs one wake-up if
    /// the loop sleeps, none if it runs. A message to a stale id is dropped: on the loop's thread, or here if the loop has ended.
    pub fn send(&self, to: ConnectionId, message: Message) {
        if let Some(member) = self.fleet.members.get(usize::from(to.loop_index)) {
            let _ = member.mailbox.push(Mail::Message { to, message });
        }
    }

    /// Runs a closure on the loop's thread. If the loop has ended, the closure is dropped.
    pub fn run(&self, task: Task) {
        let _ = self.member().mailbox.push(Mail::Task(task));
    }

    /// Runs a closure on the loop's thread after a time, rounded up to the wheel's 10 ms.
    pub fn after(&self, delay: Duration, task: Task) {
        let at_ns = kernel::now_ns().saturating_add(nanoseconds(delay));
        let at_ns = at_ns.checked_next_multiple_of(TICK_NS).unwrap_or(at_ns);
        let _ = self.member().mailbox.push(Mail::At { at_ns, task });
    }

    /// Runs a closure on the loop's thread at a moment of CLOCK_MONOTONIC, to the microsecond (timerfd). If the moment has
    /// passed, the closure runs at once.
    pub fn at(&self, at_ns: u64, task: Task) {
        let _ = self.member().mailbox.push(Mail::At { at_ns, task });
    }

    /// Opens an outgoing connection on this loop. `open` makes its protocol on the loop's thread; the protocol's first call is
    /// `writable` once connected, or `closed(Unconnected)`.
    pub fn connect(&self, to: impl Into<Outgoing>, open: Open) {
        let _ = self.member().mailbox.push(Mail::Connect { to: Box::new(to.into()), open });
    }

    /// The loop's coarse clock: nanoseconds of CLOCK_MONOTONIC, read once a tick.
    pub fn now_ns(&self) -> u64 {
        self.member().own.now_ns.load(Ordering::Relaxed)
    }

    /// The loop's next poll does not sleep, so another tick follows at once. For work of the loop's states, on the loop's thread; a
    /// call from another thread does not wake the loop.
    pub fn poll_again(&self) {
        self.member().own.polls_again.store(true, Ordering::Relaxed);
    }

    /// The clock read now, in about 20 ns: for measurements inside a tick.
    pub fn precise_now_ns(&self) -> u64 {
        kernel::now_ns()
    }

    /// Whether the loop seems to wait for a processor: it has work, and has run no tick since an earlier call. For threads that
    /// compute for long: they call it about every 50 µs and, if it returns `true`, yield their processor. It costs a system call
    /// if the loop sleeps.
    pub fn waits(&self) -> bool {
        let member = self.member();
        let has_work = !member.mailbox.is_asleep() || kernel::has_waiting(&member.lag.poller);
        member.lag.lag.note(has_work, member.counters.ticks.get(), kernel::now_ns())
    }

    /// The loop's counters.
    pub fn metrics(&self) -> LoopMetrics {
        self.member().metrics()
    }
}

impl std::fmt::Debug for Loop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loop").field("index", &self.index).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Mail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Message { .. } => "Message",
            Self::Task(_) => "Task",
            Self::At { .. } => "At",
            Self::Connect { .. } => "Connect",
            Self::Accepted { .. } => "Accepted",
            Self::Drain { .. } => "Drain",
        })
    }
}

/// A duration in nanoseconds of the loop's clock; longer than 584 years becomes 584 years.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
