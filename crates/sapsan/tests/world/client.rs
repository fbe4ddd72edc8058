//! Clients: each does random operations, one after the other, and keeps what it was answered.

use crate::http::{Client, Reply};
use crate::model::{Document, Key, Name};
use crate::operation::{MASS, Operation};
use crate::settings::View;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Keys, values and groups of the documents that are changed one by one: so few that operations meet.
const KEYS: i64 = 150;
const CODES: i64 = 120;
const OWNERS: i64 = 30;
const TARGETS: i64 = 1_500;
pub(crate) const GROUPS: i64 = 40;
/// Documents of a mass.
pub(crate) const MASS_DOCUMENTS: i64 = 5_000;
/// Documents of a bulk request.
const BULK: i64 = 1_000;

/// What an operation was, when, and how it was answered.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) operation: Operation,
    /// Ticks before the request and after the reply; the second is the last of all if there was none.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Seconds since 1970 before the request and after the reply.
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// None: the connection broke.
    pub(crate) reply: Option<Reply>,
}

/// What all clients share.
pub(crate) struct Shared {
    /// Ticks at each beginning and end: a total order that agrees with real time.
    clock: AtomicU64,
    operations: AtomicU64,
    /// Operations that were answered.
    pub(crate) answered: AtomicU64,
    /// Clients end after their current operation.
    pub(crate) is_over: AtomicBool,
}

impl Shared {
    pub(crate) fn new() -> Shared {
        let (clock, operations) = (AtomicU64::new(1), AtomicU64::new(1));
        Shared { clock, operations, answered: AtomicU64::new(0), is_over: AtomicBool::new(false) }
    }

    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn number(&self) -> u64 {
        self.operations.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }
}

pub(crate) fn seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    i64::try_from(since.as_secs()).expect("a small number")
}

/// Sorts of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Writer,
    Reader,
    /// Statements over masses of documents.
    Large,
}

/// How many documents there were at the beginning of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) items: usize,
    pub(crate) owners: usize,
    pub(crate) others: usize,
}

/// One client.
pub(crate) struct Worker<'w> {
    pub(crate) shared: &'w Shared,
    pub(crate) random: ChaCha8Rng,
    pub(crate) kind: Kind,
    pub(crate) sizes: Sizes,
    client: Client,
    records: Vec<Record>,
}

impl<'w> Worker<'w> {
    pub(crate) fn new(shared: &'w Shared, random: ChaCha8Rng, kind: Kind, sizes: Sizes, address: SocketAddr) -> Self {
        Worker { shared, random, kind, sizes, client: Client::new(address), records: Vec::new() }
    }

    /// Does so many operations, or ends with the server.
    pub(crate) fn run(mut self, count: u32) -> Vec<Record> {
        for _ in 0..count {
            let goes_on = match self.kind {
                Kind::Large if self.is_short() => self.bulk(),
                Kind::Writer if self.random.random_range(0..40) == 0 => self.small_bulk(),
                _ => self.one(),
            };
            if !goes_on || self.shared.is_over() {
                break;
            }
        }
        self.records
    }

    /// Does this operation alone.
    pub(crate) fn only(mut self, number: u64, operation: Operation) -> Record {
        self.send(number, operation);
        self.records.pop().expect("just sent")
    }

    /// Stores so many documents by one bulk request.
    pub(crate) fn only_bulk(mut self, name: Name, count: i64, made: impl Fn(u64, i64) -> Operation) -> Vec<Record> {
        self.send_bulk(name, count, made);
        self.records
    }

    fn one(&mut self) -> bool {
        let number = self.shared.number();
        let operation = match self.kind {
            Kind::Writer => self.write(number),
            Kind::Reader => self.read(),
            Kind::Large => self.large(),
        };
        self.send(number, operation)
    }

    /// One request and its record; false if there was no reply.
    fn send(&mut self, number: u64, operation: Operation) -> bool {
        let (method, target, body) = operation.request(number);
        let (start, from) = (self.shared.tick(), seconds());
        let reply = self.client.ask(method, &target, &body).ok();
        self.shared.answered.fetch_add(1, Ordering::SeqCst);
        let goes_on = reply.is_some();
        let end = if goes_on { self.shared.tick() } else { u64::MAX };
        self.records.push(Record { number, operation, start, end, from, to: seconds(), reply });
        goes_on
    }

