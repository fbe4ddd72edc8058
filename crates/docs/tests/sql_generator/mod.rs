//! Random documents and random queries from a seed: joins, grouping, subqueries, mixed types, numbers at the edges.
//!
//! Some differences between the two sides are known, so these queries are not generated:
//!
//! - a bare column outside GROUP BY, because SQLite chooses its row;
//! - functions that fail for some values, because the order of evaluation may differ;
//! - a computed value in a part of UNION, EXCEPT or INTERSECT whose column is compared outside. In SQLite the column has the
//!   affinity of the first part or its own, depending on query flattening.

#![allow(dead_code, reason = "each user takes its part")]

pub(crate) mod changes;
pub(crate) mod names;
mod terms;

use docs::catalog::Catalog;
use docs::counts::{Counts, TreeCount};
use serde_json::Value as Json;

use crate::sql_oracle::Both;

/// SplitMix64: small, and the same on every platform.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn pick_static(&mut self, list: &[&'static str]) -> &'static str {
        list[self.below(list.len())]
    }

    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

/// A query, and whether its ORDER BY makes the order total.
pub(crate) struct Asked {
    pub(crate) sql: String,
    pub(crate) ordered: bool,
}

/// Documents of two collections. Most have arbitrary wrong counts, so that any plan may be chosen.
pub(crate) fn world(random: &mut Random) -> Both {
    let rows = [random.below(14), random.below(10)];
    let mut collections = rows.map(|rows| (0..rows).map(|id| document(random, id)).collect::<Vec<_>>());
    let (t, u) = collections.split_at_mut(1);
    let mut both = Both::with_indexes(&t[0], &u[0], INDEXES[random.below(INDEXES.len())]);
    if !random.chance(4) {
        both.memory.catalog.counts = counts(random, &both.memory.catalog);
    }
    both
}

/// Indexes, and the fields that they carry.
const INDEXES: [&[(&[&str], &[&str])]; 4] = [
    &[(&["a"], &[]), (&["b", "c"], &["a"])],
    &[(&["b"], &["c", "d"]), (&["c", "b"], &[]), (&["a", "b"], &["id"])],
    &[(&["b", "a"], &["a", "b", "c", "d"]), (&["c"], &[])],
    &[],
];

/// Arbitrary counts of a catalog's trees.
fn counts(random: &mut Random, catalog: &Catalog) -> Counts {
    let seed = random.next();
    let counts = Counts::new(move |tree, range| {
        let ends = format!("{seed} {tree:?} {:?} {:?}", range.from, range.to);
        let mut random =
            Random::new(ends.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)));
        random.chance(8).then_some(random.below(100) as u64).or_else(|| Some(random.next() >> (32 + random.below(32))))
    });
    let size = |random: &mut Random| 10f64.powi(random.below(8) as i32);
    for info in &catalog.collections {
        for (tree, fields) in
            std::iter::once((info.tree, 0)).chain(info.indexes.iter().map(|i| (i.tree, i.fields.len())))
        {
            let alike = if random.chance(3) { Vec::new() } else { (0..fields).map(|_| size(random)).collect() };
            counts.set(tree, TreeCount { entries: size(random), alike });
        }
    }
    counts
}

fn document(random: &mut Random, id: usize) -> Json {
    let mut document = serde_json::Map::new();
    document.insert("id".to_owned(), id.into());
    document.insert("a".to_owned(), cell(random));
    document.insert("b".to_owned(), (random.below(4) as i64 - 1).into());
    for (field, missing) in [("c", 5), ("d", 3)] {
        if !random.chance(missing) {
            let value = if field == "d" && random.chance(3) { nested(random) } else { cell(random) };
            document.insert(field.to_owned(), value);
        }
    }
    if random.chance(6) {
        document.insert("b".to_owned(), Json::Null);
    }
    Json::Object(document)
}

fn nested(random: &mut Random) -> Json {
    match random.below(4) {
        0 => serde_json::json!([]),
        1 => serde_json::json!([1, "x", null, [2.5]]),
        2 => serde_json::json!({ "k": random.below(3), "o": { "p": [1, 2] } }),
        _ => serde_json::json!({ "k": "text", "l": [cell(random)] }),
    }
}

