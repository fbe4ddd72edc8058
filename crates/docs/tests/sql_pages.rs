//! Keyset pagination: the pages together are the query's rows in order, and concurrent writes neither hide nor repeat a row
//! that stays.

use std::collections::BTreeMap;

use crate::service::Service;
use crate::sql_oracle::Both;
use docs::engine::ReadView;
use docs::sql::{Budget, OwnedValue, PageAt, Paged, PreparedQuery, Scratch, decode_place, encode_place};
use proptest::prelude::*;
use serde_json::{Value as Json, json};

/// Reads one page, and the cursor after it, which a client sends back.
fn page(
    (paged, view): (&Paged, &dyn ReadView),
    rows_max: u64,
    after: Option<&[OwnedValue]>,
) -> (Vec<Json>, Option<Vec<OwnedValue>>) {
    let mut out = b"[".to_vec();
    let at = PageAt { rows_max, after };
    let (outcome, place) = paged.write((view, at), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
    out.push(b']');
    let found: Vec<Json> = serde_json::from_slice(&out).unwrap();
    assert_eq!(found.len() as u64, outcome.rows);
    let place = place.map(|place| {
        let mut token = Vec::new();
        encode_place(&place, &mut token);
        decode_place(&token).unwrap()
    });
    (found, place)
}

/// Checks that the rows of all pages, concatenated, are the rows of `whole`.
#[track_caller]
fn check(both: &Both, sql: &str, whole: &str) {
    let query = PreparedQuery::prepare(whole, &both.memory.catalog).unwrap();
    let mut out = Vec::new();
    query.write_array(&both.memory, &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
    let expected: Vec<Json> = serde_json::from_slice(&out).unwrap();
    assert!(expected.len() > 5, "{whole}");
    let paged = Paged::prepare(sql, &both.memory.catalog).unwrap();
    for rows in [1, 3, 7, 1_000] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (more, place) = page((&paged, &both.memory), rows, after.as_deref());
            assert!(more.len() as u64 == rows || place.is_none(), "{sql}");
            found.extend(more);
            assert!(found.len() <= expected.len(), "pages of {rows} without an end: {sql}");
            after = place;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "pages of {rows}: {sql}");
    }
}

#[test]
fn pages_together_are_all_rows_in_their_order() {
    let values = [json!(null), json!(1), json!(1.0), json!(-2.5), json!("x"), json!("é"), json!([1]), json!(true)];
    let documents = |count: usize| -> Vec<Json> {
        let of = |id: usize, step: usize| values[id * step % values.len()].clone();
        (0..count).map(|id| json!({ "id": id, "a": of(id, 3), "b": of(id, 5), "c": id / 4, "d": id % 3 })).collect()
    };
    let both = Both::new(&documents(61), &documents(9));
    check(&both, "SELECT * FROM t", "SELECT * FROM t ORDER BY id");
    check(&both, "SELECT id, a FROM t ORDER BY a", "SELECT id, a FROM t ORDER BY a, id");
    check(&both, "SELECT b FROM t ORDER BY b DESC", "SELECT b FROM t ORDER BY b DESC, id DESC");
    check(&both, "SELECT id FROM t ORDER BY b, c DESC", "SELECT id FROM t ORDER BY b, c DESC, id DESC");
    check(
        &both,
        "SELECT id FROM t ORDER BY a DESC NULLS FIRST, b",
        "SELECT id FROM t ORDER BY a DESC NULLS FIRST, b, id",
    );
    check(&both, "SELECT c FROM t WHERE d > 0 ORDER BY c % 5", "SELECT c FROM t WHERE d > 0 ORDER BY c % 5, id");
    let joined = "SELECT t.id, u.a FROM t LEFT JOIN u ON u.id = t.c ORDER BY u.a, t.d";
    check(&both, joined, &format!("{joined}, t.id, u.id"));
    let crossed = "SELECT t.id AS x, u.id AS y FROM t JOIN u ON u.d = t.d ORDER BY y DESC";
    check(&both, crossed, &format!("{crossed}, t.id DESC"));
}

