//! Random queries about names: fields that a collection does not declare, aliases of the same names, quotes, qualifiers, and names
//! of enclosing queries.
//!
//! SQLite's tables have the columns `id, a, b, c` (`t`) and `id, b, d, e` (`u`). Here each collection declares all of them, some
//! of them or only its key, and is closed or open. A field that both have is declared, or the collection has no schema: a field
//! that only an enclosing query declares is the enclosing query's, where SQLite would find the inner column.
//!
//! What is not generated:
//!
//! - a bare column outside GROUP BY, because SQLite chooses its row. So in a query with groups an alias has the name of a column
//!   only if its own expression uses that column;
//! - an alias that no column has, for a constant: here the name is a field.

use serde_json::Value as Json;

use super::Random;
use crate::sql_oracle::{Both, Table};

const T: [&str; 4] = ["id", "a", "b", "c"];
const U: [&str; 4] = ["id", "b", "d", "e"];

fn columns_of(table: &str) -> [&'static str; 4] {
    if table == "t" { T } else { U }
}

/// Documents of both collections, and what these declare.
pub(crate) fn world(random: &mut Random) -> Both {
    let tables = ["t", "u"].map(|name| {
        let columns = columns_of(name);
        let documents = (0..random.below(8)).map(|id| document(random, id, &columns)).collect();
        let declared: Vec<&'static str> = match random.below(4) {
            0 | 1 => columns.to_vec(),
            2 => columns.into_iter().filter(|name| ["id", "b"].contains(name) || random.chance(2)).collect(),
            _ => Vec::new(),
        };
        let closed = declared.len() == columns.len() && random.chance(2);
        Table { name, columns: columns.to_vec(), declared, closed, documents }
    });
    Both::of(&tables)
}

fn document(random: &mut Random, id: usize, columns: &[&str]) -> Json {
    let mut document = serde_json::Map::new();
    document.insert("id".to_owned(), id.into());
    for column in &columns[1..] {
        let value: Json = match random.below(8) {
            0 => Json::Null,
            1 => ["x", "y", "X", "a", "tea"][random.below(5)].into(),
            2 => (random.below(6) as f64 + 0.5).into(),
            _ => (random.below(5) as i64 - 1).into(),
        };
        document.insert((*column).to_owned(), value);
    }
    Json::Object(document)
}

/// The tables of a query and of those around it, the innermost first, with their aliases.
type Scopes = Vec<Vec<(&'static str, &'static str)>>;

struct Names<'r> {
    random: &'r mut Random,
    scopes: Scopes,
    /// Aliases of the query that no column has, and of which expressions may make use.
    aliases: Vec<String>,
}

/// A query; whether its order is total.
pub(crate) fn query(random: &mut Random) -> super::Asked {
    let mut names = Names { random, scopes: Vec::new(), aliases: Vec::new() };
    match names.random.below(3) {
        0 => names.groups(),
        _ => names.rows(),
    }
}

