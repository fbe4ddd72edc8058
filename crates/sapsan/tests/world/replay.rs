//! The serial order: the transactions of the feed are carried out on the model one after the other. Each is the work of one
//! operation, at whose place it must do exactly what the feed and the reply say. What leaves no transaction (queries, refusals,
//! statements that change nothing) must be explained by some place between its request and its reply.

use crate::client::Record;
use crate::draft::Conditions;
use crate::feed::Transaction;
use crate::history::{History, State};
use crate::model::{Changes, Faults, Key, Model, Name, number};
use crate::operation::{Operation, Outcome};
use crate::settings::Rule;
use std::collections::{BTreeMap, BTreeSet};

/// A backup was made at a place of the order.
#[derive(Debug)]
pub(crate) struct Backup {
    pub(crate) name: String,
    pub(crate) version: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The documents at that place.
    pub(crate) model: Option<Model>,
}

/// Numbers for the report.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) transactions: u64,
    pub(crate) changes: u64,
    pub(crate) operations: u64,
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    /// Refused while a rule was open.
    pub(crate) excused: u64,
    pub(crate) reads: u64,
    pub(crate) unavailable: u64,
    /// Without a reply; and those of them that were done.
    pub(crate) unknown: u64,
    pub(crate) unknown_done: u64,
    pub(crate) expired: u64,
    /// Statements that changed more than a thousand documents.
    pub(crate) large: u64,
}

/// One round of operations on its way through the order.
pub(crate) struct Replay<'r> {
    model: &'r mut Model,
    history: &'r History,
    counts: &'r mut Counts,
    /// Faults that some rule would have found at some place.
    broken: &'r mut Faults,
    records: BTreeMap<u64, Record>,
    /// Acknowledged operations with an effect that have no place yet, by the tick of their reply.
    missing: BTreeSet<(u64, u64)>,
    /// Those that only delete, whose transactions do not show their number; those without a clear answer last.
    deleting: BTreeSet<(bool, u64, u64)>,
    /// Operations without effect, by the tick of their request; those whose time has come; and their end.
    silent: BTreeSet<(u64, u64)>,
    active: Vec<u64>,
    /// The latest request among the operations that have a place.
    latest_start: u64,
}

