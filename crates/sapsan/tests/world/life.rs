//! The lives of one data folder: rounds of clients beside reloads and backups, ended by a kill or a clean stop; then the replay of
//! the feed, and the checks.

mod rare;

use crate::check::{Check, Rules, settled};
use crate::client::{Kind, Record, Shared, Sizes, Worker, mass_item, seconds, target};
use crate::draft::{Conditions, Draft};
use crate::feed;
use crate::history::History;
use crate::http::Client;
use crate::model::{Changes, Document, Faults, Key, Model, Name};
use crate::operation::{MASS, Operation};
use crate::reloads::Reloader;
use crate::replay::{Backup, Counts, Replay};
use crate::server::{Server, run, sapsan, told};
use crate::settings::{Rule, Settings};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A client with large statements does one for so many operations of another client.
const LARGE_EVERY: u32 = 20;
/// What comes after a round, in turn.
const SCENES: u64 = 6;
/// With fewer items a statement over all combinations of four of them would end.
const MASS_LEAST: usize = 500;
/// How often an operation of a quiet server is tried.
const ATTEMPTS: u32 = 1_000;
/// How often the end of a round is looked for.
const LOOK: Duration = Duration::from_millis(2);

/// How much happens in a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) writers: usize,
    pub(crate) readers: usize,
    /// Operations of each writer and reader; a client with large statements does a twentieth.
    pub(crate) operations: u32,
    pub(crate) reloads: u32,
    /// Whether a statement may run until its time ends, which takes a minute.
    pub(crate) has_long: bool,
}

/// What has been done in all.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) rounds: u32,
    pub(crate) kills: u32,
    pub(crate) reloads: u32,
    pub(crate) backups: u32,
    pub(crate) restored: u32,
    pub(crate) imports: u32,
    pub(crate) checks: u32,
    pub(crate) verified: u32,
    pub(crate) plans: u64,
    /// Files that were read beside a statement that did not end.
    pub(crate) long: u32,
    /// Deletions of targets beside items that came to refer to them.
    pub(crate) referred: u32,
    /// Unique fields that were built beside a large deletion.
    pub(crate) built_beside: u32,
    /// References that got another target while no client worked.
    pub(crate) retargeted: u32,
}

/// An import that the feed has not shown yet.
#[derive(Debug)]
struct Import {
    documents: Changes,
    is_done: bool,
    was_empty: bool,
    shown: Changes,
}

/// A data folder with all that is known of it.
pub(crate) struct World {
    pub(crate) folder: PathBuf,
    data: PathBuf,
    seed: u64,
    random: ChaCha8Rng,
    size: Size,
    shared: Shared,
    settings: Settings,
    history: History,
    model: Model,
    /// The newest change that the model has.
    position: u64,
    broken: Faults,
    /// Rules that were refused at the last check.
    refused: BTreeSet<Rule>,
    /// Documents that imports stored, or may have stored, by the number of the import, until the feed has shown them.
    imports: BTreeMap<u64, Import>,
    /// The number of the last import of sessions.
    expired_sessions: u64,
    server: Option<Server>,
    pub(crate) counts: Counts,
    pub(crate) totals: Totals,
}

impl World {
    pub(crate) fn new(folder: &Path, seed: u64, size: Size) -> World {
        let settings = Settings::full();
        World {
            folder: folder.to_owned(),
            data: folder.join("data"),
            seed,
            random: ChaCha8Rng::seed_from_u64(seed),
            size,
            shared: Shared::new(),
            history: History::new(&settings),
            settings,
            model: Model::default(),
            position: 0,
            broken: Faults::default(),
            refused: BTreeSet::new(),
            imports: BTreeMap::new(),
            expired_sessions: 0,
            server: None,
            counts: Counts::default(),
            totals: Totals::default(),
        }
    }

    fn config(&self) -> PathBuf {
        self.folder.join("service.toml")
    }

    fn write_config(&self) {
        let backups = self.folder.join("backups");
        let text = self.settings.text(backups.to_str().expect("a path in UTF-8"));
        std::fs::write(self.config(), text).expect("a file");
    }

    fn address(&self) -> SocketAddr {
        self.server.as_ref().expect("a running server").address
    }

    fn start(&mut self) -> Result<(), String> {
        self.server = Some(Server::start(&self.config(), &self.data, &self.folder.join("log"))?);
        Ok(())
    }

