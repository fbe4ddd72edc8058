//! A GET of a document allocates nothing in steady state. The plans of queries and the memory of a statement stay within their
//! limits.
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![allow(unsafe_code, reason = "a counting allocator is an allocator")]

mod service;
mod sql_memory;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use docs::catalog::FieldKind;
use docs::key::KeyType;
use docs::sql::{Budget, PreparedQuery, QueryError, Scratch};
use service::{Service, travels, user, visit};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread has allocated and not freed.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    /// Their peak since this was reset.
    static BYTES_MOST: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: every call is forwarded to the system's allocator; the counter is a thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get() + layout.size() as i64);
        BYTES_MOST.set(BYTES_MOST.get().max(BYTES.get()));
        // SAFETY: the caller's duty is passed on unchanged.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size() as i64);
        // SAFETY: the caller's duty is passed on unchanged.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn a_document_is_read_without_allocation_from_the_memtable_and_from_the_tree() {
    let service = Service::new(&travels());
    for id in 0..500 {
        service.run(&format!("insert users {}", user(id, &format!("{id}@x")))).unwrap();
    }
    let users = service.id("users");
    let session = service.database.session().unwrap();
    let read = || {
        let mut bytes = 0;
        for id in 0..600u32 {
            let mut path = [0u8; 10];
            let mut left = id;
            let mut at = path.len();
            while at == path.len() || left > 0 {
                at -= 1;
                path[at] = b'0' + (left % 10) as u8;
                left /= 10;
            }
            let key = KeyType::U32.of_text(std::str::from_utf8(&path[at..]).unwrap()).unwrap();
            let now = session.now();
            if let Some(stored) = now.get(users, &key).unwrap() {
                bytes += stored.text().unwrap().len() + stored.change_number().unwrap().min(1) as usize;
            }
        }
        assert!(bytes > 500 * 50);
    };
    read();
    assert_eq!(allocations(read), 0, "from the memtable");
    service.database.store().checkpoint().unwrap();
    read();
    assert_eq!(allocations(read), 0, "from the tree");
    service.run(r#"insert locations {"id":1}"#).unwrap();
    assert!(allocations(|| drop(service.run(&format!("insert visits {}", visit(1, 1, 1, 1))))) > 0, "the count counts");
}

/// A query with eight optional parameters: 256 sets of present ones, each with its plan.
fn query_of_many_plans(number: usize, catalog: &docs::catalog::Catalog) -> docs::sql::PreparedQuery {
    let fields = ["email", "gender", "birth_date", "id", "email", "gender", "birth_date", "id"];
    let conditions = fields.iter().enumerate();
    let conditions: Vec<String> =
        conditions.map(|(slot, field)| format!("(:p{slot} IS NULL OR {field} = :p{slot})")).collect();
    let sql = format!("SELECT id, email, {number} AS n FROM users WHERE {} ORDER BY email", conditions.join(" AND "));
    docs::sql::PreparedQuery::prepare(&sql, catalog).unwrap()
}

fn plan_all(query: &docs::sql::PreparedQuery) {
    for bits in 0..256usize {
        let present: Vec<String> = (0..8).filter(|slot| bits >> slot & 1 == 1).map(|slot| format!("p{slot}")).collect();
        assert!(!query.explain(&present.iter().map(String::as_str).collect::<Vec<_>>()).is_empty());
    }
}

#[test]
fn plans_of_all_queries_stay_within_one_bound() {
    const BOUND: usize = 3 << 20;
    let service = Service::new(&travels());
    let plans = docs::sql::PlanSpace::new(BOUND);
    let catalog = docs::catalog::Catalog { plans: plans.clone(), ..service.database.catalog().clone() };
    let mut queries: Vec<_> = (0..8).map(|number| query_of_many_plans(number, &catalog)).collect();
    let before = BYTES.get();
    let taken = || usize::try_from(BYTES.get() - before).unwrap_or_default();
    // As long as nothing is evicted, the counted size is close to the allocated size.
    plan_all(&queries[0]);
    let (counted, taken_first) = (plans.bytes(), taken());
    assert!(plans.made() == 256 && plans.evicted() == 0, "{plans:?}");
    assert!((taken_first..taken_first * 2).contains(&counted), "{counted} counted, {taken_first} taken");
    queries[1..].iter().for_each(plan_all);
    assert!(plans.evicted() > 0 && plans.bytes() <= BOUND, "{plans:?}");
    assert!(taken() <= BOUND, "{} bytes of plans", taken());
    // A plan in use stays in the cache, whatever else is planned.
    let made = plans.made();
    for query in &queries[..6] {
        plan_all(query);
        queries[7].explain(&["p0"]);
    }
    let made_again = plans.made() - made;
    assert!(made_again < 6 * 256 + 4, "{made_again}");
    // A dropped query frees its plans.
    let before_last = plans.bytes();
    queries[7].explain(&["p7", "p6"]);
    drop(queries.pop());
    assert!(plans.bytes() <= before_last, "{plans:?}");
    drop(queries);
    assert_eq!(plans.bytes(), 0);
    // Without any room, plans are made and not kept.
    let none = docs::sql::PlanSpace::new(0);
    let catalog = docs::catalog::Catalog { plans: none.clone(), ..catalog };
    plan_all(&query_of_many_plans(9, &catalog));
    assert_eq!((none.made(), none.bytes()), (256, 0));
}

