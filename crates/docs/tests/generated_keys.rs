//! Generated keys: each is assigned once, also through restarts, changed configurations and concurrent writes.

use crate::service::{Service, config};
use docs::WriteError;
use docs::config::Config;
use docs::key::KeyType;

const CONFIG: &str = r#"
[collections.notes]
key = { field = "id", type = "u32", generate = "counter" }
unique = ["name"]
[collections.events]
key = { field = "id", type = "string", generate = "uuid" }
[collections.plain]
key = { field = "id", type = "u32" }
"#;

fn number(service: &Service, body: &str) -> Result<u32, WriteError> {
    let written = service.run(&format!("insert notes {body}"))?;
    Ok(KeyType::U32.of_bytes(&written.key).unwrap().to_string().parse().unwrap())
}

fn text(service: &Service, path: &str) -> Option<String> {
    service.get(path).map(|(_, text)| text)
}

fn reopened(service: Service, config: &Config) -> Service {
    let Service { database, dir } = service;
    drop(database);
    let (database, _) =
        docs::DocumentDatabase::open(config, dir.path(), docs::engine::StoreOptions::default()).unwrap();
    Service { database, dir }
}

#[test]
fn a_document_without_a_key_is_given_the_next_number_in_front() {
    let service = Service::new(&config(CONFIG));
    assert_eq!(number(&service, r#"{"a":[1, 2]}"#), Ok(1));
    assert_eq!(number(&service, "{}"), Ok(2));
    assert_eq!(text(&service, "notes/1").as_deref(), Some(r#"{"id":1,"a":[1,2]}"#));
    assert_eq!(text(&service, "notes/2").as_deref(), Some(r#"{"id":2}"#));
    for (insert, why) in [
        (r#"insert notes {"id":null}"#, "no key of type u32"),
        ("insert notes [1]", "a JSON object"),
        (r#"insert plain {"a":1}"#, "the key \"id\" is missing"),
    ] {
        let error = service.run(insert).expect_err(insert).to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_key_counts_however_it_is_written_and_only_at_the_top() {
    let service = Service::new(&config(CONFIG));
    assert_eq!(number(&service, r#"{"\u0069d":50}"#), Ok(50));
    assert_eq!(number(&service, "{ \n\"a\" : {\"id\":7}}"), Ok(51));
    assert_eq!(text(&service, "notes/51").as_deref(), Some(r#"{"id":51,"a":{"id":7}}"#));
    assert_eq!(number(&service, r#"{"name":"\"id\":"}"#), Ok(52));
    for wrong in [r#"{"a":1"#, r#"{"a":1,}"#, r#"{"a":1}}"#, r#"{"a":1,"a":2}"#, "{\u{c}}", r#"{"a"}"#] {
        assert!(matches!(number(&service, wrong), Err(WriteError::Invalid { .. })), "{wrong}");
    }
    let last = number(&service, r#"{"a":1}"#).unwrap();
    assert_eq!(text(&service, &format!("notes/{last}")), Some(format!(r#"{{"id":{last},"a":1}}"#)));
}

#[test]
fn numbers_that_documents_bring_are_stepped_over() {
    let service = Service::new(&config(CONFIG));
    assert_eq!(number(&service, "{}"), Ok(1));
    assert_eq!(number(&service, r#"{"id":2}"#), Ok(2));
    assert_eq!(number(&service, r#"{"id":10}"#), Ok(10));
    assert_eq!(number(&service, "{}"), Ok(11));
    assert_eq!(number(&service, r#"{"id":5}"#), Ok(5));
    assert_eq!(number(&service, "{}"), Ok(12));
}

#[test]
fn no_number_that_a_document_brings_uses_the_counter_up() {
    let config = config(CONFIG);
    let mut service = Service::new(&config);
    assert_eq!(number(&service, "{}"), Ok(1));
    for (round, brought) in [u32::MAX, u32::MAX - 1, u32::MAX - 2, u32::MAX - u32::MAX / 16 + 1].into_iter().enumerate()
    {
        assert_eq!(number(&service, &format!("{{\"id\":{brought}}}")), Ok(brought));
        let next = 2 * u32::try_from(round).unwrap() + 2;
        assert_eq!(number(&service, "{}"), Ok(next), "{brought}");
        service = reopened(service, &config);
        assert_eq!(number(&service, "{}"), Ok(next + 1), "{brought}");
    }
    // The last number that moves the counter. Behind it, numbers in use are stepped over one by one, up to the last of all.
    let last = u32::MAX - u32::MAX / 16;
    let used = [last + 1, last + 2, last + 3, last + 4, last + 7];
    used.iter().for_each(|id| drop(number(&service, &format!("{{\"id\":{id}}}"))));
    assert_eq!(number(&service, &format!("{{\"id\":{last}}}")), Ok(last));
    for given in [last + 5, last + 6, last + 8] {
        assert_eq!(number(&service, "{}"), Ok(given));
        service = reopened(service, &config);
    }
}

#[test]
fn a_counter_of_64_bits_goes_on_beside_the_largest_key() {
    let config = config("[collections.notes]\nkey = { field = \"id\", type = \"i64\", generate = \"counter\" }\n");
    let mut service = Service::new(&config);
    let number = |service: &Service, body: &str| {
        let written = service.run(&format!("insert notes {body}"))?;
        Ok::<_, WriteError>(KeyType::I64.of_bytes(&written.key).unwrap().to_string())
    };
    assert_eq!(number(&service, "{}").as_deref(), Ok("1"));
    for brought in [i64::MAX, i64::MAX - 1] {
        assert_eq!(number(&service, &format!("{{\"id\":{brought}}}")), Ok(brought.to_string()));
    }
    assert_eq!(number(&service, "{}").as_deref(), Ok("2"));
    service = reopened(service, &config);
    assert_eq!(number(&service, "{}").as_deref(), Ok("3"));
    drop(service.run(&format!("delete notes/{}", i64::MAX)).unwrap());
    assert_eq!(number(&service, "{}").as_deref(), Ok("4"));
}

#[test]
fn a_number_is_given_once_also_after_a_deletion_and_a_restart() {
    let config = config(CONFIG);
    let service = Service::new(&config);
    let first: Vec<u32> = (0..300).map(|_| number(&service, "{}").unwrap()).collect();
    assert_eq!(first, (1..=300).collect::<Vec<u32>>());
    (200..=300).for_each(|id| drop(service.run(&format!("delete notes/{id}")).unwrap()));
    let service = reopened(service, &config);
    assert_eq!(number(&service, "{}"), Ok(301));
    // No number was assigned since the last opening: nothing is written, and no number is lost.
    let service = reopened(reopened(service, &config), &config);
    assert_eq!(number(&service, "{}"), Ok(302));
}

#[test]
fn another_configuration_goes_on_with_the_next_number() {
    let service = Service::new(&config(CONFIG));
    assert_eq!(number(&service, "{}"), Ok(1));
    assert_eq!(number(&service, r#"{"id":7}"#), Ok(7));
    let more = format!("{CONFIG}[collections.more]\nkey = {{ field = \"id\", type = \"u32\" }}\n");
    let reopen = |service: &Service, text: &str, refuse: bool| {
        let outcome = if refuse { Err(docs::DatabaseOpenError::Mismatch("refused".to_owned())) } else { Ok(()) };
        service.database.reopen::<docs::DatabaseOpenError>(&config(text), |_| outcome).map(|(database, _)| database)
    };
    assert!(reopen(&service, &more, true).is_err());
    assert_eq!(number(&service, "{}"), Ok(8));
    let database = reopen(&service, &more, false).unwrap();
    // Also through the old database, which forwards its writes.
    assert_eq!(number(&service, "{}"), Ok(9));
    let Service { database: old, dir } = service;
    drop(old);
    let service = Service { database, dir };
    assert_eq!(number(&service, "{}"), Ok(10));
    let service = reopened(service, &config(&more));
    assert_eq!(number(&service, "{}"), Ok(11));
}

#[test]
fn a_write_that_others_overtook_keeps_its_number() {
    let service = Service::new(&config(CONFIG));
    let mut all: Vec<u32> = std::thread::scope(|scope| {
        let insert = || (0..400).map(|_| number(&service, "{}").unwrap()).collect::<Vec<u32>>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(insert)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    // All are different and none exceeds their count, so no number was skipped.
    all.dedup();
    assert_eq!((all.len(), all.last()), (1600, Some(&1600)));
}

#[test]
fn threads_beside_each_other_get_numbers_of_their_own_and_refusals_leave_gaps() {
    let service = Service::new(&config(CONFIG));
    let mut all: Vec<u32> = std::thread::scope(|scope| {
        let insert = |thread: usize| {
            let service = &service;
            // Every other insert is refused: its name is in use.
            move || {
                (0..200)
                    .filter_map(|n| number(service, &format!(r#"{{"name":"{thread}-{}"}}"#, n / 2)).ok())
                    .collect::<Vec<u32>>()
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(insert(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    assert_eq!(all.len(), 400);
    all.dedup();
    assert_eq!(all.len(), 400);
}

#[test]
fn a_database_that_ends_on_the_stores_thread_writes_its_next_number() {
    let config = config(CONFIG);
    let mut service = Service::new(&config);
    for round in 1..=50 {
        let session = service.database.session().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let write = docs::Write {
            collection: service.id("notes"),
            op: docs::Op::Insert { body: b"{}".to_vec() },
            precondition: docs::Precondition::None,
        };
        let done = Box::new(move |outcome| tell.send(outcome).unwrap());
        service.database.write(&session, write, done);
        drop(session);
        // The write in progress holds the last handle.
        let Service { database, dir } = service;
        drop(database);
        let written = told.recv().unwrap().unwrap();
        assert_eq!(KeyType::U32.of_bytes(&written.key).unwrap().to_string(), round.to_string());
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let database = loop {
            match docs::DocumentDatabase::open(&config, dir.path(), docs::engine::StoreOptions::default()) {
                Ok((database, _)) => break database,
                Err(error) => assert!(std::time::Instant::now() < until, "{error}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        service = Service { database, dir };
    }
}

#[test]
fn uuids_sort_by_time() {
    let service = Service::new(&config(CONFIG));
    let keys: Vec<String> = (0..100)
        .map(|_| {
            let key = service.run(r#"insert events {"a":1}"#).unwrap().key;
            let key = String::from_utf8(key).unwrap();
            let stored = format!(r#"{{"id":"{key}","a":1}}"#);
            assert_eq!(text(&service, &format!("events/{key}")), Some(stored));
            assert!(key.len() == 36 && key.as_bytes()[14] == b'7', "{key}");
            key
        })
        .collect();
    assert!(keys.is_sorted());
}