impl<'r> Replay<'r> {
    pub(crate) fn new(
        model: &'r mut Model,
        history: &'r History,
        counts: &'r mut Counts,
        broken: &'r mut Faults,
        records: Vec<Record>,
    ) -> Replay<'r> {
        let mut replay = Replay {
            model,
            history,
            counts,
            broken,
            records: BTreeMap::new(),
            missing: BTreeSet::new(),
            deleting: BTreeSet::new(),
            silent: BTreeSet::new(),
            active: Vec::new(),
            latest_start: 0,
        };
        records.into_iter().for_each(|record| replay.enter(record));
        replay
    }

    fn enter(&mut self, record: Record) {
        self.counts.operations += 1;
        let id = record.number;
        match standing(&record) {
            Standing::Done => {
                self.counts.acknowledged += 1;
                self.missing.insert((record.end, id));
            }
            Standing::Silent => {
                let counter =
                    if record.operation.is_read() { &mut self.counts.reads } else { &mut self.counts.refused };
                *counter += 1;
                self.silent.insert((record.start, id));
            }
            Standing::Unknown if record.reply.is_some() => self.counts.unavailable += 1,
            Standing::Unknown => self.counts.unknown += 1,
        }
        if standing(&record) != Standing::Silent
            && (record.operation.only_deletes() || matches!(record.operation, Operation::Empty(_)))
        {
            self.deleting.insert((standing(&record) == Standing::Unknown, record.end, id));
        }
        self.records.insert(id, record);
    }

    /// Carries out all transactions; `backups` get the documents of their place.
    pub(crate) fn run(mut self, transactions: &[Transaction], backups: &mut [Backup], now: i64) -> Result<(), String> {
        let first = transactions.first().map_or(u64::MAX, |transaction| transaction.number);
        self.at_a_place(backups, (0, first))?;
        for (index, transaction) in transactions.iter().enumerate() {
            let place = |error: String| format!("change {}: {error}", transaction.number);
            self.place(transaction, now).map_err(place)?;
            self.counts.transactions += 1;
            self.counts.changes += transaction.changes.len() as u64;
            let next = transactions.get(index + 1).map_or(u64::MAX, |next| next.number);
            self.at_a_place(backups, (transaction.number, next)).map_err(place)?;
        }
        if let Some((_, id)) = self.missing.first() {
            return Err(format!("acknowledged, but not in the feed: {}", told(&self.records[id])));
        }
        let left = self.active.iter().copied().chain(self.silent.iter().map(|(_, id)| *id)).next();
        left.map_or(Ok(()), |id| Err(self.unexplained(id)))
    }

    /// Between two transactions: explains what it can, and keeps the documents for a backup.
    fn at_a_place(&mut self, backups: &mut [Backup], (number, next): (u64, u64)) -> Result<(), String> {
        let faults = self.model.faults();
        for (broken, now) in each_fault(self.broken).into_iter().zip(each_fault(&mut { faults })) {
            *broken = (*broken).max(*now);
        }
        let earliest_end = self.missing.first().map_or(u64::MAX, |(end, _)| *end);
        while let Some((start, id)) = self.silent.first().copied()
            && start <= earliest_end
        {
            self.silent.pop_first();
            self.active.push(id);
        }
        let active = std::mem::take(&mut self.active);
        self.active = active.into_iter().filter(|id| !self.explains(*id)).collect();
        for backup in backups.iter_mut().filter(|backup| (number..next).contains(&backup.version)) {
            if backup.start > earliest_end || backup.end < self.latest_start {
                return Err(format!("{backup:?} lacks what was acknowledged before it, or has what began after it"));
            }
            backup.model = Some(self.model.clone());
        }
        Ok(())
    }

    /// Whether an operation without effect is right at this place.
    fn explains(&mut self, id: u64) -> bool {
        let record = &self.records[&id];
        let Some(reply) = &record.reply else { return true };
        let is_right = possible(record, self.history).iter().any(|conditions| {
            let outcome = record.operation.outcome(id, self.model, conditions, None);
            !outcome.has_effect() && outcome.fits(reply)
        });
        if is_right {
            return true;
        }
        let is_excused = matches!(reply.status, 400 | 409) && is_open(record, self.history);
        self.counts.excused += u64::from(is_excused);
        is_excused
    }

    fn unexplained(&self, id: u64) -> String {
        let record = &self.records[&id];
        let outcomes = possible(record, self.history);
        let outcomes: Vec<String> = outcomes
            .iter()
            .map(|conditions| {
                format!("{conditions:?}: {}", shortly(&record.operation.outcome(id, self.model, conditions, None)))
            })
            .collect();
        format!("no place between request and reply explains {}; at the last one: {outcomes:#?}", told(record))
    }

    /// Finds the operation of a transaction and carries it out.
    fn place(&mut self, transaction: &Transaction, now: i64) -> Result<(), String> {
        let found = match transaction.operations.len() {
            0 => self.deletion(transaction),
            1 => transaction.operations.first().copied(),
            _ => return Err(format!("documents of several operations: {:?}", transaction.operations)),
        };
        let Some(id) = found else {
            self.check_expiry(transaction, now)?;
            self.counts.expired += transaction.changes.len() as u64;
            self.model.apply(&transaction.changes);
            return Ok(());
        };
        let record = self.records.get(&id).ok_or_else(|| format!("operation {id} is done twice, or unknown"))?;
        if self.missing.first().is_some_and(|(end, _)| *end < record.start) {
            let (_, earlier) = self.missing.first().expect("just seen");
            return Err(format!("{} is done before {}", told(record), told(&self.records[earlier])));
        }
        self.check_effect(record, transaction)?;
        self.counts.large += u64::from(transaction.changes.len() > 1_000);
        let (start, end, is_unknown) = (record.start, record.end, standing(record) == Standing::Unknown);
        // What ended before this one began has no later place.
        let late = self.active.iter().find(|id| self.records[id].end < start);
        if let Some(late) = late {
            return Err(self.unexplained(*late));
        }
        self.latest_start = self.latest_start.max(start);
        self.counts.unknown_done += u64::from(is_unknown);
        self.missing.remove(&(end, id));
        self.deleting.remove(&(is_unknown, end, id));
        if transaction.resets.is_empty() {
            self.model.apply(&transaction.changes);
        }
        transaction.resets.iter().for_each(|name| self.model.empty(*name));
        self.records.remove(&id);
        Ok(())
    }

    /// Demands that an operation, at this place, does what the feed shows, and that its reply said so.
    fn check_effect(&self, record: &Record, transaction: &Transaction) -> Result<(), String> {
        if standing(record) == Standing::Silent {
            return Err(format!("{} left {}", told(record), shortly_changes(&transaction.changes)));
        }
        let generated = transaction.changes.keys().find(|(name, _)| *name == Name::Logs).map(|(_, key)| key);
        let mut outcomes = Vec::new();
        for conditions in possible(record, self.history) {
            let outcome = record.operation.outcome(record.number, self.model, &conditions, generated);
            if self.is_done(&outcome, record, transaction) {
                return Ok(());
            }
            outcomes.push((conditions, outcome));
        }
        let mut why = format!("{} did {}\n", told(record), shortly_changes(&transaction.changes));
        for (conditions, outcome) in outcomes {
            why += &format!("expected with {conditions:?}: {}\n", shortly(&outcome));
            if let Outcome::Done { changes, .. } = &outcome {
                why += &difference(changes, &transaction.changes, self.model);
            }
        }
        Err(why)
    }

    fn is_done(&self, outcome: &Outcome, record: &Record, transaction: &Transaction) -> bool {
        let is_same = match outcome {
            Outcome::Done { changes, .. } => transaction.resets.is_empty() && *changes == transaction.changes,
            Outcome::Emptied { name, .. } if transaction.resets.is_empty() => self.deletes_all(*name, transaction),
            Outcome::Emptied { name, .. } => transaction.resets.len() == 1 && transaction.resets.contains(name),
            Outcome::Refused | Outcome::Missing => false,
        };
        let is_told =
            standing(record) == Standing::Unknown || record.reply.as_ref().is_some_and(|reply| outcome.fits(reply));
        is_same && is_told
    }

    /// Whether it deletes each document of a collection by itself.
    fn deletes_all(&self, name: Name, transaction: &Transaction) -> bool {
        let all = self.model.all(name).map(|(key, _)| ((name, key.clone()), None));
        transaction.changes == all.collect()
    }

    /// The deletion that a transaction without documents is. If several could be, the one that was answered first: another order
    /// of equal deletions is right only if this one is.
    fn deletion(&self, transaction: &Transaction) -> Option<u64> {
        let earliest_end = self.missing.first().map_or(u64::MAX, |(end, _)| *end);
        self.deleting.iter().map(|(.., id)| *id).find(|id| {
            let record = &self.records[id];
            if record.start > earliest_end {
                return false;
            }
            let could_be = match &record.operation {
                Operation::Empty(name) if !transaction.resets.is_empty() => transaction.resets.contains(name),
                operation => transaction.changes.keys().all(|(name, key)| operation.could_delete(*name, key)),
            };
            could_be && self.check_effect(record, transaction).is_ok()
        })
    }

    /// No client did it: the server may remove documents whose time is over.
    fn check_expiry(&self, transaction: &Transaction, now: i64) -> Result<(), String> {
        let is_over = |(name, key): &(Name, Key)| {
            let until = self.model.get(*name, key).and_then(|document| number(document, "until"));
            *name == Name::Sessions && until.is_some_and(|until| until <= now)
        };
        let may_expire = self.history.state(Rule::Expiry, self.latest_start, u64::MAX) != State::Off;
        if may_expire && transaction.resets.is_empty() && transaction.changes.keys().all(is_over) {
            return Ok(());
        }
        let candidates: Vec<String> = self
            .deleting
            .iter()
            .map(|(.., id)| &self.records[id])
            .filter(|record| transaction.changes.keys().all(|(name, key)| record.operation.could_delete(*name, key)))
            .map(|record| self.check_effect(record, transaction).err().unwrap_or_default())
            .collect();
        let documents: Vec<_> = transaction.changes.keys().map(|(name, key)| self.model.get(*name, key)).collect();
        Err(format!(
            "no operation did {transaction:?}, and it may not expire (at {now}, {may_expire}): {documents:?}\n{candidates:#?}"
        ))
    }
}