fn cell(random: &mut Random) -> Json {
    const EDGES: [i64; 5] = [i64::MAX, i64::MIN, 9_007_199_254_740_993, 4_503_599_627_370_497, -9_007_199_254_740_993];
    const REALS: [f64; 9] =
        [0.1, -0.0, 1e308, -1e-300, 9.223_372_036_854_776e18, 2.5, 1.0e15, 9_007_199_254_740_992.0, -3.0];
    const TEXTS: [&str; 13] =
        ["абв", "Абв", "abc", "ABC", "12", " 3.5x", "", "a%b_c", "2024-02-29", "1e3", "-7", "日本", "0x10"];
    match random.below(12) {
        0..=4 => (random.below(8) as i64 - 3).into(),
        5 | 6 => ((random.below(24) as f64 - 12.0) / 4.0).into(),
        7 => EDGES[random.below(EDGES.len())].into(),
        8 => REALS[random.below(REALS.len())].into(),
        9 | 10 => TEXTS[random.below(TEXTS.len())].into(),
        _ => Json::Null,
    }
}

/// A value, as a literal or a parameter.
fn literal(random: &mut Random) -> String {
    let text = match cell(random) {
        Json::String(text) => format!("'{text}'"),
        Json::Number(number) if number.as_i64() == Some(i64::MIN) => "(-9223372036854775807 - 1)".to_owned(),
        Json::Number(number) if number.as_i64().is_some_and(|n| n < 0) => format!("({number})"),
        Json::Number(number) if number.is_i64() && random.chance(5) => format!("0x{:X}", number.as_i64().unwrap()),
        other => other.to_string().to_uppercase(),
    };
    perhaps_parameter(random, text)
}

/// Sometimes a parameter in place of a literal. Its name encodes its value ([`bound`]).
fn perhaps_parameter(random: &mut Random, literal: String) -> String {
    if !random.chance(4) {
        return literal;
    }
    literal.bytes().fold(String::from(":v"), |name, byte| format!("{name}{byte:02x}"))
}

/// The literal encoded in a parameter's name, which is without its colon.
pub(crate) fn bound(name: &str) -> Option<String> {
    let digits = name.strip_prefix('v')?.as_bytes().chunks(2);
    let bytes = digits.map(|byte| u8::from_str_radix(std::str::from_utf8(byte).ok()?, 16).ok());
    String::from_utf8(bytes.collect::<Option<Vec<u8>>>()?).ok()
}

/// Columns that an expression may name.
type Columns<'a> = &'a [String];

fn columns(alias: &str) -> Vec<String> {
    ["id", "a", "b", "c", "d"].map(|field| format!("{alias}.{field}")).to_vec()
}

fn leaf(random: &mut Random, columns: Columns<'_>) -> String {
    if !columns.is_empty() && !random.chance(3) {
        return columns[random.below(columns.len())].clone();
    }
    literal(random)
}