    fn key(&mut self, below: i64) -> Key {
        Key::Number(self.random.random_range(0..below))
    }

    fn item_key(&mut self) -> Key {
        // Sometimes one of those that large statements change.
        let from = if self.random.random_range(0..8) == 0 { MASS } else { 0 };
        Key::Number(from + self.random.random_range(0..KEYS))
    }

    fn code(&mut self) -> String {
        format!("c{}", self.random.random_range(0..CODES))
    }

    fn target(&mut self) -> Name {
        if self.random.random_range(0..2) == 0 { Name::Owners } else { Name::Others }
    }

    /// An item with random fields.
    fn item(&mut self, key: &Key, number: u64) -> Document {
        let mut item = json!({
            "id": key.json(), "op": number,
            "grp": self.random.random_range(0..GROUPS), "n": self.random.random_range(0..100),
        });
        if self.random.random_range(0..2) == 0 {
            item["code"] = self.code().into();
        }
        if self.random.random_range(0..3) == 0 {
            item["owner"] = self.random.random_range(0..OWNERS).into();
        }
        if self.random.random_range(0..3) == 0 {
            item["tenant"] = self.random.random_range(0..4).into();
            item["slug"] = format!("s{}", self.random.random_range(0..30)).into();
        }
        for field in ["Kind", "kind"] {
            if self.random.random_range(0..2) == 0 {
                item[field] = ["a", "b", "c"][self.random.random_range(0..3)].into();
            }
        }
        document(item)
    }

    fn by_code(&mut self, id: i64, number: u64) -> Document {
        let (code, group) = (self.code(), self.random.random_range(0..GROUPS));
        document(json!({ "id": id, "code": code, "grp": group, "n": 1, "op": number }))
    }

    fn session(&mut self) -> String {
        format!("s{}", self.random.random_range(0..25))
    }

    /// Any time: none, long over, soon, or far away.
    fn session_document(&mut self, key: &str, number: u64) -> Document {
        let mut session = json!({ "id": key, "op": number });
        match self.random.random_range(0..6) {
            0 => {}
            1 => session["until"] = (seconds() - 1_000).into(),
            2 | 3 => session["until"] = (seconds() + self.random.random_range(1..4)).into(),
            _ => session["until"] = (seconds() + 1_000_000).into(),
        }
        document(session)
    }

    fn write(&mut self, number: u64) -> Operation {
        match self.random.random_range(0..100) {
            0..16 => {
                let key = self.item_key();
                Operation::Put(Name::Items, key.clone(), self.item(&key, number))
            }
            16..22 => {
                let key = self.item_key();
                Operation::Insert(Name::Items, key.clone(), self.item(&key, number))
            }
            22..30 => {
                let mut patch = json!({ "op": number });
                match self.random.random_range(0..4) {
                    0 => patch["code"] = self.code().into(),
                    1 => patch["code"] = Value::Null,
                    2 => patch["owner"] = self.random.random_range(0..OWNERS).into(),
                    _ => patch["n"] = self.random.random_range(0..100).into(),
                }
                Operation::Patch(Name::Items, self.item_key(), document(patch))
            }
            30..40 => Operation::Delete(Name::Items, self.item_key()),
            40..43 => Operation::AddToGroup { group: self.random.random_range(0..GROUPS), by: 3 },
            43..47 => Operation::SetCode { key: self.item_key(), code: self.code() },
            47..53 => {
                let id = -i64::try_from(number).expect("a small number");
                Operation::UpsertByCode(self.by_code(id, number))
            }
            53..56 => {
                let id = -i64::try_from(number).expect("a small number");
                let (tenant, slug) = (self.random.random_range(0..4), self.random.random_range(0..30));
                let group = self.random.random_range(0..GROUPS);
                Operation::UpsertBySlug(document(json!({
                    "id": id, "tenant": tenant, "slug": format!("s{slug}"), "grp": group, "n": 1, "op": number,
                })))
            }
            56..59 => {
                let id = self.random.random_range(0..KEYS);
                Operation::Replace(self.by_code(id, number))
            }
            59..62 => {
                let id = self.random.random_range(0..KEYS);
                Operation::Ignore(self.by_code(id, number))
            }
            62..64 => Operation::CopyFromOwners { group: self.random.random_range(0..GROUPS) },
            64..66 => {
                let below = [20, 20_000][self.random.random_range(0..2)];
                Operation::DeleteGroup { group: self.random.random_range(0..GROUPS), below }
            }
            66..69 => {
                Operation::Move { from: self.random.random_range(0..OWNERS), to: self.random.random_range(0..OWNERS) }
            }
            69..72 => Operation::CountInto { owner: self.random.random_range(0..OWNERS) },
            72..73 => Operation::LogSum,
            73..75 => Operation::AddToRange { from: MASS + self.random.random_range(0..MASS_DOCUMENTS), count: 200 },
            75..83 => {
                let (name, key) = (self.target(), self.key(OWNERS));
                let mut owner = json!({ "id": key.json(), "n": self.random.random_range(0..9), "op": number });
                if name == Name::Owners && self.random.random_range(0..2) == 0 {
                    owner["code"] = format!("o{}", self.random.random_range(0..20)).into();
                }
                Operation::Put(name, key, document(owner))
            }
            83..86 => Operation::Delete(self.target(), self.key(OWNERS)),
            86..90 => {
                let key = self.session();
                let session = self.session_document(&key, number);
                Operation::Put(Name::Sessions, Key::Text(key), session)
            }
            90..92 => Operation::Delete(Name::Sessions, Key::Text(self.session())),
            92..97 => {
                let key = self.key(40);
                let session = self.session();
                let cart = json!({ "id": key.json(), "session": session, "op": number });
                Operation::Put(Name::Carts, key, document(cart))
            }
            97..99 => Operation::Delete(Name::Carts, self.key(40)),
            _ => Operation::Empty(if self.random.random_range(0..2) == 0 { Name::Carts } else { Name::Logs }),
        }
    }

