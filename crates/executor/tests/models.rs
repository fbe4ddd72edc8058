//! The guarantees of every model, one by one, and the differences between models. Tasks are held at gates; no time
//! is asserted.

use executor::{
    BoxCoroutine, Coroutine, CoroutineProgress, Drained, Executor, ExecutorMetrics, Model, Refused, blocking, once,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const ALL: [&str; 9] = [
    "inline",
    "thread-per-task",
    "semaphore:3",
    "waves:3",
    "pool:3",
    "io-aware:6/2",
    "work-stealing:3",
    "event-loop:2",
    "hybrid:2/3",
];
/// Models in which tasks wait in a queue while a thread is held.
const QUEUED: [&str; 5] = ["pool:1", "io-aware:1/1", "work-stealing:1", "event-loop:1", "hybrid:1/1"];
/// Models in which the submitter waits for a thread.
const PLACES: [&str; 2] = ["semaphore:1", "waves:1"];

fn start(name: &str, queue_max: usize) -> Arc<dyn Executor> {
    Arc::from(Model::parse(name, 2).unwrap().start("test", queue_max).unwrap())
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

#[track_caller]
fn receive<T>(from: &Receiver<T>) -> T {
    from.recv_timeout(Duration::from_secs(20)).unwrap()
}

/// A task that goes through these steps and is then counted.
struct Steps {
    steps: Vec<CoroutineProgress>,
    ended: Arc<AtomicUsize>,
}

impl Coroutine for Steps {
    fn resume(&mut self) -> CoroutineProgress {
        let step = self.steps.pop().unwrap_or(CoroutineProgress::Done);
        if step == CoroutineProgress::Done {
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
        step
    }
}

/// A task that reports when it runs and then holds its thread until it is released.
struct Gate {
    started: Receiver<()>,
    go: Sender<()>,
}

impl Gate {
    fn task() -> (Self, BoxCoroutine) {
        let (say_started, started) = channel();
        let (go, wait) = channel::<()>();
        let task = once(move || {
            say_started.send(()).unwrap();
            let _ = wait.recv();
        });
        (Self { started, go }, task)
    }

    fn hold(executor: &dyn Executor) -> Self {
        let (gate, task) = Self::task();
        executor.try_submit(task).unwrap();
        receive(&gate.started);
        gate
    }
}

fn numbers(metrics: &ExecutorMetrics) -> [u64; 3] {
    [metrics.queued, metrics.running, metrics.blocked]
}

#[test]
fn every_task_runs_once_whatever_it_waits_for() {
    for name in ALL {
        let (executor, ended) = (start(name, 16), Arc::new(AtomicUsize::new(0)));
        for number in 0..300 {
            let steps = match number % 5 {
                0 => vec![CoroutineProgress::Wait(Duration::from_micros(200)), CoroutineProgress::Yield],
                1 => vec![CoroutineProgress::Yield, CoroutineProgress::Wait(Duration::ZERO), CoroutineProgress::Yield],
                _ => vec![],
            };
            executor.submit(Box::new(Steps { steps, ended: Arc::clone(&ended) })).unwrap();
        }
        assert_eq!(executor.drain(soon()), Drained::Finished, "{name}");
        let metrics = executor.metrics();
        assert_eq!((ended.load(Ordering::Relaxed), metrics.done), (300, 300), "{name}");
        assert_eq!(numbers(&metrics), [0, 0, 0], "{name}");
        assert_eq!((metrics.refused, metrics.panicked, metrics.dropped), (0, 0, 0), "{name}");
    }
}

#[test]
fn panics_are_counted_and_take_nothing_else_down() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("even the payload");
        }
    }
    for name in ALL {
        let executor = start(name, 16);
        let (done, seen) = channel();
        executor.submit(once(|| panic!("on purpose"))).unwrap();
        executor.submit(once(|| std::panic::panic_any(Bomb))).unwrap();
        executor.submit(once(move || done.send(()).unwrap())).unwrap();
        assert_eq!(executor.drain(soon()), Drained::Finished, "{name}");
        receive(&seen);
        let metrics = executor.metrics();
        assert_eq!((metrics.done, metrics.panicked), (3, 2), "{name}");
        assert_eq!(numbers(&metrics), [0, 0, 0], "{name}");
    }
}