fn expression(random: &mut Random, columns: Columns<'_>, depth: usize) -> String {
    if depth == 0 || random.chance(4) {
        return leaf(random, columns);
    }
    let part = |random: &mut Random| expression(random, columns, depth - 1);
    let (a, b) = (part(random), part(random));
    match random.below(18) {
        0..=4 => {
            let operator = random.pick(&[
                "+",
                "-",
                "*",
                "/",
                "%",
                "||",
                "=",
                "<>",
                "<",
                "<=",
                ">",
                ">=",
                "AND",
                "OR",
                "&",
                "|",
                "<<",
                ">>",
                "IS",
                "IS NOT",
                "IS NOT DISTINCT FROM",
                "LIKE",
                "NOT LIKE",
                "GLOB",
            ]);
            format!("({a} {operator} {b})")
        }
        5 => {
            let call = random.pick(&[
                "LENGTH",
                "LOWER",
                "UPPER",
                "TYPEOF",
                "TRIM",
                "SIGN",
                "UNICODE",
                "quote",
                "hex",
                "octet_length",
            ]);
            format!("{call}({a})")
        }
        6 => {
            let call =
                random.pick(&["IFNULL", "NULLIF", "MIN", "MAX", "COALESCE", "INSTR", "SUBSTR", "concat", "json_array"]);
            format!("{call}({a}, {b})")
        }
        7 => format!("({a} BETWEEN {b} AND {})", part(random)),
        8 => format!("({a} {}IN ({b}, {}))", random.pick(&["", "NOT "]), part(random)),
        9 => format!("CASE WHEN {a} THEN {b} ELSE {} END", part(random)),
        10 => format!("CASE {a} WHEN {b} THEN {} END", part(random)),
        11 => format!("({}{a})", random.pick(&["NOT ", "- ", "~"])),
        12 => format!("({a} {})", random.pick(&["IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT FALSE", "ISNULL"])),
        13 => format!("CAST({a} AS {})", random.pick(&["INTEGER", "REAL", "TEXT", "NUMERIC"])),
        14 => {
            format!("(({a}, {b}) {} ({}, {}))", random.pick(&["=", "<", ">=", "<>", "IS"]), part(random), part(random))
        }
        15 => format!("({a} {}IN ({}))", random.pick(&["", "NOT "]), inner(random, 1, columns)),
        16 => format!("(({a}, {b}) IN ({}))", inner(random, 2, columns)),
        _ => match random.below(3) {
            0 => format!("({})", scalar(random, columns)),
            1 => format!("{}EXISTS ({})", random.pick(&["", "NOT "]), inner(random, 1, columns)),
            _ => format!("ROUND({a}, {})", random.below(4)),
        },
    }
}

/// An expression in parentheses, for operands that must not be row comparisons.
fn closed(random: &mut Random, columns: Columns<'_>, depth: usize) -> String {
    format!("({})", expression(random, columns, depth))
}

/// A query for IN and EXISTS.
fn inner(random: &mut Random, width: usize, outer: Columns<'_>) -> String {
    if random.chance(6) {
        // Without CAST: the affinity of the column of a compound query differs in SQLite.
        let part = |random: &mut Random| uncast(random, |random| one(random, width, outer));
        let (operator, (first, second)) = (set_operator(random), (part(random), part(random)));
        return format!("{first} {operator} {second}");
    }
    one(random, width, outer)
}

fn one(random: &mut Random, width: usize, outer: Columns<'_>) -> String {
    let (table, alias) = (random.pick(&["t", "u"]), inner_alias(outer));
    let own = columns(&alias);
    let known = seen(random, &own, outer);
    let list: Vec<String> = (0..width).map(|n| format!("{} AS i{n}", plain(random, &known))).collect();
    format!("SELECT {} FROM {table} {alias}{}", list.join(", "), correlated(random, &own, &known, outer))
}

/// The alias of a subquery that sees these columns, different from the aliases of the enclosing queries.
fn inner_alias(outer: Columns<'_>) -> String {
    let taken = |alias: &str| outer.iter().any(|column| column.starts_with(&format!("{alias}.")));
    ["q", "p", "o"].into_iter().find(|alias| !taken(alias)).unwrap_or("n").to_owned()
}

/// The columns that a subquery uses: its own, and sometimes those of the enclosing queries.
fn seen(random: &mut Random, own: Columns<'_>, outer: Columns<'_>) -> Vec<String> {
    let mut known = own.to_vec();
    if random.chance(3) {
        known.extend(outer.iter().cloned());
    }
    known
}

/// A condition of a subquery: none, an uncorrelated one, or a correlated one.
fn correlated(random: &mut Random, own: Columns<'_>, known: Columns<'_>, outer: Columns<'_>) -> String {
    let mut terms = Vec::new();
    if !outer.is_empty() && random.chance(2) {
        let (mine, other) = (&own[random.below(own.len())], &outer[random.below(outer.len())]);
        terms.push(format!("{mine} {} {other}", random.pick(&["=", "=", "=", "<", ">=", "IS"])));
    }
    if random.chance(3) {
        terms.push(plain(random, known));
    }
    // Each level multiplies the work, so the depth is limited.
    if !known.is_empty() && inner_alias(known) != "n" && random.chance(8) {
        let more: Vec<String> = own.iter().chain(outer).cloned().collect();
        terms.push(format!("{}EXISTS ({})", random.pick(&["", "NOT "]), inner(random, 1, &more)));
    }
    if terms.is_empty() { String::new() } else { format!(" WHERE {}", terms.join(" AND ")) }
}

