//! The keyword `pattern`, matched within the limits of a check.
//!
//! The library matches a text in one call that nothing stops, and bounded repeats of something of variable length
//! (`^(\w{1,50} ?){1,100}$`) make each byte of the text cost thousands of states. So this keyword walks the text itself with a lazy DFA
//! and counts what the walk computes. A known transition is a look-up, so usual patterns cost next to nothing for each byte.
//!
//! Patterns with look-around or back-references need the backtracking engine, and names of `patternProperties` are matched by the library.
//! Neither can be stopped: for both the cost is estimated from the pattern before the match ([`super::estimate`]).

use jsonschema::json::Node;
use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError};
use regex_automata::Input;
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::util::pool::Pool;
use serde_json::{Map, Value as Json};

use super::estimate::{BACKTRACKS, Estimate, STATES_PER_STEP, program};
use super::stored::{Stored, StoredNode};
use super::{MESSAGE_BYTES_MAX, meter};

/// Memory for the cached states of a pattern. If it is full, it is emptied.
pub(super) const PATTERN_MEMORY_BYTES: usize = 256 << 10;
/// Steps for computing a transition, without its states.
const TRANSITION_STEPS: u64 = 2;
/// Memory of a state of the DFA without its transitions and the list of its NFA states.
const STATE_BYTES: usize = 64;

type Caches = Pool<Cached, Box<dyn Fn() -> Cached + Send + Sync>>;

/// The states of a lazy DFA that one thread has computed.
struct Cached {
    states: Cache,
    /// The most memory that a state took: no state has more NFA states.
    state_bytes_max: usize,
}

/// A pattern without look-around and back-references.
struct Linear {
    dfa: DFA,
    caches: Caches,
}

impl Linear {
    fn compile(translated: &str) -> Option<Linear> {
        let states = DFA::config()
            .cache_capacity(PATTERN_MEMORY_BYTES)
            .skip_cache_capacity_check(true)
            .unicode_word_boundary(true);
        let dfa = DFA::builder().configure(states).thompson(program()).build(translated).ok()?;
        let of = dfa.clone();
        let caches: Caches = Pool::new(Box::new(move || Cached { states: of.create_cache(), state_bytes_max: 0 }));
        Some(Linear { dfa, caches })
    }

    /// Whether it matches. Each transition is counted before the next one is computed.
    fn is_match(&self, text: &str) -> bool {
        self.walk(text).unwrap_or_else(|| self.simulate(text))
    }

    /// `None` if the DFA cannot tell: for `\b` beside letters beyond ASCII.
    fn walk(&self, text: &str) -> Option<bool> {
        let mut cached = self.caches.get();
        let cached = &mut *cached;
        let mut state = self.counted(cached, |dfa, states| dfa.start_state_forward(states, &Input::new(text)).ok())?;
        for &byte in text.as_bytes() {
            let next = self.dfa.next_state_untagged(&cached.states, state, byte);
            state = if next.is_unknown() {
                self.counted(cached, |dfa, states| dfa.next_state(states, state, byte).ok())?
            } else {
                next
            };
            if state.is_tagged() {
                if state.is_match() || state.is_dead() {
                    return Some(state.is_match());
                }
                return None;
            }
        }
        let end = self.counted(cached, |dfa, states| dfa.next_eoi_state(states, state).ok())?;
        if end.is_quit() { None } else { Some(end.is_match()) }
    }

    /// Computes a state and counts it.
    fn counted(
        &self,
        cached: &mut Cached,
        compute: impl FnOnce(&DFA, &mut Cache) -> Option<LazyStateID>,
    ) -> Option<LazyStateID> {
        let before = cached.states.memory_usage();
        let state = compute(&self.dfa, &mut cached.states);
        let transitions_bytes = size_of::<LazyStateID>() << self.dfa.byte_classes().stride2();
        let grown = cached.states.memory_usage().saturating_sub(before + transitions_bytes + STATE_BYTES);
        cached.state_bytes_max = cached.state_bytes_max.max(grown);
        meter::pattern(TRANSITION_STEPS + (cached.state_bytes_max / STATES_PER_STEP) as u64);
        state
    }

    /// Follows the NFA. It is counted as if each byte met all its states.
    fn simulate(&self, text: &str) -> bool {
        let nfa = self.dfa.get_nfa();
        meter::pattern((text.len().saturating_mul(nfa.states().len()) / STATES_PER_STEP) as u64);
        let Ok(simulation) = PikeVM::new_from_nfa(nfa.clone()) else { return false };
        simulation.is_match(&mut simulation.create_cache(), text)
    }
}

enum Engine {
    Linear(Box<Linear>),
    Backtracking(Box<fancy_regex::Regex>, Estimate),
}

/// The keyword.
struct Pattern {
    engine: Engine,
    pattern: String,
}

impl Pattern {
    fn compile(pattern: &str) -> Option<Pattern> {
        let translated = jsonschema_regex::to_rust_regex(pattern).ok()?;
        let engine = match Linear::compile(&translated) {
            Some(linear) => Engine::Linear(Box::new(linear)),
            None => {
                let regex = fancy_regex::RegexBuilder::new(&translated)
                    .backtrack_limit(BACKTRACKS)
                    .delegate_dfa_size_limit(PATTERN_MEMORY_BYTES)
                    .build()
                    .ok()?;
                Engine::Backtracking(Box::new(regex), Estimate::of(&translated, true))
            }
        };
        Some(Pattern { engine, pattern: pattern.to_string() })
    }

    fn fits(&self, value: StoredNode<'_>) -> bool {
        let Some(text) = value.as_string() else { return true };
        match &self.engine {
            Engine::Linear(linear) => linear.is_match(&text),
            Engine::Backtracking(regex, estimate) => {
                meter::pattern(estimate.steps(text.len()));
                regex.is_match(&*text).unwrap_or_else(|_| meter::pattern_stopped())
            }
        }
    }
}

impl<'i> Keyword<'i, Stored> for Pattern {
    fn validate(&self, instance: StoredNode<'i>) -> Result<(), ValidationError<'i>> {
        if self.fits(instance) {
            return Ok(());
        }
        let shown = instance.to_value().to_string();
        let does_not_match = format!(" does not match \"{}\"", self.pattern);
        let shown = if shown.len() + does_not_match.len() > MESSAGE_BYTES_MAX { "value" } else { &shown };
        Err(ValidationError::custom(format!("{shown}{does_not_match}")))
    }

    fn is_valid(&self, instance: StoredNode<'i>) -> bool {
        self.fits(instance)
    }
}

/// Makes the keyword.
pub(super) fn keyword<'a>(
    _parent: &'a Map<String, Json>,
    value: &'a Json,
    _path: Location,
) -> Result<Box<dyn for<'i> Keyword<'i, Stored>>, ValidationError<'a>> {
    let Some(pattern) = value.as_str() else { return Err(ValidationError::custom("`pattern` is a text")) };
    match Pattern::compile(pattern) {
        Some(pattern) => Ok(Box::new(pattern)),
        None => Err(ValidationError::custom(format!("{value} is not a \"regex\""))),
    }
}
