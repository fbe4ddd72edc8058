//! Both ledgers: their decisions, sequential and concurrent, compared with the model.

use crate::model::Model;
use crate::redis_server::RedisServer;
use bank::attempt::{Attempt, AttemptVerdict, LockReport, Rules};
use bank::bank::open_database;
use bank::ledger::{Embedded, FailureCounter, Ledger, Redis};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

const RULES: Rules = Rules { ban_after: 10, lock_after: 3 };

/// A ledger and its storage.
struct Place {
    ledger: Box<dyn Ledger>,
    _folder: Option<TempDir>,
    _server: Option<RedisServer>,
}

fn embedded_place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let database = open_database(folder.path()).unwrap();
    Place { ledger: Box::new(Embedded::new(database)), _folder: Some(folder), _server: None }
}

/// None, after printing a line, if there is no redis-server.
fn redis() -> Option<Place> {
    let server = RedisServer::start(&[])?;
    let ledger = Redis::open(&server.address()).unwrap();
    Some(Place { ledger: Box::new(ledger), _folder: None, _server: Some(server) })
}

fn attempt(user: Option<u32>, login: &str, address: &str, is_right: bool) -> Attempt {
    Attempt { at: 1_700_000_000, user, login: login.to_owned(), address: address.to_owned(), is_right }
}

/// Attempts of a few users from a few addresses, so that locks and bans begin and end; some logins do not exist.
fn walk(place: &Place, seed: u64, steps: i64) {
    let (mut random, mut model) = (ChaCha8Rng::seed_from_u64(seed), Model::default());
    for at in 0..steps {
        let number = random.random_range(0..6_u32);
        let user = Some(number).filter(|number| *number > 0);
        let is_right = user.is_some() && random.random_bool(0.5);
        let address = format!("10.0.0.{}", random.random_range(0..5));
        let attempt = Attempt { at, ..attempt(user, &format!("login{number}"), &address, is_right) };
        let expected = model.attempt(&attempt, RULES);
        let decided = place.ledger.attempt_now(attempt.clone(), RULES).unwrap();
        assert_eq!(decided, expected, "seed {seed}, step {at}: {attempt:?}");
        if at % 20 == 0 {
            assert_eq!(place.ledger.report(RULES).unwrap(), model.report(RULES), "seed {seed}, step {at}");
        }
    }
    assert_eq!(place.ledger.report(RULES).unwrap(), model.report(RULES), "seed {seed}");
}

