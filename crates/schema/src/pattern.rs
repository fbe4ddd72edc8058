//! The keyword `pattern`, matched within the limits of a check.
//!
//! The library matches a text in one call that nothing stops, and bounded repeats of something of variable length
//! (`^(\w{1,50} ?){1,100}$`) make each byte of the text cost thousands of states. So this keyword walks the text itself with a lazy DFA
//! and counts what the walk computes. A known transition is a look-up, so usual patterns cost next to nothing for each byte.
//!
//! Patterns with look-around or back-references need the backtracking engine, and names of `patternProperties` are matched by the library.
//! Neither can be stopped: for both the cost is estimated from the pattern before the match ([`Estimate`]).

use fancy_regex::{Assertion, Expr};
use jsonschema::json::Node;
use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError};
use regex_automata::Input;
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::pool::Pool;
use serde_json::{Map, Value as Json};

use super::full::MESSAGE_BYTES_MAX;
use super::meter;
use super::stored::{Stored, StoredNode};

/// Backtracks for one text, if a pattern needs the backtracking engine.
pub(super) const BACKTRACKS: usize = 20_000;
/// Memory for the cached states of a pattern. If it is full, it is emptied.
pub(super) const PATTERN_MEMORY_BYTES: usize = 256 << 10;
/// Memory for a compiled pattern, as in the `regex` crate.
const PROGRAM_BYTES_MAX: usize = 10 << 20;

/// Steps for computing a transition, without its states.
const TRANSITION_STEPS: u64 = 2;
/// States of the NFA that are followed in one step.
const STATES_PER_STEP: usize = 8;
/// Memory of a state of the DFA without its transitions and the list of its NFA states.
const STATE_BYTES: usize = 64;

/// Places of a pattern at which a match may be at once, up to which the library takes no longer for a text than for one place: the states of
/// its DFA, at most two to the power of it, fit into their cache.
const PLACES_FREE: u64 = 12;
/// Bytes of a text, times the start positions that a backtracking match may try, in one step. Each byte is read for each of them.
const TRIED_BYTES_PER_STEP: u64 = 128;
/// The same, times the places, of a pattern with more than [`PLACES_FREE`].
const TRIED_PLACES_PER_STEP: u64 = 64;

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
        let program =
            thompson::Config::new().nfa_size_limit(Some(PROGRAM_BYTES_MAX)).which_captures(WhichCaptures::None);
        let states = DFA::config()
            .cache_capacity(PATTERN_MEMORY_BYTES)
            .skip_cache_capacity_check(true)
            .unicode_word_boundary(true);
        let dfa = DFA::builder().configure(states).thompson(program).build(translated).ok()?;
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

/// What the cost of a match is in proportion to, if the engine cannot be stopped.
#[derive(Clone, Copy)]
pub(super) struct Estimate {
    /// Places of the pattern at which a match may be at once; 0 if they are too few to count.
    places: u64,
    /// Whether it may try each position of the text.
    backtracks: bool,
}

impl Estimate {
    /// Nothing is matched.
    pub(super) const NOTHING: Estimate = Estimate { places: 0, backtracks: false };

    fn of(translated: &str, backtracks: bool) -> Estimate {
        let Ok(tree) = Expr::parse_tree(translated) else {
            // Of a dialect that only the linear engine reads.
            let places =
                Linear::compile(translated).map_or(u64::MAX, |linear| linear.dfa.get_nfa().states().len() as u64);
            return Estimate { places, backtracks };
        };
        let part = Part::of(&tree.expr);
        let is_linear = !backtracks || is_linear(&tree.expr);
        let backtracks = !is_linear && !is_tried_once(&tree.expr);
        // The linear engine follows all start positions at once.
        let places = if is_linear && !is_anchored(&tree.expr) { part.places } else { part.at_once };
        Estimate { places: if places > PLACES_FREE { places } else { 0 }, backtracks }
    }

    /// For names that are matched with all `patternProperties` of a schema, wherever in its text: a `$ref` may lead into unknown keywords.
    /// Recursion: as deep as JSON text nests ([`super::SCHEMA_DEPTH_MAX`]).
    pub(super) fn of_names(schema: &Json, backtracks: bool) -> Estimate {
        let of_all = |parts: &mut dyn Iterator<Item = &Json>| {
            parts.map(|part| Estimate::of_names(part, backtracks)).fold(Estimate::NOTHING, Estimate::and)
        };
        let Json::Object(keywords) = schema else {
            return of_all(&mut schema.as_array().into_iter().flatten());
        };
        let named = keywords.get("patternProperties").and_then(Json::as_object);
        let patterns = named.into_iter().flatten().map(|(pattern, _)| {
            let translated = jsonschema_regex::to_rust_regex(pattern).unwrap_or_default();
            Estimate::of(&translated, backtracks)
        });
        patterns.fold(of_all(&mut keywords.values()), Estimate::and)
    }

