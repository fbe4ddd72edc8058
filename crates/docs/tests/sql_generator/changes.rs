//! Random INSERT, UPDATE and DELETE of the collections `t` and `u`, with subqueries in the place of any value or condition.
//!
//! A statement reads everything before it writes anything. SQLite evaluates some subqueries only after it has written rows,
//! so which rows they see depends on its plan (`DELETE … WHERE id = 1 OR a = (SELECT COUNT(*) …)`,
//! `UPDATE … SET a = (correlated)`). In these cases SQLite's statement gets subqueries over copies of both tables from before
//! the statement ([`Change::theirs`]).
//!
//! Stored values satisfy the assumptions of the query generator: `b` is an integer or NULL, keys are integers.

use super::{Columns, Random, closed, columns, expression, literal, scalar};

/// A statement, here and for SQLite.
pub(crate) struct Change {
    pub(crate) ours: String,
    pub(crate) theirs: String,
    /// The collection that it changes.
    pub(crate) table: &'static str,
    /// The query of an INSERT's rows: an infinite value in it is an error here, whether or not its row would be stored.
    pub(crate) source: Option<String>,
}

/// The name of a table's copy from before the statement.
pub(crate) fn before(table: &str) -> String {
    format!("{table}_before")
}

/// The same text with subqueries over the copies.
fn over_copies(text: &str) -> String {
    let mut text = text.to_owned();
    for table in ["t", "u"] {
        for word in ["FROM", "JOIN"] {
            text = text.replace(&format!("{word} {table} "), &format!("{word} {} ", before(table)));
        }
    }
    text
}

/// Excludes expressions that make structured values: they are stored as JSON here, and as text in SQLite.
fn is_plain(text: &str) -> bool {
    !text.contains("json_array")
}

fn retried(random: &mut Random, make: &dyn Fn(&mut Random) -> String) -> String {
    loop {
        let made = make(random);
        if is_plain(&made) {
            return made;
        }
    }
}

fn value(random: &mut Random, known: Columns<'_>) -> String {
    retried(random, &|random| match random.below(3) {
        0 => literal(random),
        1 => format!("({})", scalar(random, known)),
        _ => closed(random, known, 2),
    })
}

/// A value of the field `b`.
fn integer(random: &mut Random, known: Columns<'_>) -> String {
    let table = random.pick(&["t", "u"]);
    match random.below(4) {
        0 => format!("(SELECT COUNT(*) FROM {table} q)"),
        1 if !known.is_empty() => format!("(SELECT COUNT(*) FROM {table} q WHERE q.b <= {})", known[2]),
        2 => format!("(SELECT MIN(q.b) FROM {table} q)"),
        _ => (random.below(4) as i64 - 1).to_string().replace("-1", "(-1)"),
    }
}

fn condition(random: &mut Random, known: Columns<'_>) -> String {
    match random.below(4) {
        0 => {
            format!("{} IN (SELECT q.id FROM {} q WHERE q.b > {})", known[0], random.pick(&["t", "u"]), random.below(3))
        }
        1 => format!("{} < (SELECT COUNT(*) FROM {} q)", known[0], random.pick(&["t", "u"])),
        _ => retried(random, &|random| expression(random, known, 2)),
    }
}

/// A statement.
pub(crate) fn change(random: &mut Random) -> Change {
    let table = random.pick_static(&["t", "t", "u"]);
    match random.below(8) {
        0..=2 => insert_values(random, table),
        3 => insert_select(random, table),
        4 => delete(random, table),
        _ => update(random, table),
    }
}

/// Conflict clauses of an INSERT of values.
const CONFLICTS: [&str; 8] = [
    "",
    "",
    " ON CONFLICT DO NOTHING",
    " ON CONFLICT (id) DO NOTHING",
    " ON CONFLICT (id) DO UPDATE SET a = excluded.a",
    " ON CONFLICT (id) DO UPDATE SET b = b + excluded.b, c = excluded.c, d = excluded.id WHERE excluded.b > b",
    " ON CONFLICT DO UPDATE SET (c, a) = (c || excluded.c, NULL), b = 1 - excluded.b",
    " ON CONFLICT (id) DO UPDATE SET a = a WHERE excluded.a IS NOT a",
];

/// The first words of an INSERT: most fail if a key is in use.
fn insert_word(random: &mut Random) -> &'static str {
    const WORDS: [&str; 6] = ["INSERT", "INSERT", "INSERT", "INSERT OR IGNORE", "INSERT OR REPLACE", "REPLACE"];
    random.pick_static(&WORDS)
}

fn insert_values(random: &mut Random, table: &'static str) -> Change {
    let rows: Vec<String> = (0..=random.below(4))
        .map(|row| {
            let id = match random.below(6) {
                0 => random.below(20).to_string(),
                1 => format!("(SELECT COUNT(*) FROM {table} q) + {}", 100 + row),
                _ => format!("(SELECT COALESCE(MAX(q.id), 0) FROM {table} q) + {}", row + 1),
            };
            let values =
                ["a", "b", "c", "d"].map(|field| if field == "b" { integer(random, &[]) } else { value(random, &[]) });
            format!("({id}, {})", values.join(", "))
        })
        .collect();
    let word = insert_word(random);
    let behind = if word == "INSERT" { random.pick(&CONFLICTS) } else { "" };
    let source = format!("VALUES {}", rows.join(", "));
    let sql = format!("{word} INTO {table} (id, a, b, c, d) {source}{behind}");
    // SQLite also reads the whole source first.
    Change { ours: sql.clone(), theirs: sql, table, source: Some(source) }
}

fn insert_select(random: &mut Random, table: &'static str) -> Change {
    let own = columns("x");
    let from = random.pick(&["t", "u"]);
    let values = [value(random, &own), integer(random, &own), value(random, &own)];
    let filter = if random.chance(2) { String::new() } else { format!(" WHERE {}", condition(random, &own)) };
    let word = insert_word(random);
    let source = format!(
        "SELECT x.id + (SELECT COALESCE(MAX(q.id), 0) FROM {table} q) + {}, {} FROM {from} x{filter}",
        random.pick(&["1", "1", "(-3)"]),
        values.join(", ")
    );
    let sql = format!("{word} INTO {table} (id, a, b, c) {source}");
    Change { ours: sql.clone(), theirs: sql, table, source: Some(source) }
}

fn delete(random: &mut Random, table: &'static str) -> Change {
    let own = columns("x");
    let condition = condition(random, &own);
    let statement = |condition: &str| format!("DELETE FROM {table} AS x WHERE x.id % 3 = 0 AND ({condition})");
    Change { ours: statement(&condition), theirs: statement(&over_copies(&condition)), table, source: None }
}

fn update(random: &mut Random, table: &'static str) -> Change {
    let own = columns("x");
    let mut fields: Vec<&str> = ["a", "b", "c", "d"].into_iter().filter(|_| random.chance(2)).collect();
    if fields.is_empty() {
        fields.push("a");
    }
    let sets: Vec<String> = fields
        .iter()
        .map(|field| {
            let value = if *field == "b" { integer(random, &own) } else { value(random, &own) };
            format!("{field} = {value}")
        })
        .collect();
    let condition = if random.chance(3) { "1".to_owned() } else { condition(random, &own) };
    let behind = format!("{} WHERE {condition}", sets.join(", "));
    let head = format!("UPDATE {table} AS x SET ");
    let theirs = format!("{head}{}", over_copies(&behind));
    Change { theirs, ours: format!("{head}{behind}"), table, source: None }
}
