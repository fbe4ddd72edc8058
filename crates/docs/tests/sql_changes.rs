//! INSERT, UPDATE, DELETE and RETURNING over the real store: the same results as SQLite, and all or nothing.

use crate::service::{Service, config, travels};
use docs::sql::{Budget, FieldValue, PreparedQuery, RowSink, Scratch, SqlErrorKind, Value, write_field};
use docs::statements::Modification;

const NOTES: &str = r#"
[collections.notes]
key = { field = "id", type = "i64" }
indexes = [["n"], ["s", "n"]]

[collections.tags]
key = { field = "name", type = "string" }
"#;

/// Rows as text, in order of arrival.
#[derive(Default)]
struct Rows(Vec<Vec<String>>);

impl RowSink for Rows {
    fn begin_row(&mut self) {
        self.0.push(Vec::new());
    }
    fn field(&mut self, _column: usize, field: FieldValue<'_>) {
        let mut out = Vec::new();
        write_field(field, &mut out);
        self.0.last_mut().unwrap().push(String::from_utf8(out).unwrap());
    }
    fn end_row(&mut self) {}
    fn bytes(&self) -> usize {
        0
    }
}

fn run(service: &Service, sql: &str, parameters: &[Value<'_>]) -> Result<(u64, Vec<Vec<String>>), String> {
    let statement = Modification::prepare(sql, service.database.catalog()).map_err(|error| error.to_string())?;
    let mut rows = Rows::default();
    let count = service.database.modify(&statement, parameters, &Budget::default(), &mut rows);
    count.map(|outcome| (outcome.rows, rows.0)).map_err(|error| error.to_string())
}

fn all(service: &Service, sql: &str) -> Vec<Vec<String>> {
    let query = PreparedQuery::prepare(sql, service.database.catalog()).unwrap();
    let session = service.database.session().unwrap();
    let mut rows = Rows::default();
    query.execute(session.now().view(), &[], &mut Scratch::new(), &Budget::default(), &mut rows).unwrap();
    rows.0
}

fn theirs(sqlite: &rusqlite::Connection, sql: &str) -> Vec<Vec<String>> {
    let mut statement = sqlite.prepare(sql).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut result = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let cell = |column| match row.get_ref(column).unwrap() {
            rusqlite::types::ValueRef::Null => "null".to_owned(),
            rusqlite::types::ValueRef::Integer(integer) => integer.to_string(),
            rusqlite::types::ValueRef::Real(real) => serde_json::Value::from(real).to_string(),
            rusqlite::types::ValueRef::Text(text) => {
                serde_json::Value::from(std::str::from_utf8(text).unwrap()).to_string()
            }
            rusqlite::types::ValueRef::Blob(_) => unreachable!(),
        };
        result.push((0..columns).map(cell).collect());
    }
    result
}

