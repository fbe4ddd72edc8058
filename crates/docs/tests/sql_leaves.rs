//! Compiled plans over the real store read a range leaf by leaf. The results equal those of the interpreter, for entries in the
//! tree and for entries changed since.

use crate::service::Service;
use docs::config::IncludedFields;
use docs::sql::{Budget, PreparedQuery, Scratch, Value};

const CONFIG: &str = r#"
[collections.t]
key = { field = "id", type = "u32" }
indexes = [["b", "c"], ["e"]]
[collections.t.schema]
type = "object"
required = ["id", "b", "c", "e"]
[collections.t.schema.properties]
id = { type = "integer", minimum = 0, maximum = 4294967295 }
b = { type = "string" }
c = { type = "integer" }
e = { type = "integer" }
[collections.u]
key = { field = "id", type = "u32" }
[collections.w]
key = { field = "id", type = "i64" }
"#;

/// More than the entries of a leaf, and more than one batch of a join.
const DOCUMENTS: usize = 400;

/// The field `a`: mostly a key of `u`, also a value that is no key, and missing.
fn key_of(id: usize) -> String {
    match id % 23 {
        3 => r#","a":4.0"#.to_owned(),
        5 => r#","a":"7""#.to_owned(),
        7 => r#","a":-3"#.to_owned(),
        9 => r#","a":4294967296"#.to_owned(),
        11 => r#","a":null"#.to_owned(),
        13 => String::new(),
        17 => r#","a":2.5"#.to_owned(),
        _ => format!(r#","a":{}"#, id * 7 % 60),
    }
}

fn filled() -> Service {
    let mut config = crate::service::config(CONFIG);
    for (index, fields) in [(&["b", "c"][..], &["a", "d"][..]), (&["e"], &["a"])] {
        config.included.push(IncludedFields {
            collection: "t".into(),
            index: index.iter().map(|field| (*field).into()).collect(),
            fields: fields.iter().map(|field| (*field).into()).collect(),
        });
    }
    let service = Service::new(&config);
    for id in 0..DOCUMENTS {
        let (b, c, e) = (["m", "n"][usize::from(id % 10 == 0)], id as i64 * 977 % 500 - 250, id % 40);
        let text = "text ".repeat(id % 30);
        let document = format!(r#"insert t {{"id":{id}{},"b":"{b}","c":{c},"d":"{text}","e":{e}}}"#, key_of(id));
        service.run(&document).unwrap();
    }
    for id in 0..50 {
        let rest = format!(r#""a":{},"c":{},"name":"n{}""#, id % 7, id % 3, "x".repeat(id));
        service.run(&format!(r#"insert u {{"id":{id},{rest}}}"#)).unwrap();
        service.run(&format!(r#"insert w {{"id":{},{rest}}}"#, id as i64 - 20)).unwrap();
    }
    service
}

const QUERIES: &[&str] = &[
    "SELECT t.c, u.name, t.d FROM t JOIN u ON u.id = t.a WHERE t.b = :b AND t.c > :c ORDER BY t.c, t.id",
    "SELECT t.c, u.name, t.d FROM t JOIN u ON u.id = t.a WHERE t.b = :b AND t.c < :c ORDER BY t.c DESC, t.id DESC",
    "SELECT t.id, u.id AS u, u.a FROM t JOIN u ON u.id = t.a WHERE t.b = :b AND t.c >= :c AND u.a < 4",
    // A condition on both, a third collection whose key the entry has, fields that no index carries.
    "SELECT t.id, u.name FROM t JOIN u ON u.id = t.a WHERE t.b = :b AND t.c > :c AND u.c = t.c",
    "SELECT t.id, u.a, w.name FROM t JOIN u ON u.id = t.a JOIN w ON w.id = u.a WHERE t.b = :b AND t.c > :c",
    "SELECT t.id, t.e, u.name FROM t JOIN u ON u.id = t.a WHERE t.b = :b AND t.c > :c",
    "SELECT COUNT(*) AS n, SUM(t.c) AS s, AVG(u.a) AS m FROM t JOIN u ON u.id = t.a WHERE t.b = :b AND t.c > :c",
    "SELECT COUNT(*) AS n, MIN(t.c) AS c FROM t JOIN u ON u.id = t.a WHERE t.e = 7 AND t.c > :c AND t.b = :b",
    "SELECT t.id, u.a FROM t JOIN u ON u.id = t.a WHERE t.e = 8 AND t.a > 3 AND :b = 'm' AND :c < 500",
    "SELECT t.id, w.a FROM t JOIN w ON w.id = t.a WHERE t.b = :b AND t.c > :c",
    "SELECT t.id, u.a FROM t JOIN u ON u.id = t.a WHERE t.b = :b AND t.c > :c ORDER BY t.c, t.id LIMIT 50 OFFSET 3",
];

/// Runs all queries compiled and interpreted, with equal results and counts; returns the number of rows.
#[track_caller]
fn check(service: &Service) -> u64 {
    let session = service.database.session().unwrap();
    let (now, mut rows) = (session.now(), 0);
    let mut scratch = Scratch::new();
    for sql in QUERIES {
        let compiled = PreparedQuery::prepare(sql, service.database.catalog()).unwrap();
        let general = PreparedQuery::prepare(sql, service.database.catalog()).unwrap().interpreted();
        assert!(compiled.is_compiled(&["b", "c"]), "{sql}");
        for b in ["m", "n", "o"] {
            for c in [-251, -100, 0, 249, 600] {
                let values = [Value::text(b), Value::Integer(c)];
                let mut run = |query: &PreparedQuery| {
                    let mut out = Vec::new();
                    let outcome = query.write_array(now.view(), &values, &mut scratch, &Budget::default(), &mut out);
                    (String::from_utf8(out).unwrap(), outcome.unwrap())
                };
                let ours = run(&compiled);
                assert_eq!(ours, run(&general), "{sql} {values:?}");
                rows += ours.1.rows;
            }
        }
    }
    rows
}

#[test]
fn rows_are_the_same_leaf_by_leaf_and_after_changes() {
    let service = filled();
    let before = check(&service);
    assert!(before > 3_000, "{before} rows");
    service.database.store().checkpoint().unwrap();
    assert_eq!(check(&service), before);

    for id in (0..DOCUMENTS).step_by(50) {
        service.run(&format!(r#"update t/{id} {{"a":1,"c":{}}}"#, id % 5)).unwrap();
    }
    service.run("delete t/33").unwrap();
    // The ranges of `t` stay unchanged: the joined documents have changed.
    for id in [1, 7, 14] {
        service.run(&format!(r#"update u/{id} {{"a":6,"name":"other"}}"#)).unwrap();
    }
    service.run("delete u/21").unwrap();
    let after = check(&service);
    service.database.store().checkpoint().unwrap();
    assert_eq!(check(&service), after);
    service.run(r#"update u/2 {"name":"another"}"#).unwrap();
    assert_eq!(check(&service), after);
}

#[test]
fn a_query_ends_at_its_budget_in_the_midst_of_a_leaf() {
    let service = filled();
    service.database.store().checkpoint().unwrap();
    let session = service.database.session().unwrap();
    let query = PreparedQuery::prepare(QUERIES[0], service.database.catalog()).unwrap();
    let values = [Value::text("m"), Value::Integer(-251)];
    let now = session.now();
    let run = |rows_max| {
        let budget = Budget { rows_max, ..Budget::default() };
        query.write_array(now.view(), &values, &mut Scratch::new(), &budget, &mut Vec::new()).map(|o| o.rows_read)
    };
    let all = run(u64::MAX).unwrap();
    assert_eq!(run(all).unwrap(), all);
    for rows_max in [all - 1, 100, 33, 1] {
        assert!(run(rows_max).is_err(), "{rows_max}");
    }
}