impl Names<'_> {
    fn source(&mut self, aliases: &[&'static str]) -> String {
        let mut tables = Vec::new();
        let mut from = String::new();
        let count = if self.random.chance(4) { 2 } else { 1 };
        for &alias in &aliases[..count] {
            let table = if let Some((first, _)) = tables.first() {
                if *first == "t" { "u" } else { "t" }
            } else {
                self.random.pick_static(&["t", "u"])
            };
            // Sometimes the collection's own name.
            let is_free = !self.scopes.iter().flatten().any(|(_, other)| *other == table);
            let named = if is_free && self.random.chance(3) { table } else { alias };
            let text = if named == table { table.to_owned() } else { format!("{table} AS {named}") };
            match tables.first() {
                None => from = text,
                Some((_, first)) => {
                    let join = self.random.pick(&["JOIN", "LEFT JOIN"]);
                    from += &match self.random.below(4) {
                        0 => format!(" {join} {text} USING ({})", self.random.pick(&["id", "b"])),
                        1 => format!(
                            " {join} {text} ON {named}.b = {first}.b AND {} IS NOT 7",
                            self.random.pick(&["a", "d"])
                        ),
                        _ => format!(" {join} {text} ON {named}.id = {first}.b"),
                    };
                }
            }
            tables.push((table, named));
        }
        self.scopes.insert(0, tables);
        from
    }

    /// A column of a scope, unqualified, qualified or quoted.
    fn column(&mut self) -> String {
        let depth =
            if self.scopes.len() > 1 && self.random.chance(3) { self.random.below(self.scopes.len()) } else { 0 };
        let tables = self.scopes[depth].clone();
        let (table, alias) = tables[self.random.below(tables.len())];
        let name = self.random.pick_static(&columns_of(table));
        // Without a collection it would be ambiguous in a join.
        let is_joined = self.scopes[..=depth].iter().any(|tables| tables.len() > 1);
        let is_common = is_joined && ["id", "b"].contains(&name);
        match self.random.below(8) {
            0 if !is_common => format!("\"{name}\""),
            1 => format!("{alias}.\"{name}\""),
            2 | 3 => format!("{alias}.{name}"),
            4 if self.random.chance(6) => {
                let wrong = self.random.pick(&["t", "u", "x", "v", "nowhere"]);
                let is_table = self.scopes.iter().flatten().any(|(_, alias)| *alias == wrong);
                format!("{}.{name}", if is_table { alias } else { wrong })
            }
            _ if is_common => format!("{alias}.{name}"),
            _ => name.to_owned(),
        }
    }

    fn leaf(&mut self) -> String {
        if !self.aliases.is_empty() && self.random.chance(4) {
            return self.aliases[self.random.below(self.aliases.len())].clone();
        }
        match self.random.below(4) {
            0 => self.random.pick(&["0", "1", "2", "'x'", "'tea'", "NULL"]).to_owned(),
            _ => self.column(),
        }
    }

    fn expression(&mut self) -> String {
        let a = self.leaf();
        self.over(a)
    }

    /// An expression over a value.
    fn over(&mut self, a: String) -> String {
        match self.random.below(7) {
            0 => format!("{a} + 1"),
            1 => format!("coalesce({a}, 'none')"),
            2 => format!("lower({a})"),
            3 => format!("({a} < {})", self.leaf()),
            4 => format!("typeof({a})"),
            _ => a,
        }
    }

    fn condition(&mut self) -> String {
        let mut terms: Vec<String> = (0..1 + self.random.below(2))
            .map(|_| {
                format!("{} {} {}", self.expression(), self.random.pick(&["=", "<", ">=", "IS", "IS NOT"]), self.leaf())
            })
            .collect();
        if self.scopes.len() < 3 && self.random.chance(3) {
            terms.push(self.subquery());
        }
        terms.join(self.random.pick(&[" AND ", " OR "]))
    }

    /// A condition with a query in it.
    fn subquery(&mut self) -> String {
        let value = self.column();
        let outer = std::mem::take(&mut self.aliases);
        if self.random.chance(8) {
            self.aliases.clone_from(&outer);
        }
        let aliases: &[&'static str] = if self.scopes.len() == 1 { &["v", "w"] } else { &["p", "q"] };
        let from = self.source(aliases);
        let text = match self.random.below(5) {
            0 => format!("{value} IN (SELECT {} FROM {from})", self.expression()),
            1 => format!("{value} NOT IN (SELECT {} FROM {from} WHERE {})", self.column(), self.condition()),
            2 => format!("(SELECT COUNT(*) FROM {from} WHERE {}) > 1", self.condition()),
            3 => {
                // A constant with the name of a column, and a filter by that column.
                let tables = self.scopes[0].clone();
                let (table, alias) = tables[0];
                let name = self.random.pick(&columns_of(table)[1..]);
                let filtered = if tables.len() > 1 && name == "b" { format!("{alias}.b") } else { name.to_owned() };
                format!(
                    "{value} IN (SELECT k FROM (SELECT {alias}.id AS k, 100 AS {name} FROM {from} WHERE {filtered} > 1))"
                )
            }
            _ => format!("{}EXISTS (SELECT 1 FROM {from} WHERE {})", self.random.pick(&["", "NOT "]), self.condition()),
        };
        self.scopes.remove(0);
        self.aliases = outer;
        text
    }

    fn rows(&mut self) -> super::Asked {
        let from = self.source(&["x", "y"]);
        let (mut items, mut found) = (Vec::new(), Vec::new());
        for number in 0..1 + self.random.below(3) {
            let column = self.column();
            let (item, is_constant) =
                if self.random.chance(8) { ("1".to_owned(), true) } else { (self.over(column), false) };
            let alias = match is_constant || self.random.chance(2) {
                true => self.random.pick(&["a", "b", "c", "d", "e", "id"]).to_owned(),
                false => format!("n{number}"),
            };
            items.push(format!(
                "{item} AS {}",
                if self.random.chance(6) { format!("\"{alias}\"") } else { alias.clone() }
            ));
            if alias.starts_with('n') {
                found.push(alias);
            }
        }
        self.aliases = found;
        let mut sql = format!("SELECT {} FROM {from}", items.join(", "));
        if !self.random.chance(4) {
            sql += &format!(" WHERE {}", self.condition());
        }
        let mut ordered = false;
        if self.random.chance(2) {
            let mut order: Vec<String> = (0..1 + self.random.below(2)).map(|_| self.expression()).collect();
            order.retain(|term| term.parse::<u64>().is_err());
            order.extend(self.scopes[0].iter().map(|(_, alias)| format!("{alias}.id")));
            sql += &format!(" ORDER BY {}", order.join(", "));
            if self.random.chance(2) {
                sql += " LIMIT 3";
            }
            ordered = true;
        }
        super::Asked { sql, ordered }
    }

    fn groups(&mut self) -> super::Asked {
        let from = self.source(&["x", "y"]);
        let (mut items, mut group, mut aliases) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..1 + self.random.below(2) {
            let column = self.column();
            let name = column.rsplit('.').next().unwrap_or_default().trim_matches('"').to_owned();
            let (item, term) = match self.random.below(5) {
                0 => (format!("lower({column})"), format!("lower({column})")),
                1 => (format!("coalesce({column}, 0)"), column.clone()),
                2 => (format!("typeof({column})"), format!("n{number}")),
                _ => (column.clone(), column.clone()),
            };
            // As a term of GROUP BY, a name of both tables would be ambiguous.
            let is_common = self.scopes[0].len() > 1 && ["id", "b"].contains(&name.as_str());
            let is_free = term.starts_with('n') || is_common || self.random.chance(2);
            let alias = if is_free { format!("n{number}") } else { name };
            let term = if alias == term || !self.random.chance(4) { term } else { alias.clone() };
            if alias.starts_with('n') {
                aliases.push(alias.clone());
            }
            items.push(format!("{item} AS {alias}"));
            group.push(term);
        }
        for number in 4..5 + self.random.below(2) {
            let column = self.column();
            let name = column.rsplit('.').next().unwrap_or_default().trim_matches('"').to_owned();
            let call = self.random.pick(&["COUNT", "MIN", "MAX"]);
            let alias = if self.random.chance(2) { format!("n{number}") } else { name };
            if alias.starts_with('n') {
                aliases.push(alias.clone());
            }
            items.push(format!("{call}({column}) AS {alias}"));
        }
        let mut sql = format!("SELECT {} FROM {from}", items.join(", "));
        if self.random.chance(3) {
            sql += &format!(" WHERE {}", self.condition());
        }
        sql += &format!(" GROUP BY {}", group.join(", "));
        if self.random.chance(2) {
            let value = match (self.random.below(3), aliases.is_empty()) {
                (0, false) => aliases[self.random.below(aliases.len())].clone(),
                (1, _) => format!("MAX({})", self.column()),
                _ => group[0].clone(),
            };
            sql += &format!(" HAVING {value} IS NOT NULL AND {value} <> 2");
        }
        super::Asked { sql, ordered: false }
    }
}