#[test]
fn after_a_drain_nothing_is_taken() {
    for name in ALL {
        let executor = start(name, 16);
        assert_eq!(executor.drain(soon()), Drained::Finished);
        assert!(matches!(executor.try_submit(once(|| ())), Err(Refused::Draining(_))), "{name}");
        assert!(matches!(executor.submit(once(|| ())), Err(Refused::Draining(_))), "{name}");
        assert_eq!(executor.metrics().refused, 2, "{name}");
    }
}

#[test]
fn a_full_executor_gives_the_task_back() {
    for name in QUEUED.iter().chain(&PLACES) {
        let executor = start(name, 4);
        let gate = Gate::hold(&*executor);
        let (done, seen) = channel();
        let task = |number: usize| {
            let done = done.clone();
            once(move || done.send(number).unwrap())
        };
        let taken = (0..20).take_while(|number| executor.try_submit(task(*number)).is_ok()).count();
        assert!(taken <= 4, "{name} took {taken}");
        let Err(Refused::Full(mut back)) = executor.try_submit(task(99)) else { panic!("{name} is not full") };
        assert_eq!(executor.metrics().queued, taken as u64, "{name}");
        back.resume();
        assert_eq!(receive(&seen), 99, "the task that came back is the one that was submitted");
        gate.go.send(()).unwrap();
        assert_eq!(executor.drain(soon()), Drained::Finished);
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), (0..taken).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn a_submitter_waits_for_room_and_the_bound_holds() {
    for name in ["pool:2", "io-aware:4/2", "work-stealing:2", "event-loop:2", "hybrid:2/2", "semaphore:4", "waves:4"] {
        let executor = start(name, 4);
        let most = Arc::new(AtomicUsize::new(0));
        for _ in 0..500 {
            let (most, seen) = (Arc::clone(&most), Arc::clone(&executor));
            let task = once(move || {
                most.fetch_max(seen.metrics().queued as usize, Ordering::Relaxed);
            });
            executor.submit(task).unwrap();
        }
        assert_eq!(executor.drain(soon()), Drained::Finished);
        assert!(most.load(Ordering::Relaxed) <= 6, "{name}: {most:?}");
    }
}

#[test]
fn past_the_deadline_of_a_drain_waiting_tasks_are_dropped() {
    for name in QUEUED {
        let executor = start(name, 8);
        let gate = Gate::hold(&*executor);
        let (done, seen) = channel::<()>();
        for _ in 0..3 {
            let done = done.clone();
            executor.try_submit(once(move || done.send(()).unwrap())).unwrap();
        }
        drop(done);
        assert_eq!(executor.drain(Instant::now()), Drained::Left { queued: 3, running: 1 }, "{name}");
        gate.go.send(()).unwrap();
        assert!(seen.recv().is_err(), "{name}: dropped tasks let go of what they own");
        assert_eq!(executor.drain(soon()), Drained::Finished, "{name}");
        let metrics = executor.metrics();
        assert_eq!((metrics.done, metrics.dropped), (1, 3), "{name}");
        assert_eq!(numbers(&metrics), [0, 0, 0], "{name}");
    }
}

#[test]
fn dropping_waits_for_what_runs_and_drops_what_waits() {
    // The work-stealing pool drops a waiting task only when a thread reaches it: see the test of a drain past its
    // deadline.
    for name in QUEUED.into_iter().filter(|name| !name.starts_with("work-stealing")) {
        let executor = start(name, 8);
        let gate = Gate::hold(&*executor);
        let (done, seen) = channel::<()>();
        executor.try_submit(once(move || done.send(()).unwrap())).unwrap();
        let dropping = std::thread::spawn(move || drop(executor));
        assert!(seen.recv().is_err(), "{name}: the waiting task is dropped while the first one still holds its thread");
        assert!(!dropping.is_finished());
        gate.go.send(()).unwrap();
        dropping.join().unwrap();
    }
}

#[test]
fn a_task_may_own_the_last_handle_of_its_executor() {
    for name in ALL {
        let executor = start(name, 8);
        let (send_own, own) = channel::<Arc<dyn Executor>>();
        let (done, seen) = channel();
        let task = once(move || {
            drop(own.recv());
            done.send(()).unwrap();
        });
        let task = Mutex::new(Some(task));
        if name == "inline" {
            // The submitter runs the task, so the handle must be sent before.
            send_own.send(Arc::clone(&executor)).unwrap();
            executor.submit(task.into_inner().unwrap().unwrap()).unwrap();
            drop(executor);
        } else {
            executor.submit(task.into_inner().unwrap().unwrap()).unwrap();
            send_own.send(executor).unwrap();
        }
        // Either end of the task is permitted: it ran, or a dropped executor dropped it first.
        let _ = seen.recv_timeout(Duration::from_secs(20));
    }
}

#[test]
fn an_announced_call_counts_as_blocked() {
    for name in ["thread-per-task", "semaphore:1", "waves:1", "pool:1", "io-aware:1/1", "work-stealing:1"] {
        let executor = start(name, 4);
        let (say, blocked) = channel();
        let (go, wait) = channel::<()>();
        let task = once(move || {
            blocking(|| {
                say.send(()).unwrap();
                wait.recv().unwrap();
            })
        });
        executor.submit(task).unwrap();
        receive(&blocked);
        assert_eq!(numbers(&executor.metrics()), [0, 0, 1], "{name}");
        go.send(()).unwrap();
        assert_eq!(executor.drain(soon()), Drained::Finished);
    }
}

#[test]
fn the_inline_model_has_run_the_task_when_it_returns() {
    let executor = start("inline", 1);
    let here = std::thread::current().id();
    let (say, ran) = channel();
    executor.try_submit(once(move || say.send(std::thread::current().id()).unwrap())).unwrap();
    assert_eq!(ran.try_recv().unwrap(), here);
    assert_eq!(executor.metrics().threads_peak, 0);
}

/// Two places, one task that is held, one that ends at once, and a third: records the order of begins and ends.
fn third_of_two(name: &str) -> Vec<&'static str> {
    let executor = start(name, 4);
    let gate = Gate::hold(&*executor);
    let notes = Arc::new(Mutex::new(Vec::new()));
    executor.submit(once(|| ())).unwrap();
    let (say, third) = channel();
    let submitter = {
        let (executor, notes) = (Arc::clone(&executor), Arc::clone(&notes));
        std::thread::spawn(move || {
            let task = once(move || {
                notes.lock().unwrap().push("the third begins");
                say.send(()).unwrap();
            });
            executor.submit(task).unwrap();
        })
    };
    if name.starts_with("semaphore") {
        receive(&third);
    }
    notes.lock().unwrap().push("the first is let go");
    gate.go.send(()).unwrap();
    submitter.join().unwrap();
    assert_eq!(executor.drain(soon()), Drained::Finished);
    Arc::into_inner(notes).unwrap().into_inner().unwrap()
}