/// A query of one row and column.
fn scalar(random: &mut Random, outer: Columns<'_>) -> String {
    let (table, alias) = (random.pick(&["t", "u"]), inner_alias(outer));
    let own = columns(&alias);
    let condition = correlated(random, &own, &own, outer);
    match random.below(4) {
        0 => {
            format!("SELECT {}({alias}.b) AS s FROM {table} {alias}{condition}", random.pick(&["MAX", "COUNT", "MIN"]))
        }
        1 => format!("SELECT {alias}.a AS s FROM {table} {alias}{condition} ORDER BY {alias}.id DESC LIMIT 1"),
        2 => format!("SELECT COUNT(*) AS s FROM {table} {alias} JOIN u r ON r.b = {alias}.b{condition}"),
        _ => format!("SELECT {alias}.c AS s FROM {table} {alias} WHERE {alias}.id = {}", random.below(12)),
    }
}

/// Repeats `make` until the result has no CAST.
fn uncast(random: &mut Random, make: impl Fn(&mut Random) -> String) -> String {
    loop {
        let made = make(random);
        if !made.contains("CAST(") {
            return made;
        }
    }
}

/// An expression without subqueries.
fn plain(random: &mut Random, columns: Columns<'_>) -> String {
    let a = leaf(random, columns);
    match random.below(6) {
        0 => format!("({a} {} {})", random.pick(&["+", "||", "<", "=", "%", "IS"]), leaf(random, columns)),
        1 => format!("COALESCE({a}, {})", leaf(random, columns)),
        2 => format!("CAST({a} AS {})", random.pick(&["INTEGER", "TEXT"])),
        _ => a,
    }
}

/// A FROM clause, and its columns.
fn from(random: &mut Random) -> (String, Vec<String>) {
    let (first, mut known) = table(random, "x");
    let mut text = first;
    let more = random.below(3);
    if more == 2 && random.chance(5) {
        return nested_join(random, (text, known));
    }
    for alias in ["y", "z"].into_iter().take(more) {
        if random.chance(6) {
            let json =
                if random.chance(2) { "'[1, \"x\", null, {\"k\": [2]}]'" } else { "'{\"a\": 1, \"b c\": [1, 2.50]}'" };
            text += &format!(" JOIN json_each({json}) AS {alias}");
            known.extend(["key", "value", "type", "atom", "fullkey", "path"].map(|column| format!("{alias}.{column}")));
            continue;
        }
        let (next, own) = table(random, alias);
        if random.chance(8)
            && let Some(name) = shared(random, &known, &own)
        {
            text += &format!(" {}JOIN {next} USING ({name})", random.pick(&["", "LEFT ", "CROSS "]));
            known.extend(own);
            continue;
        }
        let equal = |random: &mut Random, known: Columns<'_>| {
            let (mine, other) = (own[random.below(own.len())].clone(), known[random.below(known.len())].clone());
            if random.chance(2) { format!("{mine} = {other}") } else { format!("{other} = {mine}") }
        };
        let mut on = equal(random, &known);
        if random.chance(3) {
            on = format!("{on} AND {}", equal(random, &known));
        }
        let mut all = known.clone();
        all.extend(own.iter().cloned());
        match random.below(6) {
            0 => on = format!("{on} AND {}", closed(random, &all, 1)),
            1 => on = closed(random, &all, 1),
            2 => on = format!("{} = {}", plain(random, &own), plain(random, &known)),
            3 => on = format!("{on} AND {}", closed(random, &own, 1)),
            _ => {}
        }
        text += &format!(" {}JOIN {next} ON {on}", random.pick(&["", "LEFT ", "INNER ", "LEFT ", "CROSS "]));
        if random.chance(6) {
            text = format!("({text})");
        }
        known = all;
    }
    (text, known)
}

