//! A comparison as JSON.

use super::{ComparedFigure, SideBySide};
use crate::json::Summary;
use crate::significance::{ERROR_RATE, PAIRS_MIN};
use serde::Serialize;
use std::collections::BTreeMap;

impl SideBySide {
    /// The comparison as one JSON object on one line.
    pub fn json(&self) -> String {
        let figures = self.rows.iter().map(|row| (row.figure.key, ComparedJson::of(row)));
        let turns = self.turns.as_ref();
        let is_tested = turns.is_some_and(|turns| turns.rounds >= PAIRS_MIN);
        let object = Object {
            rounds: turns.map(|turns| turns.rounds),
            order: turns.map(|turns| turns.order.as_str()),
            invalid_turns: turns.map(|turns| turns.invalid_turns),
            error_rate: ERROR_RATE,
            differs: is_tested.then(|| self.rows.iter().any(ComparedFigure::differs)),
            first: Summary::of(&self.first),
            second: Summary::of(&self.second),
            figures: figures.collect(),
        };
        // Numbers, texts and maps with text keys: all can be serialized.
        serde_json::to_string(&object).expect("a comparison is JSON")
    }
}

#[derive(Serialize)]
struct Object<'a> {
    rounds: Option<usize>,
    order: Option<&'a str>,
    invalid_turns: Option<usize>,
    error_rate: f64,
    differs: Option<bool>,
    first: Summary<'a>,
    second: Summary<'a>,
    figures: BTreeMap<&'static str, ComparedJson>,
}

#[derive(Serialize)]
struct ComparedJson {
    first: Option<f64>,
    second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<Option<f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<Option<f64>>,
    low: Option<f64>,
    high: Option<f64>,
    p: Option<f64>,
    verdict: Option<&'static str>,
}

impl ComparedJson {
    fn of(row: &ComparedFigure) -> ComparedJson {
        let [first, second] = [row.first, row.second].map(|value| row.figure.json(value));
        let is_subtracted = row.figure.is_subtracted();
        ComparedJson {
            first,
            second,
            ratio: (!is_subtracted).then_some(row.effect),
            difference: is_subtracted.then_some(row.effect),
            low: row.interval.map(|(low, _)| low),
            high: row.interval.map(|(_, high)| high),
            p: row.probability,
            verdict: row.probability.map(|_| row.verdict()),
        }
    }
}
