//! Selection of the series that are kept, and what each measures.
//!
//! Names follow Prometheus's conventions (<https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>); those
//! of `sapsan serve` are known. For any server, gauges whose name contains a word for a queue are kept.

use super::text::samples;
use std::collections::BTreeSet;

/// What a series measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SeriesKind {
    /// CPU seconds since the process started: a counter.
    Cpu,
    /// Bytes of memory.
    Memory,
    /// Number of waiting or open items.
    Queue,
}

/// Series that are known by name.
const KNOWN: [(&str, SeriesKind); 5] = [
    ("process_cpu_seconds_total", SeriesKind::Cpu),
    ("process_resident_memory_bytes", SeriesKind::Memory),
    ("sapsan_memory_anonymous_bytes", SeriesKind::Memory),
    ("sapsan_memory_mapped_bytes", SeriesKind::Memory),
    ("sapsan_connections_open", SeriesKind::Queue),
];
/// Words of a queue's name.
const QUEUE_WORDS: [&str; 5] = ["queue", "queued", "waiting", "pending", "backlog"];
/// Last words of names that are not a queue's length: counters, parts of histograms, other units.
const OTHER_ENDS: [&str; 8] = ["total", "sum", "count", "bucket", "bytes", "seconds", "max", "limit"];

/// What the series measures. None: it is not kept. Labels may follow the name.
pub(crate) fn kind(series: &str) -> Option<SeriesKind> {
    let name = series.split('{').next().unwrap_or_default();
    if let Some((_, kind)) = KNOWN.iter().find(|(known, _)| *known == name) {
        return Some(*kind);
    }
    let is_queue = name.split('_').any(|word| QUEUE_WORDS.contains(&word));
    let is_length = name.rsplit('_').next().is_some_and(|word| !OTHER_ENDS.contains(&word));
    (is_queue && is_length).then_some(SeriesKind::Queue)
}

/// Selects the series of a page to keep, at most `most`: CPU time and memory before queues.
pub(super) fn choose(page: &str, most: usize) -> BTreeSet<String> {
    let mut found: Vec<_> = samples(page).filter_map(|sample| Some((kind(sample.name)?, sample.series))).collect();
    found.sort_by_key(|(kind, _)| *kind);
    found.into_iter().take(most).map(|(_, series)| series.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_memory_and_queues_are_kept() {
        for (series, expected) in [
            ("process_cpu_seconds_total", Some(SeriesKind::Cpu)),
            ("process_resident_memory_bytes", Some(SeriesKind::Memory)),
            ("sapsan_store_queue_depth", Some(SeriesKind::Queue)),
            ("sapsan_pool_queued", Some(SeriesKind::Queue)),
            ("http_queue_length{pool=\"a\"}", Some(SeriesKind::Queue)),
            ("sapsan_queued_total", None),
            ("queue_wait_seconds", None),
            ("queue_bytes", None),
            ("sapsan_uptime_seconds", None),
            ("http_requests_total{kind=\"queue\"}", None),
        ] {
            assert_eq!(kind(series), expected, "{series}");
        }
    }

    #[test]
    fn queues_give_way_where_there_are_too_many() {
        let page: String = (0..10).map(|pool| format!("queued{{pool=\"{pool}\"}} 1\n")).collect();
        let chosen = choose(&(page + "process_cpu_seconds_total 1\n"), 3);
        assert_eq!(chosen.len(), 3);
        assert!(chosen.contains("process_cpu_seconds_total"), "{chosen:?}");
    }
}