#[test]
fn threads_that_make_the_same_plans_at_once_all_get_them() {
    let service = Service::new(&travels());
    for round in 0..8 {
        let plans = docs::sql::PlanSpace::new(64 << 20);
        let catalog = docs::catalog::Catalog { plans, ..service.database.catalog().clone() };
        let query = Arc::new(query_of_many_plans(round, &catalog));
        let (told, hear) = std::sync::mpsc::channel();
        let together = Arc::new(std::sync::Barrier::new(4));
        for _ in 0..4 {
            let (query, told, together) = (Arc::clone(&query), told.clone(), Arc::clone(&together));
            std::thread::spawn(move || {
                together.wait();
                plan_all(&query);
                let _ = told.send(());
            });
        }
        for _ in 0..4 {
            hear.recv_timeout(std::time::Duration::from_secs(60)).expect("no thread waits for ever");
        }
    }
}

/// Bytes of each of many prepared queries without its plans, in a catalog with `collections` collections.
fn bytes_of_a_query(collections: usize) -> i64 {
    const QUERIES: i64 = 100;
    let mut memory = sql_memory::Memory::default();
    let names: Vec<String> = (0..collections).map(|number| format!("t{number:03}")).collect();
    for name in &names {
        memory.add(&sql_memory::Shape {
            name,
            key: "id",
            fields: &["id", "a", "b", "c"].map(|field| (field, FieldKind::Any)),
            closed: false,
            indexes: &[(&["a", "b"], &["c"]), (&["c"], &[])],
            references: &[],
        });
    }
    let before = BYTES.get();
    let prepare =
        |number| PreparedQuery::prepare(&format!("SELECT id FROM t001 WHERE b = {number}"), &memory.catalog).unwrap();
    let queries: Vec<PreparedQuery> = (0..QUERIES).map(prepare).collect();
    assert_eq!(queries.len() as i64, QUERIES);
    (BYTES.get() - before) / QUERIES
}

#[test]
fn a_prepared_query_keeps_no_copy_of_what_it_does_not_read() {
    let (few, many) = (bytes_of_a_query(2), bytes_of_a_query(100));
    // One word for each collection.
    assert!(many - few < 1_000, "{few} bytes beside 2 collections, {many} beside 100");
    assert!(many < 8_000, "{many} bytes");
}

/// Limit of a query for each of sorting, grouping, computing and output.
const MEMORY: usize = 400 << 10;
/// The limit for everything together, as a multiple of it: a query's part of the memory setting.
const PER_BYTE: usize = 5;

/// `t` of documents of 200 bytes, more than the memory of a query.
fn many() -> sql_memory::Memory {
    let mut memory = sql_memory::Memory::default();
    memory.add(&sql_memory::Shape {
        name: "t",
        key: "id",
        fields: &["id", "a", "b", "c"].map(|field| (field, FieldKind::Any)),
        closed: false,
        indexes: &[(&["a", "b"], &[])],
        references: &[],
    });
    for id in 0..1_500 {
        memory.insert("t", &format!("{{\"id\":{id},\"a\":\"k{}\",\"b\":{},\"c\":\"{id:0200}\"}}", id % 7, id % 11));
    }
    memory
}

fn list(count: usize, part: impl Fn(usize) -> String, between: &str) -> String {
    (0..count).map(part).collect::<Vec<_>>().join(between)
}

