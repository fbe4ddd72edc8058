//! Situations that random clients hardly ever meet, because a request must arrive at one moment of another one, or because several
//! rules must hold. Each is brought about while no other client works.

use super::{MASS_LEAST, World};
use crate::check::settled;
use crate::client::{Record, document, seconds, target};
use crate::http::Client;
use crate::model::{Document, Key, Name, UniqueValue, number, text};
use crate::operation::{MASS, Operation};
use crate::settings::{Rule, Settings};
use serde_json::json;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Keys of owners that no other item refers to, from this one on, and their number: their deletion is a large statement.
const LOOSE: i64 = 5_000;
const LOOSE_COUNT: i64 = 600;
/// Items that refer to the first of them.
const REFERRING: i64 = 3;
/// An owner that items of masses do not refer to.
const ANY_OWNER: i64 = 3;
/// Refusals in a row after which a large statement has claimed what it reads first.
const REFUSALS: usize = 2;
/// Keys of targets that only one of two collections has: this, and the number of the round.
const ONLY_HERE: i64 = 300;
/// Pause between two looks at a rule's state.
const PAUSE: Duration = Duration::from_millis(1);

impl World {
    /// Documents begin to expire while a statement runs for so long that the server has to try again until queries know it.
    pub(super) fn expiry_beside_a_long_statement(&mut self) -> Result<(), String> {
        if self.model.count(Name::Items) < MASS_LEAST {
            return Ok(());
        }
        let address = self.address();
        self.reload_alone(self.settings.with(Rule::Expiry, false))?;
        let number = self.shared.number();
        let session = document(json!({ "id": "over", "until": seconds() - 1_000, "op": number }));
        let put = Operation::Put(Name::Sessions, Key::Text("over".to_owned()), session);
        let put = self.worker(address).only(number, put);
        let (number, key) = (self.shared.number(), Key::Number(MASS));
        let owner = target(Name::Owners, &key, number);
        let owner = self.worker(address).only(number, Operation::Put(Name::Owners, key, owner));
        self.reload_alone(self.settings.with(Rule::Expiry, true))?;
        let endless = self.worker(address).only(self.shared.number(), Operation::Endless);
        self.totals.long += 1;
        self.catch_up(vec![put, owner, endless], &mut [])?;
        self.check()
    }

    /// A large statement deletes owners, each after a look at the items that refer to it. Then items come that refer to them.
    pub(super) fn references_beside_a_deletion(&mut self) -> Result<(), String> {
        self.fill(Name::Owners)?;
        self.take_doubled_codes()?;
        let with = self.settings.with(Rule::ToOthers, false).with(Rule::ToOwners, true).with(Rule::OwnerCodes, true);
        self.apply(with)?;
        if self.refused.contains(&Rule::ToOwners) || self.refused.contains(&Rule::OwnerCodes) {
            return Ok(());
        }
        let mut records = self.loose_owners();
        let (address, is_done) = (self.address(), AtomicBool::new(false));
        let (deletion, beside) = std::thread::scope(|scope| {
            let world = &*self;
            let is_done = &is_done;
            let deletion = scope.spawn(move || {
                let deletion = Operation::DeleteFrom(Name::Owners, LOOSE);
                let deletion = world.worker(address).only(world.shared.number(), deletion);
                is_done.store(true, Ordering::SeqCst);
                deletion
            });
            let beside = world.refer_when_claimed(address, is_done);
            (deletion.join().expect("no panic"), beside)
        });
        self.totals.referred += 1;
        records.extend(beside);
        records.push(deletion);
        self.catch_up(records, &mut [])?;
        let items = (0..REFERRING).map(|item| Operation::Delete(Name::Items, Key::Number(item)));
        let rest = items.chain([Operation::DeleteFrom(Name::Owners, LOOSE)]);
        let records = rest.map(|operation| self.alone(operation, address)).collect::<Result<Vec<Record>, String>>()?;
        self.catch_up(records, &mut [])
    }

