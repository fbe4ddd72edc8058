//! A start that fails leaves no thread behind. A test binary of its own, for it counts the process's threads.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::{any_port, loops};
use reactor::{ListenerSettings, Reactor};

/// Threads of this process that are a loop's.
fn loop_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("loop-")).count()
}

#[track_caller]
fn check_failed(reactor: Reactor, expected: &str) {
    let error = reactor.start().err().expect("a start that fails").to_string();
    assert!(error.ends_with(expected), "{error}");
    assert_eq!(loop_threads(), 0);
}

/// One after another: the count is the whole process's.
#[test]
fn a_failed_start_leaves_no_thread_behind() {
    let running = Reactor::new(loops(3)).unwrap().start().unwrap();
    assert_eq!(loop_threads(), 3);
    running.drain(std::time::Duration::ZERO);
    running.join().unwrap();

    let mut reactor = Reactor::new(loops(3)).unwrap();
    reactor.set_up(|setup| assert!(setup.lp().index() != 1, "no state for loop 1"));
    check_failed(reactor, "no state for loop 1");

    let mut reactor = Reactor::new(loops(3)).unwrap();
    reactor.bind(any_port(), ListenerSettings::default()).unwrap();
    check_failed(reactor, "listener 0 has no acceptor");
}
