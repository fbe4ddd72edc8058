//! The access path of a query for given counts: a case for each rule of choice, compared as the plan's text.

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use crate::sql_memory::{Memory, Shape};
use docs::catalog::FieldKind;
use docs::counts::{Counts, TreeCount};
use docs::engine::TreeId;
use docs::sql::{Budget, Means, PreparedQuery, Scratch, Workers};

/// Sizes of ranges by tree, returned whatever the ends of the range are.
type Ranges = Arc<Mutex<HashMap<TreeId, u64>>>;

struct Shop {
    memory: Memory,
    ranges: Ranges,
}

/// Orders with a customer, a state and a date; customers in a country.
fn shop() -> Shop {
    let mut memory = Memory::default();
    let fields = |names: &[&'static str]| names.iter().map(|name| (*name, FieldKind::Integer)).collect::<Vec<_>>();
    memory.add(&Shape {
        name: "customers",
        key: "id",
        fields: &fields(&["id", "country", "age"]),
        closed: true,
        indexes: &[(&["country"], &[])],
        references: &[],
    });
    memory.add(&Shape {
        name: "orders",
        key: "id",
        fields: &fields(&["id", "customer", "state", "day", "total", "note"]),
        closed: true,
        indexes: &[(&["customer"], &[]), (&["state", "day"], &["total"]), (&["day"], &[])],
        references: &[],
    });
    let ranges = Ranges::default();
    let asked = Arc::clone(&ranges);
    memory.catalog.counts = Counts::new(move |tree, range| {
        assert!(!matches!((range.from, range.to), (Bound::Unbounded, Bound::Unbounded)), "a range has an end");
        asked.lock().unwrap().get(&tree).copied()
    });
    Shop { memory, ranges }
}

impl Shop {
    /// The tree of a collection, or of its index by number.
    fn tree(&self, name: &str, index: Option<usize>) -> TreeId {
        let info = self.memory.catalog.collection(name).unwrap();
        index.map_or(info.tree, |number| info.indexes[number].tree)
    }

    fn set(&self, tree: TreeId, entries: f64, alike: &[f64]) {
        self.memory.catalog.counts.set(tree, TreeCount { entries, alike: alike.to_vec() });
    }

    /// Sets the entries of both collections, and the averages: orders for one customer, one state, one state and day, one day;
    /// customers for one country.
    fn count(&self, orders: f64, customers: f64, alike: [f64; 5]) {
        let [customer, state, state_day, day, country] = alike;
        self.set(self.tree("orders", None), orders, &[]);
        self.set(self.tree("orders", Some(0)), orders, &[customer]);
        self.set(self.tree("orders", Some(1)), orders, &[state, state_day]);
        self.set(self.tree("orders", Some(2)), orders, &[day]);
        self.set(self.tree("customers", None), customers, &[]);
        self.set(self.tree("customers", Some(0)), customers, &[country]);
    }

    /// A million orders of 100,000 customers in 100 countries; ten states, a thousand days.
    fn usual() -> Shop {
        let shop = shop();
        shop.count(1e6, 1e5, [10.0, 1e5, 100.0, 1e3, 1e3]);
        shop
    }

    fn plan(&self, sql: &str) -> String {
        let query = PreparedQuery::prepare(sql, &self.memory.catalog).unwrap();
        let present: Vec<&str> = query.parameters().iter().map(String::as_str).collect();
        query.explain(&present)
    }

    #[track_caller]
    fn check(&self, sql: &str, expected: &str) {
        assert_eq!(self.plan(sql).trim_end(), expected, "{sql}");
    }
}

#[test]
fn of_two_indexes_the_one_with_fewer_entries_for_a_value_is_taken() {
    let sql = "SELECT note FROM orders WHERE customer = :c AND day = :d";
    let shop = Shop::usual();
    shop.check(sql, "SEARCH orders USING INDEX (customer=:c) FILTER 1");
    shop.count(1e6, 1e5, [1e4, 1e5, 100.0, 20.0, 1e3]);
    shop.check(sql, "SEARCH orders USING INDEX (day=:d) FILTER 1");
}

#[test]
fn row_values_bound_an_index_over_their_fields_and_the_key_behind_them() {
    let shop = Shop::usual();
    for (condition, plan) in [
        ("(state, day) > (:s, :d)", "((state, day)>(:s, :d)) FILTER 1"),
        ("(:s, :d) >= (state, day)", "((state, day)<=(:s, :d)) FILTER 1"),
        ("state > :s OR (state = :s AND day > :d)", "((state, day)>(:s, :d)) FILTER 1"),
        ("(state, day, id) < (:s, :d, :i)", "((state, day, id)<(:s, :d, :i)) FILTER 1"),
        ("(state, id) > (:s, :i)", "(state>=:s) FILTER 1"),
        ("(state, day) = (:s, :d)", "(state=:s, day=:d)"),
        ("state = :s AND (day, id) > (:d, :i)", "(state=:s, (day, id)>(:d, :i)) FILTER 1"),
        ("(day, state) IN ((:d, :s), (3, 4))", "((state, day) IN 2 ROWS)"),
        ("(state, id) IN ((:s, :i), (3, 4))", "((state) IN 2 ROWS) FILTER 1"),
    ] {
        let sql = format!("SELECT total, state FROM orders WHERE {condition} ORDER BY state, day, id LIMIT 5");
        shop.check(&sql, &format!("SEARCH orders USING COVERING INDEX {plan}\nORDER BY INDEX\nLIMIT"));
    }
    shop.check(
        "SELECT note FROM orders WHERE (customer, id) > (:c, :i) ORDER BY customer, id LIMIT 5",
        "SEARCH orders USING INDEX ((customer, id)>(:c, :i)) FILTER 1\nORDER BY INDEX\nLIMIT",
    );
}

#[test]
fn an_index_gives_its_order_and_bounds_where_numbers_may_be_written_in_several_ways() {
    let mut shop = shop();
    let fields = &["id", "a", "b"].map(|field| (field, FieldKind::Any));
    shop.memory.add(&Shape {
        name: "notes",
        key: "id",
        fields,
        closed: true,
        indexes: &[(&["a", "b"], &[])],
        references: &[],
    });
    for (condition, order, plan) in [
        ("a = :a", "b", "(a=:a)"),
        ("a = :a AND b = :b", "id", "(a=:a, b=:b)"),
        ("a = :a AND b > :b", "b, id", "(a=:a, b>:b)"),
        ("(a, b) > (:a, :b)", "a, b, id", "((a, b)>(:a, :b)) FILTER 1"),
        ("(a, b) IN ((:a, :b), (3, 4))", "a, b", "((a, b) IN 2 ROWS)"),
    ] {
        let sql = format!("SELECT id FROM notes WHERE {condition} ORDER BY {order} LIMIT 5");
        shop.check(&sql, &format!("SEARCH notes USING COVERING INDEX {plan}\nORDER BY INDEX\nLIMIT"));
    }
}

#[test]
fn a_literals_range_is_looked_up_where_a_parameters_is_thought_average() {
    let shop = Shop::usual();
    // One value has ten thousand orders, though a customer has ten on average.
    shop.ranges.lock().unwrap().insert(shop.tree("orders", Some(0)), 10_000);
    shop.check(
        "SELECT note FROM orders WHERE customer = 7 AND day = :d",
        "SEARCH orders USING INDEX (day=:d) FILTER 1",
    );
    shop.check(
        "SELECT note FROM orders WHERE customer = :c AND day = :d",
        "SEARCH orders USING INDEX (customer=:c) FILTER 1",
    );
}

#[test]
fn a_range_that_holds_most_of_a_collection_is_no_reason_to_fetch_through_an_index() {
    let sql = "SELECT note FROM orders WHERE day > 5";
    let shop = Shop::usual();
    let day = shop.tree("orders", Some(2));
    shop.ranges.lock().unwrap().insert(day, 900_000);
    shop.check(sql, "SCAN orders FILTER 1");
    // With a covering index, the same range is read.
    shop.check("SELECT id FROM orders WHERE day > 5", "SEARCH orders USING COVERING INDEX (day>?)");
    shop.ranges.lock().unwrap().insert(day, 9_000);
    shop.check(sql, "SEARCH orders USING INDEX (day>?)");
    shop.check("SELECT note FROM orders WHERE day BETWEEN 5 AND 8", "SEARCH orders USING INDEX (day>=?, day<=?)");
}

#[test]
fn a_covering_index_is_read_instead_of_the_documents() {
    let shop = Shop::usual();
    shop.check(
        "SELECT day, COUNT(*) AS n FROM orders GROUP BY day",
        "SCAN orders USING COVERING INDEX (day)\nGROUP BY 1 KEYS",
    );
    shop.check(
        "SELECT state, SUM(total) AS s FROM orders GROUP BY state",
        "SCAN orders USING COVERING INDEX (state, day)\nGROUP BY 1 KEYS",
    );
    shop.check("SELECT note, COUNT(*) AS n FROM orders GROUP BY note", "SCAN orders\nGROUP BY 1 KEYS");
}

#[test]
fn an_index_in_the_order_asked_for_is_read_where_few_rows_are_wanted() {
    let shop = Shop::usual();
    shop.check(
        "SELECT note FROM orders ORDER BY day DESC LIMIT 10",
        "SCAN orders USING INDEX (day) BACKWARD\nORDER BY INDEX\nLIMIT",
    );
    // So many that their lookups cost more than reading and sorting all.
    shop.check("SELECT note FROM orders ORDER BY day DESC LIMIT 900000", "SCAN orders\nTOP-N SORT\nLIMIT");
    shop.check("SELECT note FROM orders ORDER BY day", "SCAN orders\nSORT");
    shop.check("SELECT day FROM orders ORDER BY day", "SCAN orders USING COVERING INDEX (day)\nORDER BY INDEX");
    // Sorting a customer's few orders is cheaper than finding them among all in their order.
    shop.check(
        "SELECT note FROM orders WHERE customer = :c ORDER BY day LIMIT 10",
        "SEARCH orders USING INDEX (customer=:c)\nTOP-N SORT\nLIMIT",
    );
    // If a customer has half of all orders, reading in order finds ten soon.
    shop.count(1e6, 1e5, [5e5, 1e5, 100.0, 1e3, 1e3]);
    shop.check(
        "SELECT note FROM orders WHERE customer = :c ORDER BY day LIMIT 10",
        "SCAN orders USING INDEX (day) FILTER 1\nORDER BY INDEX\nLIMIT",
    );
}

#[test]
fn a_value_that_is_common_on_average_may_be_rare() {
    let shop = Shop::usual();
    shop.count(1e6, 1e5, [10.0, 9e5, 8e5, 9e5, 1e3]);
    // With these averages nearly every order read backward would match, but a rare state would require reading all.
    shop.check(
        "SELECT note FROM orders WHERE state = :s AND day = :d ORDER BY id DESC LIMIT 20",
        "SEARCH orders USING INDEX (state=:s, day=:d) BACKWARD\nORDER BY INDEX\nLIMIT",
    );
}

#[test]
fn rows_that_come_in_the_order_of_its_first_terms_are_sorted_within_these() {
    let shop = Shop::usual();
    let joined = "SELECT o.note, c.age FROM orders o JOIN customers c ON c.id = o.customer";
    shop.check(
        &format!("{joined} ORDER BY o.day DESC, c.age LIMIT 10"),
        "SCAN orders AS o USING INDEX (day) BACKWARD\nLOOKUP customers AS c BY KEY (id=o.customer)\n\
         TOP-N SORT BEHIND 1 OF 2 TERMS IN ORDER\nLIMIT",
    );
    // If all rows are wanted, reading in order saves nothing.
    let plan = shop.plan(&format!("{joined} ORDER BY o.day DESC, c.age"));
    assert!(plan.ends_with("\nSORT\n"), "{plan}");
    let one = "SELECT note FROM orders ORDER BY day, total LIMIT 10";
    shop.check(one, "SCAN orders USING INDEX (day)\nTOP-N SORT BEHIND 1 OF 2 TERMS IN ORDER\nLIMIT");
    // A term with one value adds no order.
    let plan = shop.plan("SELECT note FROM orders WHERE day = :d ORDER BY day, total LIMIT 10");
    assert!(plan.ends_with("\nTOP-N SORT\nLIMIT\n"), "{plan}");
}

#[test]
fn a_sort_within_first_terms_gives_the_rows_of_a_whole_sort() {
    let memory = filled(true);
    let counts = |sql: &str| {
        let query = PreparedQuery::prepare(sql, &memory.catalog).unwrap();
        let mut out = Vec::new();
        let outcome = query.write_array(&memory, &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
        (query.explain(&[]), outcome.rows_read, String::from_utf8(out).unwrap())
    };
    for (order, limit) in
        ["day, note, id", "day DESC, note, id", "customer, total, id DESC", "state, day, note DESC, id"]
            .into_iter()
            .flat_map(|order| ["3", "20 OFFSET 15", "1", "500", "0"].map(|limit| (order, limit)))
    {
        let (plan, read, rows) = counts(&format!("SELECT id, note, total FROM orders ORDER BY {order} LIMIT {limit}"));
        // Another form of the first term, which no index supports.
        let whole = order.replacen("day", "day + 0", 1).replacen("customer", "customer + 0", 1);
        let whole = whole.replacen("state,", "state + 0,", 1);
        let (other, all, expected) =
            counts(&format!("SELECT id, note, total FROM orders ORDER BY {whole} LIMIT {limit}"));
        assert!(other.contains("TOP-N SORT\n"), "{other}");
        assert_eq!(rows, expected, "ORDER BY {order} LIMIT {limit}\n{plan}");
        if limit == "3" && plan.contains("BEHIND") {
            assert!(read < all, "{read} of {all}: {plan}");
        }
    }
}

#[test]
fn joins_begin_where_few_rows_go_on() {
    let sql = "SELECT o.note FROM orders o JOIN customers c ON c.id = o.customer WHERE c.country = :l AND o.day = :d";
    let shop = Shop::usual();
    shop.check(sql, "SEARCH orders AS o USING INDEX (day=:d)\nLOOKUP customers AS c BY KEY (id=o.customer) FILTER 1");
    // Ten customers of a country and their hundred orders are fewer than a day's orders.
    shop.count(1e6, 1e5, [10.0, 1e5, 100.0, 1e3, 10.0]);
    shop.check(
        sql,
        "SEARCH customers AS c USING COVERING INDEX (country=:l)\nSEARCH orders AS o USING INDEX (customer=c.id) FILTER 1",
    );
}

#[test]
fn a_join_of_many_rows_is_hashed_and_one_of_few_looks_them_up() {
    let sql = |condition: &str| {
        format!(
            "SELECT COUNT(*) AS n FROM orders o JOIN customers c ON c.age = o.total AND c.country = o.state{condition}"
        )
    };
    let shop = Shop::usual();
    // The thousand orders of a day are kept, not all customers.
    shop.check(
        &sql(" WHERE o.day = :d"),
        "SCAN customers AS c\nHASH orders AS o BY (c.age, c.country) OF QUERY 0\nAGGREGATE\nQUERY 0: READ orders",
    );
    shop.check(
        &sql(""),
        "SCAN orders AS o USING COVERING INDEX (state, day)\nHASH customers AS c BY (o.total, o.state) OF QUERY 0\nAGGREGATE\n\
         QUERY 0: READ customers SCAN customers",
    );
    shop.check(
        &sql(" WHERE o.customer = :c"),
        "SEARCH orders AS o USING INDEX (customer=:c)\nSEARCH customers AS c USING INDEX (country=o.state) FILTER 1\nAGGREGATE",
    );
    // So many rows are not kept if an index finds them; those of a day still are.
    shop.count(1e6, 1e6, [10.0, 1e5, 100.0, 1e3, 1e3]);
    shop.check(
        &sql(""),
        "SCAN orders AS o USING COVERING INDEX (state, day)\nSEARCH customers AS c USING INDEX (country=o.state) FILTER 1\n\
         AGGREGATE",
    );
    shop.check(
        &sql(" WHERE o.day = :d"),
        "SCAN customers AS c\nHASH orders AS o BY (c.age, c.country) OF QUERY 0\nAGGREGATE\nQUERY 0: READ orders",
    );
}

#[test]
fn many_tables_are_joined_in_a_bounded_time() {
    let shop = Shop::usual();
    let mut sql = "SELECT COUNT(*) AS n FROM orders a".to_owned();
    for (before, alias) in ["a", "b", "c", "d", "e", "f", "g"].iter().zip(["b", "c", "d", "e", "f", "g", "h"]) {
        sql += &format!(" JOIN orders {alias} ON {alias}.customer = {before}.customer");
    }
    // With few wanted rows, a join order cannot be discarded before it is complete.
    for plan in
        [format!("{sql} WHERE e.id = :id"), format!("{} WHERE e.id = :id LIMIT 5", sql.replace("COUNT(*)", "a.id"))]
    {
        let plan = shop.plan(&plan);
        assert!(plan.starts_with("LOOKUP orders AS e BY KEY (id=:id)\n"), "{plan}");
        assert_eq!(plan.matches("(customer=").count(), 7, "{plan}");
    }
}

/// A join of `orders` orders, with the ON condition of each.
fn joined(orders: usize, on: impl Fn(usize) -> String) -> String {
    let joins = (1..orders).map(|number| format!(" JOIN orders o{number} ON {}", on(number)));
    format!("SELECT o0.note, o{0}.note FROM orders o0{1}", orders - 1, joins.collect::<String>())
}

#[test]
fn sixty_four_tables_are_joined_and_not_one_more() {
    let shop = Shop::usual();
    // A chain that is entered at its far end.
    let chain = |orders: usize| joined(orders, |n| format!("o{n}.customer = o{}.id", n - 1));
    let plan = shop.plan(&(chain(64) + " WHERE o63.id = :id"));
    let first: Vec<&str> = plan.lines().take(2).collect();
    let backwards = ["LOOKUP orders AS o63 BY KEY (id=:id)", "LOOKUP orders AS o62 BY KEY (id=o63.customer)"];
    assert_eq!(first, backwards, "{plan}");
    assert_eq!(plan.matches("LOOKUP").count(), 64, "{plan}");
    // A star: all others join the first; one of them is selective.
    let star = joined(64, |n| format!("o{n}.id = o0.{}", ["customer", "state", "day", "total"][n % 4]));
    let plan = shop.plan(&(star + " AND o40.day = :d WHERE o0.day = :e"));
    assert!(plan.starts_with("SEARCH orders AS o0 USING INDEX (day=:e)"), "{plan}");
    assert_eq!(plan.matches("LOOKUP").count(), 63, "{plan}");
    // Each joined with each, about as many as the limit of tokens permits.
    let each = |n: usize| (0..n).map(|other| format!("o{n}.customer = o{other}.customer")).collect::<Vec<_>>();
    let plan = shop.plan(&(joined(20, |n| each(n).join(" AND ")) + " WHERE o9.id = :id"));
    assert!(plan.starts_with("LOOKUP orders AS o9 BY KEY (id=:id)\n"), "{plan}");
    assert_eq!(plan.matches("SEARCH").count(), 19, "{plan}");
    // No join conditions at all.
    let plan = shop.plan(&joined(64, |_| "true".to_owned()));
    assert_eq!(plan.lines().count(), 64, "{plan}");
    let refused = PreparedQuery::prepare(&chain(65), &shop.memory.catalog).unwrap_err().to_string();
    assert!(refused.contains("more than 64 collections"), "{refused}");
    let mut blind = self::shop();
    blind.memory.catalog.counts = Counts::default();
    let plan = blind.plan(&(chain(64) + " WHERE o63.id = :id"));
    assert_eq!(plan.matches("LOOKUP").count(), 64, "{plan}");
}

#[test]
fn small_tables_are_not_multiplied_before_the_large_one_that_joins_them() {
    let mut shop = Shop::usual();
    let mut sql = "SELECT o.note FROM orders o".to_owned();
    for (number, field) in ["state", "day", "total"].iter().cycle().take(12).enumerate() {
        let name: &str = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "t0", "t1"][number];
        shop.memory.add(&Shape {
            name,
            key: "id",
            fields: &[("id", FieldKind::Integer), ("kind", FieldKind::Integer)],
            closed: true,
            indexes: &[],
            references: &[],
        });
        shop.set(shop.tree(name, None), 1_000.0, &[]);
        sql += &format!(" JOIN {name} ON {name}.id = o.{field} AND {name}.kind = :k");
    }
    let plan = shop.plan(&sql);
    let place = |what: &str| plan.lines().position(|line| line.contains(what)).unwrap();
    assert!(place("orders AS o") <= 1, "{plan}");
    assert_eq!(plan.matches("LOOKUP").count(), 12 - place("orders AS o"), "{plan}");
}

/// Both collections with documents, with these counts or without counts.
fn filled(counted: bool) -> Memory {
    let mut shop = shop();
    for id in 0..200 {
        shop.memory.insert("customers", &format!(r#"{{"id":{id},"country":{},"age":{}}}"#, id % 20, id % 10));
        shop.memory.insert(
            "orders",
            &format!(
                r#"{{"id":{id},"customer":{},"state":{},"day":{},"total":{},"note":{}}}"#,
                id % 50,
                id % 3,
                id % 40,
                id % 7,
                id % 25
            ),
        );
    }
    if counted {
        shop.count(200.0, 200.0, [4.0, 67.0, 2.0, 5.0, 10.0]);
    } else {
        shop.memory.catalog.counts = Counts::default();
    }
    shop.memory
}

#[test]
fn a_filtered_collection_without_an_index_is_read_once_in_a_join() {
    let texts = [
        // A hash join, in either order of FROM.
        "SELECT o.id, c.id FROM orders o JOIN customers c ON c.age = o.total WHERE c.age < 5 AND o.note > 3",
        "SELECT o.id, c.id FROM customers c JOIN orders o ON c.age = o.total WHERE c.age < 5 AND o.note = 3",
        "SELECT o.id, c.id FROM orders o LEFT JOIN customers c ON c.age = o.total AND c.age < 5 WHERE o.note > 3",
        // Without an equality: the filtered rows are kept.
        "SELECT o.id, c.id FROM orders o JOIN customers c ON c.age > o.total WHERE c.age = 7 AND o.note = 3",
        "SELECT o.id, c.id FROM orders o LEFT JOIN customers c ON c.age > o.total AND c.age = 7",
        "SELECT o.id, c.id FROM orders o, customers c WHERE c.age = 7 AND o.note = 3",
        "SELECT o.id, c.id FROM orders o CROSS JOIN customers c WHERE c.age = 7 AND o.note > 3",
        // Also if few rows are wanted.
        "SELECT o.id, c.id FROM orders o JOIN customers c ON c.age = o.total WHERE c.age = 6 LIMIT 3",
        "SELECT o.id, p.id, c.id FROM orders o JOIN orders p ON p.customer = o.id JOIN customers c ON c.age = p.note + 1 WHERE c.age < 5",
    ];
    for (counted, sql) in [true, false].into_iter().flat_map(|counted| texts.map(|sql| (counted, sql))) {
        let memory = filled(counted);
        let query = PreparedQuery::prepare(sql, &memory.catalog).unwrap();
        let plan = query.explain(&[]);
        let scans = plan.lines().skip(1).filter(|line| line.contains("SCAN") && !line.starts_with("QUERY")).count();
        assert_eq!(scans, 0, "counted: {counted}, {sql}\n{plan}");
        let reads = std::sync::atomic::AtomicUsize::new(0);
        let (mut memory, reads) = (memory, Arc::new(reads));
        let (customers, seen) = (memory.catalog.collection("customers").unwrap().tree, Arc::clone(&reads));
        memory.on_scan_of = Some(Box::new(move |tree| {
            seen.fetch_add(usize::from(tree == customers), std::sync::atomic::Ordering::Relaxed);
        }));
        let outcome =
            query.write_array(&memory, &[], &mut Scratch::new(), &Budget::default(), &mut Vec::new()).unwrap();
        assert!(outcome.rows > 0, "{sql}");
        assert!(reads.load(std::sync::atomic::Ordering::Relaxed) <= 1, "counted: {counted}, {sql}\n{plan}");
    }
}

#[test]
fn prepared_plans_are_made_anew_when_counts_have_moved_by_eight() {
    let shop = Shop::usual();
    let sql = "SELECT note FROM orders WHERE customer = :c AND day = :d";
    let query = PreparedQuery::prepare(sql, &shop.memory.catalog).unwrap();
    let by_customer = "SEARCH orders USING INDEX (customer=:c) FILTER 1\n";
    let plan = || {
        // An execution plans anew.
        let values = vec![docs::sql::Value::Integer(1); 2];
        let out = &mut Vec::new();
        query.write_array(&shop.memory, &values, &mut Scratch::new(), &Budget::default(), out).unwrap();
        query.explain(&["c", "d"])
    };
    assert_eq!(plan(), by_customer);
    shop.count(1e6, 1e5, [79.0, 1e5, 100.0, 126.0, 1e3]);
    assert_eq!(plan(), by_customer, "less than eight times");
    shop.count(1e6, 1e5, [200.0, 1e5, 100.0, 126.0, 1e3]);
    assert_eq!(plan(), "SEARCH orders USING INDEX (day=:d) FILTER 1\n");
}

#[test]
fn without_counts_a_way_is_chosen_by_its_kind() {
    let mut shop = Shop::usual();
    shop.memory.catalog.counts = Counts::default();
    shop.check("SELECT day, COUNT(*) AS n FROM orders GROUP BY day", "SCAN orders\nGROUP BY 1 KEYS");
    shop.check("SELECT note FROM orders WHERE day > 5", "SEARCH orders USING INDEX (day>?)");
}

#[test]
fn several_values_are_looked_up_in_the_order_of_the_index() {
    let shop = Shop::usual();
    shop.check(
        "SELECT note FROM orders WHERE customer IN (3, 1, :c)",
        "SEARCH orders USING INDEX (customer IN (?, ?, :c))",
    );
    shop.check("SELECT note FROM orders WHERE id IN (5, 6, 7, 8, 9)", "LOOKUP orders BY KEYS (id IN 5 VALUES)");
    shop.check("SELECT note FROM orders WHERE id IN (5)", "LOOKUP orders BY KEY (id=?)");
    // Equalities of one field joined by OR are equivalent.
    shop.check(
        "SELECT note FROM orders WHERE customer = 3 OR :c = customer OR customer IN (1, 2)",
        "SEARCH orders USING INDEX (customer IN (?, :c, ?, ?))",
    );
    shop.check("SELECT note FROM orders WHERE customer = 3 OR day = 4", "SCAN orders FILTER 1");
    // With equalities and bounds of the next field, and for both fields.
    shop.check(
        "SELECT id FROM orders WHERE state IN (1, 2) AND day > :d",
        "SEARCH orders USING COVERING INDEX (state IN (?, ?), day>:d)",
    );
    shop.check(
        "SELECT note FROM orders WHERE state = :s AND day IN (1, 2)",
        "SEARCH orders USING INDEX (state=:s, day IN (?, ?))",
    );
    shop.check(
        "SELECT note FROM orders WHERE state IN (1, 2) AND day IN (3, 4)",
        "SEARCH orders USING INDEX (state IN (?, ?), day IN (?, ?))",
    );
    // So many values select most of the collection.
    let days: Vec<String> = (0..600).map(|day| day.to_string()).collect();
    let many = format!("SELECT note FROM orders WHERE day IN ({})", days.join(", "));
    shop.check(&many, "SCAN orders FILTER 1");
}

#[test]
fn the_order_of_several_values_is_that_of_their_index() {
    let shop = Shop::usual();
    let order =
        |order: &str| format!("SELECT day, id FROM orders WHERE state IN (2, 1) AND day IN (8, 7) ORDER BY {order}");
    let way = "SEARCH orders USING COVERING INDEX (state IN (?, ?), day IN (?, ?))";
    shop.check(&order("state, day, id"), &format!("{way}\nORDER BY INDEX"));
    shop.check(&order("state DESC, day DESC"), &format!("{way} BACKWARD\nORDER BY INDEX"));
    shop.check(&order("day"), &format!("{way}\nSORT"));
    shop.check(
        "SELECT day FROM orders WHERE state = 1 AND day IN (8, 7) ORDER BY day DESC",
        "SEARCH orders USING COVERING INDEX (state=?, day IN (?, ?)) BACKWARD\nORDER BY INDEX",
    );
    shop.check(
        "SELECT note FROM orders WHERE id IN (3, 2) ORDER BY id",
        "LOOKUP orders BY KEYS (id IN (?, ?))\nORDER BY INDEX",
    );
}

#[test]
fn values_of_an_inner_query_are_looked_up_where_they_are_few() {
    let shop = Shop::usual();
    shop.check(
        "SELECT note FROM orders WHERE id IN (SELECT value FROM json_each(:ids))",
        "LOOKUP orders BY KEYS (id IN QUERY 0)\nQUERY 0: 1 SELECT",
    );
    shop.check(
        "SELECT note FROM orders WHERE customer IN (SELECT id FROM customers WHERE country = :l)",
        "SEARCH orders USING INDEX (customer IN QUERY 0)\nQUERY 0: 1 SELECT",
    );
    shop.check(
        "SELECT note FROM orders WHERE customer IN (SELECT id FROM customers)",
        "SCAN orders FILTER 1\nQUERY 0: 1 SELECT SCAN customers",
    );
}

#[test]
fn how_a_text_begins_is_a_range() {
    let mut shop = shop();
    shop.memory.add(&Shape {
        name: "people",
        key: "id",
        fields: &[
            ("id", FieldKind::Integer),
            ("name", FieldKind::Text),
            ("any", FieldKind::Any),
            ("bare", FieldKind::Text),
        ],
        closed: true,
        indexes: &[(&["name"], &[]), (&["any"], &[])],
        references: &[],
    });
    shop.memory.catalog.counts = Counts::default();
    let name = "SEARCH people USING INDEX (name>=?, name<?)";
    shop.check("SELECT bare FROM people WHERE name GLOB 'ab*'", name);
    shop.check("SELECT bare FROM people WHERE name GLOB '7*'", name);
    shop.check("SELECT bare FROM people WHERE name GLOB 'a?c*'", &format!("{name} FILTER 1"));
    shop.check("SELECT bare FROM people WHERE name LIKE 'аб%'", name);
    shop.check("SELECT bare FROM people WHERE name LIKE '2024-%'", name);
    // LIKE ignores the case of ASCII letters.
    shop.check("SELECT bare FROM people WHERE name LIKE '+a%'", &format!("{name} FILTER 1"));
    shop.check("SELECT bare FROM people WHERE name LIKE 'ab%'", "SCAN people FILTER 1");
    // The text of a number may have this prefix.
    shop.check("SELECT bare FROM people WHERE any GLOB 'ab*'", "SEARCH people USING INDEX (any>=?, any<?)");
    shop.check("SELECT bare FROM people WHERE any GLOB '7*'", "SCAN people FILTER 1");
    shop.check("SELECT bare FROM people WHERE any GLOB '-*'", "SCAN people FILTER 1");
    shop.check("SELECT any FROM people WHERE bare GLOB 'ab*'", "SCAN people FILTER 1");
}

#[test]
fn the_least_and_the_greatest_value_are_the_ends_of_an_index() {
    let shop = Shop::usual();
    shop.check(
        "SELECT MIN(day) FROM orders",
        "SEARCH orders USING COVERING INDEX (day NOT NULL)\nAGGREGATE OF THE FIRST",
    );
    shop.check(
        "SELECT MAX(day) FROM orders",
        "SCAN orders USING COVERING INDEX (day) BACKWARD\nAGGREGATE OF THE FIRST",
    );
    shop.check("SELECT MAX(id) FROM orders", "SCAN orders BACKWARD\nAGGREGATE OF THE FIRST");
    shop.check(
        "SELECT MAX(day) FROM orders WHERE state = :s",
        "SEARCH orders USING COVERING INDEX (state=:s) BACKWARD\nAGGREGATE OF THE FIRST",
    );
    // Reading a customer's few orders is cheaper than finding one of them among all.
    shop.check("SELECT MAX(day) FROM orders WHERE customer = :c", "SEARCH orders USING INDEX (customer=:c)\nAGGREGATE");
    for other in ["MIN(day), MAX(day)", "MAX(day + 1)", "MIN(note)", "MAX(day) FILTER (WHERE total > 3)"] {
        let plan = shop.plan(&format!("SELECT {other} AS a FROM orders").replace("day), MAX", "day) AS b, MAX"));
        assert!(plan.ends_with("\nAGGREGATE\n"), "{other}: {plan}");
    }
    let mut untyped = self::shop();
    untyped.memory.add(&Shape {
        name: "people",
        key: "id",
        fields: &[("id", FieldKind::Integer), ("any", FieldKind::Any)],
        closed: true,
        indexes: &[(&["any"], &[])],
        references: &[],
    });
    // Of the equal values 5 and 5.0, the one of the first document is returned, not that of the first entry.
    let plan = untyped.plan("SELECT MIN(any) AS a FROM people");
    assert!(plan.ends_with("\nAGGREGATE\n"), "{plan}");
    let query = PreparedQuery::prepare("SELECT MAX(day) FROM orders", &shop.memory.catalog).unwrap();
    assert_eq!(query.scans(&[]), [""; 0]);
}

#[test]
fn entries_are_counted_in_the_smallest_tree() {
    let shop = Shop::usual();
    shop.check("SELECT COUNT(*) FROM orders", "SCAN orders USING COVERING INDEX (customer)\nAGGREGATE");
}

#[test]
fn cross_join_keeps_the_order_of_the_text() {
    let sql = |join: &str| {
        format!("SELECT o.note FROM orders o {join} customers c ON c.id = o.customer WHERE c.id = :c AND o.day > :d")
    };
    let shop = Shop::usual();
    let by_customer = "LOOKUP customers AS c BY KEY (id=:c)\nSEARCH orders AS o USING INDEX (customer=c.id) FILTER 1";
    shop.check(&sql("JOIN"), by_customer);
    let plan = shop.plan(&sql("CROSS JOIN"));
    assert!(plan.contains("orders AS o") && plan.find("orders AS o") < plan.find("customers AS c"), "{plan}");
    // A later table, joined without CROSS, is placed where it is cheapest.
    let three = "SELECT o.note FROM orders o CROSS JOIN orders p ON p.day = o.day JOIN customers c ON c.id = o.customer WHERE c.id = :c";
    assert!(
        shop.plan(three).starts_with("LOOKUP customers AS c BY KEY (id=:c)\nSEARCH orders AS o"),
        "{}",
        shop.plan(three)
    );
    let mut shop = Shop::usual();
    shop.memory.catalog.counts = Counts::default();
    shop.check(
        &sql("CROSS JOIN"),
        "SEARCH orders AS o USING INDEX (day>:d)\nLOOKUP customers AS c BY KEY (id=o.customer) FILTER 1",
    );
}

#[test]
fn what_may_go_to_disk_and_how_many_threads_may_read_is_said() {
    let shop = Shop::usual();
    let workers = Workers::new(3);
    let check = |means: &Means<'_>, sql: &str, expected: &str| {
        let query = PreparedQuery::prepare(sql, &shop.memory.catalog).unwrap();
        let values = vec![docs::sql::Value::Null; query.parameters().len()];
        assert_eq!(query.explain_run(&values, means, None).unwrap().trim_end(), expected, "{sql}");
        query.explain_run_json(&values, means, None).unwrap()
    };
    let all = Means { spills: true, workers: Some(&workers) };
    let grouped = "SELECT note, COUNT(*) AS n FROM orders GROUP BY note";
    let json = check(&all, grouped, "SCAN orders BY UP TO 4 THREADS\nGROUP BY 1 KEYS (MAY SPILL)");
    assert_eq!((&json["threads"], &json["may_spill"]), (&serde_json::json!(4), &serde_json::json!(true)));
    let json = check(&Means::default(), grouped, "SCAN orders\nGROUP BY 1 KEYS");
    assert_eq!((&json["threads"], &json["may_spill"]), (&serde_json::json!(1), &serde_json::json!(false)));
    // Few rows are not worth starting threads, and one sum fits memory.
    check(
        &all,
        "SELECT note FROM orders WHERE customer = :c ORDER BY note",
        "SEARCH orders USING INDEX (customer=:c)\nSORT (MAY SPILL)",
    );
    check(&all, "SELECT SUM(total + note) AS s FROM orders", "SCAN orders BY UP TO 4 THREADS\nAGGREGATE");
    let disk = Means { spills: true, workers: None };
    check(&disk, "SELECT DISTINCT note FROM orders", "SCAN orders\nDISTINCT (MAY SPILL)");
    check(&disk, "SELECT COUNT(DISTINCT note) AS n FROM orders", "SCAN orders\nAGGREGATE (MAY SPILL)");
    check(&disk, "SELECT note FROM orders ORDER BY note LIMIT 5", "SCAN orders\nTOP-N SORT (MAY SPILL)\nLIMIT");
}

#[test]
fn the_range_that_a_query_begins_with_is_told_by_its_parameters() {
    let shop = shop();
    let slots = |sql: &str| {
        let query = PreparedQuery::prepare(sql, &shop.memory.catalog).unwrap();
        query.with_first_range(&mut docs::sql::Scratch::new(), |range| {
            let name = |slot: usize| query.parameters()[slot].clone();
            range.map(|range| range.slots().map(name).collect::<Vec<String>>().join(" "))
        })
    };
    let some = |names: &str| Some(names.to_owned());
    assert_eq!(slots("SELECT note FROM orders WHERE state = :state AND day = :day"), some("state day"));
    assert_eq!(slots("SELECT note FROM orders WHERE day > :day AND state = :state"), some("state"));
    // A computed value is not known in advance, nor are the following ones.
    assert_eq!(slots("SELECT note FROM orders WHERE state = :state + 1 AND day = :day"), some(""));
    assert_eq!(slots("SELECT note FROM orders WHERE state = :state ORDER BY day DESC"), None);
    assert_eq!(slots("SELECT note FROM orders WHERE id = :id"), None);
    assert_eq!(slots("SELECT note FROM orders"), None);
}
