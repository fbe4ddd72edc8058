//! A field of type `integer` takes 5.0 and 1e2, and keeps them as sent. They equal 5 and 100 in every index and rule, and no access
//! path shows in a result.

use crate::service::{Service, config, open};
use docs::config::{Config, IncludedFields};
use docs::engine::{Store, StoreOptions};
use docs::order;
use docs::sql::{Budget, NoRows, PreparedQuery, Scratch};
use docs::statements::Modification;
use docs::{DocumentDatabase, WriteError};
use proptest::prelude::*;
use proptest::sample::select;

const FIELDS: &str = "type = \"object\"\nadditionalProperties = false\nrequired = [\"id\"]\n[collections.NAME.schema.properties]\n\
                      id = { type = \"integer\" }\nn = { type = \"integer\" }\nt = { type = \"integer\" }\nr = { type = \"number\" }\n";

/// One collection without indexes, one of the same documents with several, and a view over it.
fn both() -> Config {
    let collection = |name: &str, more: &str| {
        let schema = FIELDS.replace("NAME", name);
        format!(
            "[collections.{name}]\nkey = {{ field = \"id\", type = \"i64\" }}\n{more}[collections.{name}.schema]\n{schema}"
        )
    };
    let indexes = "indexes = [[\"n\"], [\"n\", \"t\"], [\"t\", \"r\", \"n\"]]\n";
    let view = "[views.by_n]\nquery = \"SELECT n, COUNT(*) AS c, SUM(t) AS s FROM full GROUP BY n\"\n";
    let mut both = config(&(collection("bare", "") + &collection("full", indexes) + view));
    let fields = vec!["r".to_owned()];
    both.included.push(IncludedFields { collection: "full".into(), index: vec!["n".into(), "t".into()], fields });
    both
}

/// Each query as a text over `x`, which it orders wholly.
const QUERIES: [&str; 26] = [
    "SELECT id, n, t, r FROM x ORDER BY id",
    "SELECT n FROM x WHERE n = 5 ORDER BY id",
    "SELECT n, id FROM x WHERE n = 5.0 ORDER BY id DESC",
    "SELECT id FROM x WHERE n = 0 ORDER BY id",
    "SELECT id, t FROM x WHERE n = 5 ORDER BY t, id LIMIT 3",
    "SELECT id, t FROM x WHERE n = 100 ORDER BY t DESC, id DESC LIMIT 3",
    "SELECT n, t, r FROM x WHERE n = 5 AND t >= 5 ORDER BY t, id",
    "SELECT n, t, r FROM x WHERE n = 5 AND t = 5 ORDER BY id",
    "SELECT n, t FROM x WHERE n IN (5, 100) ORDER BY n, t, id",
    "SELECT n, t FROM x WHERE n IN (SELECT value FROM json_each('[5, 0.0, 1e2]')) ORDER BY id",
    "SELECT n, t FROM x WHERE n BETWEEN 5 AND 6 ORDER BY n, t, id",
    "SELECT n, id FROM x WHERE n > 5 ORDER BY n, id",
    "SELECT n, id FROM x WHERE n < 5.5 ORDER BY n DESC, id DESC",
    "SELECT n, id FROM x ORDER BY n, id LIMIT 4",
    "SELECT t, r, n FROM x WHERE t = 5 AND r = 5 ORDER BY n, id",
    "SELECT t, r, n FROM x WHERE t = 5 ORDER BY r, n, id LIMIT 5",
    "SELECT id FROM x WHERE (n, t) > (5, 5) ORDER BY n, t, id LIMIT 4",
    "SELECT id FROM x WHERE (n, t) IN ((5, 5), (100, 0)) ORDER BY id",
    "SELECT n, TYPEOF(n) AS k, n / 2 AS h, n || '' AS d FROM x WHERE n >= 0 ORDER BY n, id",
    "SELECT CAST(n AS INTEGER) AS g, COUNT(*) AS c, SUM(t) AS s, COUNT(DISTINCT t) AS d FROM x GROUP BY n ORDER BY n",
    "SELECT DISTINCT CAST(n AS INTEGER) AS g, CAST(t AS INTEGER) AS h FROM x ORDER BY n, t",
    "SELECT CAST(MIN(n) AS INTEGER) AS a FROM x",
    "SELECT CAST(MAX(n) AS INTEGER) AS a FROM x WHERE n < 100",
    "SELECT SUM(n) AS s, COUNT(n) AS c, AVG(n) AS a FROM x WHERE n > 0",
    "SELECT a.id, b.id AS other, a.n, b.t FROM x AS a JOIN x AS b ON a.n = b.t ORDER BY a.id, b.id",
    "SELECT a.id, b.n FROM x AS a JOIN x AS b ON b.id = a.n ORDER BY a.id",
];

