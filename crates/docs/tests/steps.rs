//! Several statements in one transaction: the state that each sees, its expectations, and atomicity.

use std::sync::Arc;

use crate::service::{Service, config};
use docs::sql::{Budget, OwnedValue, PreparedQuery, QueryError, Scratch, Value};
use docs::statements::{ModifyError, StepText, Steps, StepsDid, StepsError};
use docs::{RowsWanted, StepsCall};

const CONFIG: &str = r#"
[collections.goods]
key = { field = "sku", type = "string" }
[collections.sales]
key = { field = "id", type = "u32", generate = "counter" }
[views.sold]
query = "SELECT sku, SUM(count) AS count FROM sales GROUP BY sku"
"#;

const TAKE: &str = "UPDATE goods SET stock = stock - :count WHERE sku = :sku AND stock >= :count";
const SELL: &str = "INSERT INTO sales (sku, count) VALUES (:sku, :count) RETURNING id";

fn start() -> Service {
    let service = Service::new(&config(CONFIG));
    service.run(r#"insert goods {"sku":"tea","stock":5}"#).unwrap();
    service
}

fn steps(service: &Service, texts: &[(&str, &str)], outside: &[&str]) -> Result<Steps, String> {
    let texts: Vec<StepText<'_>> = texts
        .iter()
        .map(|(sql, expect)| StepText { sql, expect: Some(*expect).filter(|text| !text.is_empty()) })
        .collect();
    Steps::prepare(&texts, outside, service.database.catalog()).map_err(|mistakes| {
        let told = mistakes.iter().map(|mistake| {
            let part = if mistake.in_expect { "expect" } else { "sql" };
            format!("{} {part}: {}", mistake.step, mistake.error)
        });
        told.collect::<Vec<_>>().join("; ")
    })
}

fn call(steps: Steps, parameters: &[Value<'_>], rows: RowsWanted) -> StepsCall {
    StepsCall {
        steps: Arc::new(steps),
        parameters: parameters.iter().map(OwnedValue::new).collect(),
        required: None,
        rows,
        now_ms: 0,
        rows_max: 1_000,
        bytes_max: 10_000,
        reply_bytes_max: 1_000,
    }
}

/// Checks that both ways to run a call give the same result, and returns that of the blocking one.
fn run(service: &Service, texts: &[(&str, &str)], outside: &[(&str, Value<'_>)]) -> Result<String, StepsError> {
    let names: Vec<&str> = outside.iter().map(|(name, _)| *name).collect();
    let values: Vec<Value<'_>> = outside.iter().map(|(_, value)| *value).collect();
    let call = call(steps(service, texts, &names).unwrap(), &values, RowsWanted::All);
    service
        .database
        .run_steps(&call, &Budget::default(), &mut StepsDid::default())
        .map(|body| String::from_utf8(body).unwrap())
}

fn all(service: &Service, sql: &str) -> String {
    let query = PreparedQuery::prepare(sql, service.database.catalog()).unwrap();
    let (session, mut out) = (service.database.session().unwrap(), Vec::new());
    query.write_array(session.now().view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn tea(count: i64) -> [(&'static str, Value<'static>); 2] {
    [("sku", Value::text("tea")), ("count", Value::Integer(count))]
}

#[test]
fn a_step_sees_what_was_written_before_it_and_what_was_returned() {
    let service = start();
    let seen = "SELECT s.id, s.count, g.stock FROM sales s JOIN goods g ON g.sku = s.sku WHERE s.id = :id";
    let sold = run(&service, &[(TAKE, "rows = 1"), (SELL, ""), (seen, "rows = 1")], &tea(2)).unwrap();
    assert_eq!(sold, r#"[{"id":1,"count":2,"stock":3}]"#);
    assert_eq!(all(&service, "SELECT stock FROM goods"), r#"[{"stock":3}]"#);
    assert_eq!(all(&service, "SELECT sku, count FROM sold"), r#"[{"sku":"tea","count":2}]"#);
}

#[test]
fn where_an_expectation_does_not_hold_nothing_stays() {
    let service = start();
    for (texts, step) in [
        (&[(SELL, ""), (TAKE, "rows = 1")][..], 1),
        (&[(SELL, "rows = 1"), (TAKE, "rows <= 1"), ("SELECT 1 AS one FROM goods WHERE stock > 90", "rows")], 2),
        (&[(SELL, "rows > 0 AND :count < 5")], 0),
        (&[(SELL, "NULL")], 0),
    ] {
        let error = run(&service, texts, &tea(9)).expect_err("it does not hold");
        assert!(matches!(error, StepsError::Unmet { step: met, .. } if met == step), "{error:?}");
        assert_eq!(all(&service, "SELECT stock FROM goods"), r#"[{"stock":5}]"#);
        assert_eq!(all(&service, "SELECT id FROM sales"), "[]");
    }
    let twice = &[(SELL, ""), ("INSERT INTO goods (sku) VALUES (:sku)", "")];
    let error = run(&service, twice, &tea(1)).expect_err("in use");
    assert!(matches!(error, StepsError::Failed { step: 1, error: ModifyError::Write(_) }), "{error:?}");
    assert_eq!(all(&service, "SELECT id FROM sales"), "[]");
}

#[test]
fn an_expectation_may_look_at_the_parameters_and_into_lists() {
    let service = start();
    let list = ("list", Value::text(r#"["tea","tea","milk"]"#));
    let found =
        ("SELECT sku FROM goods WHERE sku IN (SELECT value FROM json_each(:list))", "rows = json_array_length(:list)");
    let distinct = (found.0, "rows = (SELECT COUNT(DISTINCT value) FROM json_each(:list)) - 1");
    assert!(matches!(run(&service, &[found], &[list]), Err(StepsError::Unmet { step: 0, rows: 1 })));
    assert_eq!(run(&service, &[distinct], &[list]).unwrap(), r#"[{"sku":"tea"}]"#);
}

#[test]
fn steps_beside_each_other_take_no_more_than_there_is() {
    let service = Service::new(&config(CONFIG));
    service.run(r#"insert goods {"sku":"tea","stock":150}"#).unwrap();
    let texts = [(TAKE, "rows = 1"), (SELL, "")];
    let sold: usize = std::thread::scope(|scope| {
        let sell = || (0..60).filter(|_| run(&service, &texts, &tea(1)).is_ok()).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(sell)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(sold, 150, "of 240 that were asked for");
    assert_eq!(all(&service, "SELECT stock FROM goods"), r#"[{"stock":0}]"#);
    assert_eq!(all(&service, "SELECT COUNT(*) AS n, SUM(count) AS sum FROM sales"), r#"[{"n":150,"sum":150}]"#);
    assert_eq!(all(&service, "SELECT count FROM sold"), r#"[{"count":150}]"#);
}

#[test]
fn submitted_steps_are_told_their_reply_or_that_they_need_more_room() {
    let service = start();
    let submit = |mut call: StepsCall| {
        let session = service.database.session().unwrap();
        loop {
            let (told, outcome) = std::sync::mpsc::channel();
            let done = Box::new(move |call, _, outcome| told.send((call, outcome)).unwrap());
            assert!(service.database.try_submit_steps(&session, call, done).is_ok());
            let (again, outcome) = outcome.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
            match outcome {
                // The steps exceeded an event loop's millisecond on a busy machine.
                Err(StepsError::Failed { error: ModifyError::Query(QueryError::Deadline), .. }) => call = again,
                outcome => return outcome.map(|body| String::from_utf8(body).unwrap()),
            }
        }
    };
    let values = tea(1).map(|(_, value)| value);
    let sell = || steps(&service, &[(TAKE, "rows = 1"), (SELL, "")], &["sku", "count"]).unwrap();
    // An attempt that exceeds the millisecond has used up a number, so the first may be above 1.
    let first = submit(call(sell(), &values, RowsWanted::First)).unwrap();
    assert!(first.starts_with("{\"id\":"), "{first}");
    assert_eq!(submit(call(sell(), &values, RowsWanted::None)).unwrap(), "");
    let none = steps(&service, &[("DELETE FROM sales WHERE id = 77 RETURNING id", "")], &[]).unwrap();
    assert!(matches!(submit(call(none, &[], RowsWanted::First)), Err(StepsError::NoRow)));
    let narrow = StepsCall { rows_max: 3, ..call(sell(), &values, RowsWanted::All) };
    let error = submit(narrow).expect_err("a document written is more than three rows");
    let is_limit = matches!(&error, StepsError::Failed { error: ModifyError::Query(QueryError::Limit { .. }), .. });
    assert!(is_limit, "{error:?}");
    let goods = service.database.collection("goods").unwrap();
    let missing = StepsCall {
        required: Some(docs::Required { collection: goods, key: b"milk".to_vec() }),
        ..call(sell(), &values, RowsWanted::All)
    };
    assert!(matches!(submit(missing), Err(StepsError::Missing)));
    assert_eq!(all(&service, "SELECT MIN(id) AS id FROM sales"), format!("[{first}]"));
    assert_eq!(all(&service, "SELECT COUNT(*) AS n FROM sales"), r#"[{"n":2}]"#);
}

#[test]
fn mistakes_of_steps_have_their_place() {
    let service = start();
    let check = |texts: &[(&str, &str)], expected: &str| {
        let told = steps(&service, texts, &["sku", "count"]).expect_err(expected);
        assert!(told.starts_with(expected), "{told}");
    };
    check(&[("SELECT sku FROM gods", "")], "0 sql: line 1, column 17: no collection \"gods\"");
    check(&[(TAKE, ""), (SELL, "rows >")], "1 expect: line 1, column 7: ");
    check(&[(TAKE, "rows = 1\n AND")], "0 expect: line 2, column 5: ");
    check(&[(TAKE, "(rows = 1")], "0 expect: line 1, column 10: ");
    check(&[(TAKE, "1 = 1 AND\n lines > 0")], "0 expect: line 2, column 2: no field \"lines\"");
    check(&[(TAKE, ""), ("DELETE FROM sales WHERE id = :id", "")], "1 sql: no value for :id; there are: sku, count");
    check(&[(SELL, ""), ("SELECT count FROM sold", "")], "1 sql: a view cannot be read after a step that writes");
    check(&[(SELL, "(SELECT COUNT(*) FROM sold) > 0")], "0 expect: a view cannot be read");
    assert!(steps(&service, &[("SELECT count AS n FROM sold", ""), (SELL, ":n IS NULL")], &["sku", "count"]).is_ok());
}

/// A service whose transactions have at most as many bytes.
fn limited(transaction_bytes_max: usize) -> Service {
    let dir = tempfile::tempdir().unwrap();
    let mut options = docs::engine::StoreOptions::default();
    options.transaction_bytes_max = transaction_bytes_max;
    let database = docs::DocumentDatabase::open(&config(CONFIG), dir.path(), options).unwrap().0;
    Service { database, dir }
}

#[test]
fn what_steps_write_obeys_the_limit_of_a_transaction_and_none_of_queries() {
    const LIMIT: usize = 64 << 10;
    let service = limited(LIMIT);
    let budget = Budget { memory_bytes_max: 4_000, output_bytes_max: 1_000, ..Budget::default() };
    let run = |sql: &str, note_bytes: usize| {
        let note = "n".repeat(note_bytes);
        let parameters = [Value::text("milk"), Value::text(&note)];
        let call = call(steps(&service, &[(sql, "")], &["sku", "note"]).unwrap(), &parameters, RowsWanted::None);
        service.database.run_steps(&call, &budget, &mut StepsDid::default()).map(drop)
    };
    let written = [
        "INSERT INTO goods (sku, note) VALUES (:sku, :note)",
        "INSERT OR REPLACE INTO goods (sku, note) SELECT :sku, :note",
        "UPDATE goods SET note = :note WHERE sku = :sku",
    ];
    for sql in written {
        assert!(run(sql, LIMIT - 1_000).is_ok(), "{sql}");
        for bytes in [LIMIT, 3 * LIMIT] {
            let error = run(sql, bytes).expect_err("more than a transaction");
            let StepsError::Failed { error: ModifyError::Write(error), .. } = error else { panic!("{sql} {error:?}") };
            assert!(error.exceeds_transaction(), "{sql} {error:?}");
        }
    }
    for number in 0..200 {
        service.run(&format!(r#"insert goods {{"sku":"a long name of goods {number}","stock":1}}"#)).unwrap();
    }
    assert!(run("DELETE FROM goods WHERE sku <> :sku AND :note = ''", 0).is_ok());
    assert_eq!(all(&service, "SELECT COUNT(*) AS n FROM goods"), r#"[{"n":1}]"#);
}
