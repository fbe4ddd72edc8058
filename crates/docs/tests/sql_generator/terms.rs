//! Conditions and queries with competing access paths: lists of values, alternatives, prefixes of texts, and the least or
//! greatest value.

use super::{Asked, Random, literal, perhaps_parameter, real};

/// A condition on a column, which may be compared with others of `columns`.
pub(super) fn term(random: &mut Random, column: &str, columns: &[String]) -> String {
    let (low, high) = (literal(random), literal(random));
    match random.below(12) {
        0 => format!("{column} BETWEEN {low} AND {high}"),
        1 | 2 => format!("{column} = {low}"),
        3 | 4 => format!("{column} IN ({})", values(random, columns)),
        5 => format!("({column} = {low} OR {column} IN ({}) OR {high} = {column})", values(random, columns)),
        6 => format!(
            "{column} IN (SELECT q.{} FROM {} q{})",
            random.pick(&["a", "b", "id"]),
            random.pick(&["t", "u"]),
            {
                let id = random.below(10).to_string();
                let id = perhaps_parameter(random, id);
                random.pick(&["", " WHERE q.id > ID", " WHERE q.id = ID"]).replace("ID", &id)
            }
        ),
        7 => {
            format!("{column} IN (SELECT value FROM json_each('[3, 1, \"abc\", null, 1.0, 2.5, {}]'))", random.below(9))
        }
        8 => format!("{column} {} {}", random.pick(&["GLOB", "GLOB", "LIKE"]), pattern(random)),
        9 => format!("{column} IS NOT NULL"),
        _ => format!("{column} {} {low}", random.pick(&["<", "<=", ">", ">="])),
    }
}

/// A condition on several fields of a table together.
pub(super) fn of_rows(random: &mut Random, alias: &str, columns: &[String]) -> String {
    let fields = &["b", "c", "b", "a", "id", "c"][random.below(3)..];
    let width = 2 + random.below(2).min(fields.len() - 2);
    let row: Vec<String> = fields[..width].iter().map(|field| format!("{alias}.{field}")).collect();
    let tuple = |random: &mut Random| {
        let value = |random: &mut Random| match random.below(8) {
            0 => columns[random.below(columns.len())].clone(),
            1 => literal(random),
            _ => (random.below(6) as i64 - 2).to_string(),
        };
        format!("({})", (0..width).map(|_| value(random)).collect::<Vec<_>>().join(", "))
    };
    let row = format!("({})", row.join(", "));
    match random.below(8) {
        0 => format!("{row} = {}", tuple(random)),
        1 | 2 => {
            let list: Vec<String> = (0..1 + random.below(4)).map(|_| tuple(random)).collect();
            format!("{row} IN ({})", list.join(", "))
        }
        3 => {
            let shown: Vec<String> = fields[..width].iter().map(|field| format!("q.{field}")).collect();
            let query = format!("(SELECT {} FROM u q WHERE q.id = {})", shown.join(", "), random.below(9));
            match random.chance(2) {
                true => format!("{row} {} {query}", random.pick(&["<", ">", ">=", "="])),
                false => format!("{query} {} {row}", random.pick(&["<", ">", ">=", "="])),
            }
        }
        4 => format!("{row} BETWEEN {} AND {}", tuple(random), tuple(random)),
        5 => format!("{} {} {row}", tuple(random), random.pick(&["<", "<=", ">", ">="])),
        _ => format!("{row} {} {}", random.pick(&["<", "<=", ">", ">="]), tuple(random)),
    }
}

fn values(random: &mut Random, columns: &[String]) -> String {
    let value = |random: &mut Random| match random.below(8) {
        0 => columns[random.below(columns.len())].clone(),
        1 => format!("{} + 0", random.below(5)),
        2 | 3 => {
            let value = random.below(8).to_string();
            perhaps_parameter(random, value)
        }
        _ => literal(random),
    };
    let count = random.below(6);
    (0..count).map(|_| value(random)).collect::<Vec<_>>().join(", ")
}

fn pattern(random: &mut Random) -> &'static str {
    random.pick_static(&[
        "'abc*'", "'ab*'", "'a*c'", "'A?C'", "'аб*'", "'Аб%'", "'аб%'", "'日%'", "'abc%'", "'2024-%'", "'1*'", "'1%'",
        "'-*'", "'-3%'", "'*'", "'%'", "''", "' 3%'", "' *'", "'a[b]c*'", "'日本'", "'abc'", "'[*'", "'_bc%'",
    ])
}

/// The least or greatest value of a column among the filtered rows.
pub(super) fn extreme(random: &mut Random) -> Asked {
    let aliases = &["x", "y"][..1 + random.below(2)];
    let field = |random: &mut Random, alias: &str| format!("{alias}.{}", random.pick(&["id", "a", "b", "b", "c"]));
    let mut from = format!("{} x", random.pick(&["t", "u"]));
    if aliases.len() > 1 {
        let on = format!("{} = {}", field(random, "y"), field(random, "x"));
        let join = random.pick(&["", "", "LEFT ", "CROSS "]);
        from += &format!(" {join}JOIN {} y ON {on}", random.pick(&["t", "u"]));
    }
    let columns: Vec<String> = aliases.iter().flat_map(|alias| super::columns(alias)).collect();
    let any = |random: &mut Random| {
        let alias = aliases[random.below(aliases.len())];
        field(random, alias)
    };
    let terms: Vec<String> = (0..random.below(3))
        .map(|_| {
            let column = any(random);
            term(random, &column, &columns)
        })
        .collect();
    let condition = if terms.is_empty() { String::new() } else { format!(" WHERE {}", terms.join(" AND ")) };
    let value = format!("{}({})", random.pick(&["MIN", "MAX"]), any(random));
    let having = if random.chance(6) { format!(" HAVING {value} IS NOT NULL") } else { String::new() };
    // As a real: of 1 and 1.0 the first is kept, and the order of rows is undefined.
    Asked { sql: format!("SELECT {} AS m FROM {from}{condition}{having}", real(&value)), ordered: true }
}
