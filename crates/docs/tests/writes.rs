//! Single writes: the checks, their order, and the state after a refused write.

use crate::declared_views::with_views;
use crate::service::{Service, short, travels, user, visit};
use docs::Precondition;
use docs::sql::{Budget, PreparedQuery, Scratch};

fn filled() -> Service {
    let service = Service::new(&travels());
    service.run(&format!("insert users {}", user(1, "a@x"))).unwrap();
    service.run(&format!("insert users {}", user(2, "b@x"))).unwrap();
    service.run(r#"insert locations {"id":7,"place":"Мост","free":[1, 2]}"#).unwrap();
    service.run(r#"insert locations {"id":8}"#).unwrap();
    service.run(&format!("insert visits {}", visit(1, 1, 7, 100))).unwrap();
    service
}

#[track_caller]
fn check(command: &str, expected: &str) {
    let service = filled();
    let before = docs::verify::database(&service.database).unwrap();
    assert_eq!(service.refused(command), expected, "{command}");
    let after = docs::verify::database(&service.database).unwrap();
    assert!(after.faults.is_empty(), "{command}: {:?}", after.faults);
    assert_eq!((after.documents, after.entries), (before.documents, before.entries), "{command}");
}

#[test]
fn a_document_comes_back_as_sent_without_whitespace() {
    let service = filled();
    assert_eq!(service.get("locations/7").unwrap().1, r#"{"id":7,"place":"Мост","free":[1,2]}"#);
    assert!(service.get("locations/9").is_none());
}

#[test]
fn an_insert_is_refused_for_what_is_wrong_in_it_before_what_is_in_use() {
    check("insert users ", "400  the JSON text ends too early at byte 0");
    check("insert users {", "400  the JSON text ends too early at byte 1");
    check("insert users []", "400  a document is a JSON object");
    check(r#"insert users {"id":1,"id":1}"#, "400  the same key twice in one object at byte 8");
    check(r#"insert users {"id":3}"#, r#"400 /email the field "email" is missing"#);
    check(r#"insert locations {"place":"x"}"#, r#"400 /id the key "id" is missing"#);
    check(r#"insert locations {"id":-1}"#, r#"400 /id -1 is no key of type u32 ("id")"#);
    check(r#"insert locations {"id":"3"}"#, r#"400 /id "3" is no key of type u32 ("id")"#);
    check(r#"insert locations {"id":-0}"#, r#"400 /id -0 is no key of type u32 ("id")"#);
    check(r#"insert locations {"id":1.5}"#, r#"400 /id 1.5 is no key of type u32 ("id")"#);
    check(r#"insert locations {"id":true}"#, r#"400 /id true is no key of type u32 ("id")"#);
    check(r#"insert locations {"id":7.0}"#, "409 the key 7 is in use in locations");
    check(&format!("insert users {}", user(1, "c@x")), "409 the key 1 is in use in users");
    check(&format!("insert users {}", user(3, "a@x")), r#"409 another document of users has this "email""#);
    check(&format!("insert visits {}", visit(1, 3, 7, 1)), r#"400 /user "user": there is no 3 in users"#);
    check(&format!("insert visits {}", visit(1, 1, 9, 1)), r#"400 /location "location": there is no 9 in locations"#);
    check(&format!("insert visits {}", visit(1, 1, 7, 1)), "409 the key 1 is in use in visits");
}

#[test]
fn an_update_looks_for_its_target_first_then_at_the_patch() {
    check("update users/3 {", "404");
    check("update users/1 {", "400  the JSON text ends too early at byte 1");
    check("update users/1 5", "400  a merge patch is a JSON object");
    check(r#"update users/1 {"id":1}"#, r#"400 /id the key "id" cannot be changed"#);
    check(r#"update users/1 {"id":null}"#, r#"400 /id the key "id" cannot be changed"#);
    check(r#"update users/1 {"email":null}"#, r#"400 /email the field "email" is missing"#);
    check(r#"update users/1 {"gender":"x"}"#, r#"400 /gender "x" does not fit "gender": one of "m", "f""#);
    check(r#"update users/1 {"nick":1}"#, r#"400 /nick the field "nick" is not allowed"#);
    check(r#"update users/1 {"nick":null}"#, r#"400 /nick the field "nick" is not allowed"#);
    check(r#"update users/1 {"email":"b@x"}"#, r#"409 another document of users has this "email""#);
    check(r#"update visits/1 {"user":3,"mark":1}"#, r#"400 /user "user": there is no 3 in users"#);
    check(r#"update visits/1 {"user":2,"location":9}"#, r#"400 /location "location": there is no 9 in locations"#);
}

#[test]
fn a_patch_may_repeat_the_key_and_not_change_it() {
    let service = filled();
    service.run(r#"patch users/1 {"id":1,"gender":"m"}"#).unwrap();
    assert_eq!(service.get("users/1").unwrap().1, user(1, "a@x").replace("\"f\"", "\"m\""));
    service.run(r#"patch locations/7 {"id":7.0,"place":"x"}"#).unwrap();
    for other in ["2", "1.5", "\"1\"", "true", "null", "[1]"] {
        let refused = r#"400 /id the key "id" cannot be changed"#;
        check(&format!("patch users/1 {{\"id\":{other}}}"), refused);
    }
}

#[test]
fn an_update_that_changes_nothing_keeps_the_change_number() {
    let service = filled();
    let (number, text) = service.get("users/1").unwrap();
    for patch in ["{}", r#"{"email":"a@x"}"#, r#"{ "gender" : "f" }"#] {
        assert_eq!(service.run(&format!("update users/1 {patch}")).unwrap().change_number, number);
    }
    assert_eq!(service.get("users/1"), Some((number, text)));
    let changed = service.run(r#"update users/1 {"gender":"m"}"#).unwrap();
    assert!(changed.change_number > number && !changed.created);
    assert_eq!(service.get("users/1").unwrap().0, changed.change_number);
}

#[test]
fn a_unique_value_is_free_again_when_its_document_moves_or_goes() {
    let service = filled();
    service.run(r#"update users/1 {"email":"c@x"}"#).unwrap();
    service.run(&format!("insert users {}", user(3, "a@x"))).unwrap();
    service.run("delete users/3").unwrap();
    service.run(&format!("insert users {}", user(4, "a@x"))).unwrap();
    assert!(service.refused(&format!("insert users {}", user(5, "c@x"))).starts_with("409"));
}

#[test]
fn what_others_refer_to_stays_until_they_go() {
    let service = filled();
    assert_eq!(service.refused("delete users/1"), r#"409 a document of visits refers to it by "user""#);
    assert_eq!(service.refused("delete locations/7"), r#"409 a document of visits refers to it by "location""#);
    service.run(r#"update visits/1 {"user":2,"location":8}"#).unwrap();
    service.run("delete users/1").unwrap();
    service.run("delete locations/7").unwrap();
    assert_eq!(service.refused("delete users/1"), "404");
    service.run("delete visits/1").unwrap();
    service.run("delete users/2").unwrap();
}

#[test]
fn a_replacement_holds_the_key_of_its_place() {
    let service = filled();
    assert_eq!(service.refused(r#"replace locations/9 {"id":9}"#), "404");
    assert_eq!(
        service.refused(r#"replace locations/7 {"id":8}"#),
        r#"400 /id "id" is 8, but the document's key is another"#
    );
    assert_eq!(service.refused("replace locations/7 {}"), r#"400 /id the key "id" is missing"#);
    assert!(!service.run(r#"replace locations/7 {"id":7}"#).unwrap().created);
    assert!(service.run(r#"put locations/9 {"id":9}"#).unwrap().created);
    assert!(!service.run(r#"put locations/9 {"id":9,"a":1}"#).unwrap().created);
}

#[test]
fn preconditions_stand_between_the_target_and_the_body() {
    let service = filled();
    let (number, _) = service.get("users/1").unwrap();
    let run = |command: &str, precondition| service.run_if(command, precondition).map_err(short);
    let stale = || Precondition::Matches(vec![number + 1000]);
    assert_eq!(run("update users/1 {", stale()).unwrap_err(), "412");
    assert_eq!(run("update users/3 {", stale()).unwrap_err(), "404");
    assert_eq!(run("put locations/9 {", stale()).unwrap_err(), "412");
    assert_eq!(run("put locations/7 {", Precondition::Absent).unwrap_err(), "412");
    assert_eq!(run("delete users/2", stale()).unwrap_err(), "412");
    assert!(run(r#"update users/1 {"gender":"m"}"#, Precondition::Matches(vec![1, number])).is_ok());
    assert!(run(r#"put locations/9 {"id":9}"#, Precondition::Absent).is_ok());
}

#[test]
fn a_key_too_long_for_an_index_is_refused() {
    let service = Service::new(&crate::service::config(
        "[collections.c]\nkey = {field=\"k\",type=\"string\"}\nindexes=[[\"t\"]]\nunique=[\"u\"]\n",
    ));
    let long = "x".repeat(1100);
    assert_eq!(service.refused(&format!(r#"insert c {{"k":"a","t":"{long}"}}"#)), "413 a document's key in an index");
    assert_eq!(service.refused(&format!(r#"insert c {{"k":"a","u":"{long}"}}"#)), "413 a unique value");
    assert_eq!(
        service.refused(&format!(r#"insert c {{"k":"{long}"}}"#)),
        format!(r#"400 /k "{}… is no key of type string ("k"): 1 to 1024 bytes of text"#, "x".repeat(39))
    );
    assert!(service.run(r#"insert c {"k":"a","t":true,"u":null}"#).is_ok());
}

#[test]
fn a_key_may_be_spelt_like_any_number_but_not_as_a_negative_zero() {
    let text = "[collections.c]\nkey = {field=\"k\",type=\"i64\"}\nreferences = { up = \"c\" }\n";
    let service = Service::new(&crate::service::config(text));
    service.run(r#"insert c {"k":-0.5e1}"#).unwrap();
    service.run(r#"insert c {"k":1,"up":-5}"#).unwrap();
    service.run(r#"insert c {"k":2,"up":-0.05e2}"#).unwrap();
    assert!(service.get("c/-5").is_some() && service.refused("delete c/-5").starts_with("409"));
    for zero in ["-0", "-0.0", "-0e1"] {
        let refused = service.refused(&format!("insert c {{\"k\":{zero}}}"));
        assert_eq!(refused, format!(r#"400 /k {zero} is no key of type i64 ("k")"#));
    }
}

#[test]
fn a_document_that_refers_to_itself_may_come_and_go() {
    let text = "[collections.c]\nkey = {field=\"k\",type=\"i64\"}\nreferences = { up = \"c\" }\n";
    let service = Service::new(&crate::service::config(text));
    service.run(r#"insert c {"k":5,"up":5}"#).unwrap();
    service.run(r#"insert c {"k":6405,"up":5}"#).unwrap();
    assert!(service.refused("delete c/5").starts_with("409"));
    service.run(r#"update c/6405 {"up":null}"#).unwrap();
    service.run("delete c/5").unwrap();
}

#[test]
fn documents_are_listed_in_the_order_of_their_keys() {
    let service = filled();
    let session = service.database.session().unwrap();
    let now = session.now();
    let list = |after: Option<u32>, limit| {
        let after = after.map(|key| key.to_string());
        let kind = docs::key::KeyType::U32;
        let after = after.as_ref().and_then(|key| kind.of_text(key));
        let mut keys = Vec::new();
        now.list(service.id("users"), after.as_ref(), limit, &mut |key, stored| {
            assert!(stored.text().is_ok());
            keys.push(key.to_string());
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
        keys
    };
    assert_eq!(list(None, 10), ["1", "2"]);
    assert_eq!(list(None, 1), ["1"]);
    assert_eq!(list(Some(1), 10), ["2"]);
    assert_eq!(list(None, 0), [""; 0]);
}

/// Whatever compares a key with another value takes the same values as equal: keys of documents, references, joins, unique fields,
/// `require` and groups of views.
#[test]
fn a_number_equals_a_key_by_its_value_everywhere() {
    let file = r#"
[collections.author]
key = { field = "id", type = "i64" }
unique = ["code"]
indexes = [["id", "code"]]
[collections.book]
key = { field = "id", type = "i64" }
references = { author = "author" }
indexes = [["author", "id"]]
"#;
    let view = ("by_author", "SELECT id, COUNT(*) AS n FROM author GROUP BY id");
    let service = Service::new(&with_views(file, &[view]));
    service.run(r#"insert author {"id":1.0,"code":7.0}"#).unwrap();
    service.run(r#"insert author {"id":25e1,"code":8}"#).unwrap();
    assert_eq!(service.get("author/1").unwrap().1, r#"{"id":1.0,"code":7.0}"#);
    assert_eq!(service.refused(r#"insert author {"id":1}"#), "409 the key 1 is in use in author");
    assert_eq!(
        service.refused(r#"insert author {"id":2,"code":7}"#),
        r#"409 another document of author has this "code""#
    );
    // A real would round these: to the key beside, and to 1.
    for id in ["9007199254740993.0", "100000000000000001e0", "1.00000000000000000001"] {
        let why = format!("{id} is no key of type i64 (\"id\")");
        assert_eq!(service.refused(&format!(r#"insert author {{"id":{id},"code":9}}"#)), format!("400 /id {why}"));
    }
    service.run(r#"insert author {"id":1e17,"code":9}"#).unwrap();
    service.run("delete author/100000000000000000").unwrap();
    for (id, author) in ["1", "1.0", "1e0", "10e-1", "250.0"].into_iter().enumerate() {
        service.run(&format!(r#"insert book {{"id":{id}.0,"author":{author}}}"#)).unwrap();
        assert_eq!(service.get(&format!("book/{id}")).unwrap().1, format!(r#"{{"id":{id}.0,"author":{author}}}"#));
    }
    for (author, why) in [
        ("true", "true is no key of author (type i64)"),
        ("\"1\"", "\"1\" is no key of author (type i64)"),
        ("1.5", "1.5 is no key of author (type i64)"),
        ("9223372036854775808", "9223372036854775808 is no key of author (type i64)"),
        ("9007199254740993.0", "9007199254740993.0 is no key of author (type i64)"),
        ("2.0", "there is no 2.0 in author"),
        ("3", "there is no 3 in author"),
    ] {
        let refused = service.refused(&format!(r#"insert book {{"id":9,"author":{author}}}"#));
        assert_eq!(refused, format!("400 /author \"author\": {why}"));
    }
    assert!(service.refused("delete author/1").contains("refers to it"));
    service.run(r#"update author/250 {"id":250.0,"code":9}"#).unwrap_err();
    service.run(r#"replace author/250 {"id":250.0,"code":9}"#).unwrap();
    let rows = |sql: &str| {
        let query = PreparedQuery::prepare(sql, service.database.catalog()).unwrap();
        let (session, mut out) = (service.database.session().unwrap(), Vec::new());
        query.write_array(session.now().view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        rows("SELECT b.id, a.id AS a FROM book b JOIN author a ON a.id = b.author ORDER BY b.id"),
        r#"[{"id":0,"a":1},{"id":1,"a":1},{"id":2,"a":1},{"id":3,"a":1},{"id":4,"a":250}]"#
    );
    assert_eq!(rows("SELECT id, typeof(id) AS t FROM author WHERE id = 1.0"), r#"[{"id":1,"t":"integer"}]"#);
    assert_eq!(rows("SELECT id FROM author ORDER BY id DESC"), r#"[{"id":250},{"id":1}]"#);
    assert_eq!(rows("SELECT id, n FROM by_author ORDER BY id"), r#"[{"id":1,"n":1},{"id":250,"n":1}]"#);
    let verified = docs::verify::database(&service.database).unwrap();
    assert!(verified.is_clean(), "{:?}", verified.faults);
    for id in 0..5 {
        service.run(&format!("delete book/{id}")).unwrap();
    }
    service.run("delete author/1").unwrap();
    service.run("delete author/250").unwrap();
    assert_eq!(rows("SELECT COUNT(*) AS n FROM by_author"), r#"[{"n":0}]"#);
    assert!(docs::verify::database(&service.database).unwrap().is_clean());
}
