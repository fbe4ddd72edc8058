//! The pool's guarantees, one by one. Jobs are held at a gate, so no test depends on time.

use executor::{Drained, ExecutorStartError, Job, PoolSettings, Refused, THREADS_MAX, ThreadPool};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn pool(threads: usize, queue_max: usize) -> ThreadPool {
    ThreadPool::new(PoolSettings { threads, queue_max, name: "test".to_owned() }).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// A job that reports when it runs and then waits to be released.
struct Gate {
    started: Receiver<()>,
    go: Sender<()>,
}

impl Gate {
    fn job() -> (Self, Job) {
        let (say_started, started) = channel();
        let (go, wait) = channel::<()>();
        let job = Box::new(move || {
            say_started.send(()).unwrap();
            let _ = wait.recv();
        });
        (Self { started, go }, job)
    }

    /// Occupies one thread of `pool`.
    fn hold(pool: &ThreadPool) -> Self {
        let (gate, job) = Self::job();
        pool.try_submit(job).unwrap();
        gate.started.recv_timeout(Duration::from_secs(20)).unwrap();
        gate
    }
}

#[test]
fn jobs_run_in_the_order_of_submission() {
    let pool = pool(1, 100);
    let order = Arc::new(Mutex::new(Vec::new()));
    for number in 0..100 {
        let order = Arc::clone(&order);
        pool.try_submit(Box::new(move || order.lock().unwrap().push(number))).unwrap();
    }
    assert_eq!(pool.drain(soon()), Drained::Finished);
    assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<_>>());
}

#[test]
fn all_threads_work_at_the_same_time() {
    let pool = pool(3, 0x10);
    let gates: Vec<_> = (0..3).map(|_| Gate::hold(&pool)).collect();
    assert_eq!(pool.metrics().running, 3);
    drop(gates);
    assert_eq!(pool.drain(soon()), Drained::Finished);
}

#[test]
fn a_full_queue_gives_the_job_back() {
    let pool = pool(1, 2);
    let gate = Gate::hold(&pool);
    let (done, seen) = channel();
    for number in 0..2 {
        let done = done.clone();
        pool.try_submit(Box::new(move || done.send(number).unwrap())).unwrap();
    }
    let refused = pool.try_submit(Box::new(move || done.send(9).unwrap())).unwrap_err();
    assert!(matches!(refused, Refused::Full(_)));
    assert_eq!((pool.metrics().queued, pool.metrics().refused), (2, 1));
    refused.into_job()();
    assert_eq!(seen.recv().unwrap(), 9, "the job that came back is the one that was submitted");
    gate.go.send(()).unwrap();
    assert_eq!(pool.drain(soon()), Drained::Finished);
    assert_eq!(seen.iter().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn after_a_drain_began_jobs_are_refused_and_queued_ones_finished() {
    let pool = Arc::new(pool(1, 10));
    let gate = Gate::hold(&pool);
    let (done, seen) = channel();
    pool.try_submit(Box::new(move || done.send(()).unwrap())).unwrap();
    let draining = {
        let pool = Arc::clone(&pool);
        std::thread::spawn(move || pool.drain(soon()))
    };
    // Few jobs are taken before the drain begins: submitting is repeated until it is refused because
    // of the drain.
    while !matches!(pool.try_submit(Box::new(|| ())), Err(Refused::Draining(_))) {
        std::thread::yield_now();
    }
    gate.go.send(()).unwrap();
    assert_eq!(draining.join().unwrap(), Drained::Finished);
    seen.recv().unwrap();
    assert_eq!((pool.metrics().queued, pool.metrics().running), (0, 0));
}

#[test]
fn a_drain_past_its_deadline_drops_what_waits_and_says_how_much_was_left() {
    let pool = pool(1, 10);
    let gate = Gate::hold(&pool);
    let (done, seen) = channel::<()>();
    for _ in 0..3 {
        let done = done.clone();
        pool.try_submit(Box::new(move || done.send(()).unwrap())).unwrap();
    }
    drop(done);
    assert_eq!(pool.drain(Instant::now()), Drained::Left { queued: 3, running: 1 });
    assert!(seen.recv().is_err(), "dropped jobs let go of what they own");
    assert_eq!(pool.metrics().dropped, 3);
    gate.go.send(()).unwrap();
    assert_eq!(pool.drain(soon()), Drained::Finished);
    assert_eq!(pool.metrics().done, 1);
}

#[test]
fn a_panic_is_counted_and_its_thread_lives_on() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("even the payload");
        }
    }
    let pool = pool(1, 10);
    let (done, seen) = channel();
    pool.try_submit(Box::new(|| panic!("on purpose"))).unwrap();
    pool.try_submit(Box::new(|| std::panic::panic_any(Bomb))).unwrap();
    pool.try_submit(Box::new(move || done.send(()).unwrap())).unwrap();
    assert_eq!(pool.drain(soon()), Drained::Finished);
    seen.recv().unwrap();
    assert_eq!((pool.metrics().done, pool.metrics().panicked), (3, 2));
}

