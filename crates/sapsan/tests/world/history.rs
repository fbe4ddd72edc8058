//! Which rules held, and what views meant, over the ticks of the campaign's clock. While a file is read again, and until the server
//! says what became of its rules, that is open: then either is right.

use crate::settings::{Meaning, Rule, Settings, View};
use std::collections::{BTreeMap, BTreeSet};

/// Whether writes obey a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Off,
    /// Being read, built, or refused because of stored documents.
    Open,
    On,
}

/// What a view may mean; none: it is not there.
type Meanings = Vec<Option<Meaning>>;

/// States from some tick on, in the order of ticks.
#[derive(Debug, Default)]
pub(crate) struct History {
    rules: BTreeMap<Rule, Vec<(u64, State)>>,
    views: BTreeMap<View, Vec<(u64, Meanings)>>,
}

/// The values that held at some time from `start` to `end`.
fn during<V>(changes: &[(u64, V)], start: u64, end: u64) -> &[(u64, V)] {
    let first = changes.partition_point(|(tick, _)| *tick <= start).saturating_sub(1);
    let last = changes.partition_point(|(tick, _)| *tick <= end);
    &changes[first..last.max(first)]
}

impl History {
    /// From the first start on, with everything open.
    pub(crate) fn new(settings: &Settings) -> History {
        let mut history = History::default();
        for rule in Rule::ALL {
            history.rules.insert(rule, vec![(0, State::Open)]);
        }
        for view in View::ALL {
            history.views.insert(view, vec![(0, vec![None, settings.meaning(view)])]);
        }
        history
    }

    pub(crate) fn state(&self, rule: Rule, start: u64, end: u64) -> State {
        let states = during(&self.rules[&rule], start, end);
        let first = states[0].1;
        if states.iter().all(|(_, state)| *state == first) { first } else { State::Open }
    }

    /// What a view may have meant; none: it may not have been there.
    pub(crate) fn meanings(&self, view: View, start: u64, end: u64) -> Meanings {
        during(&self.views[&view], start, end).iter().flat_map(|(_, meanings)| meanings).copied().collect()
    }

    /// A file is about to be read in place of another.
    pub(crate) fn begin(&mut self, tick: u64, old: &Settings, new: &Settings) {
        for (rule, states) in &mut self.rules {
            if old.has(*rule) != new.has(*rule) {
                states.push((tick, State::Open));
            }
        }
        for (view, meanings) in &mut self.views {
            let next = new.meaning(*view);
            let (_, now) = meanings.last().expect("the first is there");
            if !now.contains(&next) || now.len() > 1 {
                let both = now.iter().copied().chain([next]).collect();
                meanings.push((tick, both));
            }
        }
    }

    /// The server says that nothing is being built, and which rules it has refused. Only a check waits until expired documents
    /// are hidden, which may take some time longer.
    pub(crate) fn settle(&mut self, tick: u64, settings: &Settings, refused: &BTreeSet<Rule>, is_checked: bool) {
        for (rule, states) in &mut self.rules {
            let is_replaced_in_vain = match rule {
                Rule::ToOwners => refused.contains(&Rule::ToOthers),
                Rule::ToOthers => refused.contains(&Rule::ToOwners),
                _ => false,
            };
            states.push((
                tick,
                match settings.has(*rule) {
                    true if refused.contains(rule) => State::Open,
                    true if *rule == Rule::Expiry && !is_checked => states.last().expect("the first is there").1,
                    true => State::On,
                    // The old rule stays in force.
                    false if is_replaced_in_vain => State::Open,
                    false => State::Off,
                },
            ));
        }
        for (view, meanings) in &mut self.views {
            meanings.push((tick, vec![settings.meaning(*view)]));
        }
    }
}
