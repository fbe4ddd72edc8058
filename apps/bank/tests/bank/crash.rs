//! `kill -9` while attempts are in flight: no answered attempt is missing, and the report matches the stored
//! attempts.

use crate::server::Server;
use bank::attempt::LockReport;
use bank::bank::open_database;
use bank::ledger::{Embedded, FailureCounter, Ledger};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

const CLIENTS: usize = 4;
/// Attempts that are answered before the server is killed.
const ANSWERED_MIN: usize = 60;
const ROUNDS: usize = 3;

/// Answered failures by address; each client has its own addresses.
type Answered = BTreeMap<String, u64>;

/// Makes guesses from changing addresses until the server is gone.
fn guess(server: &Server, client: usize, round: usize, count: &AtomicUsize) -> Answered {
    let mut answered = Answered::new();
    for number in 0.. {
        let address = format!("10.{round}.{client}.{}", number % 3);
        let form = format!("login=nobody{number}&password=guess");
        match server.visitor(&address).ask("POST", "/login", &form) {
            Ok(reply) => {
                assert_eq!(reply.status, 302);
                *answered.entry(address).or_default() += 1;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => break,
        }
    }
    answered
}

/// The content of the data folder: failures by address, and the report.
fn stored(server: &Server) -> (Answered, LockReport) {
    let ledger = Embedded::new(open_database(&server.data()).unwrap());
    let mut stored = Answered::new();
    ledger
        .counters(&mut |counter| {
            if let FailureCounter::Address { address, failed } = counter {
                stored.insert(address, failed);
            }
            Ok(())
        })
        .unwrap();
    (stored, ledger.report(bank::attempt::Rules::default()).unwrap())
}

#[test]
fn no_answered_attempt_is_missing_after_a_kill() {
    let mut server = Server::embedded();
    let mut answered = Answered::new();
    for round in 0..ROUNDS {
        let (count, pid) = (AtomicUsize::new(0), server.pid());
        let found: Vec<Answered> = std::thread::scope(|scope| {
            let of_client = |client| {
                scope.spawn({
                    let (server, count) = (&server, &count);
                    move || guess(server, client, round, count)
                })
            };
            let clients: Vec<_> = (0..CLIENTS).map(of_client).collect();
            while count.load(Ordering::Relaxed) < ANSWERED_MIN && clients.iter().all(|client| !client.is_finished()) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        server.kill();
        answered.extend(found.into_iter().flatten());
        assert!(answered.values().sum::<u64>() >= (ANSWERED_MIN * (round + 1)) as u64, "too few were answered");
        let (stored, report) = stored(&server);
        for (address, failed) in &answered {
            let found = stored.get(address).copied().unwrap_or_default();
            // One more may be stored whose answer was lost.
            assert!(found == *failed || found == failed + 1, "{address}: {failed} answered, {found} stored");
        }
        let banned: Vec<String> =
            stored.iter().filter(|(_, failed)| **failed >= 10).map(|(address, _)| address.clone()).collect();
        assert_eq!(report.banned_ips, banned);
        server.run();
    }
}
