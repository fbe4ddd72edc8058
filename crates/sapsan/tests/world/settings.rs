//! A random service file: which rules hold, which indexes and views there are, and what the views mean.

use crate::model::{Model, Name, number};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// So little memory that statements over some thousand documents are large, and that memtables fill every second or so.
const MEMORY: &str = "64MB";
/// The feed reaches back over a whole life of the server, whatever it writes.
const CHANGES_KEPT: &str = "1GB";

/// Longer than an automatic reopening waits for the statements in progress.
const QUERY_SECONDS: u32 = 50;

/// A rule of the file that decides whether a write is refused, or what it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Rule {
    OwnerCodes,
    ItemCodes,
    Slugs,
    /// `items.owner` refers to owners.
    ToOwners,
    /// `items.owner` refers to others.
    ToOthers,
    /// `carts.session` refers to sessions.
    ToSessions,
    /// Sessions expire at the time in `until`.
    Expiry,
}

impl Rule {
    pub(crate) const ALL: [Rule; 7] = [
        Rule::OwnerCodes,
        Rule::ItemCodes,
        Rule::Slugs,
        Rule::ToOwners,
        Rule::ToOthers,
        Rule::ToSessions,
        Rule::Expiry,
    ];
}

/// What a view says of the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum View {
    /// Sums by group.
    Totals,
    /// Counts by a field whose letters a schema can change.
    Kinds,
    /// Groups by their size: a view over the view of sums.
    Sizes,
    /// Groups of each owner.
    Spread,
}

/// One meaning of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Totals { least: i64 },
    Kinds { is_declared: bool },
    Sizes { least: i64 },
    Spread,
}

impl View {
    pub(crate) const ALL: [View; 4] = [View::Totals, View::Kinds, View::Sizes, View::Spread];

    pub(crate) fn name(self) -> &'static str {
        match self {
            View::Totals => "totals",
            View::Kinds => "kinds",
            View::Sizes => "sizes",
            View::Spread => "spread",
        }
    }

    /// Its columns; the first is the value of GROUP BY.
    pub(crate) fn columns(self) -> &'static [&'static str] {
        match self {
            View::Totals => &["grp", "c", "s", "lo", "hi"],
            View::Kinds => &["k", "c"],
            View::Sizes => &["c", "g"],
            View::Spread => &["owner", "c", "d"],
        }
    }
}

impl Meaning {
    fn query(self) -> String {
        match self {
            Meaning::Totals { least } => format!(
                "SELECT grp, COUNT(*) AS c, SUM(n) AS s, MIN(n) AS lo, MAX(n) AS hi FROM items WHERE n >= {least} GROUP BY grp"
            ),
            Meaning::Kinds { .. } => "SELECT kind AS k, COUNT(*) AS c FROM items GROUP BY kind".to_owned(),
            Meaning::Sizes { .. } => "SELECT c, COUNT(*) AS g FROM totals GROUP BY c".to_owned(),
            Meaning::Spread => {
                "SELECT owner, COUNT(*) AS c, COUNT(DISTINCT grp) AS d FROM items GROUP BY owner".to_owned()
            }
        }
    }

    /// The row of a group, if the view has one.
    pub(crate) fn total(least: i64, group: i64, model: &Model) -> Option<Value> {
        let numbers = model.group(group).filter_map(|(_, item)| number(item, "n")).filter(|n| *n >= least);
        let numbers: Vec<i64> = numbers.collect();
        let (lo, hi) = (numbers.iter().min()?, numbers.iter().max()?);
        Some(json!({ "grp": group, "c": numbers.len(), "s": numbers.iter().sum::<i64>(), "lo": lo, "hi": hi }))
    }

