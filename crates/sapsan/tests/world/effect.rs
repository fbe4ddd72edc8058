//! What operations do to the model, and what queries find in it.

use crate::client::{GROUPS, document};
use crate::draft::{Broken, Conditions, Draft};
use crate::model::{Changes, Document, Key, Model, Name, UniqueValue, number};
use crate::operation::{Answer, COPIES, MASS, Operation, Outcome, copied_by, suffix};
use crate::settings::{Meaning, Rule};
use serde_json::{Map, Value, json};
use std::sync::Arc;

impl Operation {
    /// What it does to a state. `generated` is the key that the server made, if the feed shows one.
    pub(crate) fn outcome(&self, op: u64, model: &Model, conditions: &Conditions, generated: Option<&Key>) -> Outcome {
        if self.is_read() {
            return self.read(model, conditions);
        }
        if matches!(self, Operation::Endless) {
            return Outcome::Refused;
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
                if draft.get(*name, key).is_none() && !draft.hides_a_target(*name, key) {
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
            O::CountOthersIntoAll => {
                let count = model.count(Name::Others);
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
                for (key, target) in model.all(*from) {
                    let (id, code) = (key.number() + copied_by(op), format!("c{}", key.number() - MASS));
                    let pad = format!("{:0>600}", key.number());
                    let item = json!({
                        "id": id, "code": code, "grp": key.number() % GROUPS, "n": n(target), "pad": pad, "op": op,
                    });
                    let (key, item) = (Key::Number(id), document(item));
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
            O::CountJoin { target } => {
                let owners = model.all(Name::Items).filter_map(|(_, item)| number(item, "owner"));
                let count = owners.filter(|owner| model.get(*target, &Key::Number(*owner)).is_some()).count();
                Answer::Body(json!([{ "c": count }]))
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
fn with<'f>(document: &Document, fields: impl IntoIterator<Item = (&'f str, Value)>) -> Document {
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
