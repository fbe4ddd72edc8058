//! Percentiles of latencies, and the median of several runs.

use serde::Serialize;

/// Percentiles of the time from a request's submission to its reply, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LatencyPercentiles {
    /// Half of the requests took no longer.
    pub p50: f64,
    /// 90 of 100.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl LatencyPercentiles {
    /// Computed from ascending nanoseconds.
    pub(crate) fn of(ascending_ns: &[u64]) -> Self {
        let at = |part: f64| percentile(ascending_ns, part) as f64 / 1e6;
        Self { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

/// The smallest value that at least this part of the values does not exceed (nearest rank); 0 for an
/// empty list.
fn percentile(ascending: &[u64], part: f64) -> u64 {
    let rank = (ascending.len() as f64 * part).ceil() as usize;
    ascending.get(rank.max(1) - 1).copied().unwrap_or(0)
}

/// Index of the median; of the lower one for an even count. `None` for an empty list.
pub(crate) fn median_index(values: &[f64]) -> Option<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|one, other| values[*one].total_cmp(&values[*other]));
    order.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_value_at_its_nearest_rank() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!([0.5, 0.9, 0.99, 0.999, 1.0].map(|part| percentile(&hundred, part)), [50, 90, 99, 100, 100]);
        assert_eq!(percentile(&[7], 0.5), 7);
        assert_eq!(percentile(&[], 0.5), 0);
        assert_eq!(LatencyPercentiles::of(&[2_000_000]).p99, 2.0);
    }

    #[test]
    fn the_middle_run_is_found_where_it_stands() {
        assert_eq!(median_index(&[3.0, 1.0, 2.0]), Some(2));
        assert_eq!(median_index(&[2.0, 1.0]), Some(1));
        assert_eq!(median_index(&[]), None);
    }
}
