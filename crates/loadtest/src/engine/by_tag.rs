//! Results by tag: one record for each tag of a loop's requests, added up when the loops have ended.
//!
//! A loop makes a tag's record when the tag first occurs and then only counts, so the sending path stays free of allocations. The
//! histograms have two significant digits: [`TAGS_MAX`](crate::ammo::TAGS_MAX) of them take three megabytes for each loop.

use super::ended::{Correction, Judged, Lost};
use crate::recording::{LONGEST_NS, Percentiles, TagResult};
use crate::source::TagNames;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Significant digits of the times by tag.
const DIGITS: u8 = 2;
/// Name of the requests that were never read from the source, because it was behind.
const NEVER_READ: &str = "(never read)";

/// The records of one loop, or of all; the index is the number of the tag.
#[derive(Debug, Default)]
pub(super) struct ByTag(Vec<Option<Box<Record>>>);

#[derive(Debug)]
struct Record {
    right: u64,
    /// Wrong or late replies.
    wrong: u64,
    failed: u64,
    latency: Histogram<u32>,
}

impl Record {
    fn new() -> Record {
        let latency =
            Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are in order, and the digits few");
        Record { right: 0, wrong: 0, failed: 0, latency }
    }

    fn add(&mut self, other: &Record) {
        self.right += other.right;
        self.wrong += other.wrong;
        self.failed += other.failed;
        self.latency.add(&other.latency).expect("the same bounds");
    }

    fn result(&self, name: String, correction: Correction) -> TagResult {
        let wrong = self.wrong + correction.found_wrong - correction.found_right;
        TagResult {
            name,
            requests: self.right + self.wrong + self.failed,
            answered: self.right + self.wrong,
            errors: wrong + self.failed,
            latency: Percentiles::of(&self.latency),
        }
    }
}

impl ByTag {
    #[inline]
    pub(super) fn answered(&mut self, tag: u32, latency_ns: u64, judged: Judged) {
        let record = self.record(tag);
        match judged {
            Judged::Right => record.right += 1,
            Judged::Wrong | Judged::Late => record.wrong += 1,
        }
        record.latency.saturating_record(latency_ns.max(1));
    }

    /// A request without a reply. As in the whole run, its waiting time is a latency if it was given up after the timeout.
    pub(super) fn lost(&mut self, tag: u32, waited_ns: u64, lost: &Lost) {
        let record = self.record(tag);
        record.failed += 1;
        if lost.is_given_up() {
            record.latency.saturating_record(waited_ns.max(1));
        }
    }

    #[inline]
    fn record(&mut self, tag: u32) -> &mut Record {
        let index = tag as usize;
        if self.0.get(index).is_none_or(Option::is_none) {
            self.open(index);
        }
        self.0[index].as_mut().expect("the record was made")
    }

    #[cold]
    fn open(&mut self, index: usize) {
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(Box::new(Record::new()));
    }

    pub(super) fn add(&mut self, other: &ByTag) {
        for (index, record) in other.0.iter().enumerate() {
            if let Some(record) = record {
                self.record(index as u32).add(record);
            }
        }
    }

    /// The results, most requests first. `planned` is the number of all requests of the run.
    pub(super) fn results(
        &self,
        names: &TagNames,
        corrections: &BTreeMap<u32, Correction>,
        planned: u64,
    ) -> Vec<TagResult> {
        let result = |(index, record): (usize, &Option<Box<Record>>)| {
            let correction = corrections.get(&(index as u32)).copied().unwrap_or_default();
            Some(record.as_ref()?.result(names.name(index as u32), correction))
        };
        let mut results: Vec<TagResult> = self.0.iter().enumerate().filter_map(result).collect();
        results.sort_by(|one, other| other.requests.cmp(&one.requests).then_with(|| one.name.cmp(&other.name)));
        let known: u64 = results.iter().map(|of| of.requests).sum();
        let unknown = planned.saturating_sub(known);
        if unknown > 0 && !results.is_empty() {
            let latency = Percentiles::default();
            results.push(TagResult {
                name: NEVER_READ.to_owned(),
                requests: unknown,
                answered: 0,
                errors: unknown,
                latency,
            });
        }
        results
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_add_up_and_the_observers_verdicts_count() {
        let names = TagNames::default();
        ["a", "b", "c"].iter().for_each(|name| names.push(name));
        let (mut one, mut other) = (ByTag::default(), ByTag::default());
        (0..10).for_each(|_| one.answered(0, 1_000, Judged::Right));
        one.lost(0, 2_000_000, &Lost::Timeout);
        one.lost(0, 7, &Lost::Closed);
        (0..20).for_each(|_| other.answered(2, 5_000, Judged::Wrong));
        other.answered(0, 3_000, Judged::Late);
        one.add(&other);
        let found_wrong = Correction { found_wrong: 3, ..Correction::default() };
        let results = one.results(&names, &BTreeMap::from([(0, found_wrong)]), 40);
        let rows: Vec<(&str, u64, u64, u64)> =
            results.iter().map(|of| (of.name.as_str(), of.requests, of.answered, of.errors)).collect();
        assert_eq!(rows, [("c", 20, 20, 20), ("a", 13, 11, 6), (NEVER_READ, 7, 0, 7)]);
        assert!((1_980_000..2_020_000).contains(&results[1].latency.max), "{results:?}");
        assert!((4_950..5_050).contains(&results[0].latency.p50), "{results:?}");
    }
}
