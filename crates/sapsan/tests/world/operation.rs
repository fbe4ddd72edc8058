//! The operations of clients: each as a request, and as what it does to the model.

use crate::client::GROUPS;
use crate::draft::{Broken, Conditions, Draft};
use crate::http::Reply;
use crate::model::{Changes, Document, Key, Model, Name, UniqueValue, number};
use crate::settings::{Meaning, Rule, View, sorted};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Keys of items from which on they are stored in masses: by imports, bulk requests and copies. Those below are changed one by one.
pub(crate) const MASS: i64 = 1_000;
/// Keys of items from which on they are copies of others. Upserts make keys below zero.
pub(crate) const COPIES: i64 = 10_000;

/// What a client does. Its number stands in the field `op` of each document that it writes.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Put(Name, Key, Document),
    /// A document that must be new: a request of its own, or a line of a bulk request.
    Insert(Name, Key, Document),
    Patch(Name, Key, Document),
    Delete(Name, Key),
    AddToGroup {
        group: i64,
        by: i64,
    },
    SetCode {
        key: Key,
        code: String,
    },
    UpsertByCode(Document),
    UpsertBySlug(Document),
    Replace(Document),
    Ignore(Document),
    /// UPDATE … FROM.
    CopyFromOwners {
        group: i64,
    },
    DeleteGroup {
        group: i64,
        below: i64,
    },
    /// Steps that change two owners and count the items.
    Move {
        from: i64,
        to: i64,
    },
    /// An owner gets the numbers of items and carts.
    CountInto {
        owner: i64,
    },
    /// A new document gets the sum of all items.
    LogSum,
    AddToRange {
        from: i64,
        count: i64,
    },
    AddToAll,
    CountIntoAll,
    CodeAll,
    DeleteMass {
        divisor: i64,
        rest: i64,
    },
    DeleteCopies,
    CopyItems,
    DeleteUnreferenced(Name),
    DeleteFrom(Name, i64),
    CopyTargets {
        from: Name,
        to: Name,
    },
    /// New items with the codes that other clients use, where those are free: it reads their unique values, and no other item.
    ItemsOfTargets(Name),
    /// DELETE without WHERE.
    Empty(Name),
    ReadGroup {
        group: i64,
    },
    ReadCode {
        code: String,
    },
    ReadSlug {
        tenant: i64,
        slug: String,
    },
    ReadJoin {
        target: Name,
        group: i64,
    },
    ReadSum,
    ReadCounts,
    ReadFirst,
    ReadTotal {
        group: i64,
    },
    ReadView(View),
    ReadDocument(Name, Key),
}

/// What an operation does at one place of the order, and how it is answered then.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Done {
        changes: Changes,
        answer: Answer,
    },
    /// A collection is emptied as a whole.
    Emptied {
        name: Name,
        count: usize,
    },
    /// A rule, a key in use, or a statement that cannot be: 400 or 409.
    Refused,
    /// 404.
    Missing,
}

/// The answer of what was done.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Status(u16),
    /// Of a statement: the number of documents, and RETURNING's rows.
    Changed(usize, Option<Vec<Value>>),
    /// Exactly this.
    Body(Value),
    /// Rows in any order.
    Rows(Vec<Value>),
}

impl Outcome {
    /// Whether a reply says this.
    pub(crate) fn fits(&self, reply: &Reply) -> bool {
        match self {
            Outcome::Refused => matches!(reply.status, 400 | 409),
            Outcome::Missing => reply.status == 404,
            Outcome::Emptied { count, .. } => reply.status == 200 && reply.json()["changed"] == json!(count),
            Outcome::Done { answer: Answer::Status(status), .. } => reply.status == *status,
            Outcome::Done { answer, .. } => reply.status == 200 && answer.fits(&reply.json()),
        }
    }

