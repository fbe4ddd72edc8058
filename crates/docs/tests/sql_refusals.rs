//! Wrong and unsupported queries: each is refused with its position, and no text causes a panic.

use crate::sql_memory::{AVERAGE, Memory, VISITS, travels};
use docs::sql::{Budget, PreparedQuery, Scratch, SqlErrorKind, Value};
use proptest::prelude::*;

#[track_caller]
fn check(sql: &str, kind: SqlErrorKind, line: u64, column: u64, message: &str) {
    let error = PreparedQuery::prepare(sql, &travels().catalog).expect_err(sql);
    assert!(error.message.contains(message), "{sql}: {error}");
    assert_eq!((error.kind, error.line, error.column), (kind, line, column), "{sql}: {error}");
}

#[test]
fn mistakes_are_told_with_their_position() {
    use SqlErrorKind::{Invalid, Limit, NotYet, Syntax, UnknownName};
    check("SELECT id FROM visit", UnknownName, 1, 16, "there are: locations, users, visits");
    check("SELECT id,\n  agee FROM users", UnknownName, 2, 3, "no field \"agee\"; there are: id, email");
    check("SELECT v.x FROM visits v", UnknownName, 1, 10, "no field \"x\"");
    check("SELECT FROM users", Syntax, 1, 13, "Expected");
    check("SELECT id FROM users WHERE", Syntax, 1, 27, "Expected");
    check("SELECT id\nFROM users WHERE id = -- what\n ", Syntax, 2, 22, "Expected");
    check("", Syntax, 1, 1, "Expected");
    check("SELECT id FROM users x y", Syntax, 1, 24, "expected the end");
    check("SELECT nosuch(id) FROM users", UnknownName, 1, 8, "no function \"nosuch\"");
    check("SELECT id FROM users, visits", Invalid, 1, 8, "several collections");
    check("SELECT id FROM users WHERE COUNT(*) > 1", Invalid, 1, 28, "not allowed here");
    check("SELECT gender, COUNT(*) AS n FROM users", Invalid, 1, 8, "neither in GROUP BY");
    check("SELECT MIN(id) AS least FROM users GROUP BY 1", Invalid, 1, 45, "not allowed in GROUP BY");
    check("SELECT 1 + COUNT(*) AS n FROM users GROUP BY n", Invalid, 1, 46, "not allowed here");
    check("SELECT ROUND(1, 2, 3) AS x", Invalid, 1, 8, "wrong number of arguments");
    check("SELECT \"m\" AS x FROM users", UnknownName, 1, 8, "no field \"m\"");
    check("DELETE FROM users", NotYet, 1, 1, "only a SELECT");
    check("CREATE TABLE t (a)", NotYet, 1, 1, "only SELECT, INSERT, UPDATE and DELETE are supported");
    check("SELECT first_name[id] AS x FROM users", NotYet, 1, 19, "a subscript other than a number");
    check("SELECT first_name[0][:p] AS x FROM users", NotYet, 1, 22, "a subscript other than a number");
    check(
        "SELECT id FROM users WHERE id IN (SELECT user, id FROM visits)",
        Invalid,
        1,
        35,
        "IN compares 1 values with 2 result columns",
    );
    check(
        "SELECT id FROM users u WHERE EXISTS (SELECT 1 FROM visits WHERE user = u.nosuch)",
        UnknownName,
        1,
        74,
        "no field \"nosuch\" in \"u\" of the enclosing query",
    );
    check("SELECT u.id FROM users u JOIN (SELECT u.email AS k) AS w ON 1 = 1", UnknownName, 1, 39, "no field \"u\"");
    check(
        "SELECT (SELECT MAX(u.id) FROM visits) AS x FROM users u",
        NotYet,
        1,
        16,
        "an aggregate of fields of the outer query",
    );
    check(
        "SELECT id FROM users u WHERE EXISTS (WITH w AS (SELECT u.id AS k) SELECT k FROM w)",
        NotYet,
        1,
        56,
        "the enclosing query inside WITH",
    );
    check(
        "SELECT id + 1 AS k FROM users WHERE EXISTS (SELECT 1 FROM visits WHERE user = k)",
        UnknownName,
        1,
        79,
        "no field \"k\"",
    );
    check("SELECT (SELECT id, user FROM visits) AS x", Invalid, 1, 9, "has one result column");
    check("WITH RECURSIVE x AS (SELECT 1) SELECT * FROM users", NotYet, 1, 1, "WITH RECURSIVE");
    check("SELECT id FROM users UNION DISTINCT SELECT id FROM visits", NotYet, 1, 1, "UNION DISTINCT");
    check("SELECT id FROM users EXCEPT ALL SELECT id FROM visits", NotYet, 1, 1, "EXCEPT ALL");
    check("SELECT id FROM users UNION (SELECT id FROM visits)", NotYet, 1, 29, "in parentheses beside UNION (name it");
    check(
        "SELECT id FROM users EXCEPT SELECT id, user FROM visits",
        Invalid,
        1,
        29,
        "the parts of EXCEPT have different",
    );
    check(&format!("SELECT 1 AS x{}", " UNION SELECT 1".repeat(70)), Invalid, 1, 966, "more than 64 queries inside");
    check("SELECT id FROM users UNION ALL SELECT id, user FROM visits", Invalid, 1, 32, "different numbers");
    check("SELECT x.a FROM (SELECT id FROM users) x", UnknownName, 1, 10, "no field \"a\"; there are: id");
    check("SELECT * FROM json_each('[]')", NotYet, 1, 8, "name its columns");
    check("SELECT value FROM json_tree('[]')", NotYet, 1, 19, "there is json_each");
    check("SELECT COUNT(DISTINCT user, mark) AS n FROM visits", Invalid, 1, 8, "takes one argument");
    check("SELECT SUM(mark) OVER () AS n FROM visits", NotYet, 1, 8, "OVER");
    check("SELECT ABS(mark) FILTER (WHERE mark > 1) AS n FROM visits", Invalid, 1, 8, "FILTER belongs to an aggregate");
    check("SELECT (id, mark) AS n FROM visits", Invalid, 1, 9, "a row value is allowed only");
    check(
        "SELECT id FROM visits WHERE (id, mark) = (1, 2, 3)",
        Invalid,
        1,
        43,
        "a row of 2 values is compared with one of 3",
    );
    check("SELECT id FROM visits WHERE (id, mark) = 3", Invalid, 1, 42, "compared with a row value");
    check(
        "SELECT json_group_array(id ORDER BY email) AS x FROM users",
        NotYet,
        1,
        8,
        "ORDER BY or another clause inside a call",
    );
    check(
        "SELECT json_group_object(DISTINCT id, email) AS x FROM users",
        Invalid,
        1,
        8,
        "DISTINCT needs an aggregate of one argument",
    );
    check(
        "SELECT json_group_object(id) AS x FROM users",
        Invalid,
        1,
        8,
        "wrong number of arguments to json_group_object",
    );
    check("SELECT json_group_array(*) AS x FROM users", Invalid, 1, 8, "wrong number of arguments to json_group_array");
    check("SELECT median(DISTINCT id) AS x FROM users", UnknownName, 1, 8, "no function \"median\"");
    check("SELECT UPPER(DISTINCT email) AS x FROM users", Invalid, 1, 8, "upper takes neither DISTINCT nor *");
    check(
        "SELECT group_concat(email ORDER BY id) AS x FROM users",
        NotYet,
        1,
        8,
        "ORDER BY or another clause inside a call",
    );
    check("SELECT json_object('a') AS x", Invalid, 1, 8, "in pairs");
    check("SELECT json_set('{}', '$.a') AS x", Invalid, 1, 8, "json_set takes JSON, and paths and values in pairs");
    check("SELECT id FROM users WHERE email = 'x' COLLATE NOCASE", NotYet, 1, 36, "COLLATE (compare LOWER");
    check("SELECT date('now', 'localtime') AS x", NotYet, 1, 8, "localtime");
    check("SELECT printf('%j', 1) AS x", NotYet, 1, 8, "%j");
    check("SELECT printf('%!.5f', 1) AS x", NotYet, 1, 8, "%!f");
    check("SELECT printf('%d %#q', 1) AS x", NotYet, 1, 8, "%#q");
    check("SELECT id FROM users WHERE email = ?", NotYet, 1, 36, "a parameter other than :name");
    check(&format!("SELECT {}1 AS x", "1+".repeat(300)), Limit, 1, 8, "deeper than");
    check(&format!("SELECT {}1{} AS x", "(".repeat(200), ")".repeat(200)), Limit, 1, 136, "deeper than 128");
    check(&format!("SELECT {}1 AS x", "1+".repeat(5000)), Limit, 0, 0, "tokens");
}

