//! The counts of a database's trees, and plans that depend on them.

use crate::service::{Service, config};
use docs::sql::PreparedQuery;
use docs::{Op, Precondition, Write};

const CONFIG: &str = r#"
[collections.orders]
key = { field = "id", type = "u32" }
indexes = [["customer"], ["state", "day"], ["day"]]
"#;

const ORDERS: u32 = 12_000;

/// Orders of 3,000 customers, one of whom has half of all; three states, a hundred days.
fn fill(service: &Service, ids: std::ops::Range<u32>) {
    let ids: Vec<u32> = ids.collect();
    for some in ids.chunks(1_000) {
        let writes = some.iter().map(|id| {
            let customer = if id % 2 == 0 { 9_999 } else { id * 7 % 3_000 };
            let text = format!(
                r#"{{"id":{id},"customer":{customer},"state":"{}","day":{},"note":"{:040}"}}"#,
                ["new", "paid", "sent"][*id as usize % 3],
                id % 100,
                id
            );
            Write {
                collection: service.id("orders"),
                op: Op::Insert { body: text.into_bytes() },
                precondition: Precondition::default(),
            }
        });
        service.database.write_all(&writes.collect::<Vec<_>>()).unwrap();
    }
}

fn plan(query: &PreparedQuery) -> String {
    query.explain(&[]).lines().next().unwrap_or_default().to_owned()
}

/// Checks that a count differs from the true value by a factor of 1.5 at most.
#[track_caller]
fn check_about(found: f64, truth: f64) {
    assert!((truth * 0.67..truth * 1.5).contains(&found), "{found} for {truth}");
}

#[test]
fn entries_and_values_are_counted_and_ways_chosen_by_them() {
    let service = Service::new(&config(CONFIG));
    let sql = "SELECT note FROM orders WHERE customer = :c AND day = :d";
    let query = service.database.prepare_query(sql).unwrap();
    assert_eq!(plan(&query), "SEARCH orders USING INDEX (customer=:c) FILTER 1", "nothing is there yet");
    fill(&service, 0..ORDERS);
    service.database.store().checkpoint().unwrap();
    service.database.count();
    let catalog = service.database.catalog();
    let orders = catalog.collection("orders").unwrap();
    let of = |index: usize| catalog.counts.of(orders.indexes[index].tree).unwrap();
    assert_eq!(catalog.counts.of(orders.tree).unwrap().entries, f64::from(ORDERS));
    check_about(of(0).alike[0], f64::from(ORDERS) / 1_501.0);
    check_about(of(1).alike[0], f64::from(ORDERS) / 3.0);
    check_about(of(1).alike[1], f64::from(ORDERS) / 300.0);
    check_about(of(2).alike[0], f64::from(ORDERS) / 100.0);
    let with = |customer: u32| {
        let sql = format!("SELECT note FROM orders WHERE customer = {customer} AND day = :d");
        plan(&service.database.prepare_query(&sql).unwrap())
    };
    // An average customer has fewer orders than a day, the large one more.
    assert_eq!(plan(&query), "SEARCH orders USING INDEX (customer=:c) FILTER 1");
    assert_eq!(with(7), "SEARCH orders USING INDEX (customer=?) FILTER 1");
    assert_eq!(with(9_999), "SEARCH orders USING INDEX (day=:d) FILTER 1");
}

#[test]
fn a_query_that_was_prepared_while_a_collection_was_empty_plans_anew_when_it_has_grown() {
    let service = Service::new(&config(CONFIG));
    let query = service.database.prepare_query("SELECT note FROM orders WHERE state = :s AND customer > 9000").unwrap();
    assert_eq!(plan(&query), "SEARCH orders USING INDEX (state=:s) FILTER 1");
    fill(&service, 0..ORDERS);
    service.database.store().checkpoint().unwrap();
    assert_eq!(plan(&query), "SEARCH orders USING INDEX (state=:s) FILTER 1", "nobody has counted");
    service.database.count();
    assert_eq!(plan(&query), "SCAN orders FILTER 2");
    // The next opening counts before the first query.
    let (dir, config) = (service.dir, config(CONFIG));
    drop((query, service.database));
    let database = crate::service::open(&config, dir.path());
    let query = database.prepare_query("SELECT note FROM orders WHERE state = :s AND customer > 9000").unwrap();
    assert_eq!(plan(&query), "SCAN orders FILTER 2");
}

#[test]
fn counts_are_there_after_a_restart_and_taken_again_where_a_tree_has_grown() {
    let service = Service::new(&config(CONFIG));
    fill(&service, 0..ORDERS);
    service.database.store().checkpoint().unwrap();
    service.database.count();
    let orders = service.database.catalog().collection("orders").unwrap().clone();
    let (customer, day) = (orders.indexes[0].tree, orders.indexes[2].tree);
    let dir = service.dir;
    drop(service.database);
    // Replaces the stored rows by wrong values, to distinguish reading them from counting again.
    {
        let (store, _) = docs::engine::Store::open(dir.path(), docs::engine::StoreOptions::default()).unwrap();
        let catalog = store.tree("catalog").unwrap();
        let row = |tree: docs::engine::TreeId| format!("counts/{}", tree.0).into_bytes();
        for tree in [orders.tree, customer, day] {
            let reader = store.reader().unwrap();
            assert!(reader.snapshot().get(catalog, &row(tree)).unwrap().is_some(), "{tree:?}");
        }
        let same = format!(r#"{{"entries": {ORDERS}, "alike": [777]}}"#);
        let smaller = format!(r#"{{"entries": {}, "alike": [777]}}"#, ORDERS / 2);
        let put = |tx: &mut docs::engine::Tx<'_>| {
            tx.put(catalog, &row(customer), same.as_bytes());
            tx.put(catalog, &row(day), smaller.as_bytes());
            tx.put(catalog, &row(orders.tree), b"no row");
            tx.put(catalog, b"counts/123456", same.as_bytes());
            Ok(())
        };
        store.commit(&mut { put }).unwrap();
    }
    let database = crate::service::open(&config(CONFIG), dir.path());
    let of = |tree| database.catalog().counts.of(tree).unwrap();
    assert_eq!(of(customer).alike, [777.0], "as it was kept");
    check_about(of(day).alike[0], f64::from(ORDERS) / 100.0);
    assert_eq!(of(orders.tree).entries, f64::from(ORDERS));
    // Counting everything corrects the counts, and removes rows of trees that do not exist.
    database.count();
    check_about(of(customer).alike[0], f64::from(ORDERS) / 1_501.0);
    drop(database);
    let (store, _) = docs::engine::Store::open(dir.path(), docs::engine::StoreOptions::default()).unwrap();
    let catalog = store.tree("catalog").unwrap();
    assert!(store.reader().unwrap().snapshot().get(catalog, b"counts/123456").unwrap().is_none());
}
