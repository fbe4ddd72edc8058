//! Queries over the real store: the next query sees the changes of a write, through indexes and joins.

use crate::service::{Service, travels};
use docs::sql::{Budget, PreparedQuery, Scratch, Value};

const VISITS: &str = "SELECT v.mark, v.visited_at, l.place FROM visits v JOIN locations l ON l.id = v.location
  WHERE v.user = :id AND (:fromDate IS NULL OR v.visited_at > :fromDate) ORDER BY v.visited_at, v.id";
const AVERAGE: &str = "SELECT COALESCE(ROUND(AVG(v.mark), 5), 0) AS avg FROM visits v JOIN users u ON u.id = v.user
  WHERE v.location = :id AND (:gender IS NULL OR u.gender = :gender)";

#[track_caller]
fn check(service: &Service, sql: &str, parameters: &[Value<'_>], expected: &str) {
    let query = PreparedQuery::prepare(sql, service.database.catalog()).unwrap();
    let session = service.database.session().unwrap();
    let now = session.now();
    let mut out = Vec::new();
    query.write_array(now.view(), parameters, &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn queries_see_every_write_before_them() {
    let service = Service::new(&travels());
    for command in [
        r#"insert users {"id":1,"email":"a","gender":"m","birth_date":0}"#,
        r#"insert users {"id":2,"email":"b","gender":"f","birth_date":0}"#,
        r#"insert locations {"id":7,"place":"Сад"}"#,
        r#"insert locations {"id":8,"place":"Дом"}"#,
        r#"insert visits {"id":1,"location":7,"user":1,"visited_at":30,"mark":4}"#,
        r#"insert visits {"id":2,"location":8,"user":1,"visited_at":-10,"mark":5}"#,
        r#"insert visits {"id":3,"location":7,"user":2,"visited_at":20,"mark":1}"#,
    ] {
        service.run(command).unwrap();
    }
    let (id, none) = (Value::Integer(1), Value::Null);
    let both = r#"[{"mark":5,"visited_at":-10,"place":"Дом"},{"mark":4,"visited_at":30,"place":"Сад"}]"#;
    check(&service, VISITS, &[id, none], both);
    check(&service, VISITS, &[id, Value::Integer(-10)], r#"[{"mark":4,"visited_at":30,"place":"Сад"}]"#);
    check(&service, AVERAGE, &[Value::Integer(7), none], r#"[{"avg":2.5}]"#);
    check(&service, AVERAGE, &[Value::Integer(7), Value::text("f")], r#"[{"avg":1.0}]"#);

    // A visit changes its user and location; a user changes.
    service.run(r#"update visits/1 {"user":2,"location":8,"mark":0}"#).unwrap();
    service.run(r#"update users/2 {"gender":"m"}"#).unwrap();
    check(&service, VISITS, &[id, none], r#"[{"mark":5,"visited_at":-10,"place":"Дом"}]"#);
    check(&service, AVERAGE, &[Value::Integer(8), none], r#"[{"avg":2.5}]"#);
    check(&service, AVERAGE, &[Value::Integer(7), Value::text("f")], r#"[{"avg":0}]"#);

    service.database.store().checkpoint().unwrap();
    check(&service, AVERAGE, &[Value::Integer(8), Value::text("m")], r#"[{"avg":2.5}]"#);
    let listing = "SELECT id, email FROM users WHERE email >= 'a' ORDER BY id DESC LIMIT 1";
    check(&service, listing, &[], r#"[{"id":2,"email":"b"}]"#);
    check(&service, "SELECT id FROM users WHERE email = 'a'", &[], r#"[{"id":1}]"#);
}