    /// Whether it leaves a transaction in the feed.
    pub(crate) fn has_effect(&self) -> bool {
        match self {
            Outcome::Done { changes, .. } => !changes.is_empty(),
            Outcome::Emptied { count, .. } => *count > 0,
            Outcome::Refused | Outcome::Missing => false,
        }
    }
}

impl Answer {
    fn fits(&self, body: &Value) -> bool {
        let same = |rows: &Vec<Value>, body: &Value| {
            body.as_array().is_some_and(|found| sorted(found.clone()) == sorted(rows.clone()))
        };
        match self {
            Answer::Status(_) => true,
            Answer::Changed(count, rows) => {
                body["changed"] == json!(count) && rows.as_ref().is_none_or(|rows| same(rows, &body["rows"]))
            }
            Answer::Body(expected) => body == expected,
            Answer::Rows(rows) => same(rows, body),
        }
    }
}

/// A statement and its parameters as a request.
fn sql(text: &str, params: Value) -> (&'static str, String, Vec<u8>) {
    ("POST", "/_/query".to_owned(), json!({ "sql": text, "params": params }).to_string().into_bytes())
}

fn path(name: Name, key: &Key) -> String {
    format!("/_/collections/{}/{key}", name.text())
}

fn body(document: &Document) -> Vec<u8> {
    Value::Object((**document).clone()).to_string().into_bytes()
}

impl Operation {
    /// Whether it writes nothing, whatever happens.
    pub(crate) fn is_read(&self) -> bool {
        use Operation as O;
        matches!(
            self,
            O::ReadGroup { .. }
                | O::ReadCode { .. }
                | O::ReadSlug { .. }
                | O::ReadJoin { .. }
                | O::ReadSum
                | O::ReadCounts
                | O::ReadFirst
                | O::ReadTotal { .. }
                | O::ReadView(_)
                | O::ReadDocument(..)
        )
    }

    /// Whether its transaction only deletes, so that the feed does not show its number.
    pub(crate) fn only_deletes(&self) -> bool {
        use Operation as O;
        matches!(
            self,
            O::Delete(..)
                | O::DeleteGroup { .. }
                | O::DeleteMass { .. }
                | O::DeleteCopies
                | O::DeleteUnreferenced(_)
                | O::DeleteFrom(..)
        )
    }

    /// The view that it reads.
    pub(crate) fn view(&self) -> Option<View> {
        match self {
            Operation::ReadTotal { .. } => Some(View::Totals),
            Operation::ReadView(view) => Some(*view),
            _ => None,
        }
    }

