//! Views over views: after any writes and changes of definitions, each equals its query over the lower view.

use crate::declared_views::{self, Views, check, rows};
use crate::service::{Service, open};
use docs::RuleState;
use docs::config::Config;
use docs::{DocumentDatabase, Op, Precondition, Write, WriteError};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";

const BY_TAG: &str = "SELECT kind, tag, COUNT(*) AS n, SUM(amount) AS s, MIN(at) AS first, MAX(amount) AS hi, \
                      COUNT(DISTINCT amount) AS d FROM items GROUP BY kind, tag";
/// The same columns over fewer items.
const BY_TAG_POSITIVE: &str = "SELECT kind, tag, COUNT(*) AS n, SUM(amount) AS s, MIN(at) AS first, MAX(amount) AS hi, \
                               COUNT(DISTINCT amount) AS d FROM items WHERE amount > 0 GROUP BY kind, tag";
const BY_FIRST: &str = "SELECT first, COUNT(*) AS tags, SUM(n) AS docs, MAX(hi) AS hi, MIN(s) AS lo, SUM(d) AS ds \
                        FROM by_tag GROUP BY first";
/// The same columns computed from the items.
const BY_FIRST_OF_ITEMS: &str = "SELECT at AS first, COUNT(tag) AS tags, COUNT(*) AS docs, MAX(amount) AS hi, \
                                 MIN(amount) AS lo, COUNT(amount) AS ds FROM items GROUP BY at";
const SIZES: &str = "SELECT tags, COUNT(*) AS firsts, MAX(docs) AS most, COUNT(DISTINCT lo) AS los, AVG(hi) AS a \
                     FROM by_first WHERE docs > 1 GROUP BY tags";
const TOTAL: &str = "SELECT COUNT(*) AS n, SUM(amount) AS s, MIN(tag) AS first FROM items";
const OVER_TOTAL: &str = "SELECT n, COUNT(*) AS c, MAX(s) AS s, MIN(first) AS f FROM total GROUP BY n";
const ROLLED: &str = "SELECT kind, tag AS t, COUNT(*) AS n FROM items GROUP BY ROLLUP (kind, tag)";
const OVER_ROLLED: &str = "SELECT n, COUNT(*) AS c, COUNT(kind) AS kinds FROM rolled WHERE t IS NULL GROUP BY n";
const ALL_ROLLED: &str = "SELECT kind, n, COUNT(*) AS c FROM rolled GROUP BY ROLLUP (kind, n)";

/// Alternating sets of definitions; in one set upper views are declared before lower ones.
fn definitions(set: usize) -> Views {
    let rest = [("over_total", OVER_TOTAL), ("total", TOTAL), ("over_rolled", OVER_ROLLED), ("rolled", ROLLED)];
    let chain: &[(&str, &str)] = match set {
        0 => &[("by_tag", BY_TAG), ("by_first", BY_FIRST), ("sizes", SIZES)],
        1 => &[("sizes", SIZES), ("by_first", BY_FIRST), ("by_tag", BY_TAG_POSITIVE)],
        2 => &[("sizes", SIZES), ("by_first", BY_FIRST_OF_ITEMS), ("by_tag", BY_TAG)],
        3 => &[("by_first", BY_FIRST), ("by_tag", BY_TAG)],
        _ => &[("all_rolled", ALL_ROLLED)],
    };
    rest.iter().chain(chain).copied().collect()
}

const SETS: usize = 5;

fn with_views(views: &Views) -> Config {
    declared_views::with_views(ITEMS, views)
}

#[derive(Clone, Debug)]
enum Step {
    Put(u32, Json),
    Delete(u32),
    Together(Vec<(u32, Option<Json>)>),
    Define(usize),
}

fn item() -> impl Strategy<Value = Json> {
    let amount = prop_oneof![
        3 => (-9i64..30).prop_map(Json::from),
        2 => (-50i32..200).prop_map(|tenths| json!(f64::from(tenths) / 10.0 + 0.05)),
        1 => Just(Json::Null),
    ];
    ("[ab]", "[a-c]?", amount, 0i64..5)
        .prop_map(|(kind, tag, amount, at)| json!({ "kind": kind, "tag": tag, "amount": amount, "at": at }))
}

fn step() -> impl Strategy<Value = Step> {
    let together = prop::collection::vec((0u32..14, prop::option::of(item())), 1..6);
    prop_oneof![
        8 => (0u32..14, item()).prop_map(|(id, item)| Step::Put(id, item)),
        3 => (0u32..14).prop_map(Step::Delete),
        3 => together.prop_map(Step::Together),
        1 => (0..SETS).prop_map(Step::Define),
    ]
}

