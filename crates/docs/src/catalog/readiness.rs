//! The state of a rule: of an index, unique field, reference, schema, expiry or view. One that is declared for a collection with
//! documents is built, or checked, while the database serves (`opening/index_build.rs`, `views/build.rs`).
//!
//! All copies of a catalog entry share one state, so that plans and writes see it change. Queries and
//! writes do not compare states: each calls one of the four functions that head the last columns.
//!
//! | state | meaning | [maintained](Readiness::is_maintained) | [obeyed](Readiness::is_obeyed) | [read](Readiness::is_ready) | [pending](Readiness::is_pending) |
//! |---|---|---|---|---|---|
//! | declared | the build has not begun, or the engine interrupted it | yes | yes | no | yes |
//! | building | stored documents are being read | yes | yes | no | yes |
//! | ready | all stored documents are entered and satisfy it | yes | yes | yes | no |
//! | refused | a stored document breaks it, or cannot be read | no | no | no | no |
//! | dropped | another rule has replaced it | no | no | no | no |
//!
//! | from \ event | begin | interrupt | complete | refuse | drop |
//! |---|---|---|---|---|---|
//! | declared | building | | | refused | dropped |
//! | building | | declared | ready | refused | dropped |
//! | ready | | | | | dropped |
//! | refused | | | | | dropped |
//! | dropped | | | | | |
//!
//! An event without an entry changes nothing. For example, a build that ends does not make a refused rule ready.
//!
//! A reader's snapshot may be older than the end of a build and lack entries. So each rule that becomes ready gets the next
//! number, and a reader reads the highest number ([`count`]) before it takes a snapshot. The snapshot has all entries of
//! indexes up to that number, and must not be read through later ones ([`Readiness::is_ready_by`]).

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of rules that have become ready, in all databases of the process.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Number of rules that have become ready so far. Must be read before a snapshot is taken.
#[inline]
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::SeqCst)
}

/// The states of a rule: see the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleState {
    /// The build has not begun, or the engine interrupted it, and it begins again.
    Declared,
    /// Stored documents are being read. Writes maintain and obey the rule already.
    Building,
    /// In force: queries rely on it.
    Ready,
    /// A stored document breaks it, or cannot be read. Writes neither maintain nor obey it; the next opening tries again.
    Refused,
    /// Another rule has replaced it.
    Dropped,
}

/// What happens to a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleEvent {
    Begin,
    Interrupt,
    Complete,
    Refuse,
    Drop,
}

impl RuleState {
    const ALL: [RuleState; 5] =
        [RuleState::Declared, RuleState::Building, RuleState::Ready, RuleState::Refused, RuleState::Dropped];

    fn of(number: u8) -> RuleState {
        RuleState::ALL[usize::from(number).min(RuleState::ALL.len() - 1)]
    }

    /// The state after an event; `None`: the event changes nothing. This is the module's second table.
    fn after(self, event: RuleEvent) -> Option<RuleState> {
        match (self, event) {
            (RuleState::Declared, RuleEvent::Begin) => Some(RuleState::Building),
            (RuleState::Building, RuleEvent::Interrupt) => Some(RuleState::Declared),
            (RuleState::Building, RuleEvent::Complete) => Some(RuleState::Ready),
            (RuleState::Declared | RuleState::Building, RuleEvent::Refuse) => Some(RuleState::Refused),
            (RuleState::Dropped, _) => None,
            (_, RuleEvent::Drop) => Some(RuleState::Dropped),
            _ => None,
        }
    }

    /// Whether writes must keep its entries up to date.
    #[inline]
    pub fn is_maintained(self) -> bool {
        matches!(self, RuleState::Declared | RuleState::Building | RuleState::Ready)
    }

    /// Whether a write that breaks it is refused. A view is an exception before it is ready: the view is refused, not the write.
    #[inline]
    pub fn is_obeyed(self) -> bool {
        matches!(self, RuleState::Declared | RuleState::Building | RuleState::Ready)
    }

    /// Whether reads may rely on it: no entry is missing, and every stored document satisfies it.
    #[inline]
    pub fn is_ready(self) -> bool {
        self == RuleState::Ready
    }

    /// Whether it is still to be built, so that it is not decided whether it becomes ready.
    #[inline]
    pub fn is_pending(self) -> bool {
        matches!(self, RuleState::Declared | RuleState::Building)
    }
}