    /// Stores all targets that items refer to and that are not there.
    fn fill(&mut self, name: Name) -> Result<(), String> {
        let owners = self.model.all(Name::Items).filter_map(|(_, item)| number(item, "owner"));
        let missing: BTreeSet<i64> =
            owners.filter(|owner| self.model.get(name, &Key::Number(*owner)).is_none()).collect();
        let missing: Vec<Key> = missing.into_iter().map(Key::Number).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let made = |number: u64, index: i64| {
            let key = &missing[usize::try_from(index).expect("a small number")];
            Operation::Insert(name, key.clone(), target(name, key, number))
        };
        let count = i64::try_from(missing.len()).expect("a small number");
        let records = self.worker(self.address()).only_bulk(name, count, made);
        self.catch_up(records, &mut [])
    }

    /// Takes the codes of owners that share them.
    fn take_doubled_codes(&mut self) -> Result<(), String> {
        let is_doubled = |owner: &Document| {
            let code = text(owner, "code").map(|code| UniqueValue::Code(Name::Owners, code.to_owned()));
            code.is_some_and(|code| self.model.found_by(&code).count() > 1)
        };
        let doubled = self.model.all(Name::Owners).filter(|(_, owner)| is_doubled(owner)).map(|(key, _)| key.clone());
        let records = doubled.map(|key| {
            let number = self.shared.number();
            let owner = document(json!({ "id": key.json(), "n": 1, "op": number }));
            self.worker(self.address()).only(number, Operation::Put(Name::Owners, key, owner))
        });
        let records = records.collect();
        self.catch_up(records, &mut [])
    }

    /// Owners without items.
    fn loose_owners(&self) -> Vec<Record> {
        let made = |number: u64, index: i64| {
            let key = Key::Number(LOOSE + index);
            Operation::Insert(Name::Owners, key.clone(), target(Name::Owners, &key, number))
        };
        self.worker(self.address()).only_bulk(Name::Owners, LOOSE_COUNT, made)
    }

    /// Stores items that refer to the first loose owners, once writes of any owner are refused because a large statement reads them.
    fn refer_when_claimed(&self, address: SocketAddr, is_done: &AtomicBool) -> Vec<Record> {
        let (mut records, mut refusals) = (Vec::new(), 0);
        while refusals < REFUSALS && !is_done.load(Ordering::SeqCst) {
            let number = self.shared.number();
            let owner = document(json!({ "id": ANY_OWNER, "n": 1, "op": number }));
            let put = Operation::Put(Name::Owners, Key::Number(ANY_OWNER), owner);
            let put = self.worker(address).only(number, put);
            refusals = if put.reply.as_ref().is_some_and(|reply| reply.status == 503) { refusals + 1 } else { 0 };
            records.push(put);
        }
        records.extend((0..REFERRING).map(|index| {
            let number = self.shared.number();
            let item = document(json!({ "id": index, "grp": 1, "n": 1, "owner": LOOSE + index, "op": number }));
            self.worker(address).only(number, Operation::Put(Name::Items, Key::Number(index), item))
        }));
        records
    }

