//! The guarantees of the two lines, before each model that a server may name.

use executor::{Drained, Job, Line, Model, Refused, TwoLines};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Each with one thread.
const MODELS: [Model; 3] =
    [Model::Pool { threads: 1 }, Model::IoAware { threads: 1, running_max: 1 }, Model::WorkStealing { threads: 1 }];

/// The one client of most tests.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// All senders were dropped, and nothing was sent.
const GONE: Result<(), RecvTimeoutError> = Err(RecvTimeoutError::Disconnected);

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// Occupies the thread until the sender is dropped.
fn hold(lines: &TwoLines) -> Sender<()> {
    let (say_started, started) = channel();
    let (go, wait) = channel::<()>();
    let job: Job = Box::new(move || {
        say_started.send(()).unwrap();
        let _ = wait.recv();
    });
    lines.try_submit(CLIENT, Line::First, job).unwrap();
    started.recv_timeout(PATIENCE).unwrap();
    go
}

#[test]
fn the_lines_alternate_and_each_has_its_own_bound() {
    for model in MODELS {
        let lines = TwoLines::start(model, "test", [3, 4]).unwrap();
        let go = hold(&lines);
        let order = Arc::new(Mutex::new(Vec::new()));
        let submit = |line, number| {
            let order = Arc::clone(&order);
            lines.try_submit(CLIENT, line, Box::new(move || order.lock().unwrap().push(number)))
        };
        for number in 10..14 {
            submit(Line::Second, number).unwrap();
        }
        assert!(matches!(submit(Line::Second, 14), Err(Refused::Full(_))), "{model}");
        for number in 0..2 {
            submit(Line::First, number).unwrap();
        }
        // The first line was served last: the thread is held by a job of it.
        assert_eq!((lines.metrics().queued, lines.metrics().refused), (6, 1), "{model}");
        drop(go);
        assert_eq!(lines.drain(soon()), Drained::Finished, "{model}");
        assert_eq!(*order.lock().unwrap(), [10, 0, 11, 1, 12, 13], "{model}");
        assert_eq!(lines.metrics().done, 7, "{model}");
    }
}

#[test]
fn clients_take_turns_in_a_line() {
    for model in MODELS {
        let lines = TwoLines::start(model, "test", [100, 100]).unwrap();
        let go = hold(&lines);
        let order = Arc::new(Mutex::new(Vec::new()));
        let submit = |client: u8, number: u32| {
            let (client, order) = (IpAddr::from([10, 0, 0, client]), Arc::clone(&order));
            lines.try_submit(client, Line::Second, Box::new(move || order.lock().unwrap().push(number))).unwrap();
        };
        (0..70).for_each(|number| submit(1, number));
        submit(2, 100);
        submit(3, 200);
        submit(2, 101);
        drop(go);
        assert_eq!(lines.drain(soon()), Drained::Finished, "{model}");
        let order = order.lock().unwrap();
        assert_eq!((order.len(), &order[..7]), (73, &[0, 100, 200, 1, 101, 2, 3][..]), "{model}");
        assert!(order[7..].is_sorted(), "{model}");
    }
}

#[test]
fn a_full_line_gives_the_job_back() {
    for model in MODELS {
        let lines = TwoLines::start(model, "test", [0, 0]).unwrap();
        let (done, seen) = channel();
        let refused = lines.try_submit(CLIENT, Line::First, Box::new(move || done.send(9).unwrap())).unwrap_err();
        refused.into_job()();
        assert_eq!(seen.recv(), Ok(9), "{model}: the job that came back is the one that was submitted");
    }
}

#[test]
fn at_the_deadline_waiting_jobs_are_dropped_and_later_ones_refused() {
    for model in MODELS {
        let lines = TwoLines::start(model, "test", [2, 2]).unwrap();
        let go = hold(&lines);
        let (owned, seen): (Sender<()>, Receiver<()>) = channel();
        for line in [Line::First, Line::Second] {
            let owned = owned.clone();
            lines.try_submit(CLIENT, line, Box::new(move || owned.send(()).unwrap())).unwrap();
        }
        drop(owned);
        assert_eq!(lines.drain(Instant::now()), Drained::Left { queued: 2, running: 1 }, "{model}");
        assert_eq!(
            seen.recv_timeout(PATIENCE),
            GONE,
            "{model}: dropped jobs let go of what they own, though a job runs"
        );
        assert!(
            matches!(lines.try_submit(CLIENT, Line::Second, Box::new(|| ())), Err(Refused::Draining(_))),
            "{model}"
        );
        drop(go);
        assert_eq!(lines.drain(soon()), Drained::Finished, "{model}");
        assert_eq!(lines.metrics().done, 1, "{model}");
    }
}

#[test]
fn dropping_the_lines_drops_what_waits_and_waits_for_what_runs() {
    for model in MODELS {
        let lines = TwoLines::start(model, "test", [1, 1]).unwrap();
        let go = hold(&lines);
        let (owned, seen) = channel::<()>();
        lines.try_submit(CLIENT, Line::Second, Box::new(move || owned.send(()).unwrap())).unwrap();
        let dropping = std::thread::spawn(move || drop(lines));
        assert_eq!(seen.recv_timeout(PATIENCE), GONE, "{model}");
        assert!(!dropping.is_finished(), "{model}");
        drop(go);
        dropping.join().unwrap();
    }
}