#[test]
fn a_semaphore_lets_the_next_task_in_and_a_wave_waits_for_its_slowest() {
    assert_eq!(third_of_two("semaphore:2"), ["the third begins", "the first is let go"]);
    for _ in 0..20 {
        assert_eq!(third_of_two("waves:2"), ["the first is let go", "the third begins"]);
    }
}

#[test]
fn a_thread_for_each_task_is_as_many_threads_as_tasks() {
    let executor = start("thread-per-task", 1);
    let gates: Vec<Gate> = (0..5).map(|_| Gate::hold(&*executor)).collect();
    assert_eq!((executor.metrics().threads, executor.metrics().running), (5, 5));
    drop(gates);
    assert_eq!(executor.drain(soon()), Drained::Finished);
    assert_eq!(executor.metrics().threads_peak, 5);
}

#[test]
fn no_more_threads_run_at_a_time_than_an_io_aware_pool_permits() {
    let executor = start("io-aware:12/3", 64);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for number in 0..200 {
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        let task = once(move || {
            for round in 0..4 {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                blocking(|| match (number + round) % 7 {
                    0 => std::thread::sleep(Duration::from_micros(300)),
                    _ => std::thread::yield_now(),
                });
            }
        });
        executor.submit(task).unwrap();
    }
    assert_eq!(executor.drain(soon()), Drained::Finished);
    let most = most.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most} ran at a time");
    assert_eq!(executor.metrics().threads_peak, 12);
}

/// A task that records its name each time it is resumed.
struct Noted {
    name: char,
    steps: Vec<CoroutineProgress>,
    notes: Arc<Mutex<String>>,
}

impl Coroutine for Noted {
    fn resume(&mut self) -> CoroutineProgress {
        self.notes.lock().unwrap().push(self.name);
        self.steps.pop().unwrap_or(CoroutineProgress::Done)
    }
}