/// The shared state of one rule. The default is ready for ever.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
struct Shared {
    state: AtomicU8,
    /// Its number in the order of becoming ready; 0 before, and if it was ready at the opening.
    number: AtomicU64,
    documents: AtomicU64,
    failure: Mutex<Option<String>>,
    /// The catalog's row to be written once it is ready.
    row: Option<ReadyRow>,
    /// The rule that is dropped once this one is ready.
    replaces: Option<Readiness>,
}

/// A row of the catalog that is written once a rule is ready.
#[derive(Debug)]
pub(crate) struct ReadyRow {
    pub(crate) name: String,
    pub(crate) row: String,
}

/// The state that is reported to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadinessState {
    /// Queries use it.
    Ready,
    /// Being built: the number of documents processed. Writes maintain it already.
    Building(u64),
    /// Refused because of a stored document. Writes neither maintain nor obey it.
    Refused(String),
    /// Replaced by another rule.
    Dropped,
}

/// Any two are equal, so that readiness does not affect the equality of catalog entries.
impl PartialEq for Readiness {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
impl Eq for Readiness {}

impl Readiness {
    /// The state of a rule that is to be built. When it is ready, the catalog gets this row, and `replaces` is dropped.
    pub(crate) fn declared(name: String, row: String, replaces: Option<Readiness>) -> Readiness {
        Readiness::new(RuleState::Declared, Some(ReadyRow { name, row }), replaces)
    }

    /// The state of a rule without a row of its own, which may be dropped later.
    pub(crate) fn of(state: RuleState) -> Readiness {
        Readiness::new(state, None, None)
    }

    fn new(state: RuleState, row: Option<ReadyRow>, replaces: Option<Readiness>) -> Readiness {
        let (state, number, documents) = (AtomicU8::new(state as u8), AtomicU64::new(0), AtomicU64::new(0));
        Readiness {
            shared: Some(Arc::new(Shared { state, number, documents, failure: Mutex::default(), row, replaces })),
        }
    }

    /// Its state.
    #[inline]
    pub fn now(&self) -> RuleState {
        self.shared.as_ref().map_or(RuleState::Ready, |shared| RuleState::of(shared.state.load(Ordering::Acquire)))
    }

    /// See [`RuleState::is_maintained`].
    #[inline]
    pub fn is_maintained(&self) -> bool {
        self.now().is_maintained()
    }

    /// See [`RuleState::is_obeyed`].
    #[inline]
    pub fn is_obeyed(&self) -> bool {
        self.now().is_obeyed()
    }

    /// See [`RuleState::is_ready`].
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.now().is_ready()
    }