#[test]
fn a_format_that_is_only_known_when_it_runs_is_refused_then() {
    let memory = travels();
    let query = PreparedQuery::prepare("SELECT printf(:format, 1.5) AS x", &memory.catalog).unwrap();
    let mut out = Vec::new();
    let mut run = |format: &str| {
        out.clear();
        let ran = query.write_array(&memory, &[Value::text(format)], &mut Scratch::new(), &Budget::default(), &mut out);
        ran.map(|_| String::from_utf8(out.clone()).unwrap()).map_err(|error| error.to_string())
    };
    assert_eq!(run("%x"), Ok("[{\"x\":\"1\"}]".to_owned()));
    for format in ["%!.3f", "%d %J", "%#Q"] {
        let error = run(format).expect_err(format);
        assert!(error.contains("printf with %j"), "{error}");
    }
}

#[test]
fn long_lists_of_terms_are_no_nesting() {
    let terms = "id = 1 OR ".repeat(400);
    let memory = travels();
    PreparedQuery::prepare(&format!("SELECT id FROM users WHERE {terms} id = 2"), &memory.catalog).unwrap();
}

#[test]
fn an_unnamed_expression_is_named_by_its_text() {
    let sql = "SELECT  id+1 , v.mark, ROUND( mark,\n 2 ), COUNT(*)>0 AS \"so\" FROM visits v GROUP BY id, mark";
    let query = PreparedQuery::prepare(sql, &travels().catalog).unwrap();
    assert_eq!(query.columns().collect::<Vec<_>>(), ["id+1", "mark", "ROUND( mark,\n 2 )", "so"]);
}