    /// Codes become unique while a large statement deletes documents with codes: it claims these, ahead of the build, which must wait.
    pub(super) fn unique_values_beside_a_deletion(&mut self) -> Result<(), String> {
        self.apply(self.settings.with(Rule::ItemCodes, false).with_others_indexed(false))?;
        let address = self.address();
        // Each item gets another code, and then each copy.
        let operations = [Operation::CodeAll, Operation::CopyItems];
        let records = operations.map(|operation| self.alone(operation, address));
        self.catch_up(records.into_iter().collect::<Result<Vec<Record>, String>>()?, &mut [])?;
        let with = self.settings.with(Rule::ItemCodes, true).with_others_indexed(true);
        let mut settings = std::mem::replace(&mut self.settings, Settings::full());
        let mut history = std::mem::take(&mut self.history);
        let deletion = std::thread::scope(|scope| {
            let world = &*self;
            let deletion = scope.spawn(move || {
                world.wait_for_unique_codes(address);
                world.worker(address).only(world.shared.number(), Operation::DeleteCopies)
            });
            world.shared.is_over.store(false, Ordering::SeqCst);
            let reloaded = world.reloader((&mut settings, &mut history), &AtomicBool::new(false)).reload_to(with);
            let deletion = deletion.join().expect("no panic");
            reloaded.map(|()| deletion)
        });
        (self.settings, self.history) = (settings, history);
        self.totals.built_beside += 1;
        self.catch_up(vec![deletion?], &mut [])?;
        self.check()
    }

    /// Until the server says that it has begun to make the codes of items unique.
    fn wait_for_unique_codes(&self, address: SocketAddr) {
        let mut client = Client::new(address);
        while let Ok(schema) = client.ask("GET", "/_/schema", b"") {
            let schema = schema.json();
            let mut collections = schema["collections"].as_array().into_iter().flatten();
            let items = collections.find(|collection| collection["name"] == "items");
            let codes =
                items.and_then(|items| items["unique"].as_array()?.iter().find(|part| !part["fields"].is_array()));
            if codes.is_some() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A reference gets another target. At once an item refers to a document that only the new target has, and a join with the old one
    /// is counted.
    pub(super) fn another_target(&mut self) -> Result<(), String> {
        self.copy_targets()?;
        self.fill(Name::Owners)?;
        self.fill(Name::Others)?;
        let both = [(Name::Owners, Rule::ToOwners), (Name::Others, Rule::ToOthers)];
        let [from, to] = if self.settings.has(Rule::ToOthers) { [both[1], both[0]] } else { both };
        self.apply(self.settings.with(to.1, false).with(from.1, true))?;
        if self.refused.contains(&from.1) {
            return Ok(());
        }
        let (address, key) = (self.address(), ONLY_HERE + i64::from(self.totals.rounds));
        let number = self.shared.number();
        let only_here = document(json!({ "id": key, "n": 1, "op": number }));
        let put = self.worker(address).only(number, Operation::Put(to.0, Key::Number(key), only_here));
        self.catch_up(vec![put], &mut [])?;
        self.reload_alone(self.settings.with(from.1, false).with(to.1, true))?;
        let number = self.shared.number();
        let item = document(json!({ "id": 0, "grp": 1, "n": 1, "owner": key, "op": number }));
        let put = self.worker(address).only(number, Operation::Put(Name::Items, Key::Number(0), item));
        let count = self.worker(address).only(self.shared.number(), Operation::CountJoin { target: from.0 });
        let join = self.worker(address).only(self.shared.number(), Operation::ReadJoin { target: from.0, group: 1 });
        self.totals.retargeted += 1;
        self.catch_up(vec![put, count, join], &mut [])?;
        self.check()
    }

    /// Another file while no client works, and what the server says of its rules.
    pub(super) fn apply(&mut self, settings: Settings) -> Result<(), String> {
        if settings == self.settings {
            return Ok(());
        }
        self.reload_alone(settings)?;
        let rules = settled(self.address(), || false)?.ok_or("the server ended while it was quiet")?;
        self.refused = rules.refused;
        Ok(())
    }

    /// Another file while no client works.
    fn reload_alone(&mut self, wanted: Settings) -> Result<(), String> {
        let mut settings = std::mem::replace(&mut self.settings, Settings::full());
        let mut history = std::mem::take(&mut self.history);
        self.shared.is_over.store(false, Ordering::SeqCst);
        let reloaded = self.reloader((&mut settings, &mut history), &AtomicBool::new(false)).reload_to(wanted);
        (self.settings, self.history) = (settings, history);
        reloaded
    }
}
