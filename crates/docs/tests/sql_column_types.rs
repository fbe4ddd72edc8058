//! The inferred JSON types of result columns. Every random query checks that its values have these types (`sql_oracle`).

use docs::sql::{JsonTypes, PreparedQuery};

use crate::service::config;

const FILE: &str = r#"
[collections.goods]
key = { field = "sku", type = "string" }
[collections.goods.schema]
type = "object"
required = ["sku", "price", "is_new"]
[collections.goods.schema.properties]
sku = { type = "string" }
price = { type = "integer" }
weight = { type = "number" }
is_new = { type = "boolean" }
tags = { type = "array" }
shelf = { enum = ["a", "b"] }
[views.shelves]
query = "SELECT shelf, is_new, COUNT(*) AS goods, SUM(price) AS worth, AVG(price) AS mean, MAX(weight) AS heaviest FROM goods GROUP BY shelf, is_new"
[views.sums]
query = "SELECT shelf, SUM(price) AS worth FROM goods GROUP BY ROLLUP (shelf)"
[views.all]
query = "SELECT MIN(price) AS least, COUNT(*) AS goods FROM goods"
"#;

/// The types of each column, by JSON Schema's names.
#[track_caller]
fn check(sql: &str, expected: &[&str]) {
    let catalog = docs::outline(&config(FILE)).unwrap();
    let query = PreparedQuery::prepare(sql, &catalog).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let parameter = |name: &str| if name == "n" { JsonTypes::INTEGER } else { JsonTypes::VALUE };
    let found: Vec<String> =
        query.column_types(&parameter).iter().map(|column| column.types.names().join(" ")).collect();
    assert_eq!(found, expected, "{sql}");
}

const ANY: &str = "number string boolean array object null";
const VALUE: &str = "number string null";

#[test]
fn fields_have_the_types_of_the_schema() {
    check(
        "SELECT sku, price, weight, is_new, tags, shelf, other FROM goods",
        &["string", "integer", "number null", "boolean", ANY, "string null", ANY],
    );
    check(
        "SELECT g.price, h.price AS other FROM goods g LEFT JOIN goods h ON h.sku = g.shelf",
        &["integer", "integer null"],
    );
}

#[test]
fn expressions_have_the_types_of_their_operands() {
    check(
        "SELECT price + 1 AS a, price * weight AS b, length(sku) / 2 AS c, price % :n AS d FROM goods",
        &["integer", "number null", "integer", "integer null"],
    );
    // A field's integer may be sent as 5.0, half of which has a fraction.
    check(
        "SELECT price / 2 AS a, CAST(price AS INTEGER) / 2 AS b, (:n + 1) / 2 AS c, SUM(price) / 2 AS d FROM goods GROUP BY price",
        &["number", "integer", "integer", "number"],
    );
    // Outside 64 bits an integer is a real, whose quotient may have a fraction.
    check(
        "SELECT -2 / (-3 - :n) AS a, price / :n AS b, :n / price AS c, length(sku) / :n AS d FROM goods",
        &["number null", "number null", "number null", "integer null"],
    );
    check("SELECT COUNT(*) / 2000 AS a, SUM(price) / 2000 AS b FROM goods", &["integer", "number null"]);
    check(
        "SELECT is_new AND price > 1 AS a, weight > 1 AS b, weight IS NULL AS c FROM goods",
        &["integer", "integer null", "integer"],
    );
    check(
        "SELECT sku || shelf AS a, upper(sku) AS b, COALESCE(shelf, 'none') AS c, is_new + 0 AS d FROM goods",
        &["string null", "string", "string", "integer"],
    );
    check(
        "SELECT CASE WHEN price > 1 THEN sku ELSE price END AS a, round(price, 2) AS b, :n AS c, :x AS d FROM goods",
        &["integer string", "number", "integer", VALUE],
    );
    check(
        "SELECT CAST(shelf AS INTEGER) AS a, date(price) AS b, json_array(price) AS c, tags ->> 0 AS d FROM goods",
        &["integer null", "string null", "string null", VALUE],
    );
    check(
        "SELECT (SELECT MAX(price) FROM goods) AS a, EXISTS (SELECT 1 FROM goods) AS b",
        &["integer null", "integer"],
    );
}

/// Each level names its part once or twice: if every mention were analysed again, the deepest queries would never end.
#[test]
fn deep_expressions_and_queries_are_looked_into_in_bounded_time() {
    let calls = format!("{}price{}", "coalesce(".repeat(100), ", 0)".repeat(100));
    check(&format!("SELECT {calls} AS a FROM goods"), &["integer"]);
    let calls = format!("{}price{}", "abs(".repeat(100), ")".repeat(100));
    check(&format!("SELECT {calls} AS a FROM goods"), &["integer"]);
    let queries = (0..20).fold("SELECT price AS a FROM goods".to_owned(), |inner, level| {
        format!("SELECT a + a AS a FROM ({inner}) q{level}")
    });
    check(&queries, &["number null"]);
}

#[test]
fn groups_and_inner_queries_hand_their_types_on() {
    check(
        "SELECT COUNT(*) AS n, SUM(price) AS a, AVG(price) AS b, MIN(sku) AS c, TOTAL(weight) AS d FROM goods",
        &["integer", "integer null", "number null", "string null", "number"],
    );
    check(
        "SELECT is_new, SUM(price) AS a, SUM(weight) AS b FROM goods GROUP BY is_new",
        &["integer", "integer", "number null"],
    );
    check("SELECT q.a, q.is_new FROM (SELECT price AS a, is_new FROM goods) q", &["integer", "boolean"]);
    check("SELECT price AS a FROM goods UNION SELECT sku FROM goods", &["integer string"]);
    check("WITH w AS (SELECT COUNT(*) AS n FROM goods) SELECT n FROM w", &["integer"]);
}

#[test]
fn views_have_the_types_of_their_queries() {
    check("SELECT * FROM shelves", &["string null", "boolean", "integer", "integer", "number", "number null"]);
    check("SELECT * FROM sums", &["string null", "integer null"]);
    check("SELECT * FROM \"all\"", &["integer null", "integer"]);
    check("SELECT SUM(worth) AS a FROM shelves", &["integer null"]);
}
