//! A server whose behaviour each test defines, and runs of the engine against it.
//!
//! The server has a blocking thread for each connection, so its behaviour is easy to follow. Requests are numbered in the order
//! of arrival, and answered by the test's closure.
#![allow(dead_code)] // each test binary uses its part

use loadtest::engine::{Finished, Load, LoadSettings, Stop, Watchers, run};
use loadtest::profile::Profile;
use loadtest::request::{Constant, RequestParts};
use loadtest::source::RequestSource;
use loadtest::statuses::StatusSet;
use loadtest::{Recording, RequestCounts};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Longest wait of any test for an event that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The answer to a request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// These bytes.
    Bytes(Vec<u8>),
    /// These bytes, and then the end of the connection.
    Last(Vec<u8>),
    /// Nothing.
    Silence,
}

/// A complete reply.
pub(crate) fn reply(status: u16, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

pub(crate) fn ok() -> Answer {
    Answer::Bytes(reply(200, "hello"))
}

/// A request as it arrived.
pub(crate) struct Arrived<'a> {
    pub(crate) number: u64,
    pub(crate) head: &'a str,
    /// Since the server's first request.
    pub(crate) since_first: Duration,
}

type Behaviour = dyn Fn(&Arrived<'_>) -> Answer + Send + Sync;

/// A running server. Its threads end with their connections, the accepting one with the process.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    behaviour: Box<Behaviour>,
    requests: AtomicU64,
    connections: AtomicU64,
    first: std::sync::OnceLock<Instant>,
}

impl Server {
    pub(crate) fn start(behaviour: impl Fn(&Arrived<'_>) -> Answer + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            behaviour: Box::new(behaviour),
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            first: std::sync::OnceLock::new(),
        });
        let server = Server { address, inner };
        let accepting = server.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let server = accepting.clone();
                accepting.inner.connections.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || server.serve(stream));
            }
        });
        server
    }

    /// Serves until either side ends the connection.
    fn serve(&self, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let (mut bytes, mut room) = (Vec::new(), [0; 4096]);
        loop {
            while let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<u8> = bytes.drain(..end + 4).collect();
                if !self.answer(&String::from_utf8_lossy(&head), &mut stream) {
                    return;
                }
            }
            match stream.read(&mut room) {
                Ok(taken) if taken > 0 => bytes.extend_from_slice(&room[..taken]),
                _ => return,
            }
        }
    }

    fn answer(&self, head: &str, stream: &mut TcpStream) -> bool {
        let first = *self.inner.first.get_or_init(Instant::now);
        let number = self.inner.requests.fetch_add(1, Ordering::SeqCst);
        match (self.inner.behaviour)(&Arrived { number, head, since_first: first.elapsed() }) {
            Answer::Bytes(bytes) => stream.write_all(&bytes).is_ok(),
            Answer::Last(bytes) => {
                let _ = stream.write_all(&bytes);
                false
            }
            Answer::Silence => true,
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.inner.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.inner.connections.load(Ordering::SeqCst)
    }
}

/// A port on which no process listens.
pub(crate) fn unused_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// An open load by a profile.
pub(crate) fn open(address: SocketAddr, profile: &str) -> LoadSettings {
    let profile = Arc::new(Profile::parse(profile).unwrap());
    settings(address, Load::Open { profile, connections_at_start: 4 })
}

/// A closed load of this many milliseconds.
pub(crate) fn closed(address: SocketAddr, milliseconds: u64) -> LoadSettings {
    settings(address, Load::Closed { duration: Duration::from_millis(milliseconds) })
}

fn settings(address: SocketAddr, load: Load) -> LoadSettings {
    LoadSettings {
        target: format!("http://{address}/"),
        address,
        tls: None,
        load,
        connections: 8,
        pipeline: 1,
        new_connections: false,
        timeout: Duration::from_secs(10),
        threads: 2,
        expected: StatusSet::default(),
    }
}

pub(crate) fn get() -> Box<dyn RequestSource> {
    get_with(&[])
}

pub(crate) fn get_with(headers: &[(String, String)]) -> Box<dyn RequestSource> {
    let parts = RequestParts { method: "GET", path: "/", authority: "test", headers, body: None };
    Box::new(Constant::new(&parts).unwrap())
}

/// Runs to the end, and checks the invariants of the counts of any run.
#[track_caller]
pub(crate) fn finish(settings: &LoadSettings, source: Box<dyn RequestSource>, watchers: Watchers) -> Finished {
    let finished = run(settings, source, watchers, &Stop::default()).unwrap();
    check_sums(&finished.recording);
    finished
}

#[track_caller]
pub(crate) fn record(settings: &LoadSettings) -> Recording {
    finish(settings, get(), Watchers::default()).recording
}

#[track_caller]
pub(crate) fn check_sums(recording: &Recording) {
    let check = |outcome: &RequestCounts| {
        let connect: u64 = outcome.failures.connect.values().sum();
        assert_eq!(outcome.planned, outcome.answered + outcome.failures.total(), "{outcome:?}");
        assert_eq!(outcome.sent, outcome.planned - connect - outcome.failures.unsent, "{outcome:?}");
        assert_eq!(outcome.answered, outcome.right + outcome.wrong + outcome.late, "{outcome:?}");
        assert_eq!(outcome.answered, outcome.statuses.values().sum::<u64>(), "{outcome:?}");
    };
    check(&recording.outcome);
    recording.phases.iter().for_each(|phase| check(&phase.outcome));
    let sum = |of: fn(&RequestCounts) -> u64| recording.phases.iter().map(|phase| of(&phase.outcome)).sum::<u64>();
    assert_eq!(sum(|outcome| outcome.planned), recording.outcome.planned);
    assert_eq!(sum(|outcome| outcome.right), recording.outcome.right);
    let rows = &recording.intervals;
    assert_eq!(rows.iter().map(|row| row.planned).sum::<u64>(), recording.outcome.planned);
    assert_eq!(rows.iter().map(|row| row.right).sum::<u64>(), recording.outcome.right);
    assert_eq!(rows.iter().map(|row| row.failed).sum::<u64>(), recording.outcome.failures.total());
}

/// Waits until `condition` holds; panics after the longest wait.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < PATIENCE, "in vain waited for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
