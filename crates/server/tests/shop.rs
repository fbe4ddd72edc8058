//! The shop of `apps/shop`: an order takes its goods from the stock in one transaction, a shelf is listed page by page in the
//! requested order.

use crate::harness::{SERVER, TestServer};
use serde_json::{Value, json};

const SHOP: &str = include_str!("../../../apps/shop/shop.toml");

fn shop() -> TestServer {
    let server = TestServer::of_file(&format!("{SHOP}\n[server]\n{SERVER}"));
    server.unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn post(server: &TestServer, target: &str, body: &Value) -> (u16, Value) {
    let answer = server.ask("POST", target, "", body.to_string().as_bytes());
    (answer.status, answer.json())
}

#[track_caller]
fn put_goods(server: &TestServer, goods: &[(&str, &str, i64, i64)]) {
    for (sku, name, price, stock) in goods {
        let body = json!({ "sku": sku, "name": name, "shelf": "tea", "price": price, "stock": stock });
        assert_eq!(post(server, "/goods", &body), (201, json!({})));
    }
}

fn stock(server: &TestServer, sku: &str) -> i64 {
    server.get(&format!("/goods/{sku}")).json()["stock"].as_i64().unwrap_or(i64::MIN)
}

fn order(customer: u32, lines: &[(&str, i64)]) -> Value {
    let lines: Vec<Value> = lines.iter().map(|(sku, count)| json!({ "sku": sku, "count": count })).collect();
    json!({ "customer": customer, "lines": lines })
}

fn customer(server: &TestServer, email: &str) -> u32 {
    let (status, key) = post(server, "/customers", &json!({ "email": email, "name": "N" }));
    assert_eq!(status, 201);
    key["id"].as_u64().and_then(|id| u32::try_from(id).ok()).unwrap_or_default()
}

#[test]
fn a_customer_without_an_id_is_given_one_and_told_where() {
    let server = shop();
    let body = br#"{"email":"a@x","name":"A"}"#;
    let created = server.ask("POST", "/customers", "", body);
    assert_eq!((created.status, created.text(), created.field("Location")), (201, r#"{"id":1}"#, Some("/customers/1")));
    assert_eq!(server.get("/customers/1").text(), r#"{"id":1,"email":"a@x","name":"A"}"#);
    assert_eq!(server.ask("POST", "/customers", "", body).status, 409, "the address is in use");
    let general = server.ask("POST", "/_/collections/customers", "", br#"{"email":"b@x","name":"B"}"#);
    let id = general.json()["id"].to_string();
    assert_eq!(general.field("Location"), Some(format!("/_/collections/customers/{id}").as_str()));
    let line =
        server.ask("POST", "/_/collections/orders", "", br#"{"customer":1,"placed_at":0,"state":"placed","total":0}"#);
    let id = line.json()["id"].as_str().unwrap_or_default().to_owned();
    assert_eq!(line.field("Location"), Some(format!("/_/collections/orders/{id}").as_str()));
    let sql = "INSERT INTO customers (email, name) VALUES ('c@x', 'C') RETURNING id";
    let inserted = server.query(&json!({ "sql": sql })).json();
    assert!(inserted["rows"][0]["id"].as_i64() > Some(1), "{inserted}");
}

#[test]
fn an_order_takes_its_goods_and_tells_what_it_costs() {
    let server = shop();
    put_goods(&server, &[("a", "Assam", 350, 10), ("b", "Black", 90, 2)]);
    let buyer = customer(&server, "a@x");
    let (status, placed) = post(&server, "/orders", &order(buyer, &[("a", 3), ("b", 1), ("a", 1)]));
    assert_eq!((status, &placed["total"]), (201, &json!(4 * 350 + 90)));
    assert_eq!((stock(&server, "a"), stock(&server, "b")), (6, 1));
    let path = format!("/orders/{}", placed["id"].as_str().unwrap_or_default());
    assert_eq!(server.get(&path).json()["state"], "placed");
    let lines = server.get(&format!("{path}/lines")).json();
    assert_eq!(lines["lines"].as_array().map(Vec::len), Some(3));
    let totals = format!("/customers/{buyer}/total");
    assert_eq!(server.get(&totals).json(), json!({ "orders": 1, "total": 1490 }));
    let cancel = format!("{path}/cancel");
    assert_eq!(post(&server, &cancel, &Value::Null), (200, json!({})));
    let (status, again) = post(&server, &cancel, &Value::Null);
    assert_eq!((status, &again["detail"]), (409, &json!("the order is cancelled already")));
    assert_eq!((stock(&server, "a"), stock(&server, "b")), (10, 2), "given back once");
    assert_eq!(server.get(&totals).json(), json!({ "orders": 0, "total": 0 }));
    assert_eq!(post(&server, "/orders/nobody/cancel", &Value::Null).0, 404);
}

#[test]
fn an_order_that_cannot_be_filled_changes_nothing() {
    let server = shop();
    put_goods(&server, &[("a", "Assam", 350, 10), ("b", "Black", 90, 2)]);
    let buyer = customer(&server, "a@x");
    for (body, status, why) in [
        (order(buyer, &[("a", 1), ("b", 3)]), 409, "not enough in stock"),
        (order(buyer, &[("b", 1), ("b", 2)]), 409, "not enough in stock"),
        (order(buyer, &[("a", 1), ("c", 1)]), 409, "not enough in stock"),
        (order(buyer + 1, &[("a", 1)]), 400, "there is no such customer"),
        (order(buyer, &[]), 400, "/lines"),
        (order(buyer, &[("a", -1)]), 400, "/lines/0/count"),
        (json!({ "customer": buyer, "lines": [{ "sku": "a", "count": 1 }], "more": 1 }), 400, "more"),
        (json!([1]), 400, "object"),
    ] {
        let (found, problem) = post(&server, "/orders", &body);
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(found == status && detail.contains(why), "{body}: {found} {problem}");
    }
    assert_eq!(server.ask("POST", "/orders", "", b"{").status, 400);
    assert_eq!((stock(&server, "a"), stock(&server, "b")), (10, 2));
    for collection in ["orders", "lines"] {
        assert_eq!(server.query(&json!({ "sql": format!("SELECT id FROM {collection}") })).text(), "[]");
    }
}

#[test]
fn orders_beside_each_other_never_sell_more_than_there_is() {
    const STOCK: [i64; 3] = [120, 90, 200];
    let server = shop();
    put_goods(&server, &[("a", "Assam", 1, STOCK[0]), ("b", "Black", 10, STOCK[1]), ("c", "Ceylon", 100, STOCK[2])]);
    let buyer = customer(&server, "a@x");
    let skus = ["a", "b", "c"];
    let place = |thread: usize| {
        let mut client = server.connect();
        let mut taken = [0; 3];
        let mut refused = 0;
        for turn in 0..60 {
            let (first, second) = ((thread + turn) % 3, (thread + turn + 1 + turn / 3 % 2) % 3);
            let body = order(buyer, &[(skus[first], 2), (skus[second], 1)]).to_string();
            client.send("POST", "/orders", "", body.as_bytes());
            match client.answer(false).status {
                201 => (taken[first], taken[second]) = (taken[first] + 2, taken[second] + 1),
                409 => refused += 1,
                other => panic!("{other}"),
            }
        }
        (taken, refused)
    };
    let (mut sold, mut refused) = ([0; 3], 0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || place(thread))).collect();
        for thread in threads {
            let (taken, failed) = thread.join().expect("a client");
            refused += failed;
            (0..3).for_each(|good| sold[good] += taken[good]);
        }
    });
    assert!(refused > 0, "more was asked for than there is");
    for (good, sku) in skus.iter().enumerate() {
        assert!(stock(&server, sku) >= 0, "{sku} is below zero");
        assert_eq!(stock(&server, sku) + sold[good], STOCK[good], "{sku}");
        let sum = json!({ "sql": "SELECT SUM(count) AS n FROM lines WHERE sku = :sku", "params": { "sku": sku } });
        assert_eq!(server.query(&sum).json()[0]["n"], json!(sold[good]), "{sku}");
    }
}

#[test]
fn a_shelf_is_listed_in_the_chosen_order_page_by_page_while_goods_are_sold() {
    let server = shop();
    let buyer = customer(&server, "a@x");
    let goods: Vec<(String, String, i64)> =
        (0..70).map(|n| (format!("t{n:02}"), format!("Tea {}", (n * 37) % 70), (n % 7) * 100)).collect();
    let rows: Vec<(&str, &str, i64, i64)> =
        goods.iter().map(|(sku, name, price)| (sku.as_str(), name.as_str(), *price, 5)).collect();
    put_goods(&server, &rows);
    for (sort, field) in [("price", "price"), ("name", "name"), ("", "price")] {
        let (mut seen, mut after): (Vec<String>, _) = (Vec::new(), String::new());
        loop {
            let mut target = format!("/shelves/tea?in_stock=true&sort={sort}{after}");
            if sort.is_empty() {
                target = format!("/shelves/tea?in_stock=true{after}");
            }
            let page = server.get(&target).json();
            let goods = page["goods"].as_array().cloned().unwrap_or_default();
            assert!(goods.len() == 20 || page["after"].is_null(), "{page}");
            seen.extend(goods.iter().map(|good| good["sku"].as_str().unwrap_or("").to_owned()));
            let last = seen.last().map_or("", |sku| sku);
            assert_eq!(post(&server, "/orders", &order(buyer, &[(last, 1)])).0, 201);
            match page["after"].as_str() {
                Some(cursor) => after = format!("&after={cursor}"),
                None => break,
            }
        }
        let mut wanted: Vec<(String, i64, String)> =
            goods.iter().map(|(sku, name, price)| (name.clone(), *price, sku.clone())).collect();
        match field {
            "price" => wanted.sort_by_key(|(_, price, sku)| (*price, sku.clone())),
            _ => wanted.sort_by_key(|(name, _, sku)| (name.clone(), sku.clone())),
        }
        assert_eq!(seen, wanted.iter().map(|(_, _, sku)| sku.as_str()).collect::<Vec<_>>(), "sort={sort}");
    }
    let refused = server.get("/shelves/tea?sort=stock");
    assert_eq!(
        (refused.status, refused.json()["detail"].as_str()),
        (400, Some("parameter `sort` is none of price, name"))
    );
    let cheap = server.get("/shelves/tea?below=100").json();
    assert_eq!((cheap["goods"].as_array().map(Vec::len), &cheap["after"]), (Some(10), &Value::Null));
    let orders = server.get(&format!("/customers/{buyer}/orders?limit=10")).json();
    let more =
        server.get(&format!("/customers/{buyer}/orders?after={}", orders["after"].as_str().unwrap_or(""))).json();
    let count = |page: &Value| page["orders"].as_array().map(Vec::len);
    assert_eq!((count(&orders), count(&more), &more["after"]), (Some(10), Some(2), &Value::Null));
}

#[test]
fn steps_that_look_at_many_rows_or_answer_much_go_on_in_the_background() {
    let steps = r#"
[[endpoints]]
route = "POST /raise"
steps = [{ sql = "UPDATE items SET price = price + 1 WHERE price % 1000 = :rest AND note IS NULL RETURNING id", expect = "rows > :least" }]
body  = { properties = { rest = { type = "integer" }, least = { type = "integer" } } }
"#;
    let server = TestServer::start("", steps);
    server.put_items(0..25_000);
    let (status, rows) = post(&server, "/raise", &json!({ "rest": 10, "least": 5 }));
    assert_eq!((status, rows.as_array().map(Vec::len)), (200, Some(250)), "{rows}");
    let (status, _) = post(&server, "/raise", &json!({ "rest": 20, "least": 250 }));
    assert_eq!(status, 409);
    let sql = "SELECT COUNT(*) AS n FROM items WHERE price <> id * 10";
    assert_eq!(server.query(&json!({ "sql": sql })).text(), r#"[{"n":250}]"#);
}