    /// The rules that can decide what it does.
    pub(crate) fn rules(&self) -> &'static [Rule] {
        use Operation as O;
        const ITEM: &[Rule] = &[Rule::ItemCodes, Rule::Slugs, Rule::ToOwners, Rule::ToOthers];
        const SESSION: &[Rule] = &[Rule::Expiry, Rule::ToSessions];
        match self {
            O::Put(name, ..)
            | O::Insert(name, ..)
            | O::Patch(name, ..)
            | O::Delete(name, _)
            | O::ReadDocument(name, _) => match name {
                Name::Items => ITEM,
                Name::Owners => &[Rule::OwnerCodes, Rule::ToOwners],
                Name::Others => &[Rule::ToOthers],
                Name::Sessions | Name::Carts => SESSION,
                Name::Logs => &[],
            },
            O::SetCode { .. } | O::Replace(_) | O::Ignore(_) | O::UpsertByCode(_) | O::CodeAll => ITEM,
            O::CopyItems | O::ItemsOfTargets(_) => ITEM,
            O::UpsertBySlug(_) => &[Rule::Slugs],
            O::DeleteUnreferenced(_) | O::DeleteFrom(..) => &[Rule::ToOwners, Rule::ToOthers],
            _ => &[],
        }
    }

    /// Whether it could delete a document of this key.
    pub(crate) fn could_delete(&self, name: Name, key: &Key) -> bool {
        use Operation as O;
        match self {
            O::Delete(of, which) => (*of, which) == (name, key),
            O::DeleteGroup { .. } => name == Name::Items,
            O::DeleteMass { .. } => name == Name::Items && key.number() >= MASS,
            O::DeleteCopies => name == Name::Items && !(0..COPIES).contains(&key.number()),
            O::DeleteUnreferenced(of) | O::Empty(of) => name == *of,
            O::DeleteFrom(of, from) => name == *of && key.number() >= *from,
            _ => false,
        }
    }

    /// Method, target and body. `op` is its number.
    pub(crate) fn request(&self, op: u64) -> (&'static str, String, Vec<u8>) {
        use Operation as O;
        match self {
            O::Put(name, key, document) => ("PUT", path(*name, key), body(document)),
            O::Insert(name, _, document) => ("POST", format!("/_/collections/{}", name.text()), body(document)),
            O::Patch(name, key, patch) => ("PATCH", path(*name, key), body(patch)),
            O::Delete(name, key) => ("DELETE", path(*name, key), Vec::new()),
            O::ReadDocument(name, key) => ("GET", path(*name, key), Vec::new()),
            O::Move { from, to } => {
                ("POST", "/move".to_owned(), json!({ "op": op, "a": from, "b": to }).to_string().into_bytes())
            }
            _ => self.statement(op),
        }
    }

    #[expect(clippy::too_many_lines, reason = "a flat table")]
    fn statement(&self, op: u64) -> (&'static str, String, Vec<u8>) {
        use Operation as O;
        let of = |document: &Document| {
            let mut params = (**document).clone();
            params.insert("op".to_owned(), op.into());
            Value::Object(params)
        };
        match self {
            O::AddToGroup { group, by } => sql(
                "UPDATE items SET n = n + :by, op = :op WHERE grp = :grp RETURNING id, n",
                json!({ "by": by, "grp": group, "op": op }),
            ),
            O::SetCode { key, code } => sql(
                "UPDATE items SET code = :code, op = :op WHERE id = :id",
                json!({ "code": code, "id": key.json(), "op": op }),
            ),
            O::UpsertByCode(document) => sql(
                "INSERT INTO items (id, code, grp, n, op) VALUES (:id, :code, :grp, :n, :op) \
                 ON CONFLICT (code) DO UPDATE SET n = n + 1, op = excluded.op RETURNING id, n",
                of(document),
            ),
            O::UpsertBySlug(document) => sql(
                "INSERT INTO items (id, tenant, slug, grp, n, op) VALUES (:id, :tenant, :slug, :grp, :n, :op) \
                 ON CONFLICT (tenant, slug) DO UPDATE SET n = n + 1, op = excluded.op RETURNING id, n",
                of(document),
            ),
            O::Replace(document) => sql(
                "INSERT OR REPLACE INTO items (id, code, grp, n, op) VALUES (:id, :code, :grp, :n, :op)",
                of(document),
            ),
            O::Ignore(document) => sql(
                "INSERT OR IGNORE INTO items (id, code, grp, n, op) VALUES (:id, :code, :grp, :n, :op)",
                of(document),
            ),
            O::CopyFromOwners { group } => sql(
                "UPDATE items SET n = owners.n, op = :op FROM owners WHERE owners.id = items.owner AND items.grp = :grp",
                json!({ "grp": group, "op": op }),
            ),
            O::DeleteGroup { group, below } => sql(
                "DELETE FROM items WHERE grp = :grp AND n < :below RETURNING id",
                json!({ "grp": group, "below": below }),
            ),
            O::CountInto { owner } => sql(
                "UPDATE owners SET n = (SELECT COUNT(*) FROM items) + (SELECT COUNT(*) FROM carts), op = :op WHERE id = :id",
                json!({ "id": owner, "op": op }),
            ),
            O::LogSum => sql("INSERT INTO logs (op, n) SELECT :op, SUM(n) FROM items", json!({ "op": op })),
            O::AddToRange { from, count } => sql(
                "UPDATE items SET n = n + 1, op = :op WHERE id >= :from AND id < :to",
                json!({ "from": from, "to": from + count, "op": op }),
            ),
            O::AddToAll => sql("UPDATE items SET n = n + 1, op = :op", json!({ "op": op })),
            O::CountIntoAll => sql("UPDATE items SET n = (SELECT COUNT(*) FROM items), op = :op", json!({ "op": op })),
            O::CodeAll => sql("UPDATE items SET code = 'x' || :op || '-' || id, op = :op", json!({ "op": op })),
            O::DeleteMass { divisor, rest } => sql(
                "DELETE FROM items WHERE id >= :mass AND id % :divisor = :rest",
                json!({ "mass": MASS, "divisor": divisor, "rest": rest }),
            ),
            O::DeleteCopies => sql("DELETE FROM items WHERE id >= :copies OR id < 0", json!({ "copies": COPIES })),
            O::CopyItems => sql(
                "INSERT INTO items (id, owner, code, grp, n, Kind, pad, op) \
                 SELECT id + :offset, owner, code || :suffix, grp, n, Kind, pad, :op FROM items WHERE id >= :mass AND id < :copies",
                json!({ "offset": copied_by(op), "suffix": suffix(op), "mass": MASS, "copies": COPIES, "op": op }),
            ),
            O::DeleteUnreferenced(name) => {
                let name = name.text();
                sql(
                    &format!("DELETE FROM {name} WHERE NOT EXISTS (SELECT 1 FROM items WHERE items.owner = {name}.id)"),
                    json!({}),
                )
            }
            O::DeleteFrom(name, from) => {
                sql(&format!("DELETE FROM {} WHERE id >= :from", name.text()), json!({ "from": from }))
            }
            O::CopyTargets { from, to } => {
                let (from, to) = (from.text(), to.text());
                sql(
                    &format!(
                        "INSERT INTO {to} (id, n, op) SELECT id, n, :op FROM {from} \
                         WHERE NOT EXISTS (SELECT 1 FROM {to} WHERE {to}.id = {from}.id)"
                    ),
                    json!({ "op": op }),
                )
            }
            O::ItemsOfTargets(from) => sql(
                &format!(
                    "INSERT OR IGNORE INTO items (id, code, grp, n, pad, op) SELECT id + :offset, 'c' || (id - :mass), \
                     id % :groups, n, printf('%0600d', id), :op FROM {} WHERE id >= :mass",
                    from.text()
                ),
                json!({ "offset": copied_by(op), "mass": MASS, "groups": GROUPS, "op": op }),
            ),
            O::Empty(name) => sql(&format!("DELETE FROM {}", name.text()), json!({})),
            _ => self.query(),
        }
    }

    fn query(&self) -> (&'static str, String, Vec<u8>) {
        use Operation as O;
        match self {
            O::ReadGroup { group } => {
                sql("SELECT COUNT(*) AS c, SUM(n) AS s FROM items WHERE grp = :grp", json!({ "grp": group }))
            }
            O::ReadCode { code } => {
                sql("SELECT id, n FROM items WHERE code = :code ORDER BY id", json!({ "code": code }))
            }
            O::ReadSlug { tenant, slug } => sql(
                "SELECT id, n FROM items WHERE tenant = :tenant AND slug = :slug ORDER BY id",
                json!({ "tenant": tenant, "slug": slug }),
            ),
            O::ReadJoin { target, group } => {
                let target = target.text();
                sql(
                    &format!(
                        "SELECT items.id AS id FROM items JOIN {target} ON {target}.id = items.owner \
                         WHERE items.grp = :grp ORDER BY items.id"
                    ),
                    json!({ "grp": group }),
                )
            }
            O::ReadSum => sql("SELECT COUNT(*) AS c, SUM(n) AS s FROM items", json!({})),
            O::ReadCounts => {
                sql("SELECT (SELECT COUNT(*) FROM items) AS a, (SELECT COUNT(*) FROM owners) AS b", json!({}))
            }
            O::ReadFirst => sql("SELECT id, grp FROM items ORDER BY grp, id LIMIT 10", json!({})),
            O::ReadTotal { group } => {
                sql("SELECT grp, c, s, lo, hi FROM totals WHERE grp = :grp", json!({ "grp": group }))
            }
            O::ReadView(view) => sql(&format!("SELECT {} FROM {}", view.columns().join(", "), view.name()), json!({})),
            _ => unreachable!("a write"),
        }
    }

    /// What it does to a state. `generated` is the key that the server made, if the feed shows one.
    pub(crate) fn outcome(&self, op: u64, model: &Model, conditions: &Conditions, generated: Option<&Key>) -> Outcome {
        if self.is_read() {
            return self.read(model, conditions);
        }
        if let Operation::Empty(name) = self {
            return Outcome::Emptied { name: *name, count: model.count(*name) };
        }
        let mut draft = Draft::new(model, conditions);
        match self.write(op, model, &mut draft, generated) {
            Ok(Some(answer)) => Outcome::Done { changes: draft.changes, answer },
            Ok(None) => Outcome::Missing,
            Err(Broken) => Outcome::Refused,
        }
    }

    /// Writes to a draft; none: there is no such document.
    #[expect(clippy::too_many_lines, reason = "a flat table")]
    fn write(
        &self,
        op: u64,
        model: &Model,
        draft: &mut Draft<'_>,
        generated: Option<&Key>,
    ) -> Result<Option<Answer>, Broken> {
        use Operation as O;
        match self {
            O::Put(name, key, document) => {
                let status = if draft.get(*name, key).is_some() { 200 } else { 201 };
                draft.put(*name, key, Arc::clone(document))?;
                Ok(Some(Answer::Status(status)))
            }
            O::Insert(name, key, document) => {
                draft.insert(*name, key, Arc::clone(document))?;
                Ok(Some(Answer::Status(201)))
            }
            O::Patch(name, key, patch) => {
                let Some(document) = draft.get(*name, key) else { return Ok(None) };
                let document = with(document, patch.iter().map(|(field, value)| (field.as_str(), value.clone())));
                draft.put(*name, key, document)?;
                Ok(Some(Answer::Status(200)))
            }
            O::Delete(name, key) => {
                if draft.get(*name, key).is_none() {
                    return Ok(None);
                }
                draft.remove(*name, key)?;
                Ok(Some(Answer::Status(204)))
            }
            O::AddToGroup { group, by } => {
                let mut rows = Vec::new();
                for (key, item) in model.group(*group) {
                    let item = with(item, [("n", (n(item) + by).into()), ("op", op.into())]);
                    rows.push(json!({ "id": key.json(), "n": n(&item) }));
                    draft.put(Name::Items, key, item)?;
                }
                Ok(Some(Answer::Changed(rows.len(), Some(rows))))
            }
            O::SetCode { key, code } => {
                let Some(item) = model.get(Name::Items, key) else { return Ok(Some(Answer::Changed(0, None))) };
                draft.put(Name::Items, key, with(item, [("code", code.as_str().into()), ("op", op.into())]))?;
                Ok(Some(Answer::Changed(1, None)))
            }
            O::UpsertByCode(document) => {
                let code = document["code"].as_str().expect("a code").to_owned();
                upsert(op, draft, document, &UniqueValue::Code(Name::Items, code), Rule::ItemCodes)
            }
            O::UpsertBySlug(document) => {
                let (tenant, slug) = (number(document, "tenant").expect("a tenant"), &document["slug"]);
                let value = UniqueValue::Slug(tenant, slug.as_str().expect("a slug").to_owned());
                upsert(op, draft, document, &value, Rule::Slugs)
            }
            O::Replace(document) => {
                let key = Key::of(&document["id"]).expect("a key");
                for other in draft.conflicts(Name::Items, &key, document) {
                    draft.remove(Name::Items, &other)?;
                }
                draft.put(Name::Items, &key, Arc::clone(document))?;
                Ok(Some(Answer::Changed(1, None)))
            }
            O::Ignore(document) => {
                let key = Key::of(&document["id"]).expect("a key");
                let is_there = draft.get(Name::Items, &key).is_some();
                if is_there || !draft.conflicts(Name::Items, &key, document).is_empty() {
                    return Ok(Some(Answer::Changed(0, None)));
                }
                draft.put(Name::Items, &key, Arc::clone(document))?;
                Ok(Some(Answer::Changed(1, None)))
            }
            O::CopyFromOwners { group } => {
                for (key, item) in model.group(*group) {
                    let owner = number(item, "owner").and_then(|owner| model.get(Name::Owners, &Key::Number(owner)));
                    if let Some(owner) = owner {
                        draft.put(Name::Items, key, with(item, [("n", n(owner).into()), ("op", op.into())]))?;
                    }
                }
                Ok(Some(Answer::Changed(draft.changes.len(), None)))
            }
            O::DeleteGroup { group, below } => {
                let mut rows = Vec::new();
                for (key, _) in model.group(*group).filter(|(_, item)| n(item) < *below) {
                    rows.push(json!({ "id": key.json() }));
                    draft.remove(Name::Items, key)?;
                }
                Ok(Some(Answer::Changed(rows.len(), Some(rows))))
            }
            O::Move { from, to } => {
                let (from, to) = (Key::Number(*from), Key::Number(*to));
                let owner = draft.get(Name::Owners, &from).filter(|owner| n(owner) > 0).ok_or(Broken)?;
                let owner = with(owner, [("n", (n(owner) - 1).into()), ("op", op.into())]);
                draft.put(Name::Owners, &from, owner)?;
                let owner = draft.get(Name::Owners, &to).ok_or(Broken)?;
                let owner = with(owner, [("n", (n(owner) + 1).into()), ("op", op.into())]);
                draft.put(Name::Owners, &to, owner)?;
                let count = model.count(Name::Items);
                Ok(Some(Answer::Body(log(op, count.into(), draft, generated)?)))
            }
            O::CountInto { owner } => {
                let key = Key::Number(*owner);
                let Some(owner) = draft.get(Name::Owners, &key) else { return Ok(Some(Answer::Changed(0, None))) };
                let count = model.count(Name::Items) + model.count(Name::Carts);
                let owner = with(owner, [("n", count.into()), ("op", op.into())]);
                draft.put(Name::Owners, &key, owner)?;
                Ok(Some(Answer::Changed(1, None)))
            }
            O::LogSum => {
                let sum = if model.count(Name::Items) == 0 { Value::Null } else { model.sum().into() };
                log(op, sum, draft, generated)?;
                Ok(Some(Answer::Changed(1, None)))
            }
            O::AddToRange { from, count } => {
                let range = *from..from + count;
                update_items(model, draft, |key, item| {
                    let changed = || with(item, [("n", (n(item) + 1).into()), ("op", op.into())]);
                    range.contains(&key.number()).then(changed)
                })
            }
            O::AddToAll => {
                update_items(model, draft, |_, item| Some(with(item, [("n", (n(item) + 1).into()), ("op", op.into())])))
            }
            O::CountIntoAll => {
                let count = model.count(Name::Items);
                update_items(model, draft, |_, item| Some(with(item, [("n", count.into()), ("op", op.into())])))
            }
            O::CodeAll => update_items(model, draft, |key, item| {
                Some(with(item, [("code", format!("x{op}-{key}").into()), ("op", op.into())]))
            }),
            O::DeleteMass { divisor, rest } => {
                delete(model, draft, Name::Items, |key, _| key.number() >= MASS && key.number() % divisor == *rest)
            }
            O::DeleteCopies => delete(model, draft, Name::Items, |key, _| key.number() >= COPIES || key.number() < 0),
            O::CopyItems => {
                for (key, item) in model.all(Name::Items) {
                    if !(MASS..COPIES).contains(&key.number()) {
                        continue;
                    }
                    let id = key.number() + copied_by(op);
                    let fields = ["owner", "grp", "n", "Kind", "pad"].into_iter();
                    let mut copy: Map<String, Value> =
                        fields.filter_map(|field| Some((field.to_owned(), item.get(field)?.clone()))).collect();
                    if let Some(code) = item.get("code").and_then(Value::as_str) {
                        copy.insert("code".to_owned(), format!("{code}{}", suffix(op)).into());
                    }
                    copy.insert("id".to_owned(), id.into());
                    copy.insert("op".to_owned(), op.into());
                    draft.insert(Name::Items, &Key::Number(id), Arc::new(copy))?;
                }
                Ok(Some(Answer::Changed(draft.changes.len(), None)))
            }
            O::DeleteUnreferenced(name) => {
                delete(model, draft, *name, |key, _| !model.is_referred_by_item(key.number()))
            }
            O::DeleteFrom(name, from) => delete(model, draft, *name, |key, _| key.number() >= *from),
            O::CopyTargets { from, to } => {
                for (key, document) in model.all(*from).filter(|(key, _)| model.get(*to, key).is_none()) {
                    let copy = json!({ "id": key.json(), "n": document["n"], "op": op });
                    draft.insert(*to, key, Arc::new(copy.as_object().expect("an object").clone()))?;
                }
                Ok(Some(Answer::Changed(draft.changes.len(), None)))
            }
            O::ItemsOfTargets(from) => {
                for (key, target) in model.all(*from).filter(|(key, _)| key.number() >= MASS) {
                    let (id, code) = (key.number() + copied_by(op), format!("c{}", key.number() - MASS));
                    let pad = format!("{:0>600}", key.number());
                    let item = json!({
                        "id": id, "code": code, "grp": key.number() % GROUPS, "n": n(target), "pad": pad, "op": op,
                    });
                    let (key, item) = (Key::Number(id), crate::client::document(item));
                    if draft.conflicts(Name::Items, &key, &item).is_empty() {
                        draft.insert(Name::Items, &key, item)?;
                    }
                }
                Ok(Some(Answer::Changed(draft.changes.len(), None)))
            }
            _ => unreachable!("a read, or handled above"),
        }
    }

    fn read(&self, model: &Model, conditions: &Conditions) -> Outcome {
        use Operation as O;
        let count_and_sum =
            |count: usize, sum: i64| json!([{ "c": count, "s": if count == 0 { Value::Null } else { sum.into() } }]);
        let found = |value: UniqueValue| {
            let row =
                |key: &Key| json!({ "id": key.json(), "n": n(model.get(Name::Items, key).expect("it is found")) });
            Answer::Body(model.found_by(&value).map(row).collect())
        };
        let answer = match self {
            O::ReadGroup { group } => {
                let sum = model.group(*group).map(|(_, item)| n(item)).sum();
                Answer::Body(count_and_sum(model.group(*group).count(), sum))
            }
            O::ReadCode { code } => found(UniqueValue::Code(Name::Items, code.clone())),
            O::ReadSlug { tenant, slug } => found(UniqueValue::Slug(*tenant, slug.clone())),
            O::ReadJoin { target, group } => {
                let has_target = |item: &Document| {
                    number(item, "owner").is_some_and(|owner| model.get(*target, &Key::Number(owner)).is_some())
                };
                let rows = model.group(*group).filter(|(_, item)| has_target(item));
                Answer::Body(rows.map(|(key, _)| json!({ "id": key.json() })).collect())
            }
            O::ReadSum => Answer::Body(count_and_sum(model.count(Name::Items), model.sum())),
            O::ReadCounts => Answer::Body(json!([{ "a": model.count(Name::Items), "b": model.count(Name::Owners) }])),
            O::ReadFirst => {
                let rows = model.groups().flat_map(|group| {
                    model.group(group).map(move |(key, _)| json!({ "id": key.json(), "grp": group }))
                });
                Answer::Body(rows.take(10).collect())
            }
            O::ReadTotal { group } => match conditions.meaning {
                Some(Meaning::Totals { least }) => {
                    Answer::Body(Meaning::total(least, *group, model).into_iter().collect())
                }
                _ => return Outcome::Refused,
            },
            O::ReadView(_) => match conditions.meaning {
                Some(meaning) => Answer::Rows(meaning.rows(model)),
                None => return Outcome::Refused,
            },
            O::ReadDocument(name, key) => match Draft::new(model, conditions).get(*name, key) {
                Some(document) => Answer::Body(Value::Object((**document).clone())),
                None => return Outcome::Missing,
            },
            _ => unreachable!("a write"),
        };
        Outcome::Done { changes: Changes::new(), answer }
    }
}