    /// The estimate for both patterns together.
    fn and(self, other: Estimate) -> Estimate {
        Estimate { places: self.places.saturating_add(other.places), backtracks: self.backtracks || other.backtracks }
    }

    pub(super) fn steps(self, bytes: usize) -> u64 {
        let tries = bytes.min(BACKTRACKS) as u64;
        let bytes = bytes as u64;
        match (self.backtracks, self.places) {
            (false, places) => bytes.saturating_mul(places) / STATES_PER_STEP as u64,
            (true, 0) => bytes.saturating_mul(tries) / TRIED_BYTES_PER_STEP,
            (true, places) => bytes.saturating_mul(tries).saturating_mul(places) / TRIED_PLACES_PER_STEP,
        }
    }
}

fn is_anchored(expr: &Expr) -> bool {
    matches!(expr, Expr::Concat(parts) if parts.first() == Some(&Expr::Assertion(Assertion::StartText)))
}

/// Whether each part is tried at one position: look-around stands only at the start of the text.
fn is_tried_once(expr: &Expr) -> bool {
    let Expr::Concat(parts) = expr else { return false };
    let mut rest =
        parts.iter().skip(1).skip_while(|part| matches!(part, Expr::LookAround(inner, _) if is_linear(inner)));
    is_anchored(expr) && rest.all(is_linear)
}

/// Whether it is left to the linear engine. Recursion: the parser limits the depth.
fn is_linear(expr: &Expr) -> bool {
    match expr {
        Expr::Empty | Expr::Any { .. } | Expr::Literal { .. } | Expr::Delegate { .. } => true,
        Expr::Assertion(assertion) => matches!(assertion, Assertion::StartText | Assertion::EndText),
        Expr::Group(_) | Expr::Concat(_) | Expr::Alt(_) | Expr::Repeat { .. } => expr.children_iter().all(is_linear),
        _ => false,
    }
}

/// A part of a pattern, with its repeats written out: places are its characters.
#[derive(Clone, Copy)]
struct Part {
    places: u64,
    /// Places at which a match that enters the part at one position may be at once.
    at_once: u64,
    /// The number of characters that it matches, if it is always the same.
    length: Option<u64>,
}

impl Part {
    const fn new(places: u64, at_once: u64, length: Option<u64>) -> Part {
        Part { places, at_once, length }
    }

    /// Recursion: the parser limits the depth.
    fn of(expr: &Expr) -> Part {
        match expr {
            Expr::Empty | Expr::Assertion(_) => Part::new(0, 0, Some(0)),
            Expr::Any { .. } | Expr::Delegate { .. } => Part::new(1, 1, Some(1)),
            Expr::Literal { val, .. } => {
                let length = val.chars().count() as u64;
                Part::new(length, 1, Some(length))
            }
            Expr::Group(inner) => Part::of(inner),
            Expr::AtomicGroup(inner) => Part::of(inner),
            Expr::LookAround(inner, _) => Part { length: Some(0), ..Part::of(inner) },
            Expr::Concat(parts) => parts.iter().map(Part::of).fold(Part::new(0, 0, Some(0)), Part::then),
            Expr::Alt(parts) => {
                let mut parts = parts.iter().map(Part::of);
                let first = parts.next().unwrap_or(Part::new(0, 0, Some(0)));
                parts.fold(first, Part::or)
            }
            Expr::Repeat { child, lo, hi, .. } => {
                let child = Part::of(child);
                let copies = if *hi == usize::MAX { (*lo).max(1) } else { *hi } as u64;
                let places = child.places.saturating_mul(copies);
                // Copies of one length follow one another; others overlap.
                let at_once = if child.length.is_some() { child.at_once } else { places };
                Part::new(
                    places,
                    at_once,
                    child.length.filter(|_| lo == hi).map(|length| length.saturating_mul(copies)),
                )
            }
            other => {
                let parts = other.children_iter().map(Part::of);
                Part { length: None, ..parts.fold(Part::new(1, 1, None), Part::or) }
            }
        }
    }

    fn then(self, next: Part) -> Part {
        Part {
            places: self.places.saturating_add(next.places),
            at_once: match self.length {
                Some(_) => self.at_once.max(next.at_once),
                // It is entered again and again.
                None => self.at_once.saturating_add(next.places),
            },
            length: self.length.zip(next.length).map(|(one, other)| one.saturating_add(other)),
        }
    }

    fn or(self, other: Part) -> Part {
        Part {
            places: self.places.saturating_add(other.places),
            at_once: self.at_once.saturating_add(other.at_once),
            length: self.length.filter(|_| self.length == other.length),
        }
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
