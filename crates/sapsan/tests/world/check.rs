//! What is compared while no client works: every document by several access paths, unique values, references and views, with the
//! model; and the states of the rules with the faults that the documents have.

use crate::client::seconds;
use crate::draft::{Conditions, Draft};
use crate::http::Client;
use crate::model::{Faults, Key, Model, Name, UniqueValue, number, text, unique_values};
use crate::settings::{Rule, Settings, View, sorted};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long the server may take to build everything that a file declares, beside the writers of a round.
const SETTLE_LIMIT: Duration = Duration::from_secs(180);
/// How long queries may see expired documents after the rule came into force. The documentation says a second; a machine that
/// does much else takes longer.
const HIDE_LIMIT: Duration = Duration::from_secs(40);
/// Unique values that one query looks up.
const VALUES: usize = 100;

/// What the server says of the rules of its file.
pub(crate) struct Rules {
    pub(crate) refused: BTreeSet<Rule>,
    /// An index is refused, though no entry is too long for one.
    has_refused_index: bool,
    pub(crate) why: String,
}

/// The rules once nothing is being built; none if `is_over` says so first, or the server ends.
pub(crate) fn settled(address: SocketAddr, is_over: impl Fn() -> bool) -> Result<Option<Rules>, String> {
    let mut client = Client::new(address);
    let began = Instant::now();
    while !is_over() {
        let Ok(schema) = client.ask("GET", "/_/schema", b"") else { return Ok(None) };
        let Ok(views) = client.ask("GET", "/_/views", b"") else { return Ok(None) };
        let (schema, views) = (schema.json(), views.json());
        let is_building = states(&schema).any(|part| part["state"] == "building")
            || views.as_array().into_iter().flatten().any(|view| view["state"] == "building");
        if !is_building && schema["collections"].is_array() && views.is_array() {
            return rules(&schema).map(Some);
        }
        if began.elapsed() > SETTLE_LIMIT {
            return Err(format!("after {SETTLE_LIMIT:?} rules are still being built: {schema} {views}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(None)
}

/// Indexes, unique fields and checked rules, each with its state.
fn states(schema: &Value) -> impl Iterator<Item = &Value> {
    let collections = schema["collections"].as_array().into_iter().flatten();
    collections.flat_map(|collection| {
        ["indexes", "unique", "rules"].into_iter().flat_map(|kind| collection[kind].as_array().into_iter().flatten())
    })
}

fn rules(schema: &Value) -> Result<Rules, String> {
    let (mut refused, mut has_refused_index) = (BTreeSet::new(), false);
    for collection in schema["collections"].as_array().into_iter().flatten() {
        let name = collection["name"].as_str().unwrap_or_default();
        for kind in ["unique", "rules", "indexes"] {
            for part in collection[kind].as_array().into_iter().flatten() {
                if part["state"] == "refused" {
                    // A moment in which the engine takes nothing decides about no rule.
                    if !part["failure"].as_str().is_some_and(|why| why.contains(&format!("{name}/"))) {
                        return Err(format!("a refusal names no document that breaks the rule: {name}: {part}"));
                    }
                    has_refused_index |= kind == "indexes";
                    refused.extend(refused_rules(name, kind, part));
                }
            }
        }
    }
    Ok(Rules { refused, has_refused_index, why: schema.to_string() })
}

fn refused_rules(collection: &str, kind: &str, part: &Value) -> Vec<Rule> {
    match (collection, kind) {
        ("owners", "unique") => vec![Rule::OwnerCodes],
        ("items", "unique") if part["fields"].is_array() => vec![Rule::Slugs],
        ("items", "unique") => vec![Rule::ItemCodes],
        ("items", "rules") if part["rule"] == "reference" => vec![Rule::ToOwners, Rule::ToOthers],
        ("carts", _) => vec![Rule::ToSessions],
        ("sessions", _) => vec![Rule::Expiry],
        _ => Vec::new(),
    }
}

/// A quiet server beside the model.
pub(crate) struct Check<'c> {
    pub(crate) model: &'c Model,
    pub(crate) settings: &'c Settings,
    pub(crate) rules: &'c Rules,
    /// Faults that there were at some time since the last check.
    pub(crate) broken: Faults,
    client: Client,
}

impl<'c> Check<'c> {
    pub(crate) fn new(
        model: &'c Model,
        settings: &'c Settings,
        rules: &'c Rules,
        broken: Faults,
        address: SocketAddr,
    ) -> Self {
        Check { model, settings, rules, broken, client: Client::new(address) }
    }

    pub(crate) fn run(mut self) -> Result<(), String> {
        self.states()?;
        self.until_hidden()?;
        Name::ALL.into_iter().try_for_each(|name| self.documents(name))?;
        self.orders()?;
        self.unique(Name::Items)?;
        self.unique(Name::Owners)?;
        self.slugs()?;
        self.references()?;
        View::ALL.into_iter().try_for_each(|view| self.view(view))?;
        let health = self.ask("GET", "/_/health", b"")?;
        if health["status"] != "ok" { Err(format!("health: {health}")) } else { Ok(()) }
    }

    fn ask(&mut self, method: &str, target: &str, body: &[u8]) -> Result<Value, String> {
        let reply = self.client.ask(method, target, body).map_err(|error| format!("{method} {target}: {error}"))?;
        let told = || {
            format!("{method} {target} {:.300}: {} {:.300}", String::from_utf8_lossy(body), reply.status, reply.text())
        };
        if reply.status == 200 { Ok(reply.json()) } else { Err(told()) }
    }

    fn sql(&mut self, sql: &str, params: &Value) -> Result<Vec<Value>, String> {
        let body = json!({ "sql": sql, "params": params }).to_string();
        let rows = self.ask("POST", "/_/query", body.as_bytes())?;
        rows.as_array().cloned().ok_or_else(|| format!("{sql}: no rows, but {rows}"))
    }

    /// A rule in force has no faults; a refused one had some.
    fn states(&self) -> Result<(), String> {
        if self.rules.has_refused_index {
            return Err(format!("an index is refused: {}", self.rules.why));
        }
        let faults = self.model.faults();
        let all = [
            (Rule::OwnerCodes, faults.owner_codes, self.broken.owner_codes),
            (Rule::ItemCodes, faults.item_codes, self.broken.item_codes),
            (Rule::Slugs, faults.slugs, self.broken.slugs),
            (Rule::ToOwners, faults.without_owner, self.broken.without_owner),
            (Rule::ToOthers, faults.without_other, self.broken.without_other),
            // A session that has expired is there for the model, and absent for a reference.
            (Rule::ToSessions, faults.without_session, 1),
            (Rule::Expiry, 0, 0),
        ];
        for (rule, now, before) in all.into_iter().filter(|(rule, ..)| self.settings.has(*rule)) {
            match self.rules.refused.contains(&rule) {
                true if before == 0 => return Err(format!("{rule:?} is refused without a reason: {}", self.rules.why)),
                false if now > 0 => return Err(format!("{rule:?} is in force, and {now} documents break it")),
                _ => {}
            }
        }
        Ok(())
    }

    fn is_in_force(&self, rule: Rule) -> bool {
        self.settings.has(rule) && !self.rules.refused.contains(&rule)
    }

    /// Waits until queries hide what has expired.
    fn until_hidden(&mut self) -> Result<(), String> {
        if !self.is_in_force(Rule::Expiry) {
            return Ok(());
        }
        let (over, began) = (seconds() - 2, Instant::now());
        loop {
            let rows = self.sql("SELECT id, until FROM sessions WHERE until <= :over", &json!({ "over": over }))?;
            if rows.is_empty() {
                return Ok(());
            }
            if began.elapsed() > HIDE_LIMIT {
                return Err(format!("expiry is in force, and after {HIDE_LIMIT:?} queries find {rows:?}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The whole collection, page by page.
    fn documents(&mut self, name: Name) -> Result<(), String> {
        let from = seconds();
        let (mut found, mut after) = (BTreeMap::new(), String::new());
        loop {
            let page = self.ask("GET", &format!("/_/collections/{}?limit=1000{after}", name.text()), b"")?;
            for document in page["items"].as_array().into_iter().flatten() {
                let key = Key::of(&document["id"]).ok_or_else(|| format!("without a key: {document}"))?;
                found.insert(key, document.clone());
            }
            match Key::of(&page["after"]) {
                Some(key) => after = format!("&after={key}"),
                None => break,
            }
        }
        let to = seconds();
        let visible = |now: i64| {
            let obeyed = Rule::ALL.into_iter().filter(|rule| self.is_in_force(*rule)).collect();
            let conditions = Conditions { obeyed, now, meaning: None };
            let draft = Draft::new(self.model, &conditions);
            let keys = self.model.all(name).map(|(key, _)| key);
            keys.filter(|key| draft.get(name, key).is_some()).cloned().collect::<BTreeSet<Key>>()
        };
        let (must, may) = (visible(to + 1), visible(from - 1));
        for key in may.iter().chain(found.keys()) {
            let (expected, found) = (self.model.get(name, key), found.get(key));
            let is_right = match found {
                Some(found) => {
                    may.contains(key) && expected.is_some_and(|document| found.as_object() == Some(document))
                }
                None => !must.contains(key),
            };
            if !is_right {
                return Err(format!("{name:?} {key}: expected {expected:?}, found {found:?}"));
            }
        }
        Ok(())
    }

    /// Orders and ranges that an index serves, if there is one.
    fn orders(&mut self) -> Result<(), String> {
        for field in ["grp", "n", "op"] {
            let found = self.sql(&format!("SELECT id, {field} AS v FROM items ORDER BY {field}, id"), &json!({}))?;
            let mut expected: Vec<(Option<i64>, i64)> =
                self.model.all(Name::Items).map(|(key, item)| (number(item, field), key.number())).collect();
            expected.sort_unstable();
            same(&format!("items by {field}"), &pairs(&found), &expected)?;
        }
        let sql = "SELECT id, n AS v FROM items WHERE tenant = :tenant AND n >= 20 ORDER BY n, id";
        for tenant in 0..4 {
            let found = self.sql(sql, &json!({ "tenant": tenant }))?;
            let of_tenant = self.model.all(Name::Items).filter(|(_, item)| number(item, "tenant") == Some(tenant));
            let mut expected: Vec<(Option<i64>, i64)> = of_tenant
                .map(|(key, item)| (number(item, "n"), key.number()))
                .filter(|(n, _)| *n >= Some(20))
                .collect();
            expected.sort_unstable();
            same(&format!("items of tenant {tenant}"), &pairs(&found), &expected)?;
        }
        let groups: Vec<i64> = self.model.groups().collect();
        for group in groups {
            let found =
                self.sql("SELECT id, grp AS v FROM items WHERE grp = :grp ORDER BY id", &json!({ "grp": group }))?;
            let expected: Vec<(Option<i64>, i64)> =
                self.model.group(group).map(|(key, _)| (Some(group), key.number())).collect();
            same(&format!("items of group {group}"), &pairs(&found), &expected)?;
        }
        Ok(())
    }

    /// Every value that must be unique finds its document and no other, and values that no document has find none.
    fn unique(&mut self, name: Name) -> Result<(), String> {
        let mut codes: BTreeSet<String> =
            self.model.all(name).filter_map(|(_, document)| Some(text(document, "code")?.to_owned())).collect();
        codes.extend((0..200).flat_map(|number| [format!("c{number}"), format!("o{number}")]));
        let codes: Vec<String> = codes.into_iter().collect();
        let sql = format!(
            "SELECT id, code FROM {} WHERE code IN (SELECT value FROM json_each(:codes)) ORDER BY code, id",
            name.text()
        );
        for codes in codes.chunks(VALUES) {
            let found = self.sql(&sql, &json!({ "codes": codes }))?;
            let keys = |code: &String| {
                let value = UniqueValue::Code(name, code.clone());
                self.model.found_by(&value).map(|key| json!({ "id": key.json(), "code": code })).collect::<Vec<_>>()
            };
            same(&format!("{name:?} by their codes"), &found, &codes.iter().flat_map(keys).collect())?;
        }
        Ok(())
    }

    fn slugs(&mut self) -> Result<(), String> {
        let has_slug = |item: &&crate::model::Document| {
            unique_values(Name::Items, item).iter().any(|value| matches!(value, UniqueValue::Slug(..)))
        };
        let of_items: BTreeSet<(i64, String)> = self
            .model
            .all(Name::Items)
            .map(|(_, item)| item)
            .filter(has_slug)
            .filter_map(|item| Some((number(item, "tenant")?, text(item, "slug")?.to_owned())))
            .chain((0..4).flat_map(|tenant| (0..30).map(move |slug| (tenant, format!("s{slug}")))))
            .collect();
        for (tenant, slug) in of_items {
            let sql = "SELECT id FROM items WHERE tenant = :tenant AND slug = :slug ORDER BY id";
            let found = self.sql(sql, &json!({ "tenant": tenant, "slug": slug }))?;
            let value = UniqueValue::Slug(tenant, slug.clone());
            let expected = self.model.found_by(&value).map(|key| json!({ "id": key.json() })).collect();
            same(&format!("items by {tenant} {slug}"), &found, &expected)?;
        }
        Ok(())
    }

    /// Joins through references, and the documents that have no partner.
    fn references(&mut self) -> Result<(), String> {
        for target in [Name::Owners, Name::Others] {
            let has_target = |item: &crate::model::Document| {
                number(item, "owner").map(|owner| self.model.get(target, &Key::Number(owner)).is_some())
            };
            let mut counts = [0, 0];
            for (_, item) in self.model.all(Name::Items) {
                match has_target(item) {
                    Some(true) => counts[0] += 1,
                    Some(false) => counts[1] += 1,
                    None => {}
                }
            }
            let target = target.text();
            let sqls = [
                format!("SELECT COUNT(*) AS c FROM items JOIN {target} ON {target}.id = items.owner"),
                format!(
                    "SELECT COUNT(*) AS c FROM items LEFT JOIN {target} ON {target}.id = items.owner \
                     WHERE {target}.id IS NULL AND items.owner IS NOT NULL"
                ),
            ];
            for (sql, count) in sqls.iter().zip(counts) {
                let found = self.sql(sql, &json!({}))?;
                same(sql, &found, &vec![json!({ "c": count })])?;
            }
        }
        Ok(())
    }

    /// The rows of a view are those of its query, computed again.
    fn view(&mut self, view: View) -> Result<(), String> {
        let Some(meaning) = self.settings.meaning(view) else { return Ok(()) };
        let found = self.sql(&format!("SELECT {} FROM {}", view.columns().join(", "), view.name()), &json!({}))?;
        same(view.name(), &sorted(found), &sorted(meaning.rows(self.model)))?;
        let report = self.ask("POST", &format!("/_/views/{}/verify", view.name()), b"")?;
        if report["clean"] == true { Ok(()) } else { Err(format!("{}: {report}", view.name())) }
    }
}

fn pairs(rows: &[Value]) -> Vec<(Option<i64>, i64)> {
    rows.iter().map(|row| (row["v"].as_i64(), row["id"].as_i64().unwrap_or(i64::MIN))).collect()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &Vec<T>, expected: &Vec<T>) -> Result<(), String> {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).position(|(found, expected)| found != expected);
    let at = at.unwrap_or(found.len().min(expected.len()));
    Err(format!(
        "{what}: {} rows instead of {}; the {at}th is {:?} instead of {:?}",
        found.len(),
        expected.len(),
        found.get(at),
        expected.get(at)
    ))
}
