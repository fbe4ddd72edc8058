//! Concurrent writes: each unique value is taken once, and everything stays consistent.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::service::{Service, config, travels, user, visit};
use docs::{LARGE_BYTES, Op, Precondition, ReaderSession, Submission, TakeLong, Write, WriteError};

const THREADS: u32 = 4;
const ROUNDS: u32 = 60;

/// Each thread submits its writes without waiting for outcomes. Returns all outcomes.
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
    let sql = "UPDATE items SET n = n + 1 WHERE id = 1999 OR length(printf('%40000d', id)) = 0";
    let statement = docs::statements::Modification::prepare(sql, service.database.catalog()).unwrap();
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
        // It ends although every attempt meets a conflict: with success or with `Busy`.
        let ended = run();
        is_over.store(true, Ordering::Relaxed);
        let is_busy = |error: &docs::statements::ModifyError| {
            matches!(error, docs::statements::ModifyError::Write(WriteError::Busy))
        };
        assert!(ended.as_ref().map_or_else(is_busy, |outcome| outcome.rows == 1), "{ended:?}");
    });
    let slowest = *slowest.lock().unwrap();
    assert!(slowest < alone / 2, "a commit waited {slowest:?} for a statement of {alone:?}");
}

/// A long document under a general schema, changed by several threads at once.
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
                    // The document is the same in every attempt, so it is known to fit.
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

/// A long document that is put repeatedly while a short patch changes it: a patch that meets a conflict is refused, not
/// checked by the committing thread.
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

/// A schema that applies twice at each level of a document: a document of fifty bytes takes tens of thousands of steps.
const COSTLY: &str = r##"
[collections.trees]
key = { field = "id", type = "u32" }
[collections.trees.schema]
properties = { tree = { "$ref" = "#/$defs/tree" } }
[collections.trees.schema."$defs".tree]
allOf = [{ items = { "$ref" = "#/$defs/tree" } }, { items = { "$ref" = "#/$defs/tree" } }]
"##;

/// Arrays nested so deep.
fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

fn body(id: u32, depth: usize) -> Vec<u8> {
    format!("{{\"id\":{id},\"tree\":{}}}", nested(depth)).into_bytes()
}

/// Takes over an event loop's long writes: records whether one was noted, and passes them to the test.
struct Long {
    is_noted: AtomicBool,
    given: Mutex<Sender<Submission>>,
}

impl TakeLong for Long {
    fn note(&self) {
        self.is_noted.store(true, Ordering::SeqCst);
    }
    fn take(&self, _: &docs::DocumentDatabase, submission: Submission) {
        self.given.lock().unwrap().send(submission).unwrap();
    }
}

impl Long {
    fn new() -> (Arc<Long>, Receiver<Submission>) {
        let (given, taken) = channel();
        (Arc::new(Long { is_noted: AtomicBool::new(false), given: Mutex::new(given) }), taken)
    }

    /// Writes as an event loop does.
    fn write(
        self: &Arc<Self>,
        service: &Service,
        session: &ReaderSession,
        write: Write,
    ) -> Receiver<Result<(), WriteError>> {
        let (told, outcome) = channel();
        let done = Box::new(move |outcome: Result<docs::Written, WriteError>| told.send(outcome.map(drop)).unwrap());
        let long = Some(Arc::clone(self) as Arc<dyn TakeLong>);
        let submission = Submission { write, guard: None, required: None, over: None, long, done };
        assert!(service.database.try_write(session, submission).is_ok());
        outcome
    }
}

/// A service with a costly schema, and the nesting depth from which an event loop does not check a document.
fn costly() -> (Service, usize) {
    let service = Service::new(&config(COSTLY));
    let collection = service.id("trees");
    let session = service.database.session().unwrap();
    let depth = (1..40).find(|depth| {
        let (told, outcome) = channel();
        let write = Write {
            collection,
            op: Op::Insert { body: body(*depth as u32, *depth) },
            precondition: Precondition::None,
        };
        let done = Box::new(move |outcome: Result<docs::Written, WriteError>| told.send(outcome.map(drop)).unwrap());
        let submission = Submission { write, guard: None, required: None, over: None, long: None, done };
        assert!(service.database.try_write(&session, submission).is_ok());
        match outcome.recv().unwrap() {
            Ok(()) => false,
            Err(WriteError::Busy) => true,
            Err(error) => panic!("{depth}: {error}"),
        }
    });
    drop(session);
    (service, depth.expect("a document whose check is long"))
}