/// Runs tasks on one held loop, so that all are queued before the first is resumed; returns the order of
/// resumptions.
fn order(name: &str, tasks: &[(char, &[CoroutineProgress])]) -> String {
    let executor = start(name, 16);
    let (gate, notes) = (Gate::hold(&*executor), Arc::new(Mutex::new(String::new())));
    for (name, steps) in tasks {
        let steps = steps.iter().rev().copied().collect();
        executor.submit(Box::new(Noted { name: *name, steps, notes: Arc::clone(&notes) })).unwrap();
    }
    drop(gate);
    assert_eq!(executor.drain(soon()), Drained::Finished);
    let notes = notes.lock().unwrap();
    notes.clone()
}

#[test]
fn a_task_that_yields_goes_behind_the_others_and_one_that_waits_holds_nobody_up() {
    let wait = |ms| CoroutineProgress::Wait(Duration::from_millis(ms));
    for name in ["event-loop:1", "hybrid:1/4"] {
        let yields = order(
            name,
            &[
                ('a', &[CoroutineProgress::Yield, CoroutineProgress::Yield]),
                ('b', &[CoroutineProgress::Yield]),
                ('c', &[]),
            ],
        );
        assert_eq!(yields, "abcaba", "{name}");
        let waits = order(name, &[('a', &[wait(300)]), ('b', &[wait(1)]), ('c', &[])]);
        assert_eq!(waits, "abcba", "{name}");
    }
    // With one thread a wait delays all tasks.
    assert_eq!(order("pool:1", &[('a', &[wait(1)]), ('b', &[wait(1)]), ('c', &[])]), "aabbc");
}

#[test]
fn a_thousand_suspended_tasks_need_one_thread() {
    let (executor, ended) = (start("event-loop:1", 1000), Arc::new(AtomicUsize::new(0)));
    for _ in 0..1000 {
        let steps = vec![CoroutineProgress::Wait(Duration::from_millis(20))];
        executor.submit(Box::new(Steps { steps, ended: Arc::clone(&ended) })).unwrap();
    }
    assert_eq!(executor.drain(soon()), Drained::Finished);
    assert_eq!((ended.load(Ordering::Relaxed), executor.metrics().threads_peak), (1000, 1));
}

#[test]
fn waves_count_what_they_refuse_and_say_when_they_drain() {
    let executor = start("waves:1", 1);
    let gate = Gate::hold(&*executor);
    assert!(matches!(executor.try_submit(once(|| ())), Err(Refused::Full(_))));
    assert_eq!(executor.metrics().refused, 1);
    assert_eq!(executor.drain(Instant::now()), Drained::Left { queued: 0, running: 1 });
    assert!(matches!(executor.try_submit(once(|| ())), Err(Refused::Draining(_))));
    drop(gate);
    assert_eq!(executor.drain(soon()), Drained::Finished);
}

#[test]
fn a_wait_without_end_holds_no_other_task() {
    let executor = start("event-loop:1", 8);
    let ended = Arc::new(AtomicUsize::new(0));
    for steps in [vec![CoroutineProgress::Wait(Duration::MAX)], vec![]] {
        executor.submit(Box::new(Steps { steps, ended: Arc::clone(&ended) })).unwrap();
    }
    let until = soon();
    while ended.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    assert_eq!(executor.drain(Instant::now()), Drained::Left { queued: 1, running: 0 });
    assert_eq!(executor.drain(soon()), Drained::Finished);
}

#[test]
fn suspended_tasks_are_dropped_past_the_deadline_of_a_drain() {
    let executor = start("event-loop:1", 8);
    let ended = Arc::new(AtomicUsize::new(0));
    let steps = vec![CoroutineProgress::Wait(Duration::from_secs(3600))];
    executor.submit(Box::new(Steps { steps, ended: Arc::clone(&ended) })).unwrap();
    while executor.metrics().blocked == 0 {
        std::thread::yield_now();
    }
    assert_eq!(executor.drain(Instant::now()), Drained::Left { queued: 1, running: 0 });
    assert_eq!(executor.drain(soon()), Drained::Finished);
    assert_eq!(executor.metrics().dropped, 1);
    drop(executor);
    assert_eq!(Arc::strong_count(&ended), 1, "the dropped task lets go of what it owns");
}

#[test]
fn time_in_the_queue_is_counted() {
    for name in QUEUED {
        let executor = start(name, 4);
        let gate = Gate::hold(&*executor);
        executor.submit(once(|| ())).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        drop(gate);
        assert_eq!(executor.drain(soon()), Drained::Finished);
        assert!(executor.metrics().waited >= Duration::from_millis(5), "{name}");
    }
}