    /// All rows, in no order.
    pub(crate) fn rows(self, model: &Model) -> Vec<Value> {
        match self {
            Meaning::Totals { least } => {
                model.groups().filter_map(|group| Meaning::total(least, group, model)).collect()
            }
            Meaning::Sizes { least } => {
                let mut sizes = BTreeMap::new();
                for total in (Meaning::Totals { least }).rows(model) {
                    *sizes.entry(total["c"].as_i64()).or_insert(0) += 1;
                }
                sizes.into_iter().map(|(size, groups)| json!({ "c": size, "g": groups })).collect()
            }
            Meaning::Kinds { is_declared } => {
                let field = if is_declared { "Kind" } else { "kind" };
                let mut counts = BTreeMap::new();
                for (_, item) in model.all(Name::Items) {
                    *counts.entry(item.get(field).and_then(Value::as_str)).or_insert(0) += 1;
                }
                counts.into_iter().map(|(kind, count)| json!({ "k": kind, "c": count })).collect()
            }
            Meaning::Spread => {
                let mut owners: BTreeMap<Option<i64>, (usize, BTreeSet<i64>)> = BTreeMap::new();
                for (_, item) in model.all(Name::Items) {
                    let (count, groups) = owners.entry(number(item, "owner")).or_default();
                    *count += 1;
                    groups.extend(number(item, "grp"));
                }
                let row = |(owner, (count, groups)): (Option<i64>, (usize, BTreeSet<i64>))| json!({ "owner": owner, "c": count, "d": groups.len() });
                owners.into_iter().map(row).collect()
            }
        }
    }
}

/// Lists of fields that items may be indexed by.
const INDEXES: [&[&str]; 6] = [&["grp"], &["grp", "n"], &["grp", "op"], &["n"], &["tenant", "n"], &["op"]];

/// What one file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    rules: BTreeSet<Rule>,
    indexes: BTreeSet<usize>,
    views: BTreeSet<View>,
    /// Whether a schema declares the field `Kind`, which `kind` then means.
    declares_kind: bool,
    /// The least number that counts in the view of sums.
    least: i64,
}

impl Settings {
    /// The rules, indexes and views of the first file: all that there are.
    pub(crate) fn full() -> Settings {
        Settings {
            rules: Rule::ALL.into_iter().filter(|rule| *rule != Rule::ToOthers).collect(),
            indexes: [0, 3].into(),
            views: View::ALL.into(),
            declares_kind: true,
            least: i64::from(i32::MIN),
        }
    }

    /// Another file, which differs in one to three things.
    pub(crate) fn changed(&self, random: &mut ChaCha8Rng) -> Settings {
        let mut changed = self.clone();
        for _ in 0..random.random_range(1..=3) {
            changed.change(random);
        }
        changed
    }

    fn change(&mut self, random: &mut ChaCha8Rng) {
        match random.random_range(0..10) {
            0..=2 => {
                let rule = [Rule::OwnerCodes, Rule::ItemCodes, Rule::Slugs, Rule::ToSessions, Rule::Expiry];
                let rule = rule[random.random_range(0..rule.len())];
                if !self.rules.remove(&rule) {
                    self.rules.insert(rule);
                }
            }
            3 | 4 => {
                let had = [Rule::ToOwners, Rule::ToOthers].map(|rule| self.rules.remove(&rule));
                // Mostly another target, sometimes none.
                match had {
                    _ if random.random_range(0..4) == 0 => {}
                    [true, _] => self.rules.extend([Rule::ToOthers]),
                    _ => self.rules.extend([Rule::ToOwners]),
                }
            }
            5 | 6 => {
                let index = random.random_range(0..INDEXES.len());
                // Another index over groups takes the place of the one there is.
                if index < 3 {
                    self.indexes.retain(|other| *other > 2);
                    self.indexes.insert(index);
                } else if !self.indexes.remove(&index) {
                    self.indexes.insert(index);
                }
            }
            7 => self.declares_kind = !self.declares_kind,
            8 => self.least = [i64::from(i32::MIN), 40, 100][random.random_range(0..3)],
            _ => {
                let view = View::ALL[random.random_range(0..View::ALL.len())];
                if !self.views.remove(&view) {
                    self.views.insert(view);
                }
                // It reads the other one.
                if self.views.contains(&View::Sizes) {
                    self.views.insert(View::Totals);
                }
            }
        }
    }

    /// The same file with a rule, or without it.
    pub(crate) fn with(&self, rule: Rule, is_there: bool) -> Settings {
        let mut changed = self.clone();
        changed.rules.retain(|other| *other != rule);
        changed.rules.extend(is_there.then_some(rule));
        changed
    }

