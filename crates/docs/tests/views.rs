//! Views: after any writes, changes of definitions and openings, a view equals its query run from scratch.

use crate::declared_views::{self, rows, try_rows};
use crate::service::{Service, config, open};
use docs::RuleState;
use docs::sql::{Budget, Scratch, Value};
use docs::{DocumentDatabase, Op, Precondition, Write};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"i64\" }\n";

const BY_KIND: &str = "SELECT kind, COUNT(*) AS n, COUNT(amount) AS c, SUM(amount) AS s, AVG(amount) AS a, \
                       MIN(amount) AS lo, MAX(amount) AS hi, MIN(tag) AS first FROM items GROUP BY kind";
const BY_MONTH: &str = "SELECT strftime('%Y-%m', at, 'unixepoch') AS month, kind, COUNT(*) AS n, TOTAL(amount) AS t \
                        FROM items WHERE amount > 0 OR tag IS NOT NULL GROUP BY month, kind";
const BY_SIZE: &str =
    "SELECT LENGTH(tag) AS size, SUM(amount * 2) AS twice, MAX(at) AS latest FROM items GROUP BY size";

const EVERYTHING: &str = "SELECT COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS a, MIN(tag) AS first FROM items";
const ROLLED: &str = "SELECT kind, tag AS t, COUNT(*) AS n, TOTAL(amount) AS s, MAX(amount) AS hi FROM items \
                      WHERE amount IS NOT NULL GROUP BY ROLLUP (kind, tag)";
/// The same without ROLLUP, which queries do not support.
const ROLLED_BY_HAND: &str = "SELECT kind, tag AS t, COUNT(*) AS n, TOTAL(amount) AS s, MAX(amount) AS hi FROM items \
                              WHERE amount IS NOT NULL GROUP BY kind, tag \
                              UNION ALL SELECT kind, NULL, COUNT(*), TOTAL(amount), MAX(amount) FROM items \
                              WHERE amount IS NOT NULL GROUP BY kind \
                              UNION ALL SELECT NULL, NULL, COUNT(*), TOTAL(amount), MAX(amount) FROM items \
                              WHERE amount IS NOT NULL";

fn with_views(views: &[(&str, &str)]) -> docs::config::Config {
    declared_views::with_views(ITEMS, views)
}

/// Equal to the last bit, except that 5 and 5.0 are the same: MIN and MAX may return either.
fn alike(a: &Json, b: &Json) -> bool {
    match (a, b) {
        (Json::Number(a), Json::Number(b)) => a == b || a.as_f64().unwrap() == b.as_f64().unwrap(),
        (Json::Object(a), Json::Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((x, a), (y, b))| x == y && alike(a, b))
        }
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b)),
        (a, b) => a == b,
    }
}

/// The same with all numbers as reals.
fn in_reals(value: &Json) -> Json {
    match value {
        Json::Number(number) => json!(number.as_f64()),
        Json::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), in_reals(value))).collect(),
        Json::Array(values) => values.iter().map(in_reals).collect(),
        other => other.clone(),
    }
}

/// Rows in an order that is the same for 5 and 5.0.
fn by_value(mut rows: Vec<Json>) -> Json {
    rows.sort_by_key(|row| in_reals(row).to_string());
    Json::Array(rows)
}

#[track_caller]
fn check(database: &DocumentDatabase, view: &str, query: &str) {
    let found = try_rows(database, &format!("SELECT * FROM {view}")).map(by_value);
    let expected = try_rows(database, query).map(by_value);
    // If a sum of integers exceeds 64 bits, both report it.
    let same = match (&found, &expected) {
        (Ok(found), Ok(expected)) => alike(found, expected),
        (found, expected) => found == expected,
    };
    assert!(same, "{view}: {found:?}\nexpected {expected:?}");
}

