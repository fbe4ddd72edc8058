//! A pool: bounded, shared among threads, its clients reused.

use crate::fake_server::{FakeServer, script};
use resp::{ClientPool, CommandError, NotSent};
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_pool_gives_out_no_more_clients_than_it_may_and_those_that_come_back_first() {
    let server = FakeServer::start(vec![script(|peer| {
        for _ in 0..2 {
            peer.expect("PING");
            peer.send(b"+PONG\r\n");
        }
        peer.expect_end();
    })]);
    let mut settings = server.settings.clone();
    settings.timeout = Duration::from_millis(200);
    let pool = ClientPool::new(settings, 2);
    let mut first = pool.get().unwrap();
    first.set_timeout(Duration::from_secs(20));
    let second = pool.get().unwrap();
    assert!(matches!(pool.get(), Err(CommandError::NotSent(NotSent::PoolExhausted))));
    assert_eq!(first.command::<String>("PING").unwrap(), "PONG");
    drop(second);
    drop(first);
    // The most recently used client and its connection: there is no script for a second one.
    let mut again = pool.get().unwrap();
    assert_eq!(again.command::<String>("PING").unwrap(), "PONG");
    drop(again);
    drop(pool);
    server.finish();
}

#[test]
fn a_thread_that_waits_for_a_client_gets_the_one_that_comes_back() {
    let server = FakeServer::start(vec![]);
    let mut settings = server.settings.clone();
    // Longer than the test waits for the thread.
    settings.timeout = Duration::from_secs(3600);
    let pool = Arc::new(ClientPool::new(settings, 1));
    let held = pool.get().unwrap();
    let (got, has_got) = std::sync::mpsc::channel();
    let waiting = Arc::clone(&pool);
    std::thread::spawn(move || got.send(waiting.get().is_ok()));
    std::thread::sleep(Duration::from_millis(50));
    drop(held);
    assert_eq!(has_got.recv_timeout(Duration::from_secs(20)), Ok(true));
    server.finish();
}