    /// The first life: an import into an empty folder.
    pub(crate) fn begin(&mut self) -> Result<(), String> {
        self.write_config();
        for name in [Name::Owners, Name::Others, Name::Items] {
            let number = self.shared.number();
            let documents = match name {
                Name::Items => (0..3_000).map(|index| mass_item(&Key::Number(MASS + index), number)).collect(),
                _ => (0..1_500).map(|index| target(name, &Key::Number(MASS + index), number)).collect(),
            };
            self.import(name, documents)?;
        }
        self.start()?;
        self.catch_up(Vec::new(), &mut [])?;
        self.check()
    }

    /// One round of all clients, and what comes after it.
    pub(crate) fn round(&mut self) -> Result<(), String> {
        self.totals.rounds += 1;
        if self.random.random_range(0..2) == 0 {
            self.copy_targets()?;
        }
        let is_killed = self.random.random_range(0..3) == 0;
        let (records, mut backups) = self.clients(is_killed)?;
        if is_killed {
            self.totals.kills += 1;
            self.start()?;
        }
        self.catch_up(records, &mut backups)?;
        self.check()?;
        for backup in backups {
            self.restore(backup)?;
        }
        match (self.seed + u64::from(self.totals.rounds)) % SCENES {
            0 if self.size.has_long => self.expiry_beside_a_long_statement(),
            1 => self.stop_and_import(true),
            2 => self.references_beside_a_deletion(),
            3 => self.another_target(),
            4 => self.unique_values_beside_a_deletion(),
            5 => self.stop_and_import(false),
            _ => Ok(()),
        }
    }

    /// Others get all that owners have, and owners what others have: then a reference to one of them may replace the other.
    fn copy_targets(&mut self) -> Result<(), String> {
        let pairs = [(Name::Owners, Name::Others), (Name::Others, Name::Owners)];
        let copies = pairs.map(|(from, to)| self.alone(Operation::CopyTargets { from, to }, self.address()));
        let records = copies.into_iter().collect::<Result<Vec<Record>, String>>()?;
        self.catch_up(records, &mut [])
    }