    /// The same file with only those indexes on other fields than the groups.
    pub(crate) fn with_others_indexed(&self, are_indexed: bool) -> Settings {
        let mut changed = self.clone();
        changed.indexes.retain(|index| INDEXES[*index][0] == "grp");
        let others = (0..INDEXES.len()).filter(|index| are_indexed && INDEXES[*index][0] != "grp");
        changed.indexes.extend(others);
        changed
    }

    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.rules.contains(&rule)
    }

    /// Whether some index begins with the groups of items.
    pub(crate) fn indexes_groups(&self) -> bool {
        self.indexes.iter().any(|index| INDEXES[*index][0] == "grp")
    }

    /// What a view means, if the file has it.
    pub(crate) fn meaning(&self, view: View) -> Option<Meaning> {
        self.views.contains(&view).then_some(match view {
            View::Totals => Meaning::Totals { least: self.least },
            View::Kinds => Meaning::Kinds { is_declared: self.declares_kind },
            View::Sizes => Meaning::Sizes { least: self.least },
            View::Spread => Meaning::Spread,
        })
    }

    /// The text of the file. `backups` is the folder for backups.
    pub(crate) fn text(&self, backups: &str) -> String {
        let mut text = format!(
            "[server]\nmemory = \"{MEMORY}\"\nthreads = 2\nchanges_kept_bytes = \"{CHANGES_KEPT}\"\nbackups = \"{backups}\"\n\
             query_seconds = {QUERY_SECONDS}\ndrain_seconds = 60\nscan_rows_max = 1000000000000\n\n"
        );
        for name in Name::ALL {
            let _ = writeln!(text, "[collections.{}]\n{}", name.text(), key(name));
            self.add_rules(&mut text, name);
        }
        if self.declares_kind {
            text.push_str("[collections.items.schema.properties]\nKind = { type = \"string\" }\n\n");
        }
        for view in View::ALL {
            if let Some(meaning) = self.meaning(view) {
                let _ = writeln!(text, "[views.{}]\nquery = \"{}\"\n", view.name(), meaning.query());
            }
        }
        text + MOVE
    }

    fn add_rules(&self, text: &mut String, name: Name) {
        let lists = |lists: Vec<String>| lists.join(", ");
        let mut unique = Vec::new();
        if self.has(Rule::OwnerCodes) && name == Name::Owners || self.has(Rule::ItemCodes) && name == Name::Items {
            unique.push("\"code\"".to_owned());
        }
        if self.has(Rule::Slugs) && name == Name::Items {
            unique.push("[\"tenant\", \"slug\"]".to_owned());
        }
        let _ = writeln!(text, "unique = [{}]", lists(unique));
        match name {
            Name::Items => {
                let indexes = self.indexes.iter().map(|index| format!("{:?}", INDEXES[*index])).collect();
                let _ = writeln!(text, "indexes = [{}]", lists(indexes));
                let targets = [(Rule::ToOwners, "owners"), (Rule::ToOthers, "others")];
                for (_, target) in targets.into_iter().filter(|(rule, _)| self.has(*rule)) {
                    let _ = writeln!(text, "references = {{ owner = \"{target}\" }}");
                }
            }
            Name::Carts if self.has(Rule::ToSessions) => text.push_str("references = { session = \"sessions\" }\n"),
            Name::Sessions if self.has(Rule::Expiry) => text.push_str("expire = \"until\"\n"),
            _ => {}
        }
        text.push('\n');
    }
}

fn key(name: Name) -> &'static str {
    match name {
        Name::Items => "key = { field = \"id\", type = \"i64\" }",
        Name::Sessions => "key = { field = \"id\", type = \"string\" }",
        Name::Logs => "key = { field = \"id\", type = \"u32\", generate = \"counter\" }",
        Name::Owners | Name::Others | Name::Carts => "key = { field = \"id\", type = \"u32\" }",
    }
}

/// Steps: one transaction over two collections, with a read of a third.
const MOVE: &str = r#"
[[endpoints]]
route = "POST /move"
body = { required = ["op", "a", "b"], properties = { op = { type = "integer" }, a = { type = "integer" }, b = { type = "integer" } } }
steps = [
  { sql = "UPDATE owners SET n = n - 1, op = :op WHERE id = :a AND n > 0", expect = "rows = 1" },
  { sql = "UPDATE owners SET n = n + 1, op = :op WHERE id = :b", expect = "rows = 1" },
  { sql = "INSERT INTO logs (op, n) SELECT :op, COUNT(*) FROM items RETURNING id, n" },
]
result = "row"
"#;

/// Rows as texts in their order, without the columns that are null.
pub(crate) fn sorted(mut rows: Vec<Value>) -> Vec<String> {
    rows.iter_mut().for_each(|row| {
        if let Value::Object(row) = row {
            row.retain(|_, value: &mut Value| !value.is_null());
        }
    });
    let mut rows: Vec<String> = rows.iter().map(Value::to_string).collect();
    rows.sort();
    rows
}