fn n(document: &Map<String, Value>) -> i64 {
    number(document, "n").unwrap_or(0)
}

/// The document with some fields changed; null removes one.
pub(crate) fn with<'f>(document: &Document, fields: impl IntoIterator<Item = (&'f str, Value)>) -> Document {
    let mut document = (**document).clone();
    for (field, value) in fields {
        if value.is_null() {
            document.remove(field);
        } else {
            document.insert(field.to_owned(), value);
        }
    }
    Arc::new(document)
}

/// The distance of an operation's copies from what they are copies of.
fn copied_by(op: u64) -> i64 {
    i64::try_from(op).expect("a small number") * COPIES
}

fn suffix(op: u64) -> String {
    format!("-{op}")
}

fn upsert(
    op: u64,
    draft: &mut Draft<'_>,
    document: &Document,
    value: &UniqueValue,
    rule: Rule,
) -> Result<Option<Answer>, Broken> {
    let found = draft.found_by(value);
    if !draft.obeys(rule) || found.len() > 1 {
        return Err(Broken);
    }
    let (key, document) = match found.first() {
        Some(key) => {
            let found = draft.get(Name::Items, key).expect("it is found");
            (key.clone(), with(found, [("n", (n(found) + 1).into()), ("op", op.into())]))
        }
        None => (Key::of(&document["id"]).expect("a key"), Arc::clone(document)),
    };
    let row = json!({ "id": key.json(), "n": n(&document) });
    if found.is_empty() {
        draft.insert(Name::Items, &key, document)?;
    } else {
        draft.put(Name::Items, &key, document)?;
    }
    Ok(Some(Answer::Changed(1, Some(vec![row]))))
}