#[test]
fn pages_of_groups_and_of_distinct_rows_together_are_all_of_them() {
    let values = [json!(null), json!(1), json!(1.0), json!(-2.5), json!("x"), json!("é"), json!([1]), json!(true)];
    let of = |number: usize| values[number % values.len()].clone();
    let document = |id: usize| json!({ "id": id, "a": of(id), "b": of(id / 8 * 3), "c": id % 5, "d": id % 11 });
    let both = Both::new(&(0..61).map(document).collect::<Vec<_>>(), &(0..9).map(document).collect::<Vec<_>>());
    for (sql, whole) in [
        ("SELECT DISTINCT a, b FROM t", "SELECT DISTINCT a, b FROM t ORDER BY a, b"),
        ("SELECT DISTINCT a, c FROM t ORDER BY c DESC", "SELECT DISTINCT a, c FROM t ORDER BY c DESC, a DESC"),
        (
            "SELECT DISTINCT c, b FROM t WHERE d > 2 ORDER BY b NULLS LAST",
            "SELECT DISTINCT c, b FROM t WHERE d > 2 ORDER BY b NULLS LAST, c",
        ),
        (
            "SELECT DISTINCT x.e FROM (SELECT a || c AS e FROM t UNION ALL SELECT b FROM u) x",
            "SELECT DISTINCT x.e FROM (SELECT a || c AS e FROM t UNION ALL SELECT b FROM u) x ORDER BY x.e",
        ),
        ("SELECT a, COUNT(*) AS n FROM t GROUP BY a", "SELECT a, COUNT(*) AS n FROM t GROUP BY a ORDER BY a"),
        (
            "SELECT b, c, SUM(d) AS s FROM t GROUP BY c, b HAVING s > 3 ORDER BY b DESC",
            "SELECT b, c, SUM(d) AS s FROM t GROUP BY c, b HAVING s > 3 ORDER BY b DESC, c DESC",
        ),
        (
            "SELECT c % 3 AS m, d, MAX(id) AS x FROM t GROUP BY m, d ORDER BY d",
            "SELECT c % 3 AS m, d, MAX(id) AS x FROM t GROUP BY m, d ORDER BY d, m",
        ),
        (
            "SELECT d, COUNT(*) AS n, AVG(c) AS v FROM t GROUP BY d ORDER BY n DESC, v",
            "SELECT d, COUNT(*) AS n, AVG(c) AS v FROM t GROUP BY d ORDER BY n DESC, v, d",
        ),
        (
            "SELECT d, MIN(b) AS m FROM t GROUP BY d ORDER BY m, SUM(c) * 2 DESC",
            "SELECT d, MIN(b) AS m FROM t GROUP BY d ORDER BY m, SUM(c) * 2 DESC, d DESC",
        ),
        (
            "SELECT DISTINCT COUNT(*) AS n, SUM(c) AS s FROM t GROUP BY d",
            "SELECT DISTINCT COUNT(*) AS n, SUM(c) AS s FROM t GROUP BY d ORDER BY n, s",
        ),
        (
            "SELECT u.a, t.d, COUNT(*) AS n FROM t LEFT JOIN u ON u.id = t.c GROUP BY u.a, t.d ORDER BY t.d, u.a",
            "SELECT u.a, t.d, COUNT(*) AS n FROM t LEFT JOIN u ON u.id = t.c GROUP BY u.a, t.d ORDER BY t.d, u.a",
        ),
    ] {
        check(&both, sql, whole);
    }
}

#[track_caller]
fn check_refused(sql: &str, place: &str, told: &str) {
    let both = Both::new(&[], &[]);
    let error = Paged::prepare(sql, &both.memory.catalog).expect_err(sql);
    assert!(error.to_string().contains(told), "{error}");
    assert_eq!((error.line, error.column), (1, sql.find(place).unwrap() as u64 + 1), "{sql}: {error}");
}