#[track_caller]
fn check_verified(database: &DocumentDatabase, view: &str) {
    let report = database.verify_view(view).unwrap().unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[track_caller]
fn check_all(database: &DocumentDatabase) {
    check(database, "by_kind", BY_KIND);
    check(database, "by_month", BY_MONTH);
    check(database, "by_size", BY_SIZE);
    check(database, "everything", EVERYTHING);
    check(database, "rolled", ROLLED_BY_HAND);
    let tags = rows(database, "SELECT kind, tag FROM items WHERE tag IS NOT NULL GROUP BY kind, tag");
    for row in rows(database, "SELECT kind, tags FROM tags_of") {
        let expected = tags.iter().filter(|tag| tag["kind"] == row["kind"]).count();
        assert_eq!(row["tags"], json!(expected), "{row}");
    }
    ALL.into_iter().for_each(|(view, _)| check_verified(database, view));
    check_single_rows(database, "by_kind", &["kind"]);
    check_single_rows(database, "by_month", &["month", "kind"]);
    check_single_rows(database, "everything", &[]);
}

/// A row of a view by the values of its GROUP BY columns, from a snapshot and inside a transaction.
fn single_row(database: &DocumentDatabase, view: &str, group: &[Value<'_>]) -> Result<Option<Json>, String> {
    let id = database.view(view).unwrap();
    let session = database.session().unwrap();
    let mut row = b"before".to_vec();
    let found = session.now().view_row(id, group, &mut row).map_err(|why| why.to_string())?;
    database
        .transact(&mut |tx| {
            let mut within = b"before".to_vec();
            assert_eq!(tx.view_row(id, group, &mut within).ok(), Some(found));
            assert_eq!(within, row);
            Ok::<_, docs::WriteError>(())
        })
        .unwrap();
    let row = row.strip_prefix(b"before").unwrap();
    assert_eq!(found, !row.is_empty());
    Ok(found.then(|| serde_json::from_slice(row).unwrap()))
}

/// Each row is found by its group's values; NULL is no value that a row is found by.
#[track_caller]
fn check_single_rows(database: &DocumentDatabase, view: &str, columns: &[&str]) {
    // If a sum of integers exceeds 64 bits, all rows together cannot be read.
    let Ok(rows) = try_rows(database, &format!("SELECT * FROM {view}")) else { return };
    for row in rows {
        let texts: Vec<String> = columns.iter().map(|column| row[*column].to_string()).collect();
        let values = columns.iter().zip(&texts).map(|(column, text)| match &row[*column] {
            Json::Null => Value::Null,
            Json::Bool(truth) => Value::Integer(i64::from(*truth)),
            Json::Number(number) => number.as_i64().map_or(Value::Real(number.as_f64().unwrap()), Value::Integer),
            Json::String(string) => Value::Text(string.as_bytes()),
            _ => Value::Text(text.as_bytes()),
        });
        let values: Vec<Value<'_>> = values.collect();
        let expected = (!values.iter().any(|value| matches!(value, Value::Null))).then(|| row.clone());
        assert_eq!(single_row(database, view, &values), Ok(expected), "{view}: {values:?}");
    }
}

const TAGS_OF: &str =
    "SELECT kind, COUNT(DISTINCT tag) AS tags, COUNT(DISTINCT amount) AS amounts FROM items GROUP BY kind";
const ALL: [(&str, &str); 6] = [
    ("by_kind", BY_KIND),
    ("by_month", BY_MONTH),
    ("by_size", BY_SIZE),
    ("tags_of", TAGS_OF),
    ("everything", EVERYTHING),
    ("rolled", ROLLED),
];

#[derive(Clone, Debug)]
enum Step {
    Put(i64, Json),
    Patch(i64, Json),
    Delete(i64),
    Reopen,
}

fn kind() -> impl Strategy<Value = Json> {
    let text = prop_oneof![Just("a"), Just("b"), Just("ü"), Just(""), Just("{\"x\":1}")].prop_map(Json::from);
    prop_oneof![4 => text, 1 => Just(Json::Null), 1 => Just(json!(7)), 1 => Just(json!(2.5)), 1 => Just(json!(true)), 1 => Just(json!({"x": 2}))]
}

fn amount() -> impl Strategy<Value = Json> {
    prop_oneof![
        3 => (-50i64..50).prop_map(Json::from),
        3 => (-500i32..500).prop_map(|tenths| json!(f64::from(tenths) / 10.0)),
        1 => prop_oneof![Just(json!(1e15)), Just(json!(-1e15)), Just(json!(1e-9)), Just(json!(i64::MAX / 4)), Just(Json::Null), Just(json!("12x")), Just(json!(false))],
    ]
}

fn document() -> impl Strategy<Value = Json> {
    let tag = prop_oneof![Just(Json::Null), "[a-c]{0,2}".prop_map(Json::from)];
    (prop::option::of(kind()), prop::option::of(amount()), prop::option::of(tag), 0i64..4).prop_map(
        |(kind, amount, tag, month)| {
            let mut document = json!({ "at": 1_700_000_000 + month * 2_600_000 });
            for (name, value) in [("kind", kind), ("amount", amount), ("tag", tag)] {
                if let Some(value) = value {
                    document[name] = value;
                }
            }
            document
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0i64..12;
    prop_oneof![
        8 => (key.clone(), document()).prop_map(|(key, document)| Step::Put(key, document)),
        4 => (key.clone(), document()).prop_map(|(key, patch)| Step::Patch(key, patch)),
        3 => key.prop_map(Step::Delete),
        1 => Just(Step::Reopen),
    ]
}

fn write(database: &DocumentDatabase, op: Op) {
    let collection = database.collection("items").unwrap();
    let written = database.write_now(&Write { collection, op, precondition: Precondition::None });
    assert!(matches!(written, Ok(_) | Err(docs::WriteError::NotFound)), "{written:?}");
}

fn key(key: i64) -> Vec<u8> {
    docs::key::KeyType::I64.of_scalar(docs::order::Scalar::Integer(key)).unwrap().as_bytes().to_vec()
}

fn with_id(id: i64, mut document: Json) -> Vec<u8> {
    document["id"] = json!(id);
    document.to_string().into_bytes()
}

fn run(database: &DocumentDatabase, step: &Step) {
    match step {
        Step::Put(id, document) => write(database, Op::Put { key: key(*id), body: with_id(*id, document.clone()) }),
        Step::Patch(id, patch) => write(database, Op::Update { key: key(*id), patch: patch.to_string().into_bytes() }),
        Step::Delete(id) => write(database, Op::Delete { key: key(*id) }),
        Step::Reopen => {}
    }
}

#[test]
fn a_single_row_is_found_by_equal_values_only() {
    let service = Service::new(&with_views(&ALL));
    let database = &service.database;
    database.wait_for_views();
    let item = json!({ "at": 1_700_000_000, "kind": 5.0, "amount": 3 });
    run(database, &Step::Put(1, item));
    let found = |group: &[Value<'_>]| single_row(database, "by_kind", group);
    let expected = rows(database, "SELECT * FROM by_kind WHERE kind = 5").pop();
    assert!(expected.is_some());
    for five in [Value::Integer(5), Value::Real(5.0)] {
        assert_eq!(found(&[five]), Ok(expected.clone()));
    }
    let long = "x".repeat(5000);
    for other in [Value::Integer(4), Value::Real(f64::NAN), Value::Null, Value::text("5"), Value::text(&long)] {
        assert_eq!(found(&[other]), Ok(None), "{other:?}");
    }
    assert!(found(&[]).is_err() && found(&[Value::Integer(5); 2]).is_err());
    let rolled = single_row(database, "rolled", &[Value::Integer(5), Value::Null]);
    assert!(rolled.as_ref().is_err_and(|why| why.contains("ROLLUP")), "{rolled:?}");
    run(database, &Step::Delete(1));
    assert_eq!(found(&[Value::Integer(5)]), Ok(None));
    assert_eq!(single_row(database, "everything", &[]).unwrap().unwrap()["n"], json!(0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn views_equal_their_queries_after_any_writes(steps in prop::collection::vec(step(), 1..60)) {
        let settings = with_views(&ALL);
        let mut service = Service::new(&settings);
        for (number, step) in steps.iter().enumerate() {
            if matches!(step, Step::Reopen) {
                let Service { database, dir } = service;
                drop(database);
                service = Service { database: open(&settings, dir.path()), dir };
            }
            run(&service.database, step);
            if number % 8 == 0 {
                check(&service.database, "by_kind", BY_KIND);
            }
        }
        check_all(&service.database);
    }

    #[test]
    fn views_built_while_writes_go_on_equal_their_queries(before in prop::collection::vec(step(), 1..40), after in prop::collection::vec(step(), 1..20)) {
        let service = Service::new(&config(ITEMS));
        before.iter().for_each(|step| run(&service.database, step));
        let Service { database, dir } = service;
        drop(database);
        let database = open(&with_views(&ALL), dir.path());
        after.iter().for_each(|step| run(&database, step));
        database.wait_for_views();
        prop_assert!(database.views().iter().all(|view| view.state == RuleState::Ready), "{:?}", database.views());
        check_all(&database);
    }
}

#[test]
fn a_view_is_queried_like_a_collection() {
    let by_two = "SELECT kind, tag, COUNT(*) AS n, SUM(amount) AS s FROM items GROUP BY kind, tag";
    let service = Service::new(&with_views(&[("by_two", by_two)]));
    for id in 0..60i64 {
        let document = json!({ "kind": format!("k{}", id % 3), "tag": id % 5, "amount": id });
        run(&service.database, &Step::Put(id, document));
    }
    let check = |sql: &str, expected: Json| assert_eq!(Json::Array(rows(&service.database, sql)), expected, "{sql}");
    check("SELECT s FROM by_two WHERE kind = 'k1' AND tag = 2", json!([{ "s": 7 + 22 + 37 + 52 }]));
    check("SELECT SUM(n) AS n, SUM(s) AS s FROM by_two WHERE kind = 'k1'", json!([{ "n": 20, "s": 590 }]));
    check(
        "SELECT kind, SUM(n) AS n FROM by_two WHERE tag > 2 GROUP BY kind ORDER BY kind DESC LIMIT 1",
        json!([{ "kind": "k2", "n": 8 }]),
    );
    check("SELECT COUNT(*) AS n FROM by_two", json!([{ "n": 15 }]));
    check(
        "SELECT i.id, v.n FROM items i JOIN by_two v ON v.kind = i.kind AND v.tag = i.tag WHERE i.id = 7",
        json!([{ "id": 7, "n": 4 }]),
    );
    let plan = service.database.prepare_query("SELECT s FROM by_two WHERE kind = 'k1'").unwrap().explain(&[]);
    assert!(plan.contains("COVERING INDEX (kind=?)"), "{plan}");
    let explain = |sql: &str| service.database.prepare_query(sql).unwrap().explain(&[]);
    let plan = explain("SELECT s FROM by_two WHERE kind = 'k1' AND tag = 2");
    assert!(plan.contains("COVERING INDEX (kind=?, tag=?)") && !plan.contains("FILTER"), "{plan}");
    let plan = explain("SELECT s FROM by_two WHERE kind = 'k1' AND tag > 2 ORDER BY tag DESC");
    assert!(plan.contains("COVERING INDEX (kind=?, tag>?)") && !plan.contains("SORT"), "{plan}");
    let plan = explain("SELECT kind, tag, s FROM by_two ORDER BY kind, tag LIMIT 5");
    assert!(!plan.contains("SORT"), "{plan}");
    let plan =
        explain("SELECT i.id, v.n FROM items i JOIN by_two v ON v.kind = i.kind AND v.tag = i.tag WHERE i.id = 7");
    assert!(plan.contains("COVERING INDEX (kind=i.kind, tag=i.tag)"), "{plan}");
    check("SELECT tag, s FROM by_two WHERE kind = 'k0' AND tag = 2.0", json!([{ "tag": 2, "s": 12 + 27 + 42 + 57 }]));
    let plan = service.database.prepare_query("SELECT n FROM by_two WHERE s > 3").unwrap().explain(&[]);
    assert!(plan.contains("SCAN by_two"), "{plan}");
}

#[test]
fn group_values_keep_the_form_that_they_were_written_in() {
    let service = Service::new(&with_views(&[("by_kind", "SELECT kind, COUNT(*) AS n FROM items GROUP BY kind")]));
    for (id, kind) in
        [json!(true), json!(5.0), json!(-0.0), json!({ "a": [1] }), json!("{\"b\":1}"), json!(1e300)].iter().enumerate()
    {
        run(&service.database, &Step::Put(id as i64, json!({ "kind": kind })));
    }
    let sql = "SELECT kind FROM items GROUP BY kind";
    assert_eq!(rows(&service.database, "SELECT kind FROM by_kind"), rows(&service.database, sql));
    assert_eq!(rows(&service.database, "SELECT kind FROM by_kind WHERE kind = 5"), [json!({ "kind": 5.0 })]);
}

#[test]
fn sums_of_reals_leave_nothing_behind() {
    let service = Service::new(&with_views(&[("all", "SELECT kind, SUM(amount) AS s FROM items GROUP BY kind")]));
    for (id, amount) in [0.1, 1e16, 0.2, -1e16, 0.3, 1e-300].into_iter().enumerate() {
        run(&service.database, &Step::Put(id as i64, json!({ "kind": 1, "amount": amount })));
    }
    [1, 3].into_iter().for_each(|id| run(&service.database, &Step::Delete(id)));
    assert_eq!(rows(&service.database, "SELECT s FROM \"all\""), [json!({ "s": 0.6 })]);
    [0, 2, 4].into_iter().for_each(|id| run(&service.database, &Step::Delete(id)));
    assert_eq!(rows(&service.database, "SELECT s FROM \"all\""), [json!({ "s": 1e-300 })]);
}

#[test]
fn a_sum_outside_64_bits_is_an_error_in_a_view_and_in_a_query_and_a_way_through_there_is_none() {
    let query = "SELECT SUM(amount) AS s, COUNT(*) AS n FROM items";
    let service = Service::new(&with_views(&[("v", query)]));
    let sums = |expected: Option<i64>| {
        let found =
            [query, "SELECT s, n FROM v"].map(|sql| try_rows(&service.database, sql).map(|rows| rows[0]["s"].as_i64()));
        assert!(found.iter().all(|found| found.clone().ok().flatten() == expected), "{found:?}");
    };
    [i64::MAX, 5, -6].into_iter().enumerate().for_each(|(id, amount)| {
        run(&service.database, &Step::Put(id as i64, json!({ "amount": amount })));
    });
    sums(Some(i64::MAX - 1));
    run(&service.database, &Step::Delete(2));
    sums(None);
    let why = |sql: &str| try_rows(&service.database, sql).unwrap_err();
    assert_eq!(why("SELECT s FROM v"), why(query));
    assert_eq!(why("SELECT n FROM v WHERE s > 0"), why(query));
    assert_eq!(why("SELECT m FROM (SELECT s AS m FROM v)"), why(query));
    // Queries that do not read the sum succeed.
    assert_eq!(rows(&service.database, "SELECT n FROM v"), [json!({ "n": 2 })]);
    run(&service.database, &Step::Put(0, json!({ "amount": i64::MIN })));
    sums(Some(i64::MIN + 5));
    run(&service.database, &Step::Put(1, json!({ "amount": -5 })));
    sums(None);
}

#[test]
fn a_view_without_groups_has_one_row_always() {
    let service = Service::new(&with_views(&[("everything", EVERYTHING)]));
    let none = json!([{ "n": 0, "s": null, "a": null, "first": null }]);
    assert_eq!(Json::Array(rows(&service.database, "SELECT * FROM everything")), none);
    run(&service.database, &Step::Put(1, json!({ "amount": 0.1, "tag": "b" })));
    run(&service.database, &Step::Put(2, json!({ "amount": 0.2, "tag": "a" })));
    assert_eq!(rows(&service.database, "SELECT n, s, first FROM everything WHERE n = 2").len(), 1);
    check(&service.database, "everything", EVERYTHING);
    [1, 2].into_iter().for_each(|id| run(&service.database, &Step::Delete(id)));
    assert_eq!(Json::Array(rows(&service.database, "SELECT * FROM everything")), none);
}

#[test]
fn rolled_up_groups_are_found_by_null_beside_groups_of_null() {
    let service = Service::new(&with_views(&[("rolled", ROLLED)]));
    for (id, (kind, tag)) in [("a", Some("x")), ("a", None), ("b", Some("x"))].into_iter().enumerate() {
        run(&service.database, &Step::Put(id as i64, json!({ "kind": kind, "tag": tag, "amount": 1 })));
    }
    let found = |sql: &str| Json::Array(rows(&service.database, &format!("SELECT n FROM rolled WHERE {sql}")));
    // Both the group without a tag and the subtotal over all tags.
    assert_eq!(found("kind = 'a' AND t IS NULL"), json!([{ "n": 1 }, { "n": 2 }]));
    assert_eq!(found("kind = 'a' AND t = 'x'"), json!([{ "n": 1 }]));
    assert_eq!(found("kind IS NULL"), json!([{ "n": 3 }]));
    check(&service.database, "rolled", ROLLED_BY_HAND);
}

#[test]
fn a_changed_definition_is_built_anew_and_the_old_rows_go() {
    let (first, second) = (
        "SELECT kind, COUNT(*) AS n FROM items GROUP BY kind",
        "SELECT kind, SUM(1) AS n FROM items WHERE tag = 'x' GROUP BY kind",
    );
    let service = Service::new(&with_views(&[("v", first)]));
    for id in 0..200i64 {
        run(&service.database, &Step::Put(id, json!({ "kind": id % 7, "tag": if id % 2 == 0 { "x" } else { "y" } })));
    }
    let Service { mut database, dir } = service;
    for query in [second, first, second] {
        drop(database);
        database = open(&with_views(&[("v", query)]), dir.path());
        // The columns are the same, so the old definition answers until the new one is built.
        assert_eq!(rows(&database, "SELECT kind, n FROM v").len(), 7);
        run(&database, &Step::Put(1000, json!({ "kind": 3, "tag": "x" })));
        database.wait_for_views();
        check(&database, "v", query);
        check_verified(&database, "v");
    }
    drop(database);
    let database = open(&config(ITEMS), dir.path());
    assert!(try_rows(&database, "SELECT n FROM v").is_err());
}

#[test]
fn a_document_that_has_no_place_in_a_view_is_refused() {
    let service = Service::new(&with_views(&[("by_tag", "SELECT tag, COUNT(*) AS n FROM items GROUP BY tag")]));
    let long = "x".repeat(2000);
    let why = service.refused(&format!("insert items {{\"id\":1,\"tag\":\"{long}\"}}"));
    assert_eq!(why, "413 a key of view by_tag");
    assert!(service.get("items/1").is_none());
}

#[track_caller]
fn check_refused(query: &str, expected: &str) {
    let text = format!("{ITEMS}[views.v]\nquery = \"{query}\"\n");
    let why = docs::config::Config::parse("test.toml".as_ref(), &text).unwrap_err().to_string();
    assert!(why.contains(expected), "{why}");
    assert!(why.starts_with("test.toml:4:9: `views.v.query`:"), "{why}");
}

#[test]
fn what_a_view_cannot_keep_is_refused_with_its_place() {
    check_refused("SELECT kind FROM items", "a view needs GROUP BY or an aggregate");
    check_refused("SELECT kind, COUNT(*) AS n FROM items GROUP BY kind, ROLLUP (tag)", "ROLLUP must be the only item");
    check_refused("SELECT kind, COUNT(*) AS n FROM nothing GROUP BY kind", "no collection \"nothing\"");
    check_refused("SELECT kind, COUNT(*) + 1 AS n FROM items GROUP BY kind", "line 1, column 14: a result of a view");
    check_refused("SELECT COUNT(*) AS n FROM items GROUP BY kind", "must be among the results");
    check_refused(
        "SELECT kind, COUNT(*) AS n FROM items GROUP BY kind HAVING n > 1",
        "line 1, column 60: a view takes no HAVING",
    );
    check_refused("SELECT kind, COUNT(*) AS n FROM items GROUP BY kind ORDER BY n", "ORDER BY");
    check_refused("SELECT kind, COUNT(*) AS n FROM items GROUP BY kind LIMIT 3", "LIMIT");
    check_refused("SELECT kind, COUNT(*) AS n FROM items WHERE kind = :k GROUP BY kind", "parameters");
    check_refused("SELECT date('now') AS d, COUNT(*) AS n FROM items GROUP BY 1", "use the current time");
    check_refused("SELECT a.kind, COUNT(*) AS n FROM items a JOIN items b ON a.id = b.kind GROUP BY a.kind", "joins");
    check_refused(
        "SELECT kind, COUNT(*) AS n FROM v GROUP BY kind",
        "line 1, column 33: views cannot read one another",
    );
    let text = format!("{ITEMS}[views.items]\nquery = \"SELECT kind, COUNT(*) AS n FROM items GROUP BY kind\"\n");
    let why = docs::config::Config::parse("test.toml".as_ref(), &text).unwrap_err().to_string();
    assert!(why.contains("a collection is named \"items\" already"), "{why}");
}

#[test]
fn an_import_builds_the_views() {
    let service = Service::new(&with_views(&ALL));
    let lines: String = (0..5000i64)
        .map(|id| {
            let document = json!({ "id": id, "kind": id % 4, "amount": id as f64 / 8.0, "tag": format!("t{}", id % 33), "at": 1_700_000_000 + id * 10_000 });
            format!("{document}\n")
        })
        .collect();
    let input =
        || docs::import::Input::Stream { name: "items".into(), read: Box::new(std::io::Cursor::new(lines.clone())) };
    let options = docs::import::ImportOptions { collection: Some("items".into()), ..Default::default() };
    let report = service.database.import(vec![input()], &options, &|_| {}).unwrap();
    assert_eq!(report.documents, 5000);
    check_all(&service.database);
    run(&service.database, &Step::Put(17, json!({ "kind": 9, "tag": "new", "at": 0 })));
    check_all(&service.database);
}

#[test]
fn values_of_groups_that_are_equal_are_found_and_ordered_whatever_their_forms() {
    let service =
        Service::new(&with_views(&[("by_two", "SELECT kind, tag, COUNT(*) AS n FROM items GROUP BY kind, tag")]));
    for (id, (kind, tag)) in [
        (json!(5.0), json!("b")),
        (json!(5), json!("a")),
        (json!(-0.0), json!("x")),
        (json!(0), json!("y")),
        (json!(true), json!(1)),
        (json!(1), json!(2.0)),
        (Json::Null, json!("z")),
    ]
    .into_iter()
    .enumerate()
    {
        run(&service.database, &Step::Put(id as i64, json!({ "kind": kind, "tag": tag })));
    }
    let found = |sql: &str| rows(&service.database, sql);
    let beside = |condition: &str| {
        let of_view = found(&format!("SELECT kind, tag, n FROM by_two WHERE {condition}"));
        let of_items =
            found(&format!("SELECT kind, tag, COUNT(*) AS n FROM items WHERE {condition} GROUP BY kind, tag"));
        assert_eq!(of_view, of_items, "{condition}");
        assert!(!of_view.is_empty(), "{condition}");
    };
    ["kind = 5 AND tag = 'a'", "kind = 5.0 AND tag = 'b'", "kind = 0 AND tag > 'x'", "kind = 1 AND tag = 2"]
        .into_iter()
        .for_each(beside);
    ["kind = 5 AND tag >= 'a'", "kind = 1 AND tag <= 2", "kind IS NULL AND tag = 'z'"].into_iter().for_each(beside);
    let query = |sql: &str| {
        let query = service.database.prepare_query(sql).unwrap();
        let session = service.database.session().unwrap();
        let mut out = Vec::new();
        query.write_array(session.now().view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
        serde_json::from_slice::<Json>(&out).unwrap()
    };
    assert_eq!(
        query("SELECT tag FROM by_two ORDER BY kind DESC, tag DESC LIMIT 4"),
        json!([{ "tag": "b" }, { "tag": "a" }, { "tag": 2.0 }, { "tag": 1 }])
    );
}

#[test]
fn a_verification_ends_where_nobody_waits_for_it_any_more() {
    let text = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n[views.v]\nquery = \"SELECT id, MAX(n) AS n FROM items GROUP BY id\"\n";
    let service = Service::new(&config(text));
    let lines: String = (0..5000).map(|id| format!("{{\"id\":{id},\"n\":{}}}\n", id % 7)).collect();
    let input = docs::import::Input::Stream { name: "items".into(), read: Box::new(std::io::Cursor::new(lines)) };
    let options = docs::import::ImportOptions { collection: Some("items".into()), ..Default::default() };
    service.database.import(vec![input], &options, &|_| {}).unwrap();
    service.database.wait_for_views();
    for most in 0.. {
        let asked = std::cell::Cell::new(0);
        let goes_on = || {
            asked.set(asked.get() + 1);
            asked.get() <= most
        };
        match service.database.verify_view_while("v", &goes_on) {
            Err(docs::ReadError::Stopped) => assert_eq!(asked.get(), most + 1),
            found => {
                assert!(found.unwrap().unwrap().is_clean());
                // Cancellation checks: for documents, for the rows of both trees as they are made, and as they are compared.
                assert_eq!(most, 5 * 5000 / 1024);
                return;
            }
        }
    }
}

const AMOUNTS: &str = "SELECT COUNT(*) AS n, SUM(amount) AS s, MAX(amount) AS hi FROM items";

/// A view that earlier documents do not fit: long texts are not valid group keys.
fn by_tag() -> docs::config::Config {
    with_views(&[("by_tag", "SELECT tag, COUNT(*) AS n FROM items GROUP BY tag"), ("amounts", AMOUNTS)])
}

fn long_tags(ids: std::ops::Range<i64>) -> Service {
    let service = Service::new(&config(ITEMS));
    for id in ids {
        run(&service.database, &Step::Put(id, json!({ "amount": id, "tag": "x".repeat(2000) })));
    }
    service
}

/// Each kind of write to a document that broke a view, except reading it.
#[track_caller]
fn check_writes_of_broken(service: &Service) {
    for command in [
        "patch items/1 {\"amount\":7}",
        "update items/1 {\"other\":true}",
        "put items/2 {\"id\":2,\"amount\":2}",
        "replace items/3 {\"id\":3,\"amount\":3}",
        "delete items/4",
    ] {
        service.run(command).unwrap_or_else(|error| panic!("{command}: {error}"));
    }
    // Documents are no longer checked against the view.
    let long = "y".repeat(3000);
    service.run(&format!("insert items {{\"id\":100,\"tag\":\"{long}\",\"amount\":1}}")).unwrap();
}

#[track_caller]
fn check_state(database: &DocumentDatabase, name: &str, state: RuleState) {
    let views = database.views();
    let view = views.iter().find(|view| view.name == name).unwrap();
    assert_eq!(view.state, state, "{view:?}");
    assert_eq!(view.failure.is_some(), state == RuleState::Refused, "{view:?}");
}

#[test]
fn a_document_that_broke_a_view_is_written_like_any_other_and_other_views_are_kept() {
    let Service { database, dir } = long_tags(1..6);
    drop(database);
    let service = Service { database: open(&by_tag(), dir.path()), dir };
    service.database.wait_for_views();
    check_state(&service.database, "by_tag", RuleState::Refused);
    check_writes_of_broken(&service);
    check_state(&service.database, "amounts", RuleState::Ready);
    check(&service.database, "amounts", AMOUNTS);
    check_verified(&service.database, "amounts");
    // Once no document breaks it, the next opening builds it.
    for command in ["delete items/1", "delete items/5", "delete items/100"] {
        service.run(command).unwrap();
    }
    let Service { database, dir } = service;
    drop(database);
    let database = open(&by_tag(), dir.path());
    database.wait_for_views();
    check_state(&database, "by_tag", RuleState::Ready);
    check_verified(&database, "by_tag");
}

#[test]
fn a_write_to_a_document_that_breaks_a_view_before_its_build_has_come_there_gives_the_view_up() {
    let Service { database, dir } = long_tags(1..6);
    drop(database);
    for amount in 0..20 {
        let service = Service { database: open(&by_tag(), dir.path()), dir: tempfile::tempdir().unwrap() };
        // Whether the builder or this write comes first.
        service.run(&format!("patch items/5 {{\"amount\":{}}}", 100 + amount)).unwrap();
        service.database.wait_for_views();
        check_state(&service.database, "by_tag", RuleState::Refused);
        check(&service.database, "amounts", AMOUNTS);
    }
}