/// What a reply says about an operation's transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// There is one.
    Done,
    /// There is none.
    Silent,
    /// There may be one.
    Unknown,
}

fn standing(record: &Record) -> Standing {
    let Some(reply) = &record.reply else { return Standing::Unknown };
    match reply.status {
        200 if record.operation.is_read() => Standing::Silent,
        200 if reply.json()["changed"] == 0 => Standing::Silent,
        200..=299 => Standing::Done,
        400 | 404 | 409 => Standing::Silent,
        _ => Standing::Unknown,
    }
}

/// Whether some rule was open while an operation ran.
fn is_open(record: &Record, history: &History) -> bool {
    Rule::ALL.iter().any(|rule| history.state(*rule, record.start, record.end) == State::Open)
}

/// All conditions under which an operation may have run.
fn possible(record: &Record, history: &History) -> Vec<Conditions> {
    let mut all = vec![BTreeSet::new()];
    for rule in Rule::ALL {
        match history.state(rule, record.start, record.end) {
            State::On => all.iter_mut().for_each(|obeyed| obeyed.extend([rule])),
            State::Off => {}
            State::Open if record.operation.rules().contains(&rule) => {
                let with = |obeyed: &BTreeSet<Rule>| obeyed.iter().copied().chain([rule]).collect();
                let more: Vec<BTreeSet<Rule>> = all.iter().map(with).collect();
                all.extend(more);
            }
            State::Open => {}
        }
    }
    // A second at each side, because clocks are read before and after.
    let depends_on_time = record.operation.rules().contains(&Rule::Expiry);
    let times = if depends_on_time { vec![record.from - 1, record.to + 1] } else { vec![record.from] };
    let meanings = match record.operation.view() {
        Some(view) => history.meanings(view, record.start, record.end),
        None => vec![None],
    };
    let mut conditions = Vec::new();
    for obeyed in all {
        for now in &times {
            for meaning in &meanings {
                conditions.push(Conditions { obeyed: obeyed.clone(), now: *now, meaning: *meaning });
            }
        }
    }
    conditions
}