    /// A client while no other works.
    fn worker(&self, address: SocketAddr) -> Worker<'_> {
        Worker::new(&self.shared, ChaCha8Rng::seed_from_u64(0), Kind::Large, self.sizes(), address)
    }

    /// Reads other files into this server.
    fn reloader<'r>(
        &'r self,
        (settings, history): (&'r mut Settings, &'r mut History),
        was_killed: &'r AtomicBool,
    ) -> Reloader<'r> {
        Reloader {
            address: self.address(),
            shared: &self.shared,
            settings,
            history,
            random: ChaCha8Rng::seed_from_u64(0),
            config: self.config(),
            backups: self.folder.join("backups"),
            was_killed,
            reloads: 0,
            plans: 0,
        }
    }

    /// The end of all: a clean stop and a last look at the folder.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        self.server.take().map_or(Ok(()), Server::stop)?;
        let data = self.data.clone();
        self.verify(&data)
    }

    fn sizes(&self) -> Sizes {
        let mass = |name: Name| self.model.all(name).filter(|(key, _)| key.number() >= MASS).count();
        Sizes { items: mass(Name::Items), owners: mass(Name::Owners), others: mass(Name::Others) }
    }

    /// All clients beside each other, until they have done their operations or the server is killed.
    fn clients(&mut self, is_killed: bool) -> Result<(Vec<Record>, Vec<Backup>), String> {
        let (address, sizes, size, config) = (self.address(), self.sizes(), self.size, self.config());
        let kinds = std::iter::repeat_n(Kind::Writer, size.writers)
            .chain(std::iter::repeat_n(Kind::Reader, size.readers))
            .chain([Kind::Large]);
        let kinds: Vec<(Kind, ChaCha8Rng)> =
            kinds.map(|kind| (kind, ChaCha8Rng::seed_from_u64(self.random.random()))).collect();
        let operations = size.operations * u32::try_from(size.writers + size.readers).expect("a small number");
        let kill_after = if is_killed {
            u64::from(self.random.random_range(operations / 10..operations * 9 / 10))
        } else {
            u64::MAX
        };
        let backup_after = u64::from(self.random.random_range(0..operations * 2));
        let backup_name = format!("b{}", self.totals.rounds);
        let random = ChaCha8Rng::seed_from_u64(self.random.random());
        let backups_folder = self.folder.join("backups");
        let World { shared, settings, history, server, totals, .. } = self;
        let (shared, was_killed) = (&*shared, &AtomicBool::new(false));
        shared.is_over.store(false, Ordering::SeqCst);
        shared.answered.store(0, Ordering::SeqCst);
        let reloader = Reloader {
            address,
            shared,
            settings,
            history,
            random,
            config,
            backups: backups_folder,
            was_killed,
            reloads: 0,
            plans: 0,
        };
        let (records, backup, reloads) = std::thread::scope(|scope| {
            let workers: Vec<_> = kinds
                .into_iter()
                .map(|(kind, random)| {
                    let count = if kind == Kind::Large { size.operations / LARGE_EVERY } else { size.operations };
                    scope.spawn(move || Worker::new(shared, random, kind, sizes, address).run(count))
                })
                .collect();
            let reloads = scope.spawn(move || reloader.run(size.reloads, u64::from(operations)));
            let backup = scope.spawn(move || make_backup(address, shared, backup_after, &backup_name));
            while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                if shared.answered.load(Ordering::SeqCst) >= kill_after && !was_killed.swap(true, Ordering::SeqCst) {
                    server.iter_mut().for_each(Server::kill);
                }
                std::thread::sleep(LOOK);
            }
            // Too few were answered, as in a round of refusals.
            if is_killed && !was_killed.swap(true, Ordering::SeqCst) {
                server.iter_mut().for_each(Server::kill);
            }
            let records: Vec<Record> =
                workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect();
            shared.is_over.store(true, Ordering::SeqCst);
            (records, backup.join().expect("no panic"), reloads.join().expect("no panic"))
        });
        let (reloads, plans) = reloads?;
        totals.reloads += reloads;
        totals.plans += plans;
        if !is_killed && let Some(record) = records.iter().find(|record| record.reply.is_none()) {
            return Err(format!("a running server gave no reply to {record:?}"));
        }
        let backups = match backup {
            Ok(backup) => backup.into_iter().collect(),
            Err(_) if is_killed => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok((records, backups))
    }

    /// Replays what the feed has new, and takes over imports.
    fn catch_up(&mut self, mut records: Vec<Record>, backups: &mut [Backup]) -> Result<(), String> {
        let address = self.address();
        let last = self.alone(Operation::LogSum, address)?;
        let mut transactions = feed::read(address, self.position, last.number)?;
        let newest = transactions.last().map_or(self.position, |last| last.number);
        records.push(last);
        transactions.retain_mut(|transaction| {
            let imports = &mut self.imports;
            let number = transaction.operations.first().copied().unwrap_or(u64::MAX);
            if let Some(import) = imports.get_mut(&number) {
                import.shown.append(&mut transaction.changes);
                return false;
            }
            let mut is_filled = false;
            for import in imports.values_mut().filter(|import| import.is_done) {
                if import.documents.keys().any(|(name, _)| transaction.resets.contains(name)) {
                    import.shown = import.documents.clone();
                    is_filled = true;
                }
            }
            !is_filled
        });
        for (number, import) in std::mem::take(&mut self.imports) {
            self.take_over(import).map_err(|error| format!("import {number}: {error}"))?;
        }
        let World { model, history, counts, broken, .. } = self;
        Replay::new(model, history, counts, broken, records).run(&transactions, backups, seconds())?;
        self.position = newest;
        Ok(())
    }

    fn take_over(&mut self, import: Import) -> Result<(), String> {
        let is_known = |(key, document): (&(Name, Key), &Option<Document>)| import.documents.get(key) == Some(document);
        if !import.shown.iter().all(is_known) {
            return Err("the feed shows documents that are not in its file".to_owned());
        }
        if import.is_done && import.shown != import.documents {
            return Err(format!("the feed shows {} of {} documents", import.shown.len(), import.documents.len()));
        }
        if !import.is_done && import.was_empty && !import.shown.is_empty() {
            return Err("it failed, and left documents in an empty collection".to_owned());
        }
        self.model.apply(if import.is_done { &import.documents } else { &import.shown });
        Ok(())
    }

    /// Waits until the rules are settled, and compares everything.
    fn check(&mut self) -> Result<(), String> {
        let address = self.address();
        let rules = settled(address, || false)?.ok_or("the server ended while it was quiet")?;
        self.history.settle(self.shared.tick(), &self.settings, &rules.refused, false);
        Check::new(&self.model, &self.settings, &rules, self.broken, address).run()?;
        self.history.settle(self.shared.tick(), &self.settings, &rules.refused, true);
        self.broken = self.model.faults();
        self.refused = rules.refused;
        self.totals.checks += 1;
        Ok(())
    }

    /// Serves a backup: it is what there was at its place. Sometimes it takes the place of the folder.
    fn restore(&mut self, backup: Backup) -> Result<(), String> {
        self.totals.backups += 1;
        let place = |error: String| format!("backup at change {}: {error}", backup.version);
        let mut model = backup.model.ok_or_else(|| place("the feed has no such place".to_owned()))?;
        let from = self.folder.join("backups").join(&backup.name);
        let data = self.folder.join(format!("restored-{}", backup.name));
        let restored = run(&["restore", text(&from), text(&data)]);
        if !restored.status.success() {
            return Err(place(told(&restored)));
        }
        std::fs::remove_dir_all(&from).map_err(|error| place(error.to_string()))?;
        let server = Server::start(&self.config(), &data, &self.folder.join("log")).map_err(place)?;
        let rules = settled(server.address, || false).map_err(place)?;
        let rules = rules.ok_or_else(|| place("the server ended".to_owned()))?;
        let position = self.expire(&mut model, backup.version, server.address).map_err(place)?;
        let broken = model.faults();
        Check::new(&model, &self.settings, &rules, broken, server.address).run().map_err(place)?;
        self.totals.restored += 1;
        self.totals.checks += 1;
        if self.random.random_range(0..3) == 0 {
            return self.take_place(data, server, model, position, rules);
        }
        server.stop()?;
        self.verify_with(&data, &rules.refused)?;
        std::fs::remove_dir_all(&data).map_err(|error| error.to_string())
    }

    /// What the server of a backup has removed since its place.
    fn expire(&mut self, model: &mut Model, version: u64, address: SocketAddr) -> Result<u64, String> {
        let last = self.alone(Operation::LogSum, address)?;
        let beginning = feed::beginning_of_restored(address, version)?;
        let transactions = feed::read(address, beginning, last.number)?;
        let World { history, counts, broken, .. } = self;
        Replay::new(model, history, counts, broken, vec![last]).run(&transactions, &mut [], seconds())?;
        Ok(transactions.last().map_or(beginning, |last| last.number))
    }

    fn take_place(
        &mut self,
        data: PathBuf,
        server: Server,
        model: Model,
        position: u64,
        rules: Rules,
    ) -> Result<(), String> {
        self.server.take().map_or(Ok(()), Server::stop)?;
        std::fs::remove_dir_all(&self.data).map_err(|error| error.to_string())?;
        self.broken = model.faults();
        (self.data, self.server, self.model, self.position) = (data, Some(server), model, position);
        self.refused = rules.refused;
        self.history.settle(self.shared.tick(), &self.settings, &self.refused, true);
        Ok(())
    }

    /// `sapsan verify`, with the file and its views, unless the file cannot be applied as a whole.
    fn verify_with(&mut self, data: &Path, refused: &BTreeSet<Rule>) -> Result<(), String> {
        let mut command = sapsan(&["verify", text(data)]);
        if refused.is_empty() {
            command.arg("--config").arg(self.config()).arg("--views");
        }
        let output = command.output().expect("the binary starts");
        self.totals.verified += 1;
        if output.status.success() { Ok(()) } else { Err(format!("verify {}: {}", data.display(), told(&output))) }
    }

    fn verify(&mut self, data: &Path) -> Result<(), String> {
        let refused = self.refused.clone();
        self.verify_with(data, &refused)
    }

    /// A clean stop, a verification, and imports while nothing is served: of carts after sessions that have expired, or of others.
    fn stop_and_import(&mut self, is_of_carts: bool) -> Result<(), String> {
        // An import into an empty collection is another thing than one into a collection with documents.
        let emptied = match self.random.random_range(0..4) {
            0 => (!is_of_carts).then_some(Name::Items),
            _ => is_of_carts.then_some(Name::Carts),
        };
        if let Some(emptied) = emptied {
            let record = self.alone(Operation::Empty(emptied), self.address())?;
            self.catch_up(vec![record], &mut [])?;
        }
        // Rules that documents break would stop any import.
        let mut settings =
            self.refused.iter().fold(self.settings.clone(), |settings, rule| settings.with(*rule, false));
        if emptied == Some(Name::Carts) {
            settings = settings.with(Rule::ToSessions, true).with(Rule::Expiry, true);
        }
        self.apply(settings)?;
        // What expires after this stays in the feed.
        self.server.take().map_or(Ok(()), Server::stop)?;
        let data = self.data.clone();
        self.verify(&data)?;
        if self.refused.is_empty() {
            let kinds = if is_of_carts { [1, 2] } else { [0, 3] };
            for kind in kinds {
                let (name, documents) = self.documents_to_import(kind);
                if !self.import(name, documents)? {
                    // What it has stored, the feed will show.
                    break;
                }
            }
        }
        self.start()?;
        self.catch_up(Vec::new(), &mut [])?;
        self.check()
    }

    /// One operation while no client works, as often as the server is busy.
    fn alone(&mut self, operation: Operation, address: SocketAddr) -> Result<Record, String> {
        for _ in 0..ATTEMPTS {
            let record = self.worker(address).only(self.shared.number(), operation.clone());
            match record.reply.as_ref().map(|reply| reply.status) {
                Some(503) => std::thread::sleep(10 * LOOK),
                Some(_) => return Ok(record),
                None => return Err(format!("a quiet server gave no reply to {operation:?}")),
            }
        }
        Err(format!("a quiet server takes no {operation:?}"))
    }

    /// Documents of one collection, one of which may break a rule.
    fn documents_to_import(&mut self, kind: u8) -> (Name, Vec<Document>) {
        let number = self.shared.number();
        let document = crate::client::document;
        let random = &mut self.random;
        match kind {
            0 => {
                let from = MASS + 20 * random.random_range(0..250);
                let count = [5, 700, 3_000][random.random_range(0..3)];
                (Name::Items, (0..count).map(|index| mass_item(&Key::Number(from + index), number)).collect())
            }
            1 => {
                // They have expired: nothing may refer to them.
                let until = seconds() - 1_000;
                let session = |index| json!({ "id": format!("i{number}-{index}"), "until": until, "op": number });
                self.expired_sessions = number;
                (Name::Sessions, (0..10).map(session).map(document).collect())
            }
            2 => {
                let (from, session) = (1_000 + 100 * random.random_range(0..1_000), random.random_range(0..10));
                let session = format!("i{}-{session}", self.expired_sessions);
                let cart = |index| json!({ "id": from + index, "session": session, "op": number });
                (Name::Carts, (0..10).map(cart).map(document).collect())
            }
            _ => {
                let from = MASS + random.random_range(0..2_000);
                let name = [Name::Owners, Name::Others][random.random_range(0..2)];
                (name, (0..600).map(|index| target(name, &Key::Number(from + index), number)).collect())
            }
        }
    }

    /// `sapsan import` of a file, which must be taken or refused as the model says; returns which.
    fn import(&mut self, name: Name, documents: Vec<Document>) -> Result<bool, String> {
        self.totals.imports += 1;
        let number = documents.first().and_then(|first| first["op"].as_u64()).unwrap_or(0);
        let file = self.folder.join(format!("import-{number}-{}.ndjson", name.text()));
        let lines: String = documents.iter().map(|line| format!("{}\n", Value::Object((**line).clone()))).collect();
        std::fs::write(&file, lines).map_err(|error| error.to_string())?;
        let mut command = sapsan(&["import"]);
        command.arg(self.config()).arg("--data").arg(&self.data).args(["--collection", name.text()]).arg(&file);
        let output = command.output().expect("the binary starts");
        // An expired document may be gone when the import looks for it, or be replaced by it: both have no effect here.
        let obeyed = Rule::ALL.into_iter().filter(|rule| self.settings.has(*rule)).collect();
        let conditions = Conditions { obeyed, now: seconds(), meaning: None };
        let mut draft = Draft::new(&self.model, &conditions);
        let key = |document: &Document| Key::of(&document["id"]).expect("a key");
        let is_right = documents.iter().all(|line| draft.insert(name, &key(line), Arc::clone(line)).is_ok());
        let is_done = output.status.success();
        if is_done != is_right {
            let expected = if is_right { "be taken" } else { "be refused" };
            return Err(format!("the import {} should {expected}: {}", file.display(), told(&output)));
        }
        let all = documents.iter().map(|line| ((name, key(line)), Some(Arc::clone(line)))).collect();
        let was_empty = self.model.count(name) == 0;
        // The next import of this stop must see it.
        if is_done {
            self.model.apply(&all);
        }
        self.imports.insert(number, Import { documents: all, is_done, was_empty, shown: Changes::new() });
        Ok(is_done)
    }
}

/// Has a backup made after so many answers.
fn make_backup(address: SocketAddr, shared: &Shared, after: u64, name: &str) -> Result<Option<Backup>, String> {
    while shared.answered.load(Ordering::SeqCst) < after {
        if shared.is_over() {
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
    let start = shared.tick();
    let body = json!({ "to": name }).to_string();
    let reply = Client::new(address).ask("POST", "/_/backup", body.as_bytes()).map_err(|error| error.to_string())?;
    let end = shared.tick();
    match (reply.status, reply.json()["version"].as_u64()) {
        (200, Some(version)) => Ok(Some(Backup { name: name.to_owned(), version, start, end, model: None })),
        (503, _) => Ok(None),
        _ => Err(format!("a backup is answered {}: {}", reply.status, reply.text())),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