#[test]
fn what_has_no_pages_is_refused() {
    check_refused("SELECT COUNT(*) AS n FROM t", "SELECT", "an aggregate without GROUP BY");
    check_refused("SELECT 1 AS one", "SELECT", "without FROM");
    check_refused("SELECT x.a FROM t, (SELECT a FROM t) x", "SELECT a FROM t)", "a query in FROM");
    check_refused("SELECT a FROM t UNION ALL SELECT a FROM u", "SELECT", "UNION ALL");
    check_refused("SELECT j.key FROM t JOIN json_each(t.d) AS j", "json_each", "json_each has no pages");
    check_refused("SELECT a FROM t LIMIT 5", "5", "LIMIT");
    check_refused("SELECT a FROM t LIMIT 1 OFFSET 5", "1", "OFFSET");
    check_refused("SELECT DISTINCT a FROM t ORDER BY b", "b", "in the order of selected columns");
    check_refused("SELECT DISTINCT a FROM t ORDER BY a || ''", "a || ''", "in the order of selected columns");
    check_refused("SELECT a FROM t GROUP BY a ORDER BY a || ''", "a || ''", "the row that was found first");
    check_refused(
        "SELECT b FROM t GROUP BY b ORDER BY GROUP_CONCAT(a)",
        "GROUP_CONCAT",
        "the row that was found first",
    );
    check_refused(
        "SELECT b FROM t GROUP BY b ORDER BY json_group_array(a)",
        "json_group_array",
        "the row that was found first",
    );
    check_refused("SELECT b FROM t GROUP BY b ORDER BY MAX(a) / 2", "MAX", "the row that was found first");
    check_refused("SELECT DISTINCT a || '' AS x FROM t GROUP BY a", "SELECT", "the row that was found first");
    let many: Vec<String> = (0..65).map(|n| format!("a + {n} AS a{n}")).collect();
    check_refused(
        &format!("SELECT DISTINCT {} FROM t", many.join(", ")),
        "SELECT",
        "up to 64 terms; this one takes 65",
    );
    let both = Both::new(&[], &[]);
    let paged = Paged::prepare("SELECT a FROM t ORDER BY a", &both.memory.catalog).unwrap();
    let at = PageAt { rows_max: 10, after: Some(&[OwnedValue::Null]) };
    let foreign = paged.write((&both.memory, at), &[], &mut Scratch::new(), &Budget::default(), &mut Vec::new());
    assert!(foreign.expect_err("one value for two").to_string().contains("of another query"));
}

#[test]
fn a_page_begins_in_the_index_where_the_one_before_ended() {
    let service = Service::new(&crate::service::travels());
    let catalog = service.database.catalog();
    let explained = |sql: &str| Paged::prepare(sql, catalog).unwrap().query(false).explain(&[]).to_ascii_uppercase();
    let plan = explained("SELECT id FROM visits WHERE user = 3 ORDER BY visited_at");
    assert!(plan.contains("(VISITED_AT, ID)>(:AFTER 0, :AFTER 1)") && !plan.contains("SORT"), "{plan}");
    let plan = explained("SELECT id FROM visits WHERE user = 3 ORDER BY visited_at DESC");
    assert!(plan.contains("(VISITED_AT, ID)<(:AFTER 0, :AFTER 1)") && !plan.contains("SORT"), "{plan}");
    let plan = explained("SELECT id FROM users");
    assert!(plan.contains("(ID>:AFTER 0)") && !plan.contains("SORT"), "{plan}");
}