    /// See [`RuleState::is_pending`].
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.now().is_pending()
    }

    /// Whether a snapshot taken at this count has all of its entries.
    #[inline]
    pub(crate) fn is_ready_by(&self, count: u64) -> bool {
        let number = |shared: &Arc<Shared>| shared.number.load(Ordering::Acquire);
        self.is_ready() && self.shared.as_ref().is_none_or(|shared| number(shared) <= count)
    }

    /// Whether queries may come to rely on it after they were prepared, or have since.
    pub(crate) fn becomes_ready(&self) -> bool {
        self.shared.is_some() && (self.is_pending() || self.is_ready())
    }

    /// Its state with what operators want to know about it.
    pub fn state(&self) -> ReadinessState {
        let shared = self.shared.as_ref();
        match self.now() {
            RuleState::Declared | RuleState::Building => {
                ReadinessState::Building(shared.map_or(0, |shared| shared.documents.load(Ordering::Relaxed)))
            }
            RuleState::Ready => ReadinessState::Ready,
            RuleState::Refused => ReadinessState::Refused(self.failure().unwrap_or_default()),
            RuleState::Dropped => ReadinessState::Dropped,
        }
    }

    /// Why it was refused.
    pub(crate) fn failure(&self) -> Option<String> {
        self.shared.as_ref()?.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn count(&self, documents: u64) {
        if let Some(shared) = &self.shared {
            shared.documents.fetch_add(documents, Ordering::Relaxed);
        }
    }

    pub(crate) fn row(&self) -> Option<&ReadyRow> {
        self.shared.as_ref()?.row.as_ref()
    }

    /// The build begins, with no documents processed.
    pub(crate) fn begin(&self) {
        if self.pass(RuleEvent::Begin)
            && let Some(shared) = &self.shared
        {
            shared.documents.store(0, Ordering::Relaxed);
        }
    }

    /// The engine could not go on for now.
    pub(crate) fn interrupt(&self) {
        self.pass(RuleEvent::Interrupt);
    }

    /// The build is complete.
    pub(crate) fn complete(&self) {
        let Some(shared) = &self.shared else { return };
        // The number is stored before the state, so that a thread which reads "ready" also reads the number.
        shared.number.store(COUNT.fetch_add(1, Ordering::SeqCst) + 1, Ordering::Release);
        if self.pass(RuleEvent::Complete)
            && let Some(before) = &shared.replaces
        {
            before.drop_it();
        }
    }

    /// A stored document breaks it. The reason may become more precise later.
    pub(crate) fn refuse(&self, why: String) {
        let Some(shared) = &self.shared else { return };
        *shared.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.pass(RuleEvent::Refuse);
    }

    /// Another rule has replaced it.
    pub(crate) fn drop_it(&self) {
        self.pass(RuleEvent::Drop);
    }

    /// Changes the state as the table says; false if the event changes nothing.
    fn pass(&self, event: RuleEvent) -> bool {
        let Some(shared) = &self.shared else { return false };
        let after = |state| RuleState::of(state).after(event).map(|state| state as u8);
        shared.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, after).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The module's tables, as a reader sees them.
    fn tables() -> [Vec<Vec<String>>; 2] {
        let text = include_str!("readiness.rs");
        let lines = text.lines().take_while(|line| line.starts_with("//!")).map(|line| line[3..].trim());
        let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect();
        let rows: Vec<Vec<String>> =
            lines.filter(|line| line.starts_with('|') && !line.contains("---")).map(cells).collect();
        let second = rows.iter().position(|row| row[0].starts_with("from")).expect("two tables");
        [rows[..second].to_vec(), rows[second..].to_vec()]
    }

    #[test]
    fn every_state_answers_and_changes_as_the_tables_say() {
        const EVENTS: [RuleEvent; 5] =
            [RuleEvent::Begin, RuleEvent::Interrupt, RuleEvent::Complete, RuleEvent::Refuse, RuleEvent::Drop];
        let name = |state: RuleState| format!("{state:?}").to_lowercase();
        let [questions, transitions] = tables();
        assert_eq!((questions.len(), transitions.len()), (RuleState::ALL.len() + 1, RuleState::ALL.len() + 1));
        let events: Vec<String> = EVENTS.iter().map(|event| format!("{event:?}").to_lowercase()).collect();
        assert_eq!(transitions[0][1..], events);
        for (number, state) in RuleState::ALL.into_iter().enumerate() {
            let answers = [state.is_maintained(), state.is_obeyed(), state.is_ready(), state.is_pending()];
            let answers = answers.map(|is| if is { "yes" } else { "no" }.to_string());
            assert_eq!((&questions[number + 1][0], &questions[number + 1][2..]), (&name(state), &answers[..]));
            let after = EVENTS.map(|event| state.after(event).map(name).unwrap_or_default());
            assert_eq!((&transitions[number + 1][0], &transitions[number + 1][1..]), (&name(state), &after[..]));
            // The shared state changes alike.
            for (event, after) in EVENTS.into_iter().zip(&after) {
                let readiness = Readiness::of(state);
                assert_eq!(readiness.pass(event), !after.is_empty());
                assert_eq!(name(readiness.now()), if after.is_empty() { name(state) } else { after.clone() });
            }
        }
    }

    #[test]
    fn a_rule_that_becomes_ready_drops_the_one_it_replaces_and_a_refused_one_does_not() {
        for (is_refused, expected) in [(false, RuleState::Dropped), (true, RuleState::Ready)] {
            let before = Readiness::of(RuleState::Ready);
            let rule = Readiness::declared(String::new(), String::new(), Some(before.clone()));
            rule.begin();
            if is_refused {
                rule.refuse("a document breaks it".to_string());
            }
            rule.complete();
            assert_eq!((rule.is_ready(), before.now()), (!is_refused, expected));
        }
    }
}
