//! What the cost of a match is in proportion to, if the engine cannot be stopped: with the backtracking engine, and for the names of
//! `patternProperties`, which the library matches.

use fancy_regex::{Assertion, Expr};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use serde_json::Value as Json;

/// Backtracks for one text, if a pattern needs the backtracking engine.
pub(super) const BACKTRACKS: usize = 20_000;
/// Memory for a compiled pattern, as in the `regex` crate.
const PROGRAM_BYTES_MAX: usize = 10 << 20;

/// States of the NFA that are followed in one step.
pub(super) const STATES_PER_STEP: usize = 8;
/// Places of a pattern at which a match may be at once, up to which the library takes no longer for a text than for one place: the states of
/// its DFA, at most two to the power of it, fit into their cache.
const PLACES_FREE: u64 = 12;
/// Bytes of a text, times the start positions that a backtracking match may try, in one step. Each byte is read for each of them.
const TRIED_BYTES_PER_STEP: u64 = 128;
/// Bytes of a text, times the start positions, times the places, in one step: for a pattern with more than [`PLACES_FREE`] places.
const TRIED_PLACES_PER_STEP: u64 = 64;

/// How patterns are compiled.
pub(super) fn program() -> thompson::Config {
    thompson::Config::new().nfa_size_limit(Some(PROGRAM_BYTES_MAX)).which_captures(WhichCaptures::None)
}

/// The factors of a match's cost, beside the length of the text.
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

    pub(super) fn of(translated: &str, backtracks: bool) -> Estimate {
        let Ok(tree) = Expr::parse_tree(translated) else {
            // Of a dialect that only the linear engine reads.
            let compiled = thompson::Compiler::new().configure(program()).build(translated);
            let places = compiled.map_or(u64::MAX, |program| program.states().len() as u64);
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