#[test]
fn statements_do_what_sqlite_does() {
    let service = Service::new(&config(NOTES));
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    sqlite.execute_batch("CREATE TABLE notes (id PRIMARY KEY, n, s); CREATE TABLE tags (name PRIMARY KEY, n)").unwrap();
    for sql in [
        "INSERT INTO notes (id, n, s) VALUES (1, 2, 'x'), (2, 2.5, 'y'), (3, NULL, 'ж'), (-4, 1 + 1, upper('z'))",
        "INSERT INTO notes (id, s) VALUES (5, 'five') RETURNING id, n, s || '!' AS t",
        "INSERT INTO tags (name, n) SELECT s, id * 10 FROM notes WHERE n IS NOT NULL RETURNING name",
        "UPDATE notes SET n = n + 1, s = s || n WHERE n >= 2 RETURNING id, n, s",
        "UPDATE notes SET (n, s) = (n + 1, s || n) WHERE id < 3 RETURNING id, n, s",
        "UPDATE notes SET (s) = ('one'), n = NULL WHERE id = 2",
        "UPDATE notes SET n = id, s = 'all' WHERE id IN (SELECT tags.n / 10 FROM tags) RETURNING id",
        "UPDATE notes AS d SET s = (SELECT COUNT(*) FROM tags t WHERE t.n >= d.id * 10) \
         WHERE EXISTS (SELECT 1 FROM tags WHERE tags.n = d.id * 10) RETURNING id, s",
        "UPDATE notes SET n = n + (SELECT MAX(t.n) FROM tags t WHERE t.n <= notes.id * 10)",
        "DELETE FROM notes WHERE id IN (SELECT t.n / 10 FROM tags t WHERE t.n = notes.n) RETURNING id",
        "UPDATE notes SET s = (SELECT COUNT(*) FROM notes)",
        "UPDATE notes SET n = 7 WHERE s = 'nobody' RETURNING id",
        "DELETE FROM notes WHERE n IS NULL RETURNING id, s",
        "INSERT INTO notes (id, n) SELECT id + 100, n FROM notes",
        "DELETE FROM notes AS d WHERE EXISTS (SELECT 1 FROM tags) AND d.id > 100 RETURNING id + 1 AS more",
        "DELETE FROM tags",
    ] {
        let (count, returned) = run(&service, sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let (mut ours, mut wanted) = (returned, theirs(&sqlite, sql));
        ours.sort();
        wanted.sort();
        assert_eq!(ours, wanted, "{sql}");
        if !sql.contains("RETURNING") {
            assert_eq!(count, sqlite.changes(), "{sql}");
        }
        for check in ["SELECT id, n, s FROM notes ORDER BY id", "SELECT name, n FROM tags ORDER BY name"] {
            assert_eq!(all(&service, check), theirs(&sqlite, check), "after {sql}");
        }
    }
}

#[test]
fn a_statement_that_one_document_refuses_changes_nothing() {
    let service = Service::new(&travels());
    service.run(r#"insert users {"id":1,"email":"a","gender":"m","birth_date":0}"#).unwrap();
    service.run(r#"insert users {"id":2,"email":"b","gender":"f","birth_date":0}"#).unwrap();
    let refused = |sql: &str, why: &str| {
        let error = run(&service, sql, &[]).expect_err(sql);
        assert!(error.contains(why), "{sql}: {error}");
        let stored = all(&service, "SELECT id, email, gender FROM users ORDER BY id");
        assert_eq!(stored, [["1", "\"a\"", "\"m\""], ["2", "\"b\"", "\"f\""]], "{sql}");
    };
    refused("UPDATE users SET email = 'same'", "another document");
    refused("UPDATE users SET gender = 'x' WHERE id = 2", "");
    refused("INSERT INTO users (id, email, gender, birth_date) VALUES (3, 'c', 'm', 0), (1, 'd', 'm', 0)", "in use");
    refused("INSERT INTO users VALUES (3, 'c', 'm', 'day')", "");
    refused("INSERT INTO visits (id, location, user, visited_at, mark) VALUES (1, 9, 1, 0, 0)", "there is no 9");
    refused("UPDATE users SET birth_date = abs(-9223372036854775807 - id)", "integer overflow");
    service.run(r#"insert locations {"id":9}"#).unwrap();
    run(&service, "INSERT INTO visits (id, location, user, visited_at, mark) VALUES (1, 9, 1, 0, 0)", &[]).unwrap();
    refused("DELETE FROM users", "refers to it");
}

#[test]
fn values_keep_what_they_are_in_json() {
    let service = Service::new(&config(NOTES));
    let text = Value::text(r#"[1, {"a": 2.50}]"#);
    let sql = "INSERT INTO notes (id, t, f, j, x, q) VALUES (:id, TRUE, FALSE, json(:j), :j, json_object('k', :id)) RETURNING t, j, x";
    let rows = run(&service, sql, &[Value::Integer(1), text]).unwrap();
    assert_eq!(rows, (1, vec![vec!["true".into(), r#"[1,{"a":2.50}]"#.into(), r#""[1, {\"a\": 2.50}]""#.into()]]));
    run(&service, "UPDATE notes SET n = j, t = NULL, y = j -> 1, z = json_extract(j, '$[0]'), \"a b\" = 1.0", &[])
        .unwrap();
    let session = service.database.session().unwrap();
    let collection = service.database.collection("notes").unwrap();
    let key = docs::key::KeyType::I64.of_scalar(docs::order::Scalar::Integer(1)).unwrap();
    let now = session.now();
    let stored = now.get(collection, &key).unwrap().unwrap();
    let expected = r#"{"id":1,"f":false,"j":[1,{"a":2.50}],"x":"[1, {\"a\": 2.50}]","q":{"k":1},"n":[1,{"a":2.50}],"y":{"a":2.50},"z":1,"a b":1.0}"#;
    assert_eq!(std::str::from_utf8(stored.text().unwrap()).unwrap(), expected);
}

#[test]
fn a_field_is_changed_inside_and_stays_json() {
    let service = Service::new(&config(NOTES));
    service.run(r#"insert notes {"id":1,"j":{"a":2.50,"b":[1]}}"#).unwrap();
    let sql = "UPDATE notes SET j = json_set(j, '$.a', 'x', '$.c.d', json('[true]')), k = json_remove(j, '$.b'), l = json_patch(j, '{\"a\":null}'), \
               m = json_insert(j, '$.b[#]', 2), n = json_replace(j, '$.e', 1)";
    run(&service, sql, &[]).unwrap();
    let expected = r#"{"id":1,"j":{"a":"x","b":[1],"c":{"d":[true]}},"k":{"a":2.50},"l":{"b":[1]},"m":{"a":2.50,"b":[1,2]},"n":{"a":2.50,"b":[1]}}"#;
    assert_eq!(service.get("notes/1").unwrap().1, expected);
}

#[test]
fn one_of_several_values_stays_what_it_is() {
    let service = Service::new(&config(NOTES));
    service.run(r#"insert notes {"id":1,"tags":["a"],"on":true,"x":"[1]"}"#).unwrap();
    let sql = "UPDATE notes SET a = coalesce(gone, tags), b = CASE WHEN id = 1 THEN json_set(tags, '$[#]', 'b') ELSE tags END, \
               c = ifnull(tags, 1), d = CASE id WHEN 2 THEN 'no' ELSE notes.\"on\" END, e = coalesce(gone, json('[]')), f = coalesce(x, tags), \
               g = coalesce(gone, json_extract(tags, '$[0]'), 3), h = iif(id = 1, tags -> 0, NULL)";
    run(&service, sql, &[]).unwrap();
    let expected = r#"{"id":1,"tags":["a"],"on":true,"x":"[1]","a":["a"],"b":["a","b"],"c":["a"],"d":true,"e":[],"f":"[1]","g":"a","h":"a"}"#;
    assert_eq!(service.get("notes/1").unwrap().1, expected);
    let upsert = "INSERT INTO notes (id, tags, x) VALUES (1, json('[\"n\"]'), '[2]') ON CONFLICT (id) DO UPDATE SET \
                  tags = coalesce(excluded.tags, tags), a = (excluded.tags), b = CASE WHEN excluded.tags = tags THEN 1 ELSE coalesce(gone, b) END, \
                  c = coalesce(excluded.gone, tags), d = coalesce(excluded.x, 1), e = NULL, f = NULL, g = NULL, h = NULL";
    run(&service, upsert, &[]).unwrap();
    let expected = r#"{"id":1,"tags":["n"],"on":true,"x":"[1]","a":["n"],"b":["a","b"],"c":["a"],"d":"[2]"}"#;
    assert_eq!(service.get("notes/1").unwrap().1, expected);
}

#[test]
fn a_parameter_of_an_upsert_is_read_as_its_field_is() {
    let service = Service::new(&config(
        "[collections.d]\nkey = { field = \"id\", type = \"i64\" }\n[collections.d.schema]\ntype = \"object\"\n\
         [collections.d.schema.properties]\nid = { type = \"integer\" }\nversion = { type = \"integer\" }\nn = { type = \"integer\" }\n",
    ));
    let catalog = service.database.catalog();
    let compared = |sql: &str, name: &str| Modification::prepare(sql, catalog).unwrap().compared(name);
    let update = compared("UPDATE d SET version = 2 WHERE version < :v", "v");
    let insert = "INSERT INTO d (id, version) VALUES (:id, 1) ON CONFLICT (id) DO UPDATE SET";
    assert_eq!(compared(&format!("{insert} version = 2 WHERE version < :v"), "v"), update);
    let set = compared("UPDATE d SET n = :v", "v");
    assert_ne!(set, Default::default());
    assert_eq!(compared(&format!("{insert} version = excluded.version, n = :v"), "v"), set);
}

#[test]
fn json_deeper_than_documents_is_none() {
    let service = Service::new(&config(NOTES));
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    service.run(r#"insert notes {"id":1}"#).unwrap();
    for (depth, is_json) in [(128, true), (129, false), (1000, false), (60_000, false)] {
        let text = deep(depth);
        run(&service, "UPDATE notes SET v = json_valid(:a)", &[Value::text(&text)]).unwrap();
        let stored = service.get("notes/1").unwrap().1;
        assert!(stored.contains(&format!("\"v\":{}", u8::from(is_json))), "{depth}: {stored}");
    }
    let text = format!(r#"{{"a":{},"b":1}}"#, deep(500));
    let refused = run(&service, "UPDATE notes SET p = json_patch(:a, '{\"c\":2}')", &[Value::text(&text)]);
    assert!(refused.unwrap_err().contains("malformed JSON"));
}

#[test]
fn what_is_copied_keeps_its_form_wherever_it_is_read() {
    let service = Service::new(&config(NOTES));
    service.run(r#"insert notes {"id":1,"n":2.50,"j":[1,{"a":2.50}]}"#).unwrap();
    // The index on n has the value, but not the form in which the number was written.
    run(&service, "UPDATE notes SET copy = n WHERE n > 2", &[]).unwrap();
    run(&service, "UPDATE notes SET o = json_extract(j, '$[1]'), p = json_extract(j, '$[0]')", &[]).unwrap();
    let expected = r#"{"id":1,"n":2.50,"j":[1,{"a":2.50}],"copy":2.50,"o":{"a":2.50},"p":1}"#;
    assert_eq!(service.get("notes/1").unwrap().1, expected);
}

#[test]
fn a_new_document_is_left_out_or_takes_the_place_of_those_it_stands_against() {
    let file = r#"
[collections.users]
key = { field = "id", type = "u32" }
unique = ["email", "name"]
[collections.visits]
key = { field = "id", type = "u32" }
references = { user = "users" }
"#;
    let service = Service::new(&config(file));
    let change = |sql: &str| run(&service, sql, &[]).map(|(documents, rows)| (documents, rows.len()));
    let insert = |id: u32, email: &str, name: &str| {
        service.run(&format!(r#"insert users {{"id":{id},"email":"{email}","name":"{name}"}}"#)).unwrap()
    };
    (1..=4).for_each(|id| drop(insert(id, &format!("e{id}"), &format!("n{id}"))));
    service.run(r#"insert visits {"id":1,"user":1}"#).unwrap();
    let values = "INTO users (id, email, name) VALUES";
    assert_eq!(
        change(&format!("INSERT OR IGNORE {values} (1, 'a', 'b'), (9, 'e2', 'b'), (8, 'e8', 'n8') RETURNING id")),
        Ok((1, 1))
    );
    assert_eq!(change(&format!("INSERT {values} (8, 'x', 'y') ON CONFLICT DO NOTHING")), Ok((0, 0)));
    assert_eq!(change(&format!("INSERT {values} (8, 'x', 'y') ON CONFLICT (ID) DO NOTHING")), Ok((0, 0)));
    let refused = change(&format!("INSERT {values} (7, 'e8', 'y') ON CONFLICT (id) DO NOTHING"));
    assert!(refused.is_err_and(|why| why.contains("another document of users has this \"email\"")));
    // Replaces the document of its own key, though a visit refers to it, and two others that share one value each.
    assert_eq!(change(&format!("REPLACE {values} (1, 'e2', 'n3')")), Ok((1, 0)));
    for (path, expected) in [
        ("users/1", Some(r#"{"id":1,"email":"e2","name":"n3"}"#)),
        ("users/2", None),
        ("users/3", None),
        ("users/9", None),
    ] {
        assert_eq!(service.get(path).map(|(_, text)| text).as_deref(), expected, "{path}");
    }
    // A document that others refer to is not removed because of another document's value.
    let refused = change(&format!("INSERT OR REPLACE {values} (5, 'e2', 'n5')"));
    assert!(refused.is_err_and(|why| why.contains("refers to it")));
    assert!(service.get("users/5").is_none());
    // A new document that is invalid by itself stays an error.
    assert!(change("INSERT OR IGNORE INTO visits (id, user) VALUES (2, 77)").is_err());
    // So does an infinite value, for which SQLite leaves out the row.
    for (word, end) in [("INSERT OR IGNORE", ""), ("INSERT", " ON CONFLICT DO NOTHING")] {
        let infinite = change(&format!("{word} {values} (6, 'e6', 'n6'), (4, 'e4', 1e308 * 10){end}"));
        assert!(infinite.is_err_and(|why| why.contains("a result is infinite")), "{word}{end}");
        assert!(service.get("users/6").is_none());
    }
    assert_eq!(change(&format!("INSERT OR REPLACE {values} (4, 'e4', 'n4')")), Ok((1, 0)));
    assert!(docs::verify::database(&service.database).unwrap().is_clean());
}

#[test]
fn a_stored_document_is_changed_by_the_new_one_that_it_stands_against() {
    let file = "[collections.n]\nkey = { field = \"id\", type = \"u32\" }\nunique = [\"name\"]\n";
    let service = Service::new(&config(file));
    service.run(r#"insert n {"id":1,"name":"a","count":1,"tags":["x"],"at":{"y":2}}"#).unwrap();
    let stored = |id: u32| service.get(&format!("n/{id}")).unwrap().1;
    let insert = "INSERT INTO n (id, name, count, tags) VALUES (:id, :name, 5, json('[1]'))";
    let change = |id: i64, name: &'static str, end: &str, more: &[Value<'_>]| {
        let parameters = [&[Value::Integer(id), Value::text(name)], more].concat();
        run(&service, &format!("{insert} {end}"), &parameters)
    };
    let add = "ON CONFLICT (id) DO UPDATE SET count = count + excluded.count, tags = excluded.tags RETURNING id, count";
    assert_eq!(change(1, "b", add, &[]), Ok((1, vec![vec!["1".into(), "6".into()]])));
    // An array stays an array; other fields keep their values and places.
    assert_eq!(stored(1), r#"{"id":1,"name":"a","count":6,"tags":[1],"at":{"y":2}}"#);
    assert_eq!(change(2, "c", add, &[]), Ok((1, vec![vec!["2".into(), "5".into()]])));
    // A parameter only in DO UPDATE; if WHERE is false nothing is done.
    let most =
        "ON CONFLICT (name) DO UPDATE SET count = :most, at = NULL WHERE n.count < :most RETURNING id, :most AS m";
    assert_eq!(change(9, "a", most, &[Value::Integer(3)]), Ok((0, vec![])));
    assert_eq!(change(9, "a", most, &[Value::Integer(7)]), Ok((1, vec![vec!["1".into(), "7".into()]])));
    assert_eq!(stored(1), r#"{"id":1,"name":"a","count":7,"tags":[1]}"#);
    // A conflict other than the named one is an error.
    assert!(change(2, "zz", most, &[Value::Integer(9)]).is_err_and(|why| why.contains("in use")));
    // So is a conflict that the change itself causes.
    let taken = "ON CONFLICT (id) DO UPDATE SET name = 'a'";
    assert!(change(2, "zz", taken, &[]).is_err_and(|why| why.contains("this \"name\"")));
    assert!(docs::verify::database(&service.database).unwrap().is_clean());
}

#[test]
fn of_several_assignments_to_a_field_the_last_counts() {
    let file = "[collections.n]\nkey = { field = \"id\", type = \"u32\" }\n";
    let service = Service::new(&config(file));
    service.run(r#"insert n {"id":1,"a":5,"b":6}"#).unwrap();
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    sqlite.execute_batch("CREATE TABLE n (id PRIMARY KEY, a, b); INSERT INTO n VALUES (1, 5, 6)").unwrap();
    for sql in [
        "UPDATE n SET a = 1, a = 2",
        "UPDATE n SET a = a + 10, b = a, a = b, b = a * 100",
        "UPDATE n SET (a, b, a) = (7, 8, 9)",
        "INSERT INTO n (id, a, b) VALUES (1, 0, 0) ON CONFLICT (id) DO UPDATE SET b = excluded.a, b = n.b + 1, a = 3, a = excluded.b",
    ] {
        run(&service, sql, &[]).unwrap();
        sqlite.execute_batch(sql).unwrap();
        let theirs: String =
            sqlite.query_row("SELECT json_object('id', id, 'a', a, 'b', b) FROM n", [], |row| row.get(0)).unwrap();
        assert_eq!(service.get("n/1").unwrap().1, theirs, "{sql}");
    }
}

#[test]
fn what_is_not_supported_says_so_with_its_position() {
    let service = Service::new(&travels());
    let check = |sql: &str, kind: SqlErrorKind, (line, column): (u64, u64), message: &str| {
        let error = Modification::prepare(sql, service.database.catalog()).expect_err(sql);
        assert!(error.message.contains(message), "{sql}: {error}");
        assert_eq!((error.kind, error.line, error.column), (kind, line, column), "{sql}: {error}");
    };
    use SqlErrorKind::{Invalid, NotYet, UnknownName};
    check("UPDATE users SET id = 3", Invalid, (1, 18), "the key \"id\" cannot be changed");
    check("UPDATE users SET age = 3", UnknownName, (1, 18), "no field \"age\"");
    check("INSERT INTO users (id, email, email) VALUES (1, 'a', 'b')", Invalid, (1, 31), "given twice");
    check("UPDATE users SET email = nobody, email = 'b'", UnknownName, (1, 26), "no field \"nobody\"");
    check("INSERT INTO users (id, email) VALUES (1)", Invalid, (1, 39), "1 values for 2 fields");
    check("INSERT INTO nobody (id) VALUES (1)", UnknownName, (1, 13), "no collection \"nobody\"");
    check("INSERT INTO locations VALUES (1)", Invalid, (1, 1), "needs a schema");
    check("INSERT OR FAIL INTO users (id) VALUES (1)", NotYet, (1, 1), "INSERT OR FAIL");
    let update = "INSERT INTO users (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET";
    check(&format!("{update} id = 2"), Invalid, (1, 66), "the key \"id\" cannot be changed");
    check(&format!("{update} gender = excluded.age"), UnknownName, (1, 84), "no field \"age\"");
    check(&format!("{update} gender = (SELECT 'm')"), NotYet, (1, 13), "a subquery in DO UPDATE");
    let nothing = "INSERT INTO users (id) VALUES (1) ON CONFLICT (gender) DO NOTHING";
    check(nothing, Invalid, (1, 48), "\"gender\", which is neither the key nor unique");
    check("DELETE FROM users RETURNING COUNT(*) AS n", NotYet, (1, 29), "an aggregate");
    check("DROP TABLE users", NotYet, (0, 0), "anything but SELECT, INSERT");
    check("UPDATE users SET (email, gender) = ('a', 'm', 1)", Invalid, (1, 37), "3 values for 2 fields");
    check("UPDATE users SET (email, gender) = 'a'", Invalid, (1, 36), "takes a row of values");
    check("UPDATE users SET (email, gender) = (SELECT 1, 2)", NotYet, (1, 37), "a query for several fields");
    check("UPDATE users SET (email, id) = ('a', 2)", Invalid, (1, 26), "the key \"id\" cannot be changed");
    let from = "FROM visits AS v WHERE v.user = l.id RETURNING";
    check(
        &format!("UPDATE locations AS l SET n = 1 {from} v.mark"),
        UnknownName,
        (1, 80),
        "of the changed document alone",
    );
    check(
        &format!("UPDATE locations AS l SET n = 1 {from} l.v, v.mark.x"),
        UnknownName,
        (1, 85),
        "of the changed document alone",
    );
}

#[test]
fn changes_of_one_document_from_many_threads_are_all_there() {
    let service = Service::new(&config(NOTES));
    run(&service, "INSERT INTO notes (id, n) VALUES (1, 0)", &[]).unwrap();
    let sql = "UPDATE notes SET n = n + 1 WHERE id = 1 RETURNING n";
    let mut seen: Vec<u32> = std::thread::scope(|scope| {
        let count = || (0..50).map(|_| run(&service, sql, &[]).unwrap().1[0][0].parse().unwrap()).collect::<Vec<u32>>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    seen.sort_unstable();
    assert_eq!(seen, (1..=200).collect::<Vec<u32>>(), "each change was returned as it was made");
}

fn many_notes(count: usize) -> Service {
    let service = Service::new(&config(NOTES));
    for start in (0..count).step_by(3_000) {
        let ids: Vec<usize> = (start..count.min(start + 3_000)).collect();
        let ids = serde_json::to_string(&ids).unwrap();
        run(&service, "INSERT INTO notes (id, m) SELECT value, 0 FROM json_each(:ids)", &[Value::text(&ids)]).unwrap();
    }
    service
}

#[test]
fn a_statement_ends_at_its_deadline_and_at_its_limit_of_rows() {
    let service = many_notes(1_000);
    let statement = Modification::prepare("UPDATE notes SET s = 'x'", service.database.catalog()).unwrap();
    let over = || true;
    for (budget, why) in [
        (Budget { deadline: Some(&over), ..Budget::default() }, "time is over"),
        (Budget { rows_max: 5_000, ..Budget::default() }, "5000 rows read"),
    ] {
        let error = service.database.modify(&statement, &[], &budget, &mut Rows::default()).expect_err(why);
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(all(&service, "SELECT COUNT(*) AS n FROM notes WHERE s = 'x'"), [["0"]]);
}

#[test]
fn a_long_statement_that_a_write_has_crossed_is_begun_anew() {
    let service = many_notes(21_000);
    let statement = Modification::prepare("UPDATE notes SET s = 'x' WHERE m = 1", service.database.catalog()).unwrap();
    let calls = std::sync::atomic::AtomicU32::new(0);
    // The first deadline check happens while the statement reads: another write is committed there.
    let cross = || {
        if calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            run(&service, "UPDATE notes SET m = 1 WHERE id = 20999", &[]).unwrap();
        }
        false
    };
    let budget = Budget { deadline: Some(&cross), ..Budget::default() };
    let count = service.database.modify(&statement, &[], &budget, &mut Rows::default()).unwrap();
    assert_eq!(count.rows, 1);
    assert_eq!(all(&service, "SELECT id FROM notes WHERE s = 'x'"), [["20999"]]);
    assert!(calls.into_inner() > 200, "it was read twice, and not all on the thread that commits");
}

#[test]
fn update_from_takes_values_of_other_tables() {
    let service = Service::new(&config(NOTES));
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    sqlite.execute_batch("CREATE TABLE notes (id PRIMARY KEY, n, s); CREATE TABLE tags (name PRIMARY KEY, n)").unwrap();
    for sql in [
        "INSERT INTO notes (id, n, s) VALUES (1, 10, 'x'), (2, 20, 'y'), (3, NULL, 'z')",
        "INSERT INTO tags (name, n) VALUES ('x', 1), ('y', 30), ('q', 5)",
        "UPDATE notes SET n = notes.n - t.n FROM tags AS t WHERE t.name = notes.s AND notes.n >= t.n RETURNING id, n",
        "UPDATE notes SET n = l.n, s = s || l.name FROM (SELECT name, MAX(n) AS n FROM tags GROUP BY name) AS l WHERE l.name = 'q'",
        "UPDATE notes AS m SET n = 0 FROM json_each('[1,2]') AS e, tags WHERE m.id = e.value AND tags.name = 'x'",
    ] {
        let (_, returned) = run(&service, sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let wanted = theirs(&sqlite, sql);
        assert_eq!(returned, wanted, "{sql}");
        let check = "SELECT id, n, s FROM notes ORDER BY id";
        assert_eq!(all(&service, check), theirs(&sqlite, check), "after {sql}");
    }
    let error = run(&service, "UPDATE notes SET n = tags.n FROM tags WHERE id = 1", &[]).expect_err("twice");
    assert!(error.contains("found by more than one row of FROM"), "{error}");
    assert_eq!(all(&service, "SELECT n FROM notes WHERE id = 1"), [["0"]]);
}

/// Rows that a statement reads for each document are summed, including those of RETURNING and DO UPDATE.
#[test]
fn rows_that_returning_and_do_update_read_count_for_the_whole_statement() {
    let service = Service::new(&config(NOTES));
    (0..100).for_each(|number| drop(service.run(&format!(r#"insert tags {{"name":"t{number}","n":1}}"#)).unwrap()));
    let run_within = |sql: &str, rows_max: u64| {
        let statement = Modification::prepare(sql, service.database.catalog()).unwrap();
        let budget = Budget { rows_max, ..Budget::default() };
        let outcome = service.database.modify(&statement, &[], &budget, &mut Rows::default());
        outcome.map(|outcome| (outcome.rows, outcome.rows_read)).map_err(|error| error.to_string())
    };
    // A written document counts as 16 rows. The limit suffices for the statement without the clause's reads.
    for (sql, limit, rows) in [
        ("UPDATE tags SET n = 2 RETURNING name", 1750, 200),
        ("INSERT INTO tags (name, n) SELECT name || 'x', 1 FROM tags RETURNING name", 1750, 200),
        ("INSERT INTO tags (name) SELECT name FROM tags WHERE true ON CONFLICT DO UPDATE SET n = n + 1", 3500, 400),
        ("DELETE FROM tags RETURNING name", 3500, 400),
    ] {
        let before = all(&service, "SELECT name, n FROM tags ORDER BY name");
        let refused = run_within(sql, limit).expect_err(sql);
        assert!(refused.contains(&format!("its limit of {limit} ")), "{sql}: {refused}");
        assert_eq!(all(&service, "SELECT name, n FROM tags ORDER BY name"), before, "{sql}");
        let (_, read) = run_within(sql, 10_000_000).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(read, rows, "{sql}");
    }
}