#[test]
fn busy_time_grows_by_the_time_of_the_jobs() {
    let pool = pool(1, 10);
    assert_eq!(pool.metrics().busy, Duration::ZERO);
    pool.try_submit(Box::new(|| std::thread::sleep(Duration::from_millis(5)))).unwrap();
    assert_eq!(pool.drain(soon()), Drained::Finished);
    assert!(pool.metrics().busy >= Duration::from_millis(5));
}

#[test]
fn dropping_the_pool_waits_for_what_runs_and_drops_what_waits() {
    let pool = pool(1, 10);
    let gate = Gate::hold(&pool);
    let (done, seen) = channel::<()>();
    pool.try_submit(Box::new(move || done.send(()).unwrap())).unwrap();
    let dropping = std::thread::spawn(move || drop(pool));
    // The queued job is dropped while the first one still holds its thread.
    assert!(seen.recv().is_err());
    assert!(!dropping.is_finished());
    gate.go.send(()).unwrap();
    dropping.join().unwrap();
}

#[test]
fn a_job_may_own_the_last_handle_of_its_pool() {
    let pool = Arc::new(pool(1, 10));
    let (done, seen) = channel();
    let gate = Gate::hold(&pool);
    let own = Arc::clone(&pool);
    pool.try_submit(Box::new(move || {
        drop(own);
        done.send(()).unwrap();
    }))
    .unwrap();
    drop(gate);
    drop(pool);
    // Either the job ran, or dropping the pool dropped it first; both end.
    let _ = seen.recv_timeout(Duration::from_secs(20));
}

#[test]
fn a_number_of_threads_out_of_bounds_is_refused() {
    for threads in [0, THREADS_MAX + 1] {
        let refused = ThreadPool::new(PoolSettings { threads, queue_max: 1, name: "test".to_owned() }).err();
        assert!(matches!(refused, Some(ExecutorStartError::Threads(asked)) if asked == threads));
    }
}

#[test]
fn what_many_threads_submit_is_done_or_refused_and_counted() {
    let pool = Arc::new(pool(4, 32));
    let done = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let submitters: Vec<_> = (0..4)
        .map(|_| {
            let (pool, done) = (Arc::clone(&pool), Arc::clone(&done));
            std::thread::spawn(move || {
                for _ in 0..5_000 {
                    let done = Arc::clone(&done);
                    let _ = pool.try_submit(Box::new(move || {
                        done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }));
                }
            })
        })
        .collect();
    submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
    assert_eq!(pool.drain(soon()), Drained::Finished);
    let metrics = pool.metrics();
    assert_eq!(metrics.done + metrics.refused, 20_000);
    assert_eq!(metrics.done, done.load(std::sync::atomic::Ordering::Relaxed));
    assert!(metrics.done > 0);
}