/// Statements that hold a text many times, or a large part in each of many nested queries.
fn hoarding() -> Vec<String> {
    let text = |bytes: usize| format!("(SELECT replace(printf('%{bytes}s', ''), ' ', 'x') AS x) k");
    let sums = |count: usize| list(count, |n| format!("id + {n} AS c{n}"), ", ");
    let mut all = vec![
        // Keys for lookups.
        format!(
            "SELECT COUNT(*) AS n FROM {}, (SELECT {} FROM t WHERE id < 50) r WHERE {}",
            text(90_000),
            sums(120),
            list(120, |n| format!("r.c{n} = k.x"), " AND ")
        ),
        format!(
            "SELECT COUNT(*) AS n FROM {} WHERE ({}) IN (SELECT {} FROM t WHERE id < 9)",
            text(12_000),
            list(30, |n| format!("k.x || {n}"), ", "),
            sums(30)
        ),
        format!(
            "SELECT COUNT(*) AS n FROM {} LEFT JOIN t ON t.a IN ({})",
            text(30_000),
            list(60, |n| format!("substr(k.x, {})", n + 1), ", ")
        ),
        format!(
            "SELECT COUNT(*) AS n FROM {} {}",
            text(90_000),
            list(7, |n| format!("LEFT JOIN t t{n} ON t{n}.a = k.x AND t{n}.b = k.x"), " ")
        ),
        // Elements.
        format!(
            "SELECT COUNT(*) AS n FROM (SELECT '[\"' || replace(printf('%60000s', ''), ' ', 'x') || '\"]' AS x) k, {}",
            list(7, |n| format!("json_each(k.x) j{n}"), ", ")
        ),
        // Aggregates.
        format!("SELECT {} FROM t", list(60, |n| format!("length(json_group_array(c || {n})) AS n{n}"), ", ")),
        format!("SELECT {} FROM t GROUP BY b", list(60, |n| format!("length(MAX(c || {n})) AS n{n}"), ", ")),
        format!("SELECT {} FROM t", list(60, |n| format!("COUNT(DISTINCT c || {n}) AS n{n}"), ", ")),
        "SELECT c FROM t UNION SELECT c || 'x' FROM t".to_owned(),
        "SELECT a, COUNT(*) AS n FROM (SELECT DISTINCT a, c FROM t ORDER BY c) x GROUP BY a ORDER BY n".to_owned(),
    ];
    // Nested queries, each of which holds groups or rows while it reads the next.
    for kind in ["GROUP BY k, m", "ORDER BY k, m LIMIT 100000"] {
        let nested = (0..7).fold("0".to_owned(), |inner, depth| {
            format!(
                "(SELECT COUNT(*) FROM (SELECT x{depth}.c || x{depth}.id AS k, CASE WHEN x{depth}.id = 1300 THEN {inner} ELSE 0 END AS m \
                 FROM t x{depth} WHERE x{depth}.id < 1301 {kind}) y{depth})"
            )
        });
        all.push(format!("SELECT {nested} AS n"));
    }
    // Nested sorts, each one finished before the next begins.
    all.push((0..18).fold("SELECT id, c AS k FROM t".to_owned(), |inner, depth| {
        format!("SELECT id, k FROM ({inner}) x{depth} WHERE id + {depth} > 0 ORDER BY k || id LIMIT 1000")
    }));
    all
}

#[test]
fn what_a_statement_holds_stays_within_its_part_of_the_memory() {
    let memory = many();
    let folder = tempfile::tempdir().unwrap();
    let space = std::sync::Arc::new(docs::sql::SpillSpace::new(folder.path(), 1 << 30));
    let mut wrong = Vec::new();
    for sql in hoarding() {
        for spill in [None, Some(&space)] {
            let query = PreparedQuery::prepare(&sql, &memory.catalog).unwrap_or_else(|error| panic!("{sql}: {error}"));
            query.explain(&[]);
            let budget = Budget { memory_bytes_max: MEMORY, output_bytes_max: MEMORY, spill, ..Budget::default() };
            let (mut scratch, before) = (Scratch::new(), BYTES.get());
            BYTES_MOST.set(before);
            let ended = query.write_array(&memory, &[], &mut scratch, &budget, &mut Vec::new());
            let (peak, kept) = ((BYTES_MOST.get() - before) as usize, (BYTES.get() - before) as usize);
            if !matches!(ended, Ok(_) | Err(QueryError::Limit { .. } | QueryError::Value(_))) {
                wrong.push(format!("{sql:.150}: {ended:?}"));
            }
            // A text assembled from disk may have the maximum length, whatever the memory limit: a MiB, held twice while it
            // grows.
            let joined = if spill.is_some() && sql.contains("json_group_array") { 4 << 20 } else { 0 };
            if peak > PER_BYTE * MEMORY + joined || kept > 3 * MEMORY {
                wrong.push(format!("{sql:.150}: {peak} bytes, {kept} kept"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