    fn read(&mut self) -> Operation {
        let group = self.random.random_range(0..GROUPS);
        match self.random.random_range(0..14) {
            0 | 1 => Operation::ReadGroup { group },
            2 | 3 => Operation::ReadCode { code: self.code() },
            4 => {
                let slug = format!("s{}", self.random.random_range(0..30));
                Operation::ReadSlug { tenant: self.random.random_range(0..4), slug }
            }
            5 => Operation::ReadJoin { target: self.target(), group },
            6 => Operation::CountJoin { target: self.target() },
            7 => Operation::ReadSum,
            8 => Operation::ReadCounts,
            9 => Operation::ReadFirst,
            10 => Operation::ReadTotal { group },
            11 => Operation::ReadView(View::ALL[self.random.random_range(0..View::ALL.len())]),
            12 => Operation::ReadDocument(Name::Items, self.item_key()),
            _ => Operation::ReadDocument(Name::Sessions, Key::Text(self.session())),
        }
    }

    fn large(&mut self) -> Operation {
        match self.random.random_range(0..18) {
            16 => Operation::CountOthersIntoAll,
            17 => Operation::DeleteUnreferenced(Name::Owners),
            14 | 15 => Operation::ItemsOfTargets(self.target()),
            0 | 1 => Operation::AddToAll,
            2 | 3 => Operation::CountIntoAll,
            4 => Operation::CodeAll,
            5 | 6 => {
                self.sizes.items -= self.sizes.items / 3;
                Operation::DeleteMass { divisor: 3, rest: self.random.random_range(0..3) }
            }
            7 => {
                let divisor = self.random.random_range(8..12);
                Operation::DeleteMass { divisor, rest: 1 }
            }
            8 => Operation::CopyItems,
            9 => Operation::DeleteCopies,
            10 => Operation::DeleteUnreferenced(self.target()),
            11 => {
                let from = MASS + self.random.random_range(0..TARGETS);
                Operation::DeleteFrom(self.target(), from)
            }
            12 => Operation::CopyTargets { from: Name::Owners, to: Name::Others },
            _ => Operation::CopyTargets { from: Name::Others, to: Name::Owners },
        }
    }

    /// Whether too few documents are there for large statements.
    fn is_short(&self) -> bool {
        self.sizes.items < 3_000 || self.sizes.owners < 300 || self.sizes.others < 300
    }

