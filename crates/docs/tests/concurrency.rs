//! Writes from several threads at once: each value is taken once, and all stays in step.

use std::sync::mpsc::channel;

use crate::service::{Service, config, travels, user, visit};
use docs::{Op, Precondition, Write, WriteError};

const THREADS: u32 = 4;
const ROUNDS: u32 = 60;

/// Each thread submits without waiting; all answers are gathered.
fn race(service: &Service, make: impl Fn(u32, u32) -> Write + Sync) -> Vec<Result<(), WriteError>> {
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (sender, make, database) = (sender.clone(), &make, &service.database);
            scope.spawn(move || {
                let session = database.session().unwrap();
                for round in 0..ROUNDS {
                    let sender = sender.clone();
                    let done = Box::new(move |result: Result<docs::Written, WriteError>| {
                        sender.send(result.map(drop)).unwrap();
                    });
                    database.write(&session, make(thread, round), done);
                }
            });
        }
    });
    drop(sender);
    receiver.iter().collect()
}

fn good(results: &[Result<(), WriteError>]) -> u32 {
    results.iter().filter(|result| result.is_ok()).count() as u32
}

#[test]
fn a_key_and_a_unique_value_are_given_once() {
    let service = Service::new(&travels());
    let users = service.id("users");
    let insert = |body: String| Write {
        collection: users,
        op: Op::Insert { body: body.into() },
        precondition: Precondition::None,
    };
    let results = race(&service, |thread, round| insert(user(round, &format!("{round}-{thread}@x"))));
    assert_eq!((results.len() as u32, good(&results)), (THREADS * ROUNDS, ROUNDS));
    let results = race(&service, |thread, round| insert(user(1000 + round * THREADS + thread, &format!("m{round}@x"))));
    assert_eq!(good(&results), ROUNDS);
    assert!(results.iter().all(|result| matches!(result, Ok(()) | Err(WriteError::Conflict { .. }))));
    assert!(docs::verify::database(&service.database).unwrap().is_clean());
}

#[test]
fn a_reference_never_outlives_its_target() {
    let service = Service::new(&travels());
    service.run(r#"insert locations {"id":1}"#).unwrap();
    for id in 0..ROUNDS {
        service.run(&format!("insert users {}", user(id, &format!("{id}@x")))).unwrap();
    }
    let (users, visits) = (service.id("users"), service.id("visits"));
    race(&service, |thread, round| {
        let op = match thread % 2 {
            0 => Op::Delete { key: round.to_be_bytes().to_vec() },
            _ => Op::Insert { body: visit(thread * 1000 + round, round, 1, 5).into() },
        };
        Write { collection: if thread % 2 == 0 { users } else { visits }, op, precondition: Precondition::None }
    });
    let report = docs::verify::database(&service.database).unwrap();
    assert!(report.is_clean(), "{:?}", report.faults);
}

#[test]
fn a_long_statement_that_others_overtake_does_not_hold_up_their_commits() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};
    let service = Service::new(
        &docs::config::Config::parse(
            "s.toml".as_ref(),
            "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n",
        )
        .unwrap(),
    );
    let items = service.id("items");
    let put = |id: u32, n: u32| Write {
        collection: items,
        op: Op::Put {
            key: docs::key::KeyType::U32.of_text(&id.to_string()).unwrap().as_bytes().to_vec(),
            body: format!("{{\"id\":{id},\"n\":{n}}}").into(),
        },
        precondition: Precondition::None,
    };
    (0..2_000).for_each(|id| drop(service.database.write_now(&put(id, 0)).unwrap()));
    let sql = "UPDATE items SET n = n + 1 WHERE id = 1999 OR length(printf('%200000d', id)) = 0";
    let statement = docs::sql::Modification::prepare(sql, service.database.catalog()).unwrap();
    let run = || service.database.modify(&statement, &[], &docs::sql::Budget::default(), &mut docs::sql::NoRows);
    let started = Instant::now();
    assert_eq!(run().unwrap().rows, 1);
    let alone = started.elapsed();
    let (is_over, slowest) = (AtomicBool::new(false), std::sync::Mutex::new(Duration::ZERO));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0.. {
                let started = Instant::now();
                service.database.write_now(&put(1999, n)).unwrap();
                let mut slowest = slowest.lock().unwrap();
                *slowest = started.elapsed().max(*slowest);
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        // It ends, though it loses each time: done, or with a clear refusal.
        let ended = run();
        is_over.store(true, Ordering::Relaxed);
        let is_busy = |error: &docs::sql::ModifyError| matches!(error, docs::sql::ModifyError::Write(WriteError::Busy));
        assert!(ended.as_ref().map_or_else(is_busy, |outcome| outcome.rows == 1), "{ended:?}");
    });
    let slowest = *slowest.lock().unwrap();
    assert!(slowest < alone / 2, "a commit waited {slowest:?} for a statement of {alone:?}");
}