#[test]
fn a_short_document_whose_check_is_long_is_handed_from_an_event_loop_to_another_thread() {
    let (service, depth) = costly();
    assert!(body(0, depth).len() < 500, "{depth}");
    let (session, collection) = (service.database.session().unwrap(), service.id("trees"));
    let (long, taken) = Long::new();
    let write =
        |op: Op, precondition: Precondition| long.write(&service, &session, Write { collection, op, precondition });
    let key = docs::key::KeyType::U32.of_text("900").unwrap().as_bytes().to_vec();
    for op in [
        Op::Insert { body: body(900, depth) },
        Op::Put { key: key.clone(), body: body(900, depth + 1) },
        Op::Patch { key: key.clone(), patch: b"{\"n\":1}".to_vec() },
    ] {
        let outcome = write(op, Precondition::None);
        assert!(long.is_noted.swap(false, Ordering::SeqCst), "before the loop goes on");
        let submission = taken.recv().unwrap();
        assert!(outcome.try_recv().is_err() && submission.long.is_none());
        service.database.write_submission(&session, submission);
        assert_eq!(outcome.recv().unwrap(), Ok(()));
    }
    assert_eq!(service.get("trees/900").unwrap().1, format!("{{\"id\":900,\"tree\":{},\"n\":1}}", nested(depth + 1)));
    // A refusal that the event loop can decide is not handed to another thread.
    let outcome = write(Op::Put { key, body: body(900, depth) }, Precondition::Absent);
    assert_eq!(outcome.recv().unwrap(), Err(WriteError::PreconditionFailed));
    assert_eq!(write(Op::Insert { body: body(901, 1) }, Precondition::None).recv().unwrap(), Ok(()));
    assert!(!long.is_noted.load(Ordering::SeqCst) && taken.try_recv().is_err());
}

#[test]
fn a_short_document_whose_check_is_long_is_not_checked_again_where_all_commit() {
    let (service, depth) = costly();
    let collection = service.id("trees");
    let text = String::from_utf8(body(900, depth)).unwrap();
    service.run(&format!("insert trees {text}")).unwrap();
    let key = docs::key::KeyType::U32.of_text("900").unwrap().as_bytes().to_vec();
    let (refused, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (service, key, refused, done) = (&service, &key, &refused, &done);
            scope.spawn(move || {
                let mut number = 0;
                while refused.load(Ordering::Relaxed) == 0 || done.load(Ordering::Relaxed) == 0 {
                    number += 1;
                    assert!(begun.elapsed() < std::time::Duration::from_secs(60), "none was refused");
                    let op = Op::Patch { key: key.clone(), patch: format!("{{\"w{writer}\":{number}}}").into_bytes() };
                    match service.database.write_now(&Write { collection, op, precondition: Precondition::None }) {
                        Ok(_) => done.fetch_add(1, Ordering::Relaxed),
                        Err(WriteError::Busy) => refused.fetch_add(1, Ordering::Relaxed),
                        Err(error) => panic!("{error}"),
                    };
                }
            });
        }
    });
}

const NOTES: &str = "[collections.notes]\nkey = { field = \"id\", type = \"u32\" }\n";

#[test]
fn a_short_write_that_finds_a_large_document_is_handed_from_an_event_loop_to_another_thread() {
    let service = Service::new(&config(NOTES));
    let (session, collection) = (service.database.session().unwrap(), service.id("notes"));
    let (long, taken) = Long::new();
    let key = docs::key::KeyType::U32.of_text("1").unwrap().as_bytes().to_vec();
    let write = |op: Op| long.write(&service, &session, Write { collection, op, precondition: Precondition::None });
    let noted = || long.is_noted.swap(false, Ordering::SeqCst);
    // Room for the document's table of fields.
    let table_bytes = 64;
    for (is_large, bytes) in [(false, LARGE_BYTES - table_bytes), (true, LARGE_BYTES)] {
        let large =
            || format!("{{\"id\":1,\"text\":\"{}\"}}", "x".repeat(bytes - r#"{"id":1,"text":""}"#.len())).into_bytes();
        let (key, patch, body) = (|| key.clone(), || br#"{"n":1}"#.to_vec(), || br#"{"id":1}"#.to_vec());
        for op in [
            Op::Patch { key: key(), patch: patch() },
            Op::Update { key: key(), patch: patch() },
            Op::Put { key: key(), body: body() },
            Op::Replace { key: key(), body: body() },
            Op::Delete { key: key() },
        ] {
            let put = Op::Put { key: key(), body: large() };
            service.database.write_now(&Write { collection, op: put, precondition: Precondition::None }).unwrap();
            assert!(service.database.may_be_long(&Write {
                collection,
                op: op.clone(),
                precondition: Precondition::None
            }));
            let outcome = write(op);
            assert_eq!(noted(), is_large, "{bytes} bytes");
            if is_large {
                let submission = taken.recv().unwrap();
                assert!(outcome.try_recv().is_err());
                service.database.write_submission(&session, submission);
            }
            assert_eq!(outcome.recv().unwrap(), Ok(()));
        }
    }
    assert!(service.get("notes/1").is_none());
}
