//! The embedded database: reads on the loop, transactions that answer when they are durable, conflicts, threads that wait.

use super::client::{Client, get, post, request, started, with_body};
use sapsan::{
    App, Database, DatabaseError, Db, Error, Exchange, Json, Later, Next, Path, Request, Respond, Response, Status,
    Threads, blocking,
};
use serde::{Deserialize, Serialize};

pub(super) const CONFIG: &str = r#"
[collections.accounts]
key = { field = "id", type = "u32" }
[collections.accounts.schema]
type = "object"
required = ["id", "owner", "amount"]
[collections.accounts.schema.properties]
id = { type = "integer" }
owner = { type = "string" }
amount = { type = "integer", minimum = 0 }

[collections.moves]
key = { field = "number", type = "i64", generate = "counter" }

[views.owners]
query = "SELECT owner, COUNT(*) AS accounts, SUM(amount) AS amount FROM accounts GROUP BY owner"
"#;

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
struct Account {
    id: u32,
    owner: String,
    amount: i64,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Owner {
    accounts: u32,
    amount: i64,
}

#[derive(Deserialize)]
struct Transfer {
    from: u32,
    to: u32,
    amount: i64,
}

fn account(Path(id): Path<u32>, db: Db<'_>) -> Result<Option<Json<Account>>, DatabaseError> {
    Ok(db.get("accounts", id)?.map(Json))
}

fn raw(Path(id): Path<u32>, db: Db<'_>) -> Result<Option<Response>, DatabaseError> {
    db.read(|now| {
        let Some(document) = now.document("accounts", id)? else { return Ok(None) };
        Ok(Some(Response::new(Status(200), "application/json", document.text()?)))
    })
}

fn rich(Path(amount): Path<i64>, db: Db<'_>) -> Result<Json<Vec<Account>>, DatabaseError> {
    db.query("SELECT * FROM accounts WHERE amount >= :amount ORDER BY id", (amount,)).map(Json)
}

fn owner(Path(name): Path<&str>, db: Db<'_>) -> Result<Option<Json<Owner>>, DatabaseError> {
    Ok(db.view_row("owners", (name,))?.map(Json))
}

fn open(Json(account): Json<Account>, db: Db<'_>) -> Later {
    db.write(move |tx| {
        tx.insert::<u32>("accounts", &account)?;
        Ok::<_, DatabaseError>((Status(201), ()))
    })
}

fn transfer(Json(transfer): Json<Transfer>, db: Db<'_>) -> Later {
    let Transfer { from, to, amount } = transfer;
    db.write(move |tx| {
        let mut payer: Account = tx.get("accounts", from)?.ok_or_else(Error::not_found)?;
        let mut payee: Account = tx.get("accounts", to)?.ok_or_else(Error::not_found)?;
        if payer.amount < amount {
            return Err(Error::conflict("not enough there"));
        }
        payer.amount -= amount;
        payee.amount += amount;
        tx.replace("accounts", from, &payer)?;
        tx.put("accounts", to, &payee)?;
        let total: Option<Total> = tx.row("SELECT SUM(amount) AS total FROM accounts", ())?;
        let number: i64 = tx.insert("moves", &serde_json::json!({"from": from, "to": to, "amount": amount}))?;
        Ok(format!("move {number}, {} in all", total.map_or(0, |total| total.total)))
    })
}

#[derive(Deserialize)]
struct Total {
    total: i64,
}

fn close(Path(id): Path<u32>, db: Db<'_>) -> Later {
    db.write_with(
        move |tx| tx.delete("accounts", id),
        |outcome: Result<(), DatabaseError>, exchange: &mut Exchange| {
            let who = exchange.get::<&'static str>().copied().unwrap_or("nobody");
            outcome.map(|()| format!("closed by {who}"))
        },
    )
}

fn report(database: Database) -> Result<String, DatabaseError> {
    let owners: Vec<serde_json::Value> = database.query("SELECT owner FROM owners ORDER BY owner", ())?;
    let number = database.write(|tx| tx.insert::<i64>("moves", &serde_json::json!({"report": true})))?;
    Ok(format!("{} owners, note {number}", owners.len()))
}

fn scan(db: Db<'_>) -> Result<Json<Vec<serde_json::Value>>, DatabaseError> {
    db.query("SELECT a.id FROM accounts a, accounts b, accounts c, accounts d, accounts e", ()).map(Json)
}

/// Few rows, and much work in each: 76 megabytes of text in all.
fn heavy() -> String {
    let term = "length(replace(printf('%.*c', 400000 + id, 'a'), 'a', 'b'))";
    format!("SELECT {} AS n FROM accounts", [term; 10].join(" + "))
}

pub(super) fn app(database: Database) -> App {
    let name = |request: &Request<'_>, next: Next<'_>| {
        request.exchange().insert("the clerk");
        next.run(request)
    };
    App::new()
        .database(database)
        .executor("reports", Threads { count: 1, queue_max: 8 })
        .around(name)
        .get("/accounts/{id}", account)
        .get("/raw/{id}", raw)
        .get("/rich/{amount}", rich)
        .get("/owners/{name}", owner)
        .get("/report", blocking("reports", report))
        .get("/scan", scan)
        .get("/heavy", |db: Db<'_>| db.query::<serde_json::Value>(&heavy(), ()).map(Json))
        .post("/heavy", |db: Db<'_>| {
            db.write(|tx| tx.query::<serde_json::Value>(&heavy(), ()).map(|rows| rows.len().to_string()))
        })
        .get(
            "/waiting",
            blocking("reports", |database: Database| {
                database.query::<serde_json::Value>(&heavy(), ()).map(|rows| rows.len().to_string())
            }),
        )
        .get("/wrong/collection", |db: Db<'_>| db.get::<Account>("acounts", 1).map(|_| "found"))
        .get("/wrong/sql", |db: Db<'_>| db.query::<Account>("SELECT nothing FROM accounts", ()).map(|_| "found"))
        .get("/wrong/parameters", |db: Db<'_>| db.query::<Account>("SELECT * FROM moves", (1,)).map(|_| "found"))
        .get("/wrong/type", |db: Db<'_>| db.get::<Vec<u8>>("accounts", 1).map(|_| "found"))
        .post("/panic", |db: Db<'_>| {
            db.write(|tx| -> Result<(), DatabaseError> {
                tx.delete("accounts", 1)?;
                panic!("as it is to");
            })
        })
        .post("/accounts", open)
        .post("/transfers", transfer)
        .delete("/accounts/{id}", close)
}

fn with_accounts(folder: &std::path::Path) -> Database {
    let database = Database::open(folder, CONFIG).unwrap_or_else(|error| panic!("{error}"));
    for (id, owner, amount) in [(1, "ann", 100), (2, "ann", 20), (3, "bob", 0)] {
        database
            .write(|tx| tx.put("accounts", id, &Account { id: id as u32, owner: owner.to_owned(), amount }))
            .unwrap_or_else(|error| panic!("{error}"));
    }
    database.docs().wait_for_views();
    database
}

#[test]
fn documents_rows_and_views_are_read_on_the_loop() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(app(with_accounts(folder.path())));
    for (target, expected) in [
        ("/accounts/1", r#"200 {"id":1,"owner":"ann","amount":100}"#),
        ("/raw/2", r#"200 {"id":2,"owner":"ann","amount":20}"#),
        ("/rich/50", r#"200 [{"id":1,"owner":"ann","amount":100}]"#),
        ("/rich/500", "200 []"),
        ("/owners/ann", r#"200 {"accounts":2,"amount":120}"#),
    ] {
        assert_eq!(get(&running, target).told(), expected, "{target}");
    }
    for target in ["/accounts/7", "/raw/7", "/owners/carl"] {
        assert_eq!(get(&running, target).status, 404, "{target}");
    }
    running.stop();
}

#[test]
fn what_the_program_asks_wrongly_is_500_and_what_takes_too_long_503() {
    let folder = tempfile::tempdir().unwrap();
    let database = with_accounts(folder.path());
    for id in 4..20 {
        let account = Account { id, owner: "eve".to_owned(), amount: 1 };
        database.write(|tx| tx.put("accounts", id, &account)).unwrap();
    }
    let running = started(app(database));
    for target in ["/wrong/collection", "/wrong/sql", "/wrong/parameters", "/wrong/type"] {
        let reply = get(&running, target);
        assert_eq!(reply.told(), r#"500 {"title":"Internal Server Error","status":500}"#, "{target}");
    }
    assert_eq!(get(&running, "/scan").status, 503);
    // Neither rows nor bytes are too many here: the time is.
    assert_eq!(get(&running, "/heavy").status, 503);
    assert_eq!(post(&running, "/heavy", "").status, 503);
    assert_eq!(get(&running, "/waiting").told(), "200 19", "a thread that may wait has the time");
    running.stop();
}

#[test]
fn a_transaction_changes_all_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(app(with_accounts(folder.path())));
    let mut client = Client::to(running.address());
    let mut transfer = |body: &str| client.ask(&with_body("POST", "/transfers", "application/json", body));
    assert_eq!(transfer(r#"{"from":1,"to":3,"amount":60}"#).told(), "200 move 1, 120 in all");
    let refused = transfer(r#"{"from":1,"to":3,"amount":60}"#);
    assert!(refused.status == 409 && refused.body.contains("not enough there"), "{refused:?}");
    assert_eq!(transfer(r#"{"from":1,"to":9,"amount":6}"#).status, 404);
    // The schema refuses the payer, whose amount would grow, not: the payee's falls below zero.
    assert_eq!(transfer(r#"{"from":1,"to":3,"amount":-61}"#).status, 422);
    assert_eq!(get(&running, "/accounts/1").body, r#"{"id":1,"owner":"ann","amount":40}"#);
    assert_eq!(get(&running, "/accounts/3").body, r#"{"id":3,"owner":"bob","amount":60}"#);
    assert_eq!(get(&running, "/owners/bob").body, r#"{"accounts":1,"amount":60}"#);
    running.stop();
}

#[test]
fn a_panic_in_a_transaction_is_500_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let database = with_accounts(folder.path());
    let running = started(app(database.clone()));
    assert_eq!(post(&running, "/panic", "").status, 500);
    let panicking = || database.write(|_| -> Result<(), DatabaseError> { panic!("as it is to") });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());
    assert_eq!(get(&running, "/accounts/1").status, 200);
    assert_eq!(post(&running, "/accounts", r#"{"id":9,"owner":"eve","amount":1}"#).status, 201);
    running.stop();
}

#[test]
fn a_write_is_seen_by_what_comes_behind_it_and_keys_stay_unique() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(app(with_accounts(folder.path())));
    let mut client = Client::to(running.address());
    let new = r#"{"id":5,"owner":"eve","amount":1}"#;
    client.send(
        &(with_body("POST", "/accounts", "application/json", new)
            + &request("GET", "/accounts/5", "")
            + &request("DELETE", "/accounts/5", "")
            + &request("GET", "/accounts/5", "")),
    );
    let told: Vec<String> = (0..4).map(|_| client.reply().told()).collect();
    assert_eq!(told[..3], ["201 ".to_owned(), format!("200 {new}"), "200 closed by the clerk".to_owned()]);
    assert!(told[3].starts_with("404 "), "{}", told[3]);
    let taken = post(&running, "/accounts", r#"{"id":1,"owner":"eve","amount":1}"#);
    assert_eq!(taken.status, 409, "{taken:?}");
    running.stop();
}

#[test]
fn transfers_beside_each_other_lose_nothing() {
    #[derive(Deserialize)]
    struct Count {
        count: usize,
    }
    let folder = tempfile::tempdir().unwrap();
    let database = with_accounts(folder.path());
    let running = app(database.clone()).threads(2).start("127.0.0.1:0").unwrap();
    let address = running.address();
    let clients = (0..4).map(|number: u32| {
        std::thread::spawn(move || {
            let mut client = Client::to(address);
            let (from, to) = if number.is_multiple_of(2) { (1, 2) } else { (2, 1) };
            let body = format!(r#"{{"from":{from},"to":{to},"amount":1}}"#);
            (0..50)
                .filter(|_| client.ask(&with_body("POST", "/transfers", "application/json", &body)).status == 200)
                .count()
        })
    });
    let clients: Vec<_> = clients.collect();
    let done: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
    assert_eq!(get(&running, "/owners/ann").body, r#"{"accounts":2,"amount":120}"#);
    // Counted, not numbered: a transfer that is refused when it is prepared again has taken a number.
    let moves: Option<Count> = database.row("SELECT COUNT(*) AS count FROM moves", ()).unwrap();
    assert_eq!(moves.map(|moves| moves.count), Some(done));
    running.stop();
}

#[test]
fn an_executor_reads_and_writes_and_waits() {
    let folder = tempfile::tempdir().unwrap();
    let running = started(app(with_accounts(folder.path())));
    assert_eq!(get(&running, "/report").told(), "200 2 owners, note 1");
    assert_eq!(get(&running, "/report").told(), "200 2 owners, note 2");
    running.stop();
}

#[test]
fn a_closure_runs_again_where_others_changed_what_it_read() {
    let folder = tempfile::tempdir().unwrap();
    let database = with_accounts(folder.path());
    let (other, mut runs) = (database.clone(), 0);
    let amount = database.write(|tx| {
        runs += 1;
        let mut account: Account = tx.get("accounts", 1)?.unwrap_or_else(|| panic!("it is there"));
        if runs == 1 {
            // As another thread would, between the reading and the commit.
            let changed = Account { amount: 500, ..account.clone() };
            let other = other.clone();
            std::thread::spawn(move || other.write(|tx| tx.put("accounts", 1, &changed)).unwrap()).join().unwrap();
        }
        account.amount += 1;
        tx.put("accounts", 1, &account)?;
        Ok::<_, DatabaseError>(account.amount)
    });
    assert_eq!((amount.unwrap(), runs), (501, 2));
    assert_eq!(database.get::<Account>("accounts", 1).unwrap().map(|account| account.amount), Some(501));
}

#[test]
fn parameters_are_given_by_place_or_name() {
    use sapsan::DbValue;
    let folder = tempfile::tempdir().unwrap();
    let database = with_accounts(folder.path());
    let sql = "SELECT id FROM accounts WHERE owner = :owner AND amount < :most";
    let by_place: Vec<serde_json::Value> = database.query(sql, ("ann", 50)).unwrap();
    let by_name: Vec<serde_json::Value> =
        database.query(sql, [("most", &50 as &dyn DbValue), ("owner", &"ann")]).unwrap();
    assert_eq!((by_place.len(), &by_place), (1, &by_name));
    for wrong in [
        database.query::<serde_json::Value>(sql, ("ann",)).map(drop),
        database.query::<serde_json::Value>(sql, [("owner", &"ann" as &dyn DbValue)]).map(drop),
        database.query::<serde_json::Value>(sql, [("owner", &1 as &dyn DbValue), ("more", &1), ("most", &1)]).map(drop),
    ] {
        assert!(matches!(wrong, Err(DatabaseError::Usage(_))), "{wrong:?}");
    }
    assert!(matches!(database.get::<Account>("accounts", "one"), Ok(None)), "no key of the collection");
}

/// That a late reply's type is one of a handler.
#[test]
fn a_later_is_a_reply() {
    fn is_reply<T: Respond>() {}
    is_reply::<Later>();
    is_reply::<Result<Later, Error>>();
}