fn each_fault(faults: &mut Faults) -> [&mut usize; 6] {
    let Faults { owner_codes, item_codes, slugs, without_owner, without_other, without_session } = faults;
    [owner_codes, item_codes, slugs, without_owner, without_other, without_session]
}

fn told(record: &Record) -> String {
    let reply = record
        .reply
        .as_ref()
        .map_or("without a reply".to_owned(), |reply| format!("answered {} {:.400}", reply.status, reply.text()));
    format!("operation {} ({}..{}) {:?}, {reply}", record.number, record.start, record.end, record.operation)
}

fn shortly(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done { changes, answer } => {
            format!("{} with {:.400}", shortly_changes(changes), format!("{answer:?}"))
        }
        other => format!("{other:?}"),
    }
}

fn shortly_changes(changes: &Changes) -> String {
    match changes.len() {
        0..=3 => format!("{changes:?}"),
        count => format!("{count} documents, {:?} first", changes.first_key_value()),
    }
}

/// Some of the documents that two transactions leave differently.
fn difference(expected: &Changes, found: &Changes, model: &Model) -> String {
    let keys: BTreeSet<&(Name, Key)> = expected.keys().chain(found.keys()).collect();
    let differs = |key: &&&(Name, Key)| expected.get(**key) != found.get(**key);
    let mut text = format!("{} documents differ\n", keys.iter().filter(differs).count());
    for key in keys.iter().filter(differs).take(3) {
        let before = model.get(key.0, &key.1);
        text +=
            &format!("{key:?}: before {before:?}, expected {:?}, found {:?}\n", expected.get(*key), found.get(*key));
    }
    text
}
