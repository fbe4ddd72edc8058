//! Forms of SQL that are common with SQLite: columns of one name, joins in parentheses, `IN table`, hexadecimal numbers.

use crate::sql_memory::travels;
use crate::sql_oracle::Both;
use docs::sql::{Budget, PreparedQuery, Scratch};
use serde_json::json;

fn both() -> Both {
    let t: Vec<_> =
        (0..9).map(|id| json!({ "id": id, "a": id % 4, "b": id % 3, "c": format!("c{id}"), "d": 16 })).collect();
    Both::new(&t, &t[2..5])
}

/// The names of a query's columns.
fn ours(both: &Both, sql: &str) -> Vec<String> {
    let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap_or_else(|error| panic!("{sql}: {error}"));
    query.columns().map(str::to_owned).collect()
}

fn theirs(both: &Both, sql: &str) -> Vec<String> {
    both.sqlite.prepare(sql).unwrap().column_names().map(str::to_owned).collect()
}

#[test]
fn columns_of_one_name_are_numbered_as_sqlite_numbers_those_of_a_query_in_from() {
    let both = both();
    for inner in [
        "SELECT x.id, y.id FROM t x JOIN u y ON y.a = x.a",
        "SELECT x.id, y.id, z.id, x.a FROM t x, u y, t z WHERE x.id = y.id AND z.id = y.id",
        "SELECT * FROM t x JOIN u y ON y.id = x.id",
        "SELECT *, * FROM u",
        "SELECT y.*, x.a, x.* FROM t x, u y WHERE x.id = y.b",
        "SELECT id AS k, a AS k, b AS \"k:1\", c AS \"k:1\" FROM t",
        "SELECT id AS \"k:1\", a AS k, b AS \"k:1\" FROM t",
        "SELECT id AS \":1\", a AS \":1\", b AS \"k:x\", c AS \"k:x\" FROM t",
        "SELECT id AS \"k:\", a AS \"k:\" FROM t",
        "SELECT 1 AS n, COUNT(*) AS n FROM t GROUP BY a",
        "SELECT a, a FROM t UNION SELECT b, id FROM u",
    ] {
        let sql = format!("SELECT * FROM ({inner}) AS w");
        assert_eq!(ours(&both, &sql), theirs(&both, &sql), "{sql}");
        assert_eq!(ours(&both, inner), theirs(&both, &sql), "{inner}");
        both.check(inner, false);
        both.check(&sql, false);
    }
    both.check("SELECT w.\"id:1\" + 1 AS n, w.id FROM (SELECT x.id, y.id FROM t x JOIN u y ON y.a = x.a) w", false);
    both.check("SELECT a AS k, b AS k FROM t ORDER BY k, id", true);
    both.check("SELECT a AS k, b AS k, COUNT(*) AS k FROM t GROUP BY k, 2 ORDER BY 3 DESC, 1, 2", true);
    both.check("WITH w AS (SELECT id, id FROM t) SELECT id, \"id:1\" FROM w", false);
}

#[test]
fn a_sign_before_a_field_is_in_its_name() {
    let both = both();
    for sql in
        ["SELECT + a FROM t", "SELECT +a, (+ x.a), (a), x.b FROM t x", "SELECT + + a FROM t", "SELECT -a, + 1 FROM t"]
    {
        assert_eq!(ours(&both, sql), theirs(&both, sql), "{sql}");
        both.check(sql, false);
    }
}

