//! A GET of a document allocates nothing in steady state, plans of queries stay within their bound, and so does what a check by a
//! JSON Schema takes.
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![allow(unsafe_code, reason = "a counting allocator is an allocator")]

mod hostile_schemas;
mod service;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use docs::key::KeyType;
use docs::schema::Schema;
use service::{Service, travels, user, visit};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that this thread took and has not given back.
    static BYTES: Cell<i64> = const { Cell::new(0) };
    /// The most of them since this was set.
    static BYTES_MOST: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; the count touches a thread-local without a destructor.
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

/// A query with eight parameters that a request may leave out: 256 sets of present ones, each with its plan.
fn query_of_many_plans(number: usize, catalog: &docs::catalog::Catalog) -> docs::sql::Query {
    let fields = ["email", "gender", "birth_date", "id", "email", "gender", "birth_date", "id"];
    let conditions = fields.iter().enumerate();
    let conditions: Vec<String> =
        conditions.map(|(slot, field)| format!("(:p{slot} IS NULL OR {field} = :p{slot})")).collect();
    let sql = format!("SELECT id, email, {number} AS n FROM users WHERE {} ORDER BY email", conditions.join(" AND "));
    docs::sql::Query::prepare(&sql, catalog).unwrap()
}

fn plan_all(query: &docs::sql::Query) {
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
    // While none has to go, what is counted is what they take.
    plan_all(&queries[0]);
    let (counted, taken_first) = (plans.bytes(), taken());
    assert!(plans.made() == 256 && plans.evicted() == 0, "{plans:?}");
    assert!((taken_first..taken_first * 2).contains(&counted), "{counted} counted, {taken_first} taken");
    queries[1..].iter().for_each(plan_all);
    assert!(plans.evicted() > 0 && plans.bytes() <= BOUND, "{plans:?}");
    assert!(taken() <= BOUND, "{} bytes of plans", taken());
    // One that is used stays, whatever comes and goes.
    let made = plans.made();
    for query in &queries[..6] {
        plan_all(query);
        queries[7].explain(&["p0"]);
    }
    let made_again = plans.made() - made;
    assert!(made_again < 6 * 256 + 4, "{made_again}");
    // A query that goes leaves nothing.
    let before_last = plans.bytes();
    queries[7].explain(&["p7", "p6"]);
    drop(queries.pop());
    assert!(plans.bytes() <= before_last, "{plans:?}");
    drop(queries);
    assert_eq!(plans.bytes(), 0);
    // What finds no room at all is planned and not kept.
    let none = docs::sql::PlanSpace::new(0);
    let catalog = docs::catalog::Catalog { plans: none.clone(), ..catalog };
    plan_all(&query_of_many_plans(9, &catalog));
    assert_eq!((none.made(), none.bytes()), (256, 0));
}

/// The most bytes that work had at a moment.
fn bytes_most(work: impl FnOnce()) -> i64 {
    let before = BYTES.get();
    BYTES_MOST.set(before);
    work();
    BYTES_MOST.get() - before
}

#[test]
fn a_check_by_any_schema_takes_a_bounded_part_of_what_the_document_has() {
    for bytes in [16 << 10, 60 << 10, 500 << 10] {
        let documents: Vec<_> = hostile_schemas::documents(bytes)
            .into_iter()
            .map(|(name, text)| (name, hostile_schemas::stored(&text)))
            .collect();
        for (of_schema, schema) in hostile_schemas::schemas() {
            let schema = Schema::compile_full(&schema.to_string()).unwrap();
            for (of_document, stored) in &documents {
                let took = bytes_most(|| drop(hostile_schemas::check(&schema, stored)));
                // What the checker may count, and the caches of patterns.
                let most = (4 << 20) + 10 * stored.len() as i64;
                assert!(took <= most, "{of_schema}, {of_document}: {took} bytes of {most}");
            }
        }
    }
}