/// Two tables in parentheses after LEFT JOIN: their condition does not see the tables before them.
fn nested_join(random: &mut Random, (before, mut known): (String, Vec<String>)) -> (String, Vec<String>) {
    let (y, mut own) = table(random, "y");
    let (z, of_z) = table(random, "z");
    let equal = |random: &mut Random, a: Columns<'_>, b: Columns<'_>| {
        format!("{} = {}", a[random.below(a.len())], b[random.below(b.len())])
    };
    let mut inside = equal(random, &own, &of_z);
    own.extend(of_z);
    if random.chance(2) {
        inside = format!("{inside} {} {}", random.pick(&["AND", "OR"]), closed(random, &own, 1));
    }
    let mut on = equal(random, &known, &own);
    known.extend(own.iter().cloned());
    if random.chance(3) {
        on = format!("{on} AND {}", closed(random, &known, 1));
    }
    let join = random.pick(&["", "LEFT ", "CROSS "]);
    (format!("{before} LEFT JOIN ({y} {join}JOIN {z} ON {inside}) ON {on}"), known)
}

/// The name of a column of both sides.
fn shared(random: &mut Random, left: Columns<'_>, right: Columns<'_>) -> Option<&'static str> {
    let name = random.pick_static(&["id", "a", "b", "b", "c"]);
    let has = |columns: Columns<'_>| columns.iter().any(|column| column.ends_with(&format!(".{name}")));
    (has(left) && has(right)).then_some(name)
}

fn table(random: &mut Random, alias: &str) -> (String, Vec<String>) {
    let name = random.pick(&["t", "u"]);
    let own = columns("w");
    let derived = |names: &[&str]| names.iter().map(|name| format!("{alias}.{name}")).collect();
    match random.below(8) {
        0 => {
            let sql = format!(
                "(SELECT w.id, w.b, {} AS e FROM {name} w WHERE {}) AS {alias}",
                plain(random, &own),
                closed(random, &own, 1)
            );
            (sql, derived(&["id", "b", "e"]))
        }
        1 => (
            format!("(SELECT w.b, COUNT(*) AS n, MAX(w.id) AS m FROM {name} w GROUP BY w.b) AS {alias}"),
            derived(&["b", "n", "m"]),
        ),
        2 => (
            format!(
                "(SELECT id, a AS e FROM t UNION ALL SELECT id, {} FROM u w) AS {alias}",
                own[random.below(own.len())]
            ),
            derived(&["id", "e"]),
        ),
        _ => (format!("{name} {alias}"), columns(alias)),
    }
}

fn filter(random: &mut Random, known: Columns<'_>) -> String {
    let mut terms = Vec::new();
    for _ in 0..random.below(3) {
        terms.push(match random.below(3) {
            0 => {
                let column = &known[random.below(known.len())];
                format!("{column} {} {}", random.pick(&["=", "<", ">=", "<>", "IS"]), literal(random))
            }
            _ => closed(random, known, 2),
        });
    }
    if terms.is_empty() { String::new() } else { format!(" WHERE {}", terms.join(" AND ")) }
}

/// A query of any shape.
pub(crate) fn query(random: &mut Random) -> Asked {
    match random.below(15) {
        0..=4 => rows(random),
        5..=7 => groups(random),
        8 => union(random),
        9 => sets(random),
        10..=12 => list(random),
        13 => terms::extreme(random),
        _ => Asked { sql: format!("SELECT {} AS x", closed(random, &[], 3)), ordered: true },
    }
}

fn rows(random: &mut Random) -> Asked {
    let (from, known) = from(random);
    let list: Vec<String> = (0..=random.below(3)).map(|n| format!("{} AS r{n}", closed(random, &known, 2))).collect();
    let distinct = random.chance(6);
    let mut sql = format!(
        "SELECT {}{} FROM {from}{}",
        if distinct { "DISTINCT " } else { "" },
        list.iter()
            .map(|item| if distinct { format!("TYPEOF{item}") } else { item.clone() })
            .collect::<Vec<_>>()
            .join(", "),
        filter(random, &known)
    );
    // All result columns are sort keys: rows that compare equal are equal in all columns, except for 1 and 1.0.
    let ordered = random.chance(2);
    if ordered {
        let nulls =
            |random: &mut Random| random.pick(&["", "", " DESC", " NULLS LAST", " DESC NULLS FIRST"]).to_owned();
        let mut order: Vec<String> = (0..list.len()).map(|n| format!("r{n}{}", nulls(random))).collect();
        if !distinct {
            order.extend((0..list.len()).map(|n| format!("TYPEOF(r{n})")));
        }
        sql += &format!(" ORDER BY {}", order.join(", "));
        if random.chance(2) {
            sql += &format!(" LIMIT {}", random.below(6));
            if random.chance(2) {
                sql += &format!(" OFFSET {}", random.below(4));
            }
        }
    }
    Asked { sql, ordered }
}