#[test]
fn numbers_of_base_sixteen_are_sqlites() {
    let both = both();
    for sql in [
        "SELECT 0x10 AS x, 0XfF AS y, 0xffffffffffffffff AS z, 0x0000000000000000001 AS w",
        "SELECT -0x10 AS x, - 0x7fffffffffffffff AS y, ~0x0 AS z, 0x8000000000000000 AS w, '0x10' + 0 AS v",
        "SELECT id FROM t WHERE d = 0x10 AND id < 0x5 ORDER BY id LIMIT 0X3 OFFSET 0x1",
        "SELECT a, id FROM t ORDER BY 0x1, 0X2",
        "SELECT a, COUNT(*) AS n FROM t GROUP BY 0x1",
        "SELECT 0x1+0x2 AS x, 1e3 AS y, 0 X1",
    ] {
        both.check(sql, true);
    }
    for wrong in [
        "SELECT 0x AS x",
        "SELECT 0x10000000000000000 AS x",
        "SELECT -0x8000000000000000 AS x",
        "SELECT 12a",
        "SELECT 0x1g",
        "SELECT 0X1g AS x",
        "SELECT 0X AS x",
        "SELECT id FROM t WHERE a=1and b=2",
        "SELECT X'10' AS x + 1",
        "SELECT X'1\nF'",
    ] {
        assert!(both.ours(wrong).is_err_and(|error| error.starts_with("prepare")), "{wrong}");
        assert!(both.theirs(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn joins_in_parentheses_are_sqlites() {
    let both = both();
    for from in [
        "(t x)",
        "(((t x)))",
        "(t) AS x",
        "(t x JOIN u y ON y.a = x.a) JOIN t z ON z.id = y.id",
        "((t x JOIN u y ON y.a = x.a) JOIN t z ON z.id = y.id)",
        "(t x LEFT JOIN u y ON y.id = x.id) JOIN t z ON z.a = x.a",
        "(t x LEFT JOIN u y ON y.id = x.id) LEFT JOIN t z ON z.id = y.id",
        "t x JOIN (u y JOIN t z ON z.b = y.b) ON y.a = x.a",
        "t x JOIN (u y LEFT JOIN t z ON z.id = y.id + 6) ON y.a = x.a",
        "t x JOIN (u y LEFT JOIN t z ON z.id = y.id + 6) ON z.a = x.a",
        "t x JOIN (u y LEFT JOIN t z ON z.id = y.id + 6) ON z.a IS NULL AND y.a = x.a",
        "t x CROSS JOIN (u y JOIN t z ON z.id = y.id)",
        "(SELECT id, a FROM t) AS x JOIN (u) AS y ON y.a = x.a",
        "((SELECT id, a FROM t)) AS x JOIN (((SELECT * FROM u))) AS y ON y.a = x.a",
        "(t x JOIN (SELECT a, COUNT(*) AS id FROM u GROUP BY a) y ON y.a = x.a)",
    ] {
        let has = |alias: &str| from.contains(&format!(" {alias} ")) || from.contains(&format!(" {alias})"));
        let columns = ["y", "z"].into_iter().filter(|alias| has(alias)).map(|alias| format!(", {alias}.id"));
        both.check(&format!("SELECT x.id{} FROM {from}", columns.collect::<String>()), false);
        both.check(&format!("SELECT COUNT(*) AS n FROM {from} WHERE x.a < 3"), false);
    }
    assert_eq!(
        ours(&both, "SELECT * FROM (t x JOIN u y ON y.a = x.a) JOIN t z ON z.id = y.id"),
        ["id", "a", "b", "c", "d", "id:1", "a:1", "b:1", "c:1", "d:1", "id:2", "a:2", "b:2", "c:2", "d:2"]
    );
}

#[test]
fn joins_in_parentheses_behind_left_join_are_sqlites() {
    let both = both();
    for from in [
        "t x LEFT JOIN (u y JOIN t z ON z.id = y.id) ON y.a = x.a",
        "t x LEFT JOIN (u y JOIN t z ON z.id = y.id + 6) ON y.a = x.a",
        "t x LEFT JOIN (u y LEFT JOIN t z ON z.id = y.id + 6) ON z.a IS NULL AND y.a = x.a",
        "t x LEFT JOIN (u y CROSS JOIN t z) ON y.id = x.id AND z.a = x.a",
        "t x LEFT JOIN ((u y JOIN t z ON z.id = y.id)) ON y.a = x.a AND z.b = x.b",
        "t x LEFT JOIN (u y LEFT JOIN (t z JOIN u w ON w.id = z.id) ON z.a = y.a) ON y.id = x.id",
        "t x LEFT JOIN (u y LEFT JOIN (t z JOIN u w ON w.id = z.id) ON z.a = y.a) ON w.id = x.id",
        "t x LEFT JOIN (u y JOIN t z ON z.id = y.id) ON y.a = x.a LEFT JOIN (t v JOIN u w ON w.a = v.a) ON v.id = z.id",
        "t x LEFT JOIN (u y JOIN t z ON z.id = y.id) ON y.a = x.a CROSS JOIN u w",
        "t x LEFT JOIN (u y JOIN t z ON EXISTS (SELECT 1 FROM u q WHERE q.a = y.a AND q.id > z.id)) ON y.a = x.a",
        "t x LEFT JOIN ((SELECT a, MAX(id) AS id FROM u GROUP BY a) y JOIN t z ON z.id = y.id) ON y.a = x.a",
        "t x LEFT JOIN (u y JOIN json_each('[1, 2]') z ON z.value = y.a) ON y.id = x.id",
    ] {
        let has = |alias: &str| from.contains(&format!(" {alias} ")) || from.contains(&format!(" {alias})"));
        let columns: Vec<&str> = ["x", "y", "z", "v", "w"].into_iter().filter(|alias| has(alias)).collect();
        let shown =
            |column: &str| columns.iter().map(|alias| format!("{alias}.{column}")).collect::<Vec<_>>().join(", ");
        let key = if from.contains("json_each") { "x.id, y.id, z.value".to_owned() } else { shown("id") };
        both.check(&format!("SELECT {key} FROM {from}"), false);
        both.check(&format!("SELECT COUNT(*) AS n FROM {from} WHERE x.a < 3"), false);
        both.check(&format!("SELECT x.id, y.a || 'a' AS s FROM {from} WHERE y.id IS NULL OR y.a > 1"), false);
        both.check(&format!("SELECT o.id, (SELECT COUNT(y.id) FROM {from} WHERE x.id = o.id) AS n FROM u o"), false);
    }
    let correlated = "SELECT o.id, (SELECT COUNT(z.id) FROM t x LEFT JOIN (u y JOIN t z ON z.id = y.id AND z.a = o.a) \
                      ON y.a = x.a) AS n FROM t o";
    both.check(correlated, false);
    let sql = "SELECT * FROM t x LEFT JOIN (u y JOIN t z ON z.id = y.id) ON y.a = x.a";
    both.check(sql, false);
    let columns = ["id", "a", "b", "c", "d", "id:1", "a:1", "b:1", "c:1", "d:1", "id:2", "a:2", "b:2", "c:2", "d:2"];
    assert_eq!(ours(&both, sql), columns);
}

#[test]
fn a_page_behind_a_row_value_reads_that_page_alone() {
    let t: Vec<_> = (0..400).map(|id| json!({ "id": id, "a": id % 7, "b": id / 100, "c": id % 100, "d": 0 })).collect();
    let both = Both::with_indexes(&t, &t[..3], &[(&["b", "c"], &[]), (&["c"], &[])]);
    for (sql, read_max) in [
        ("SELECT id FROM t WHERE (b, c) > (1, 50) ORDER BY b, c LIMIT 3", 4),
        ("SELECT id FROM t WHERE (b, c) < (1, 50) ORDER BY b DESC, c DESC LIMIT 3", 4),
        ("SELECT id FROM t WHERE b > 1 OR (b = 1 AND c >= 50) ORDER BY b, c LIMIT 3", 4),
        ("SELECT id FROM t WHERE (c, id) > (7, 207) ORDER BY c, id LIMIT 3", 4),
        ("SELECT id FROM t WHERE (b, c) > (SELECT b, c FROM t WHERE id = 150) ORDER BY b, c LIMIT 3", 5),
        ("SELECT id FROM t WHERE (SELECT b, c FROM t WHERE id = 150) < (b, c) ORDER BY b, c LIMIT 3", 5),
        ("SELECT id FROM t WHERE (c, b) IN ((1, 2), (3, 1), (3, NULL), (1, 2.0), (1.5, 2))", 3),
        ("SELECT id FROM t WHERE (b, c) > (1, NULL) ORDER BY b, c LIMIT 3", 110),
        ("SELECT id FROM t WHERE (b, c) > (NULL, 1) ORDER BY b, c LIMIT 3", 0),
        ("SELECT id FROM t WHERE (b, c) > (SELECT b, c FROM t WHERE id = 1000)", 1),
    ] {
        both.check(sql, sql.contains("ORDER BY"));
        let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let run = query.write_array(&both.memory, &[], &mut Scratch::new(), &Budget::default(), &mut Vec::new());
        let read = run.unwrap_or_else(|error| panic!("{sql}: {error}")).rows_read;
        assert!(read <= read_max, "{sql}: {read} rows read\n{}", query.explain(&[]));
    }
}

#[test]
fn using_and_natural_are_sqlites() {
    let both = both();
    for sql in [
        "SELECT * FROM t JOIN u USING (id)",
        "SELECT * FROM t JOIN u USING (id, a)",
        "SELECT id, a, t.b, u.b FROM t LEFT JOIN u USING (id, a)",
        "SELECT u.*, id FROM t LEFT JOIN u USING (id)",
        "SELECT * FROM t NATURAL JOIN u",
        "SELECT * FROM t NATURAL LEFT JOIN (SELECT id, a AS e FROM u) w",
        "SELECT * FROM t x JOIN u y USING (id) JOIN t z USING (id)",
        "SELECT id, y.a FROM t x JOIN u y USING (id) LEFT JOIN t z USING (id) WHERE id > 1 ORDER BY id",
        "SELECT * FROM t x LEFT JOIN (u y JOIN t z USING (id)) USING (id)",
        "SELECT * FROM t x LEFT JOIN (u y JOIN t z USING (id, a, b, c, d)) USING (a)",
        "SELECT id, COUNT(*) AS n FROM t x LEFT JOIN (u y NATURAL JOIN t z) USING (id) GROUP BY id",
        "SELECT * FROM (t x JOIN u y USING (id)) JOIN t z USING (id)",
    ] {
        both.check(sql, false);
    }
    for wrong in [
        "SELECT a FROM t JOIN u USING (id)",
        "SELECT y.id FROM t x LEFT JOIN (u y JOIN t z ON z.id = x.id) ON y.id = x.id",
    ] {
        assert!(both.ours(wrong).is_err_and(|error| error.starts_with("prepare")), "{wrong}");
        assert!(both.theirs(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_table_behind_in_is_sqlites() {
    let both = both();
    for sql in [
        "WITH w AS (SELECT a FROM u) SELECT id FROM t WHERE a IN w",
        "WITH w AS (SELECT a FROM u) SELECT id FROM t WHERE a NOT IN w AND b = 1",
        "WITH w AS (SELECT a, b FROM u) SELECT id, (a, b) IN w AS x FROM t",
        "WITH w AS (SELECT a FROM u) SELECT id FROM t WHERE NOT a IN \"w\" OR a + 1 IN w",
        "WITH w AS (SELECT NULL AS n UNION SELECT 1) SELECT id, a IN w AS x, a NOT IN w AS y FROM t",
        "SELECT id, (1, 2, 3, 4, 5) IN u AS x, (id, a, b, c, d) IN u AS y FROM t",
        "SELECT id, a IN (b) AS x FROM t",
    ] {
        both.check(sql, false);
    }
}

#[test]
fn what_is_refused_of_these_forms_has_its_place() {
    let place = |sql: &str| {
        let error = PreparedQuery::prepare(sql, &travels().catalog).expect_err(sql);
        (error.line, error.column, error.message)
    };
    let mut others = Vec::new();
    for (sql, column, message) in [
        ("SELECT id FROM users WHERE id IN visits", 34, "IN compares 1 values with 5 result columns"),
        ("SELECT id FROM users WHERE id IN nosuch", 34, "no collection \"nosuch\""),
        ("SELECT id FROM users WHERE id IN json_each('[1]')", 34, "Expected: ("),
        ("SELECT id FROM users JOIN (visits v JOIN locations l ON l.id = v.location) AS x", 79, "a name for a join"),
        (
            "SELECT u.id FROM users u LEFT JOIN (visits v JOIN locations l ON u.id = v.location) ON v.user = u.id",
            66,
            "no field \"u\"",
        ),
        ("SELECT u.id FROM users u JOIN visits v USING (first_name)", 47, "is not in both sides"),
        ("SELECT x.id FROM ((SELECT id FROM users) LIMIT 1) AS x", 20, "a query in parentheses"),
        ("SELECT id FROM (nosuch)", 17, "no collection \"nosuch\""),
        ("SELECT id FROM ((users) AS u) AS v", 35, "duplicate alias AS u"),
        (
            "SELECT COUNT(*) AS n, LOWER(first_name || email) AS x FROM users GROUP BY first_name",
            43,
            "\"email\" is neither",
        ),
        ("SELECT id FROM users WHERE id NOT IN visits", 38, "IN compares 1 values with 5 result columns"),
        ("SELECT gender, email FROM users GROUP BY gender", 16, "\"email\" is neither"),
        ("SELECT MAX(email) AS m, LOWER(email) AS l FROM users", 31, "\"email\" is neither"),
        ("SELECT gender FROM users GROUP BY gender HAVING COUNT(*) > 1 AND id > 1", 66, "\"id\" is neither"),
        ("SELECT gender FROM users GROUP BY gender ORDER BY COUNT(*), email", 61, "\"email\" is neither"),
        ("SELECT MAX(id) AS m, * FROM users", 22, "\"id\" is neither"),
        ("SELECT u.id FROM (users u, visits v)", 26, "Expected: )"),
        ("SELECT 0x AS x", 8, "the number 0x"),
        ("SELECT 1 AS y, 12ab AS x", 16, "a letter in the number 12ab"),
    ] {
        let (line, found, told) = place(sql);
        if (line, found) != (1, column) || !told.contains(message) {
            others.push(format!("{sql}: {line}:{found}: {told}"));
        }
    }
    assert!(others.is_empty(), "{others:#?}");
    for sql in [
        format!("SELECT {}1{} AS x", "(".repeat(129), ")".repeat(129)),
        format!("SELECT {}1{} AS x", "(1 OR (1 AND ".repeat(65), "))".repeat(65)),
        format!("{}SELECT 1 AS x{}", "SELECT x FROM (".repeat(30), ")".repeat(30)),
    ] {
        let (line, column, told) = place(&sql);
        assert!(line == 1 && (16..900).contains(&column) && told.contains("nests deeper"), "{line}:{column} {told}");
    }
}

#[test]
fn not_indexed_behind_a_table_says_nothing_of_the_rows() {
    let both = both();
    for sql in [
        "SELECT * FROM t NOT INDEXED WHERE a = 1",
        "SELECT x.id, y.id FROM t AS x NOT INDEXED JOIN u y not /* a */ indexed ON x.a = y.a WHERE x.id > 1",
        "SELECT x.id FROM t x NOT INDEXED, u",
        "SELECT id FROM \"t\" NOT INDEXED ORDER BY id",
        "SELECT id FROM t WHERE a IN (SELECT a FROM u NOT INDEXED)",
    ] {
        both.check(sql, false);
    }
    // A field name like any other.
    let t = [json!({ "id": 1, "indexed": 0 }), json!({ "id": 2, "indexed": 1 })];
    let fields = "[collections.t]\nkey = { field = \"id\", type = \"u32\" }\n";
    let service = crate::service::Service::new(&crate::service::config(fields));
    t.iter().for_each(|document| drop(service.run(&format!("insert t {document}")).unwrap()));
    for sql in [
        "SELECT id FROM t WHERE NOT indexed",
        "SELECT id FROM t WHERE id > 0 AND NOT indexed",
        "SELECT id FROM t NOT INDEXED WHERE id > 0 AND NOT indexed",
        "SELECT id FROM t WHERE CASE WHEN NOT indexed THEN NOT indexed ELSE NOT id END",
    ] {
        let query = service.database.prepare_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let session = service.database.session().unwrap();
        let (mut out, budget, now) = (Vec::new(), docs::sql::Budget::default(), session.now());
        query.write_array(now.view(), &[], &mut docs::sql::Scratch::new(), &budget, &mut out).unwrap();
        assert_eq!(String::from_utf8_lossy(&out), r#"[{"id":1}]"#, "{sql}");
    }
}

#[test]
fn all_fields_are_those_that_the_schema_has_in_its_order() {
    let service = crate::service::Service::new(&crate::service::config(
        "[collections.open]\nkey = { field = \"id\", type = \"u32\" }\n\
         [collections.open.schema.properties]\nb = { type = \"integer\" }\nid = { type = \"integer\" }\n\
         [collections.plain]\nkey = { field = \"id\", type = \"u32\" }\n",
    ));
    for name in ["open", "plain"] {
        service.run(&format!(r#"insert {name} {{"id":1,"a":2,"b":3}}"#)).unwrap();
    }
    // Fields that the schema does not name are not included, though the document has them.
    let query = service.database.prepare_query("SELECT * FROM open").unwrap();
    let (session, mut out) = (service.database.session().unwrap(), Vec::new());
    let budget = docs::sql::Budget::default();
    query.write_array(session.now().view(), &[], &mut docs::sql::Scratch::new(), &budget, &mut out).unwrap();
    assert_eq!(String::from_utf8_lossy(&out), r#"[{"b":3,"id":1}]"#);
    for (sql, column) in [("SELECT * FROM plain", 8), ("SELECT o.id, p.* FROM open o, plain p", 14)] {
        let error = service.database.prepare_query(sql).map(drop).expect_err(sql);
        assert_eq!((error.line, error.column), (1, column), "{sql}: {error}");
        assert!(error.message.contains("* needs a schema, and collection \"plain\" has none"), "{error}");
    }
    let insert = |sql: &str| docs::statements::Modification::prepare(sql, service.database.catalog()).map(drop);
    insert("INSERT INTO open VALUES (4, 2)").unwrap();
    let error = insert("INSERT INTO plain VALUES (2)").expect_err("no schema");
    assert!(error.to_string().contains("INSERT without a list of fields needs a schema"), "{error}");
}