/// A new document of the logs; its row.
fn log(op: u64, n: Value, draft: &mut Draft<'_>, generated: Option<&Key>) -> Result<Value, Broken> {
    // Without a transaction any key does: the answer is compared only with one.
    let key = generated.cloned().unwrap_or(Key::Number(0));
    let mut document = json!({ "id": key.json(), "op": op }).as_object().expect("an object").clone();
    if !n.is_null() {
        document.insert("n".to_owned(), n.clone());
    }
    draft.insert(Name::Logs, &key, Arc::new(document))?;
    Ok(json!({ "id": key.json(), "n": n }))
}

fn update_items(
    model: &Model,
    draft: &mut Draft<'_>,
    change: impl Fn(&Key, &Document) -> Option<Document>,
) -> Result<Option<Answer>, Broken> {
    for (key, item) in model.all(Name::Items) {
        if let Some(changed) = change(key, item) {
            draft.put(Name::Items, key, changed)?;
        }
    }
    Ok(Some(Answer::Changed(draft.changes.len(), None)))
}

fn delete(
    model: &Model,
    draft: &mut Draft<'_>,
    name: Name,
    which: impl Fn(&Key, &Document) -> bool,
) -> Result<Option<Answer>, Broken> {
    for (key, _) in model.all(name).filter(|(key, document)| which(key, document)) {
        draft.remove(name, key)?;
    }
    Ok(Some(Answer::Changed(draft.changes.len(), None)))
}