/// Rows in the order of fields, with LIMIT, filtered by ranges and joins of fields: here keys and indexes compete.
fn list(random: &mut Random) -> Asked {
    let aliases = &["x", "y", "z"][..1 + random.below(3)];
    let field = |random: &mut Random, alias: &str| format!("{alias}.{}", random.pick(&["id", "a", "b", "b", "c"]));
    let mut from = String::new();
    for (place, alias) in aliases.iter().enumerate() {
        let table = random.pick(&["t", "u"]);
        if place == 0 {
            from = format!("{table} {alias}");
            continue;
        }
        let before = aliases[random.below(place)];
        if place == 1 && aliases.len() == 3 && random.chance(4) {
            let (inside, on) = (random.pick(&["y", "z"]), random.pick(&["", "LEFT "]));
            let (other, mine, first) = (field(random, inside), field(random, "z"), field(random, "x"));
            let tied = format!("{mine} = {}", field(random, "y"));
            from += &format!(" LEFT JOIN ({table} y {on}JOIN u z ON {tied}) ON {other} = {first}");
            break;
        }
        let on = format!("{} = {}", field(random, alias), field(random, before));
        from += &format!(" {}JOIN {table} {alias} ON {on}", random.pick(&["", "", "LEFT ", "CROSS "]));
        if random.chance(6) {
            from = format!("({from})");
        }
    }
    let any = |random: &mut Random| {
        let alias = aliases[random.below(aliases.len())];
        field(random, alias)
    };
    let columns: Vec<String> = aliases.iter().flat_map(|alias| columns(alias)).collect();
    let mut terms = Vec::new();
    for _ in 0..random.below(4) {
        if random.chance(4) {
            let alias = random.pick(aliases);
            terms.push(terms::of_rows(random, alias, &columns));
            continue;
        }
        let column = any(random);
        terms.push(terms::term(random, &column, &columns));
    }
    let condition = if terms.is_empty() { String::new() } else { format!(" WHERE {}", terms.join(" AND ")) };
    let mut order: Vec<String> = (0..random.below(3)).map(|_| any(random)).collect();
    order.extend(aliases.iter().map(|alias| format!("{alias}.id")));
    let falling = random.pick(&["", " DESC"]);
    let directions: Vec<String> =
        order.iter().map(|column| format!("{column}{}", if random.chance(5) { " DESC" } else { falling })).collect();
    let shown: Vec<String> = (0..3)
        .map(|n| format!("{} AS r{n}", any(random)))
        .chain(aliases.iter().map(|a| format!("{a}.id AS {a}")))
        .collect();
    let mut sql = format!("SELECT {} FROM {from}{condition} ORDER BY {}", shown.join(", "), directions.join(", "));
    if random.chance(2) {
        sql += &format!(" LIMIT {} OFFSET {}", random.below(8), random.below(3));
    }
    Asked { sql, ordered: true }
}