fn result(database: &DocumentDatabase, sql: &str, interpreted: bool) -> String {
    let query = PreparedQuery::prepare(sql, database.catalog()).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let query = if interpreted { query.interpreted() } else { query };
    let (session, mut out) = (database.session().unwrap(), Vec::new());
    query.write_array(session.now().view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn rows(database: &DocumentDatabase, sql: &str) -> String {
    result(database, sql, false)
}

fn over(sql: &str, name: &str) -> String {
    sql.replace("FROM x", &format!("FROM {name}")).replace("JOIN x", &format!("JOIN {name}"))
}

/// Numbers of few values in many forms.
fn number() -> impl Strategy<Value = &'static str> {
    select(vec!["5", "5.0", "50e-1", "5", "100", "1e2", "100.00", "0", "-0", "0.0", "-0.0", "6", "6.0", "-3", "-3.0"])
}

/// A number of type `number`, a fraction among them, or none.
fn real() -> impl Strategy<Value = &'static str> {
    select(vec!["5", "5.0", "5.50", "55e-1", "0", "-0.0", "-0", "1e300"])
}

fn document() -> impl Strategy<Value = (u8, String)> {
    let key = select(vec!["0", "1", "2", "2.0", "3", "5", "5.0", "6", "60e-1", "7", "100", "1e2"]);
    (key, prop::option::weighted(0.9, number()), number(), real()).prop_map(|(key, n, t, r)| {
        let n = n.map(|n| format!("\"n\":{n},")).unwrap_or_default();
        (key.parse::<f64>().unwrap() as u8, format!("{{\"id\":{key},{n}\"t\":{t},\"r\":{r}}}"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn no_index_shows_in_a_result(steps in prop::collection::vec((any::<bool>(), document()), 1..40)) {
        let service = Service::new(&both());
        for (deletes, (key, document)) in &steps {
            for name in ["bare", "full"] {
                let command = match deletes {
                    true => format!("delete {name}/{key}"),
                    false => format!("put {name}/{key} {document}"),
                };
                let done = service.run(&command);
                prop_assert!(done.is_ok() || *deletes, "{command}: {done:?}");
            }
            if !deletes {
                let (_, kept) = service.get(&format!("full/{key}")).unwrap();
                prop_assert_eq!(&kept, document);
            }
        }
        for sql in QUERIES {
            let plain = rows(&service.database, &over(sql, "bare"));
            for interpreted in [false, true] {
                let indexed = result(&service.database, &over(sql, "full"), interpreted);
                prop_assert_eq!(&indexed, &plain, "{} interpreted: {}", sql, interpreted);
            }
        }
        service.database.wait_for_views();
        let grouped = |from: &str| format!("SELECT CAST(n AS INTEGER) AS g, {from} ORDER BY g");
        prop_assert_eq!(
            rows(&service.database, &grouped("c, CAST(s AS INTEGER) AS s FROM by_n")),
            rows(&service.database, &grouped("COUNT(*) AS c, CAST(SUM(t) AS INTEGER) AS s FROM bare GROUP BY n"))
        );
        prop_assert_eq!(docs::verify::database(&service.database).unwrap().faults, [""; 0]);
    }
}

const RULES: &str = r#"
[collections.users]
key = { field = "id", type = "u32" }
unique = ["number"]
[collections.users.schema.properties]
id = { type = "integer" }
number = { type = "integer" }

[collections.visits]
key = { field = "id", type = "u32" }
references = { user = "users" }
[collections.visits.schema.properties]
user = { type = "integer" }
"#;

fn modify(database: &DocumentDatabase, sql: &str) -> Result<u64, String> {
    let statement = Modification::prepare(sql, database.catalog()).map_err(|error| error.to_string())?;
    let done = database.modify(&statement, &[], &Budget::default(), &mut NoRows);
    done.map(|outcome| outcome.rows).map_err(|error| error.to_string())
}

#[test]
fn rules_hold_whatever_form_a_number_has() {
    let service = Service::new(&config(RULES));
    service.run("insert users {\"id\":5.0,\"number\":1e2}").unwrap();
    assert_eq!(service.get("users/5").unwrap().1, "{\"id\":5.0,\"number\":1e2}");
    for again in
        ["{\"id\":5,\"number\":1}", "{\"id\":50e-1}", "{\"id\":6,\"number\":100}", "{\"id\":6,\"number\":100.0}"]
    {
        assert!(matches!(service.run(&format!("insert users {again}")), Err(WriteError::Conflict { .. })), "{again}");
    }
    assert!(service.refused("insert users {\"id\":6,\"number\":5.5}").starts_with("400 /number"));
    // A real would round it: queries would find another number.
    let refused = service.refused("insert users {\"id\":6,\"number\":9007199254740993.0}");
    assert!(refused.ends_with("; write 9007199254740993"), "{refused}");
    // The same document, in another form.
    service.run("put users/5 {\"id\":5,\"number\":100.0}").unwrap();
    service.run("insert visits {\"id\":1,\"user\":5.0}").unwrap();
    service.run("insert visits {\"id\":2.0,\"user\":5}").unwrap();
    assert!(service.refused("insert visits {\"id\":3,\"user\":6.0}").starts_with("400 /user"));
    assert!(matches!(service.run("delete users/5"), Err(WriteError::Conflict { .. })));
    let database = &service.database;
    let joined =
        "SELECT v.id, v.user, u.number FROM visits v JOIN users u ON u.id = v.user WHERE u.number = 100 ORDER BY v.id";
    assert_eq!(
        rows(database, joined),
        "[{\"id\":1,\"user\":5.0,\"number\":100.0},{\"id\":2,\"user\":5,\"number\":100.0}]"
    );
    let upsert = "INSERT INTO users (id, number) VALUES (9, 100) ON CONFLICT (number) DO UPDATE SET number = 7.0";
    assert_eq!(modify(database, upsert), Ok(1));
    assert_eq!(rows(database, "SELECT id, number FROM users WHERE number = 7"), "[{\"id\":5,\"number\":7.0}]");
    assert_eq!(modify(database, "UPDATE users SET number = number / 2.0 * 2"), Ok(1));
    assert_eq!(modify(database, "DELETE FROM visits WHERE user = 5"), Ok(2));
    service.run("delete users/5").unwrap();
    assert_eq!(docs::verify::database(database).unwrap().faults, [""; 0]);
}

#[test]
fn indexes_of_the_first_format_are_built_again_by_the_opening() {
    let declared = Config { builds_indexes_later: true, ..both() };
    let Service { database, dir } = Service::new(&both());
    let service = Service { database, dir };
    for document in ["{\"id\":1,\"n\":5,\"t\":2}", "{\"id\":2,\"n\":5.0,\"t\":1}", "{\"id\":3,\"n\":5.0,\"t\":3}"] {
        service.run(&format!("insert full {document}")).unwrap();
        service.run(&format!("insert bare {document}")).unwrap();
    }
    let Service { database, dir } = service;
    drop(database);
    // As a folder was before: the key has the number's kind, and the row of the catalog no format.
    let (store, _) = Store::open(dir.path(), StoreOptions::default()).unwrap();
    let (catalog, tree) = (store.tree("catalog").unwrap(), store.tree("index/full/n,t").unwrap());
    let entry = |n: order::Scalar<'_>, t: i64, id: i64, encode: fn(order::Scalar<'_>, &mut Vec<u8>)| {
        let mut key = Vec::new();
        encode(n, &mut key);
        [t, id].into_iter().for_each(|number| order::encode(order::Scalar::Integer(number), &mut key));
        key
    };
    store
        .commit(&mut |tx| {
            for (t, id) in [(1, 2), (3, 3)] {
                assert!(tx.get(tree, &entry(order::Scalar::Real(5.0), t, id, order::lower)).unwrap().is_some());
                tx.delete(tree, &entry(order::Scalar::Real(5.0), t, id, order::lower));
                tx.put(tree, &entry(order::Scalar::Real(5.0), t, id, order::encode), &[0]);
            }
            tx.put(catalog, b"index/full/n,t", b"{\"included\":[\"r\"],\"tree\":\"index/full/n,t\"}");
            Ok(())
        })
        .unwrap();
    drop(store);
    let database = open(&declared, dir.path());
    let sql = "SELECT id, n, t FROM x WHERE n = 5 ORDER BY t LIMIT 2";
    assert_eq!(rows(&database, &over(sql, "full")), rows(&database, &over(sql, "bare")));
    assert_eq!(docs::verify::database(&database).unwrap().faults, [""; 0]);
}