/// Prepares the text, and if that succeeds runs it with NULL for all parameters, on a small data set.
fn survive(memory: &Memory, sql: &str) {
    if let Ok(query) = PreparedQuery::prepare(sql, &memory.catalog) {
        let parameters = vec![Value::Null; query.parameters().len()];
        let budget = Budget { rows_max: 10_000, ..Budget::default() };
        let _ = query.write_array(memory, &parameters, &mut Scratch::new(), &budget, &mut Vec::new());
        let _ = (query.explain(&[]), query.explain_json(&[]), query.wanted_included());
    }
}

fn little() -> Memory {
    let mut memory = travels();
    memory.insert("users", r#"{"id":1,"email":"a","first_name":"Ж","last_name":"","gender":"m","birth_date":0}"#);
    memory.insert("locations", r#"{"id":1,"place":"p","country":"c","city":"","distance":3}"#);
    for id in 0..3 {
        memory.insert("visits", &format!(r#"{{"id":{id},"location":1,"user":1,"visited_at":{id},"mark":2}}"#));
    }
    memory
}

const WORDS: &[&str] = &[
    "SELECT",
    "FROM",
    "WHERE",
    "AND",
    "OR",
    "NOT",
    "IN",
    "BETWEEN",
    "LIKE",
    "IS",
    "NULL",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "JOIN",
    "LEFT",
    "ON",
    "GROUP",
    "BY",
    "HAVING",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "AS",
    "DISTINCT",
    "CAST",
    "COUNT",
    "SUM",
    "AVG",
    "MIN",
    "MAX",
    "users",
    "visits",
    "locations",
    "v",
    "u",
    "id",
    "mark",
    "user",
    "place",
    "(",
    ")",
    "(",
    ")",
    ",",
    ".",
    "*",
    "+",
    "-",
    "/",
    "%",
    "||",
    "=",
    "<",
    ">=",
    "->",
    "->>",
    "[",
    "]",
    "0",
    "1",
    "2.5",
    "'x'",
    "'a%'",
    ":p",
    "\"id\"",
    "date",
    "strftime",
    "printf",
    "substr",
    "EXISTS",
    "UNION",
    "ALL",
    ";",
    "~",
    "<<",
    "GLOB",
    "INTEGER",
    "TRUE",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_soup_of_tokens_never_panics(words in prop::collection::vec(prop::sample::select(WORDS), 0..40)) {
        let memory = little();
        survive(&memory, &words.join(" "));
        survive(&memory, &format!("SELECT {} FROM visits v", words.join(" ")));
    }

    #[test]
    fn any_text_never_panics(text in "\\PC{0,60}", at in 0usize..600, cut in 0usize..40) {
        let memory = little();
        survive(&memory, &text);
        for sql in [VISITS, AVERAGE] {
            // A valid query with a piece replaced.
            let at = at.min(sql.len());
            let end = (at + cut).min(sql.len());
            survive(&memory, &format!("{}{text}{}", &sql[..at], &sql[end..]));
        }
    }
}

#[test]
fn deep_and_long_texts_end_in_an_error() {
    let memory = little();
    for piece in [
        "(",
        "[",
        "-",
        "NOT ",
        "CASE ",
        "CASE WHEN ",
        "1+",
        "id.",
        "SELECT ",
        "(SELECT ",
        "x[",
        "f(",
        "a AND ",
        "~",
        "1 IN (",
        "'",
        "\"",
        "id -> ",
    ] {
        for count in [10, 60, 1000, 4000, 30_000] {
            survive(&memory, &format!("SELECT {} FROM visits", piece.repeat(count)));
            survive(&memory, &piece.repeat(count));
        }
    }
}