fn groups(random: &mut Random) -> Asked {
    let (from, known) = from(random);
    let column = |random: &mut Random| known[random.below(known.len())].clone();
    let keys: Vec<String> = (0..random.below(3))
        .map(|_| match random.below(3) {
            0 => format!("TYPEOF({})", column(random)),
            1 => format!("({} IS NULL)", column(random)),
            _ => format!("CAST({} AS TEXT)", column(random)),
        })
        .collect();
    let mut list: Vec<String> = keys.iter().enumerate().map(|(n, key)| format!("{key} AS k{n}")).collect();
    for n in 0..=random.below(3) {
        let argument = plain(random, &known);
        let filter =
            if random.chance(5) { format!(" FILTER (WHERE {})", plain(random, &known)) } else { String::new() };
        list.push(match random.below(7) {
            0 => format!("COUNT(*){filter} AS g{n}"),
            1 => format!("COUNT({argument}){filter} AS g{n}"),
            2 => format!("COUNT(DISTINCT {argument}){filter} AS g{n}"),
            // As reals: of 1 and 1.0 the first is kept, and the order of rows is undefined.
            3 => format!("{} || {} AS g{n}", real(&format!("MIN({argument})")), real(&format!("MAX({argument})"))),
            4 => format!("SUM(LENGTH({argument})){filter} AS g{n}"),
            5 => format!("ROUND(AVG(LENGTH({argument})), 6) AS g{n}"),
            _ => format!("TOTAL(UNICODE({argument})){filter} AS g{n}"),
        });
    }
    let group = if keys.is_empty() { String::new() } else { format!(" GROUP BY {}", keys.join(", ")) };
    let having = if random.chance(4) && !keys.is_empty() {
        format!(
            " HAVING {}",
            random.pick(&["COUNT(*) > 1", "COUNT(DISTINCT k0) = 1", "k0 IS NOT NULL AND COUNT(*) < 5"])
        )
    } else {
        String::new()
    };
    let having = having.replace("COUNT(DISTINCT k0) = 1", "MAX(1) = 1");
    let sql = format!("SELECT {} FROM {from}{}{group}{having}", list.join(", "), filter(random, &known));
    Asked { sql, ordered: false }
}

/// A number as a real, any other value unchanged.
fn real(value: &str) -> String {
    format!("CASE WHEN TYPEOF({value}) IN ('integer', 'real') THEN {value} + 0.0 ELSE {value} END")
}

/// An operator between two SELECTs.
fn set_operator(random: &mut Random) -> &'static str {
    ["UNION", "UNION", "EXCEPT", "INTERSECT", "UNION ALL"][random.below(5)]
}

/// SELECTs combined by set operators: one of several equal rows is kept, so numbers are returned as reals.
fn sets(random: &mut Random) -> Asked {
    let width = 1 + random.below(2);
    let mut sql = String::new();
    for place in 0..2 + random.below(3) {
        if place > 0 {
            sql += &format!(" {} ", set_operator(random));
        }
        sql += &uncast(random, |random| {
            let (from, known) = from(random);
            let list: Vec<String> = (0..width)
                .map(|n| {
                    let item = match random.below(3) {
                        0 => known[random.below(known.len())].clone(),
                        1 => literal(random),
                        _ => closed(random, &known, 1),
                    };
                    format!("{} AS r{n}", if random.chance(2) { real(&item) } else { format!("TYPEOF({item})") })
                })
                .collect();
            let distinct = if random.chance(8) { "DISTINCT " } else { "" };
            format!("SELECT {distinct}{} FROM {from}{}", list.join(", "), filter(random, &known))
        });
    }
    match random.below(6) {
        0 => Asked { sql: format!("SELECT COUNT(*) AS n, MAX(TYPEOF(r0)) AS m FROM ({sql}) AS w"), ordered: false },
        1 => {
            let (with, rows) = match random.chance(2) {
                true => ("", "(SELECT r0 FROM w)"),
                false => (", v AS (SELECT r0 FROM w)", "v"),
            };
            let sql = format!("WITH w AS ({sql}){with} SELECT x.id, x.a IN {rows} AS i FROM t x");
            Asked { sql, ordered: false }
        }
        2 | 3 => {
            let order = if width == 1 { "r0" } else { "r0 DESC, r1" };
            let limit = if random.chance(2) {
                format!(" LIMIT {} OFFSET {}", random.below(6), random.below(3))
            } else {
                String::new()
            };
            Asked { sql: format!("{sql} ORDER BY {order}{limit}"), ordered: true }
        }
        _ => Asked { sql, ordered: false },
    }
}

fn union(random: &mut Random) -> Asked {
    let mut parts = Vec::new();
    for _ in 0..2 + random.below(2) {
        parts.push(uncast(random, |random| {
            let (from, known) = from(random);
            let (first, second) = (closed(random, &known, 1), closed(random, &known, 1));
            format!("SELECT {first} AS r0, {second} AS r1 FROM {from}{}", filter(random, &known))
        }));
    }
    let sql = parts.join(" UNION ALL ");
    if random.chance(2) {
        return Asked { sql: format!("SELECT COUNT(*) AS n, MAX(TYPEOF(r0)) AS m FROM ({sql})"), ordered: false };
    }
    Asked { sql, ordered: false }
}