fn write(database: &DocumentDatabase, id: u32, item: Option<&Json>) -> Write {
    let key = id.to_be_bytes().to_vec();
    let op = match item {
        None => Op::Delete { key },
        Some(item) => {
            let mut item = item.clone();
            item["id"] = json!(id);
            Op::Put { key, body: item.to_string().into_bytes() }
        }
    };
    Write { collection: database.collection("items").unwrap(), op, precondition: Precondition::None }
}

fn run(database: &DocumentDatabase, step: &Step) {
    let one = |id: u32, item: Option<&Json>| database.write_now(&write(database, id, item)).map(drop);
    let done = match step {
        Step::Put(id, item) => one(*id, Some(item)),
        Step::Delete(id) => one(*id, None),
        Step::Together(items) => {
            let puts = items.iter().filter(|(_, item)| item.is_some());
            database.write_all(&puts.map(|(id, item)| write(database, *id, item.as_ref())).collect::<Vec<_>>())
        }
        Step::Define(_) => Ok(()),
    };
    assert!(matches!(done, Ok(()) | Err(WriteError::NotFound)), "{step:?}: {done:?}");
}

fn all_ready(database: &DocumentDatabase) -> bool {
    database.views().iter().all(|view| view.state != RuleState::Refused && view.state != RuleState::Building)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn views_over_views_equal_their_queries_after_any_writes_and_definitions(
        set in 0..SETS, steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut views = definitions(set);
        let mut service = Service::new(&with_views(&views));
        for (number, step) in steps.iter().enumerate() {
            if let Step::Define(set) = step {
                if number % 2 == 0 {
                    service.database.wait_for_views();
                }
                views = definitions(*set);
                let Service { database, dir } = service;
                drop(database);
                service = Service { database: open(&with_views(&views), dir.path()), dir };
            }
            run(&service.database, step);
            if number % 8 == 0 && all_ready(&service.database) {
                check(&service.database, &views);
            }
        }
        service.database.wait_for_views();
        prop_assert!(all_ready(&service.database), "{:?}", service.database.views());
        check(&service.database, &views);
        // When the same definitions are opened again, nothing is built.
        let Service { database, dir } = service;
        drop(database);
        let database = open(&with_views(&views), dir.path());
        prop_assert!(database.views().iter().all(|view| view.state == RuleState::Ready), "{:?}", database.views());
        check(&database, &views);
    }
}

#[test]
fn an_import_builds_the_views_over_views() {
    for (set, is_bulk) in [(0, true), (4, true), (0, false)] {
        let views: Views = definitions(set)
            .into_iter()
            .filter(|(name, _)| !is_bulk || !["total", "rolled"].iter().any(|always| name.ends_with(always)))
            .collect();
        let service = Service::new(&with_views(&views));
        let line = |id: u32| {
            let item =
                json!({ "id": id, "kind": id % 3, "tag": format!("t{}", id % 50), "amount": id % 17, "at": id / 90 });
            format!("{item}\n")
        };
        let lines: String = (0..3000).map(line).collect();
        let read = Box::new(std::io::Cursor::new(lines));
        let input = docs::import::Input::Stream { name: "items".into(), read };
        let options = docs::import::ImportOptions { collection: Some("items".into()), ..Default::default() };
        assert_eq!(service.database.import(vec![input], &options, &|_| {}).unwrap().documents, 3000);
        check(&service.database, &views);
        run(&service.database, &Step::Put(17, json!({ "kind": 9, "tag": "new", "amount": 5, "at": 0 })));
        check(&service.database, &views);
    }
}

#[test]
fn writes_beside_the_build_of_a_chain_are_in_it_and_the_old_chain_answers_meanwhile() {
    let service = Service::new(&with_views(&definitions(0)));
    for id in 0..3000u32 {
        let item = json!({ "kind": id % 7, "tag": id % 211, "amount": 1, "at": id % 13 });
        run(&service.database, &Step::Put(id, item));
    }
    let Service { database, dir } = service;
    drop(database);
    // Only positive amounts: so far the same rows.
    let database = open(&with_views(&definitions(1)), dir.path());
    let mut beside = 0;
    while !all_ready(&database) || beside < 20 {
        let item = json!({ "kind": beside % 7, "tag": beside % 300, "amount": 1, "at": beside % 13 });
        run(&database, &Step::Put(3000 + beside, item));
        beside += 1;
        let found = rows(&database, "SELECT SUM(docs) AS n FROM by_first");
        assert_eq!(found, [json!({ "n": 3000 + beside })], "behind {beside} writes");
        assert_eq!(rows(&database, "SELECT COUNT(*) AS n FROM sizes WHERE most > 0").len(), 1);
    }
    database.wait_for_views();
    check(&database, &definitions(1));
}

#[test]
fn writers_side_by_side_keep_a_chain() {
    let views = definitions(0);
    let service = Service::new(&with_views(&views));
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let database = &service.database;
            scope.spawn(move || {
                for round in 0..200u32 {
                    let item =
                        json!({ "kind": "a", "tag": round % 3, "amount": (round * 7 + thread) % 40, "at": round % 5 });
                    let step =
                        if round % 4 == 3 { Step::Delete(thread) } else { Step::Put(thread + round % 8 * 4, item) };
                    run(database, &step);
                }
            });
        }
    });
    check(&service.database, &views);
}

