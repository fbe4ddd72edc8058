//! The distribution of durations: percentiles on a scale with equal room for each further nine, as in HdrHistogram's plots.
//!
//! Quantile q is at log10(1 / (1 - q)): 90 % at 1, 99 % at 2, 99.9 % at 3. The scale ends at the resolution of one request: for
//! 1,000 requests there is no 99.99th percentile.

use super::chart::{Chart, Series, Shape};
use super::over_time::{HEIGHT, duration, duration_tick, extent};
use super::scale::Scale;
use hdrhistogram::Histogram;

/// Number of points for each further nine.
const POINTS: u32 = 24;
/// Largest number of nines: a distribution of ten million values has seven.
const NINES_MAX: u32 = 7;

/// One distribution of a chart.
pub(super) struct Distribution<'a> {
    pub(super) name: String,
    pub(super) class: &'static str,
    pub(super) histogram: &'a Histogram<u64>,
}

/// Legend, drawing and table; a sentence if nothing was measured.
pub(super) fn html(id: &str, title: &str, distributions: &[Distribution<'_>]) -> String {
    let values = distributions.iter().map(|of| of.histogram.len()).max().unwrap_or(0);
    if values == 0 {
        return "<p class=\"soft\">No request was answered, so there is no distribution.</p>\n".into();
    }
    let end = (values as f64).log10().clamp(1.0, f64::from(NINES_MAX));
    let places = places(end);
    let series: Vec<Series> = distributions.iter().map(|of| series(of, &places)).collect();
    let (least, most) = extent(&series);
    let chart = Chart {
        id,
        title,
        height: HEIGHT + 30.0,
        x: Scale::nines(end),
        x_label: percent,
        x_name: "share of the requests that took at most so long",
        y: Scale::logarithmic(least, most),
        y_label: duration_tick,
        y_name: "duration",
        places,
        row: 0.0,
        series,
        phases: &[],
    };
    chart.html(percent, duration)
}

/// Positions of the points, from 0 % to `end` nines; the last is at the resolution of one request.
fn places(end: f64) -> Vec<f64> {
    let whole = (0..).map(|index| f64::from(index) / f64::from(POINTS)).take_while(|place| *place < end);
    whole.chain([end]).collect()
}

fn series(of: &Distribution<'_>, places: &[f64]) -> Series {
    let value = |place: &f64| {
        (!of.histogram.is_empty()).then(|| of.histogram.value_at_quantile(1.0 - 10_f64.powf(-place)) as f64)
    };
    let mut values: Vec<Option<f64>> = places.iter().map(value).collect();
    if let Some(last) = values.last_mut().filter(|last| last.is_some()) {
        *last = Some(of.histogram.max() as f64);
    }
    Series { name: of.name.clone(), class: of.class, shape: Shape::Line, values }
}

/// The percentage at a position: `50 %`, `99.9 %`; with as many digits as the position needs.
fn percent(place: f64) -> String {
    let percent = 100.0 - 100.0 * 10_f64.powf(-place);
    let digits = (place.ceil() as usize).saturating_sub(1).max(usize::from(percent.fract() > 1e-9 && place < 1.0));
    let text = format!("{percent:.digits$}");
    // A percentile is never shown as the maximum.
    let text = if text.starts_with("100") { format!("{percent:.*}", digits + 2) } else { text };
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text.as_str() };
    format!("{short} %")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_run;

    #[test]
    fn marks_are_the_nines() {
        let places = [0.0, 2_f64.log10(), 1.0, 2.0, 3.0, 4.0];
        assert_eq!(places.map(percent), ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
        assert!(places.map(|place| place + 0.99).map(percent).iter().all(|text| !text.starts_with("100")));
    }

    #[test]
    fn the_last_point_is_the_maximum_and_the_middle_the_median() {
        let mut histogram = sample_run::histogram();
        (1..=1_000).for_each(|us| histogram.record(us * 1_000).unwrap());
        let places = places(3.0);
        let of = Distribution { name: "a".into(), class: "latency", histogram: &histogram };
        let series = series(&of, &places);
        assert_eq!(series.values.last().copied().flatten(), Some(histogram.max() as f64));
        assert_eq!(series.values[POINTS as usize], Some(histogram.value_at_quantile(0.9) as f64));
        assert!(series.values.is_sorted_by(|left, right| left <= right));
    }

    #[test]
    fn a_distribution_of_nothing_is_a_sentence() {
        let histogram = sample_run::histogram();
        let html = html("d", "d", &[Distribution { name: "a".into(), class: "latency", histogram: &histogram }]);
        assert!(html.contains("no distribution") && !html.contains("svg"), "{html}");
    }
}