/// Of concurrent wrong guesses at one user, exactly as many are answered as wrong as a lock permits, in any order; then the same
/// for guesses at other users and a ban.
fn storm(place: &Place) {
    let storm = |of: &(dyn Fn(usize) -> Attempt + Sync)| -> Vec<AttemptVerdict> {
        std::thread::scope(|scope| {
            let guess = |thread: usize| {
                let attempts = (0..8).map(move |number| of(thread * 8 + number));
                attempts.map(|attempt| place.ledger.attempt_now(attempt, RULES).unwrap().verdict).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || guess(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        })
    };
    let count = |verdicts: &[AttemptVerdict], wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    let locked = storm(&|number| attempt(Some(7), "seven", &format!("10.1.0.{number}"), false));
    assert_eq!((count(&locked, AttemptVerdict::Wrong), count(&locked, AttemptVerdict::Locked)), (3, 61));
    let banned = storm(&|number| attempt(None, &format!("guess{number}"), "10.2.0.1", false));
    assert_eq!((count(&banned, AttemptVerdict::Wrong), count(&banned, AttemptVerdict::Banned)), (10, 54));
    let refused = LockReport { banned_ips: vec!["10.2.0.1".to_owned()], locked_users: vec!["seven".to_owned()] };
    assert_eq!(place.ledger.report(RULES).unwrap(), refused);
}

/// The order of the checks, and the counters after them.
fn order(place: &Place) {
    let decide = |attempt: Attempt| place.ledger.attempt_now(attempt, RULES).unwrap();
    for number in 0..9 {
        assert_eq!(decide(attempt(None, &format!("nobody{number}"), "10.0.0.9", false)).verdict, AttemptVerdict::Wrong);
    }
    for _ in 0..3 {
        assert_eq!(decide(attempt(Some(1), "ann", "10.0.0.1", false)).verdict, AttemptVerdict::Wrong);
    }
    // Locked although the password is correct; that attempt is the tenth failure of its address.
    assert_eq!(decide(attempt(Some(1), "ann", "10.0.0.9", true)).verdict, AttemptVerdict::Locked);
    assert_eq!(decide(attempt(Some(1), "ann", "10.0.0.9", true)).verdict, AttemptVerdict::Banned);
    assert_eq!(decide(attempt(Some(2), "bob", "10.0.0.9", true)).verdict, AttemptVerdict::Banned);
    let first = decide(attempt(Some(2), "bob", "10.0.0.2", true));
    assert_eq!((first.verdict, first.previous), (AttemptVerdict::Success, None));
    let second = decide(Attempt { at: 5, ..attempt(Some(2), "bob", "10.0.0.3", true) });
    assert_eq!(second.previous.map(|login| login.address), Some("10.0.0.2".to_owned()));
    let mut counters = Vec::new();
    place
        .ledger
        .counters(&mut |counter| {
            counters.push(match counter {
                FailureCounter::User { login, failed, last } => {
                    format!(
                        "{login} {failed} {}",
                        last.map_or_else(String::new, |last| format!("{} {}", last.at, last.address))
                    )
                }
                FailureCounter::Address { address, failed } => format!("{address} {failed}"),
            });
            Ok(())
        })
        .unwrap();
    counters.sort_unstable();
    assert_eq!(counters, ["10.0.0.1 3", "10.0.0.2 0", "10.0.0.3 0", "10.0.0.9 12", "ann 5 ", "bob 0 5 10.0.0.3"]);
}

#[test]
fn the_embedded_ledger_decides_as_the_model_does() {
    (1..=3).for_each(|seed| walk(&embedded_place(), seed, 150));
}

#[test]
fn the_ledger_in_redis_decides_as_the_model_does() {
    for seed in 1..=3 {
        let Some(place) = redis() else { return };
        walk(&place, seed, 300);
    }
}

#[test]
fn attempts_at_once_are_decided_one_after_the_other_by_the_embedded_ledger() {
    storm(&embedded_place());
}

#[test]
fn attempts_at_once_are_decided_one_after_the_other_in_redis() {
    redis().iter().for_each(storm);
}

/// More names than one page of the ledger's queries.
#[test]
fn a_long_report_of_the_embedded_ledger_names_everyone_once() {
    const COUNT: u32 = 1_100;
    let folder = tempfile::tempdir().unwrap();
    let ledger = Embedded::new(open_database(folder.path()).unwrap());
    let rules = Rules { ban_after: 1, lock_after: 1 };
    let of = |number: u32| attempt(Some(number), &format!("user{number:04}"), &format!("10.0.{number:05}"), false);
    for number in 0..COUNT {
        assert_eq!(ledger.attempt_now(of(number), rules).unwrap().verdict, AttemptVerdict::Wrong);
    }
    let expected = LockReport {
        banned_ips: (0..COUNT).map(|number| of(number).address).collect(),
        locked_users: (0..COUNT).map(|number| of(number).login).collect(),
    };
    assert_eq!(ledger.report(rules).unwrap(), expected);
    let mut count = 0;
    ledger
        .counters(&mut |_| {
            count += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(count, 2 * COUNT);
}

#[test]
fn the_embedded_ledger_checks_the_ban_before_the_lock_before_the_password() {
    order(&embedded_place());
}

#[test]
fn the_ledger_in_redis_checks_the_ban_before_the_lock_before_the_password() {
    redis().iter().for_each(order);
}

#[test]
fn a_redis_that_was_restarted_is_told_the_script_again() {
    let Some(mut server) = RedisServer::start(&[]) else { return };
    let ledger = Redis::open(&server.address()).unwrap();
    let guess = || ledger.attempt_now(attempt(Some(1), "ann", "10.0.0.1", false), RULES);
    assert_eq!(guess().unwrap().verdict, AttemptVerdict::Wrong);
    server.kill();
    server.run();
    // The first attempt may find that the old connection is closed.
    let decided = (0..5).find_map(|_| guess().ok());
    assert_eq!(decided.map(|decision| decision.verdict), Some(AttemptVerdict::Wrong));
}
