//! Statements given as text are prepared once, within a limit, and against the current catalog.

use crate::service::{Service, config};
use docs::sql::{Budget, Scratch, Statements, Value};
use docs::{Op, Precondition, Write};

const CONFIG: &str = r#"
[collections.orders]
key = { field = "id", type = "u32" }
indexes = [["customer"]]
"#;

const WITH_DAY: &str = r#"
[collections.orders]
key = { field = "id", type = "u32" }
indexes = [["customer"], ["day"]]
"#;

fn service() -> Service {
    let service = Service::new(&config(CONFIG));
    let writes: Vec<Write> = (0..40)
        .map(|id| Write {
            collection: service.id("orders"),
            op: Op::Insert { body: format!(r#"{{"id":{id},"customer":{},"day":{}}}"#, id % 4, id % 10).into_bytes() },
            precondition: Precondition::default(),
        })
        .collect();
    service.database.write_all(&writes).unwrap();
    service
}

#[test]
fn a_text_is_prepared_once_for_all_values() {
    let (service, statements) = (service(), Statements::new(1 << 20));
    let (database, catalog) = (&service.database, service.database.catalog());
    let sql = "SELECT id FROM orders WHERE customer = :c AND day < 3 ORDER BY id";
    let session = database.session().unwrap();
    let mut answers = Vec::new();
    for customer in [1, 2, 1] {
        let query = statements.query(sql, catalog).unwrap();
        let (now, mut out) = (session.now(), Vec::new());
        let values = [Value::Integer(customer)];
        query.write_array(now.view(), &values, &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
        answers.push(String::from_utf8(out).unwrap());
    }
    assert_eq!(answers[0], r#"[{"id":1},{"id":21}]"#);
    assert_eq!(answers[1], r#"[{"id":2},{"id":10},{"id":22},{"id":30}]"#);
    assert_eq!(answers[2], answers[0]);
    assert_eq!((statements.found(), statements.prepared()), (2, 1));
    // Its plan was made once, too.
    assert_eq!(catalog.plans.made(), 1);
    // Paged statements are cached separately, and invalid texts are not cached.
    let paged = statements.paged("SELECT id FROM orders", catalog).unwrap();
    assert!(std::sync::Arc::ptr_eq(&paged, &statements.paged("SELECT id FROM orders", catalog).unwrap()));
    statements.query("SELECT id FROM orders", catalog).unwrap();
    assert_eq!((statements.found(), statements.prepared()), (3, 3));
    for _ in 0..2 {
        statements.query("SELECT nothing FROM nowhere", catalog).unwrap_err();
    }
    assert_eq!((statements.found(), statements.prepared()), (3, 3));
}

#[test]
fn statements_used_least_recently_go_and_the_bytes_stay_within_the_bound() {
    const BOUND: usize = 100 << 10;
    let (service, statements) = (service(), Statements::new(BOUND));
    let catalog = service.database.catalog();
    let text = |number: usize| format!("SELECT id, {number} AS number FROM orders WHERE customer = :c");
    for number in 0..400 {
        statements.query(&text(number), catalog).unwrap();
        statements.query(&text(0), catalog).unwrap();
        assert!(statements.bytes() <= BOUND, "{} bytes", statements.bytes());
    }
    let (found, evicted) = (statements.found(), statements.evicted());
    assert_eq!(found, 400, "the one that is used all the time stays");
    assert!((300..400).contains(&evicted), "{evicted} went");
    statements.query(&text(399), catalog).unwrap();
    assert_eq!(statements.found(), found + 1);
    statements.query(&text(1), catalog).unwrap();
    assert_eq!(statements.found(), found + 1, "the oldest has gone");
    // A statement that would need the room of many is not cached.
    let long = format!("SELECT id FROM orders WHERE customer IN ({})", vec!["7"; 700].join(", "));
    for _ in 0..2 {
        statements.query(&long, catalog).unwrap();
    }
    assert_eq!((statements.found(), statements.bytes() <= BOUND), (found + 1, true));
    let none = Statements::new(0);
    none.query(&text(0), catalog).unwrap();
    none.query(&text(0), catalog).unwrap();
    assert_eq!((none.found(), none.bytes()), (0, 0));
}

#[test]
fn another_configuration_has_statements_of_its_own() {
    let (service, statements) = (service(), Statements::new(1 << 20));
    let sql = "SELECT customer FROM orders WHERE day = :d";
    let plan = |catalog: &docs::catalog::Catalog| statements.query(sql, catalog).unwrap().explain(&[]);
    assert_eq!(plan(service.database.catalog()), "SCAN orders FILTER 1\n");
    let mut with_day = config(WITH_DAY);
    with_day.builds_indexes_later = true;
    let reopened = service.database.reopen::<docs::DatabaseOpenError>(&with_day, |_| Ok(()));
    let (database, _) = reopened.unwrap();
    database.wait_for_indexes();
    assert_eq!(plan(database.catalog()), "SEARCH orders USING INDEX (day=:d)\n");
    assert_eq!((statements.found(), statements.prepared()), (0, 2));
    // A request that began before the change of the configuration still works.
    assert_eq!(plan(service.database.catalog()), "SCAN orders FILTER 1\n");
    assert_eq!(plan(database.catalog()), "SEARCH orders USING INDEX (day=:d)\n");
}