/// Reads all pages of `rows_max` rows. Returns the largest number of entries that a page scanned, and the rows of all pages.
fn read_by_pages(service: &Service, sql: &str, rows_max: u64) -> (u64, Vec<Json>) {
    let paged = Paged::prepare(sql, service.database.catalog()).unwrap();
    let session = service.database.session().unwrap();
    let now = session.now();
    let (mut most, mut all, mut after) = (0, Vec::new(), None);
    loop {
        let (mut out, at) = (b"[".to_vec(), PageAt { rows_max, after: after.as_deref() });
        let (outcome, place) =
            paged.write((now.view(), at), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
        out.push(b']');
        all.extend(serde_json::from_slice::<Vec<Json>>(&out).unwrap());
        most = most.max(outcome.rows_read);
        after = place;
        if after.is_none() {
            return (most, all);
        }
    }
}

#[test]
fn a_page_of_a_join_does_not_compute_the_whole_join() {
    const CONFIG: &str = r#"
        [collections.customers]
        key = { field = "id", type = "u32" }
        indexes = [["city"]]
        [collections.customers.schema]
        type = "object"
        required = ["id", "city"]
        [collections.customers.schema.properties]
        id = { type = "integer" }
        city = { type = "integer" }
        [collections.orders]
        key = { field = "id", type = "u32" }
        indexes = [["customer"], ["day"]]
        [collections.orders.schema]
        type = "object"
        required = ["id", "customer", "day"]
        [collections.orders.schema.properties]
        id = { type = "integer" }
        customer = { type = "integer" }
        day = { type = "integer" }
    "#;
    const CUSTOMERS: u32 = 1_000;
    const ORDERS: u32 = 4_000;
    let service = Service::new(&crate::service::config(CONFIG));
    let insert = |collection: &str, body: String| docs::Write {
        collection: service.id(collection),
        op: docs::Op::Insert { body: body.into_bytes() },
        precondition: docs::Precondition::default(),
    };
    let customers = (0..CUSTOMERS).map(|id| insert("customers", format!(r#"{{"id":{id},"city":{}}}"#, id % 50)));
    let orders = (0..ORDERS).map(|id| {
        let (customer, day) = (id * 7 % CUSTOMERS, id * 3 % 400);
        insert("orders", format!(r#"{{"id":{id},"customer":{customer},"day":{day},"total":{}}}"#, id % 13))
    });
    for some in customers.chain(orders).collect::<Vec<_>>().chunks(500) {
        service.database.write_all(some).unwrap();
    }
    service.database.store().checkpoint().unwrap();
    service.database.count();
    let joined = "FROM customers c JOIN orders o ON o.customer = c.id";
    // The most entries that a page of ten rows scans: those of its rows, those adjacent to its ends, and one row more.
    for (sql, most) in [
        // Four orders of each customer.
        (format!("SELECT c.id, o.id AS o, o.total {joined}"), 40),
        (format!("SELECT c.id, o.id AS o {joined} WHERE o.total < 12 ORDER BY c.id DESC"), 40),
        (format!("SELECT c.id, o.id AS o {joined} ORDER BY c.id, o.total DESC"), 40),
        ("SELECT c.id, o.id AS o FROM customers c LEFT JOIN orders o ON o.customer = c.id".to_owned(), 40),
        // Ten orders of each day.
        (format!("SELECT o.id, o.day, c.city {joined} ORDER BY o.day"), 50),
        (format!("SELECT o.id, o.day, c.city {joined} ORDER BY o.day DESC, o.id DESC"), 50),
        (format!("SELECT o.id, o.day, c.city {joined} ORDER BY o.day, c.city"), 80),
        ("SELECT o.id, p.id AS p FROM orders o JOIN orders p ON p.day = o.day ORDER BY o.id".to_owned(), 60),
    ] {
        let (read, rows) = read_by_pages(&service, &sql, 10);
        let (_, whole) = read_by_pages(&service, &sql, 10_000);
        assert!(rows.len() >= CUSTOMERS as usize && rows == whole, "{sql}: {} and {} rows", rows.len(), whole.len());
        let plan = Paged::prepare(&sql, service.database.catalog()).unwrap().query(false).explain(&[]);
        assert!(read <= most, "{sql}: a page looked at {read}\n{plan}");
    }
}

#[test]
fn bytes_that_are_no_place_are_told() {
    let mut token = Vec::new();
    encode_place(&[OwnedValue::Integer(5), OwnedValue::Text(b"x"[..].into()), OwnedValue::Null], &mut token);
    assert!(decode_place(&token).is_some());
    for cut in 1..token.len() - 1 {
        assert!(decode_place(&token[..cut]).is_none_or(|place| place.len() < 3));
    }
    for bytes in [&b"\x02abc"[..], b"\x04\x01\0\0\0\xff", b"\x00\x01\0\0\0a", b"\x09"] {
        assert!(decode_place(bytes).is_none(), "{bytes:?}");
    }
}

/// What happens between two pages.
#[derive(Clone, Debug)]
enum Between {
    Put(u32, i64),
    Delete(u32),
}

fn between() -> impl Strategy<Value = Vec<Between>> {
    let one = prop_oneof![
        (0u32..60, 0i64..12).prop_map(|(id, born)| Between::Put(id, born)),
        (0u32..60).prop_map(Between::Delete),
    ];
    proptest::collection::vec(one, 0..6)
}

fn put(service: &Service, id: u32, born: i64) {
    let user = format!(r#"put users/{id} {{"id":{id},"email":"e{id}","gender":"m","birth_date":{born}}}"#);
    service.run(&user).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn rows_that_stay_come_exactly_once_whatever_is_written_between_pages(
        first in proptest::collection::btree_map(0u32..60, 0i64..12, 10..50),
        writes in proptest::collection::vec(between(), 1..30),
        rows in 1u64..6, falling in any::<bool>(),
    ) {
        let service = Service::new(&crate::service::travels());
        first.iter().for_each(|(id, born)| put(&service, *id, *born));
        let mut stayed = first.clone();
        let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
        let sql = format!("SELECT id, birth_date FROM users ORDER BY birth_date {}", if falling { "DESC" } else { "ASC" });
        let paged = Paged::prepare(&sql, service.database.catalog()).unwrap();
        let (mut after, mut writes, mut before) = (None, writes.into_iter(), None);
        loop {
            let session = service.database.session().unwrap();
            let (found, place) = {
                let now = session.now();
                page((&paged, now.view()), rows, after.as_deref())
            };
            for row in found {
                let (id, born) = (row["id"].as_u64().unwrap() as u32, row["birth_date"].as_i64().unwrap());
                let order = if falling { (-born, -i64::from(id)) } else { (born, i64::from(id)) };
                prop_assert!(before.is_none_or(|before| before < order), "{before:?} before {order:?}");
                before = Some(order);
                *seen.entry(id).or_default() += 1;
            }
            after = place;
            if after.is_none() {
                break;
            }
            for write in writes.next().unwrap_or_default() {
                match write {
                    Between::Put(id, born) => {
                        put(&service, id, born);
                        if stayed.get(&id).is_some_and(|old| *old != born) {
                            stayed.remove(&id);
                        }
                    }
                    Between::Delete(id) => {
                        let _ = service.run(&format!("delete users/{id}"));
                        stayed.remove(&id);
                    }
                }
            }
        }
        for id in stayed.keys() {
            prop_assert_eq!(seen.get(id), Some(&1), "user {}", id);
        }
    }
}

/// Unusual values, in the form that documents have.
const ODD: [&str; 40] = [
    "1e400",
    "-1e400",
    "1e400",
    "9e999",
    "1e308",
    "-1e308",
    "5e-324",
    "1e-400",
    "0",
    "-0",
    "-0.0",
    "0.0",
    "1",
    "1.0",
    "2.50",
    "123456789012345678901234567890",
    "-99999999999999999999",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "9007199254740993",
    "\"\"",
    "\" \"",
    "\"\\u0001\"",
    "\"a\\u0001b\"",
    "\"\\u007f\"",
    "\"\\uffff\"",
    "\"\\ud83d\\ude00\"",
    "\"1e400\"",
    "\"\\\"\\\\\"",
    "\"null\"",
    "[]",
    "{}",
    "[1e400]",
    "{\"k\":[1e400,\"\"]}",
    "true",
    "false",
    "null",
    "\"é\"",
];

/// The pages of a query concatenated as text, as a parser does not accept every stored number.
fn pages_text(service: &Service, sql: &str, rows_max: u64) -> Result<String, String> {
    let paged = Paged::prepare(sql, service.database.catalog()).map_err(|error| error.to_string())?;
    let (mut all, mut after): (Vec<u8>, Option<Vec<OwnedValue>>) = (b"[".to_vec(), None);
    for number in 0.. {
        assert!(number < 1_000, "pages without an end: {sql}");
        let (session, mut out) = (service.database.session().unwrap(), Vec::new());
        let at = PageAt { rows_max, after: after.as_deref() };
        let page = paged.write((session.now().view(), at), &[], &mut Scratch::new(), &Budget::default(), &mut out);
        let (_, place) = page.map_err(|error| error.to_string())?;
        if all.len() > 1 && !out.is_empty() {
            all.push(b',');
        }
        all.extend_from_slice(&out);
        let Some(place) = place else { break };
        let mut token = Vec::new();
        encode_place(&place, &mut token);
        after = Some(decode_place(&token).ok_or("its place is not read again")?);
    }
    all.push(b']');
    Ok(String::from_utf8(all).unwrap())
}

fn whole_text(service: &Service, sql: &str) -> Result<String, String> {
    let query = PreparedQuery::prepare(sql, service.database.catalog()).map_err(|error| error.to_string())?;
    let (session, mut out) = (service.database.session().unwrap(), Vec::new());
    query
        .write_array(session.now().view(), &[], &mut Scratch::new(), &Budget::default(), &mut out)
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8(out).unwrap())
}

/// Documents with unusual values of a type, with an index on them or without: `a` is unusual, `b` has three values.
fn odd(kind: &str, index: &str) -> Service {
    let property = if kind.is_empty() { "{}".to_owned() } else { format!("{{ type = \"{kind}\" }}") };
    let text = format!(
        "[collections.t]\nkey = {{ field = \"id\", type = \"u32\" }}\n{index}\n[collections.t.schema.properties]\na = {property}\n"
    );
    let service = Service::new(&crate::service::config(&text));
    let mut stored = 0;
    for (number, value) in ODD.iter().enumerate() {
        let document = format!("insert t {{\"id\":{number},\"a\":{value},\"b\":{}}}", number % 3);
        stored += usize::from(service.run(&document).is_ok());
    }
    service.run("insert t {\"id\":100,\"b\":1}").unwrap();
    assert!(stored > 5, "{kind}: {stored}");
    service
}

#[test]
fn no_odd_value_breaks_the_pages_of_others() {
    for kind in ["", "number", "integer", "string"] {
        for index in ["", "indexes = [[\"a\"]]", "indexes = [[\"b\", \"a\"], [\"a\", \"b\"]]"] {
            let service = odd(kind, index);
            for (sql, whole) in [
                ("SELECT id FROM t ORDER BY a", "SELECT id FROM t ORDER BY a, id"),
                ("SELECT id FROM t ORDER BY a DESC", "SELECT id FROM t ORDER BY a DESC, id DESC"),
                ("SELECT id, a FROM t ORDER BY a", "SELECT id, a FROM t ORDER BY a, id"),
                ("SELECT a FROM t WHERE b = 1 ORDER BY a", "SELECT a FROM t WHERE b = 1 ORDER BY a, id"),
                ("SELECT id FROM t ORDER BY b, a DESC", "SELECT id FROM t ORDER BY b, a DESC, id DESC"),
                ("SELECT id FROM t WHERE a > 0 ORDER BY a", "SELECT id FROM t WHERE a > 0 ORDER BY a, id"),
                ("SELECT * FROM t ORDER BY a NULLS LAST", "SELECT * FROM t ORDER BY a NULLS LAST, id"),
                ("SELECT id FROM t ORDER BY -a", "SELECT id FROM t ORDER BY -a, id"),
                ("SELECT a FROM t", "SELECT a FROM t ORDER BY id"),
                ("SELECT COUNT(*) AS n FROM t GROUP BY a", "SELECT COUNT(*) AS n FROM t GROUP BY a ORDER BY a"),
                (
                    "SELECT b, COUNT(*) AS n FROM t GROUP BY b ORDER BY MAX(a)",
                    "SELECT b, COUNT(*) AS n FROM t GROUP BY b ORDER BY MAX(a), b",
                ),
            ] {
                let whole = whole_text(&service, whole).unwrap_or_else(|error| panic!("{kind} {index} {sql}: {error}"));
                for rows_max in [1, 4, 1_000] {
                    let pages = pages_text(&service, sql, rows_max);
                    let pages = pages.unwrap_or_else(|error| panic!("{kind} {index} {sql}, {rows_max} rows: {error}"));
                    assert_eq!(pages, whole, "{kind} {index} {sql}, {rows_max} rows");
                }
            }
            // An infinite computed result is an error with pages and without.
            let shown = "SELECT id, a * 10 AS x FROM t WHERE a > 1e307 AND a < 'a' ORDER BY a";
            let refused = |text: Result<String, String>| matches!(&text, Err(why) if why.contains("infinite"));
            if whole_text(&service, "SELECT id FROM t WHERE a > 1e307 AND a < ''").unwrap() != "[]" {
                assert!(refused(whole_text(&service, shown)), "{kind} {index}");
                assert!(refused(pages_text(&service, shown, 2)), "{kind} {index}");
            }
        }
    }
}

#[test]
fn a_number_selected_bare_comes_out_as_it_is_stored_whether_or_not_an_index_has_it() {
    for kind in ["", "number", "integer"] {
        let [with, without] = ["indexes = [[\"a\"], [\"b\", \"a\"]]", ""].map(|index| odd(kind, index));
        for sql in [
            "SELECT id, a FROM t ORDER BY a, id",
            "SELECT a FROM t WHERE b = 1 ORDER BY id",
            "SELECT a AS x FROM t WHERE a > 5 ORDER BY a, id",
        ] {
            // An index has only one form of 0.
            let [with, without] =
                [&with, &without].map(|service| whole_text(service, sql).unwrap().replace(":-0}", ":0}"));
            assert_eq!(with, without, "{kind}: {sql}");
        }
    }
}