/// A long document under a schema of any kind, changed by several threads at once.
#[test]
fn a_long_document_is_checked_once_for_a_write_and_not_where_all_commit() {
    const TREES: &str = r##"
[collections.trees]
key = { field = "id", type = "u32" }
[collections.trees.schema]
additionalProperties = { anyOf = [{ type = ["integer", "string"] }] }
"##;
    let service = Service::new(&config(TREES));
    let collection = service.id("trees");
    let key = docs::key::KeyType::U32.of_text("1").unwrap().as_bytes().to_vec();
    let long =
        |writer: usize| format!("{{\"id\":1,\"writer\":{writer},\"text\":\"{}\"}}", "x".repeat(40_000)).into_bytes();
    service.run(&format!("insert trees {}", String::from_utf8(long(9)).unwrap())).unwrap();
    let write = |op: Op| {
        let (told, outcome) = std::sync::mpsc::channel();
        let session = service.database.session().unwrap();
        assert!(
            service
                .database
                .has_long_check(&session, &Write { collection, op: op.clone(), precondition: Precondition::None })
        );
        let write = Write { collection, op, precondition: Precondition::None };
        service.database.write(&session, write, Box::new(move |outcome| told.send(outcome).unwrap()));
        outcome.recv().unwrap()
    };
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (write, long, key) = (&write, &long, &key);
            scope.spawn(move || {
                for number in 0..40 {
                    // The same document whatever was there: it is known to fit.
                    write(Op::Put { key: key.clone(), body: long(writer) }).unwrap();
                    let patch = format!("{{\"by\":{writer},\"number\":{number}}}").into_bytes();
                    match write(Op::Patch { key: key.clone(), patch }) {
                        Ok(_) | Err(WriteError::Busy) => {}
                        Err(error) => panic!("{error}"),
                    }
                    let refused = write(Op::Patch { key: key.clone(), patch: b"{\"a\":1.5}".to_vec() }).unwrap_err();
                    assert!(matches!(refused, WriteError::Invalid { .. } | WriteError::Busy), "{refused}");
                }
            });
        }
    });
    assert!(!service.get("trees/1").unwrap().1.contains("1.5"));
}

/// A long document that is put again and again beside a short patch of it: what others overtook is refused, not computed by the thread
/// that commits for all.
#[test]
fn a_document_of_megabytes_is_not_prepared_again_where_all_commit() {
    let service = Service::new(&config("[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n"));
    let (collection, session) = (service.id("items"), service.database.session().unwrap());
    let key = docs::key::KeyType::U32.of_text("1").unwrap().as_bytes().to_vec();
    let begun = std::time::Instant::now();
    for bytes in [1_000_000, 1_500_000] {
        let body = |n: u32| format!("{{\"id\":1,\"n\":{n},\"text\":\"{}\"}}", "x".repeat(bytes)).into_bytes();
        let (mut refused, mut number) = (0, 0);
        while number < 20 || bytes > 1 << 20 && refused == 0 {
            number += 1;
            let put = |n| Op::Put { key: key.clone(), body: body(n) };
            let outcomes = [put(2 * number), put(2 * number + 1)].map(|op| {
                let (told, outcome) = channel();
                let write = Write { collection, op, precondition: Precondition::None };
                service.database.write(&session, write, Box::new(move |outcome| told.send(outcome).unwrap()));
                outcome
            });
            for outcome in outcomes {
                match outcome.recv().unwrap() {
                    Ok(_) => {}
                    Err(WriteError::Busy) if bytes > 1 << 20 => refused += 1,
                    Err(error) => panic!("{bytes} bytes: {error}"),
                }
            }
            assert!(begun.elapsed() < std::time::Duration::from_secs(30), "none of {number} was refused");
        }
    }
}