#[track_caller]
fn check_refused(views: &Views, expected: &str) {
    let views = views.iter().map(|(name, query)| format!("[views.{name}]\nquery = \"{query}\"\n"));
    let text = ITEMS.to_string() + &views.collect::<String>();
    let why = Config::parse("test.toml".as_ref(), &text).unwrap_err().to_string();
    assert!(why.contains(expected), "{why}");
}

#[test]
fn views_in_a_circle_too_deep_or_over_what_is_not_there_are_refused_with_their_places() {
    let count = |of: &'static str| -> &'static str {
        Box::leak(format!("SELECT n, COUNT(*) AS m FROM {of} GROUP BY n").into_boxed_str())
    };
    check_refused(
        &vec![("a", count("b")), ("b", count("a"))],
        "test.toml:4:9: `views.a.query`: line 1, column 30: views cannot read one another in a circle: a reads b reads a",
    );
    check_refused(&vec![("a", count("a"))], "in a circle: a reads a");
    check_refused(
        &vec![("a", count("b")), ("b", "SELECT nothing FROM items GROUP BY")],
        // The mistake in `a` is a consequence and not reported.
        "`views.b.query`: line 1, column 35: Expected: an expression, found: EOF",
    );
    check_refused(&vec![("a", count("gone"))], "line 1, column 30: no collection \"gone\"");
    check_refused(
        &vec![
            ("low", "SELECT kind, COUNT(*) AS n FROM items GROUP BY kind"),
            ("a", "SELECT x, COUNT(*) AS m FROM low GROUP BY x"),
        ],
        "`views.a.query`: line 1, column 8",
    );
    let names = ["v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8"];
    let mut deep: Views = vec![("v0", "SELECT kind AS n, COUNT(*) AS m FROM items GROUP BY n")];
    deep.extend((1..names.len()).map(|number| (names[number], count(names[number - 1]))));
    check_refused(&deep, "`views.v8.query`: line 1, column 30: more than 8 views that read one another");
    deep.pop();
    let views = Service::new(&with_views(&deep));
    run(&views.database, &Step::Put(1, json!({ "kind": "a" })));
    check(&views.database, &deep);
}

#[test]
fn a_write_whose_row_an_upper_view_cannot_take_is_refused_and_leaves_nothing() {
    let views = vec![
        ("sums", "SELECT kind, SUM(amount) AS s, COUNT(*) AS n FROM items GROUP BY kind"),
        ("by_n", "SELECT n, MAX(s) AS s FROM sums GROUP BY n"),
    ];
    let service = Service::new(&with_views(&views));
    run(&service.database, &Step::Put(1, json!({ "kind": "a", "amount": i64::MAX })));
    let item = json!({ "kind": "a", "amount": 1 });
    let refused = service.database.write_now(&write(&service.database, 2, Some(&item)));
    assert!(matches!(refused, Err(WriteError::Invalid { .. })), "{refused:?}");
    assert_eq!(rows(&service.database, "SELECT n, s FROM by_n"), [json!({ "n": 1, "s": i64::MAX })]);
    check(&service.database, &views);
}

#[test]
fn rows_that_together_are_over_the_bound_of_a_transaction_are_built_from_fewer_at_a_time() {
    let Service { database, dir } = Service::new(&with_views(&Vec::new()));
    for id in 0..100u32 {
        let text = |column: u32| format!("{:03}{}", (id * 7 + column) % 100, "x".repeat(200));
        let columns: serde_json::Map<String, Json> = (0..16).map(|c| (format!("c{c}"), json!(text(c)))).collect();
        database.write_now(&write(&database, id, Some(&Json::Object(columns)))).unwrap();
    }
    drop(database);
    let columns = (0..16).map(|c| format!("MAX(c{c}) AS c{c}")).collect::<Vec<_>>().join(", ");
    let (lower, upper) =
        (format!("SELECT id, {columns} FROM items GROUP BY id"), format!("SELECT {columns} FROM lower"));
    let views = declared_views::with_views(ITEMS, &[("lower", &lower), ("upper", &upper)]);
    let mut options = docs::engine::StoreOptions::default();
    options.transaction_bytes_max = 128 << 10;
    let (database, _) = DocumentDatabase::open(&views, dir.path(), options).unwrap();
    database.wait_for_views();
    assert!(database.views().iter().all(|view| view.state == RuleState::Ready), "{:?}", database.views());
    assert_eq!(rows(&database, "SELECT * FROM upper"), rows(&database, &upper));
    assert!(database.verify_view("upper").unwrap().unwrap().is_clean());
}