    /// Targets of references, or items of the mass.
    fn bulk(&mut self) -> bool {
        for (name, count) in [(Name::Owners, self.sizes.owners), (Name::Others, self.sizes.others)] {
            if count < 300 {
                let made = |number: u64, index: i64| {
                    let key = Key::Number(MASS + index);
                    Operation::Insert(name, key.clone(), target(name, &key, number))
                };
                match name {
                    Name::Owners => self.sizes.owners += 1_500,
                    _ => self.sizes.others += 1_500,
                }
                return self.send_bulk(name, TARGETS, made);
            }
        }
        self.sizes.items += usize::try_from(BULK).expect("a small number");
        let from = self.random.random_range(0..MASS_DOCUMENTS / BULK) * BULK;
        let made = |number: u64, index: i64| {
            let key = Key::Number(MASS + from + index);
            Operation::Insert(Name::Items, key.clone(), mass_item(&key, number))
        };
        self.send_bulk(Name::Items, BULK, made)
    }

    fn small_bulk(&mut self) -> bool {
        let from = MASS + self.random.random_range(0..MASS_DOCUMENTS);
        let made = |number: u64, index: i64| {
            let key = Key::Number(from + index);
            Operation::Insert(Name::Items, key.clone(), mass_item(&key, number))
        };
        self.send_bulk(Name::Items, 12, made)
    }

    /// One bulk request: each line is an operation.
    fn send_bulk(&mut self, name: Name, count: i64, made: impl Fn(u64, i64) -> Operation) -> bool {
        let lines: Vec<(u64, Operation)> = (0..count)
            .map(|index| (self.shared.number(), index))
            .map(|(number, index)| (number, made(number, index)))
            .collect();
        let mut body = Vec::new();
        for (number, line) in &lines {
            body.extend(line.request(*number).2);
            body.push(b'\n');
        }
        let (start, from) = (self.shared.tick(), seconds());
        let reply = self.client.ask("POST", &format!("/_/collections/{}/bulk", name.text()), &body).ok();
        self.shared.answered.fetch_add(1, Ordering::SeqCst);
        let goes_on = reply.is_some();
        let (end, to) = (if goes_on { self.shared.tick() } else { u64::MAX }, seconds());
        let statuses = reply.map(|reply| statuses(&reply, lines.len()));
        for (index, (number, operation)) in lines.into_iter().enumerate() {
            let reply = statuses.as_ref().map(|statuses| statuses[index].clone());
            self.records.push(Record { number, operation, start, end, from, to, reply });
        }
        goes_on
    }
}

/// The replies of a bulk request's lines: those that it does not name were stored.
fn statuses(reply: &Reply, count: usize) -> Vec<Reply> {
    let of = |status: u16, text: &str| Reply { status, body: text.as_bytes().to_vec() };
    let mut statuses = vec![of(if reply.status == 200 { 201 } else { reply.status }, ""); count];
    for text in reply.text().lines() {
        let line: Value = serde_json::from_str(text).unwrap_or_default();
        if let (Some(number), Some(status)) = (line["line"].as_u64(), line["status"].as_u64()) {
            let index = usize::try_from(number).expect("a small number") - 1;
            statuses[index] = of(u16::try_from(status).unwrap_or(500), text);
        }
    }
    statuses
}

/// One of many documents that items refer to. Owners have long codes, so that a statement that deletes some hundreds is large.
pub(crate) fn target(name: Name, key: &Key, number: u64) -> Document {
    let mut target = json!({ "id": key.json(), "n": 5, "op": number });
    if name == Name::Owners {
        target["code"] = format!("t{:0>600}", key.number()).into();
    }
    document(target)
}

/// One of many items: its fields follow from its key.
pub(crate) fn mass_item(key: &Key, number: u64) -> Document {
    let id = key.number();
    let kind = ["a", "b", "c"][usize::try_from(id % 3).expect("not below zero")];
    let mut item = json!({
        "id": id, "grp": id % GROUPS, "n": id % 90, "op": number, "Kind": kind, "pad": format!("{id:0>60}"),
    });
    if id % 2 == 0 {
        item["owner"] = (MASS + id % TARGETS).into();
    }
    if id % 3 == 0 {
        item["code"] = format!("m{id}").into();
    }
    document(item)
}

pub(crate) fn document(value: Value) -> Document {
    match value {
        Value::Object(document) => Arc::new(document),
        _ => unreachable!("made as an object"),
    }
}
