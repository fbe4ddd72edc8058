//! Metrics of views in `/_/metrics`: `sapsan_view_*`, one value for each declared view.

use docs::RuleState;
use docs::views::ViewStatus;
use std::fmt::Write as _;

/// Name, help, value.
type ViewMetric = (&'static str, &'static str, fn(&ViewStatus) -> f64);

const METRICS: [ViewMetric; 7] = [
    ("ready", "1 if the view answers by its present definition.", |view| as_number(view.state == RuleState::Ready)),
    ("failed", "1 if the view could not be built.", |view| as_number(view.state == RuleState::Refused)),
    ("build_documents", "Documents that its build has read.", |view| view.documents as f64),
    ("build_parts", "Parts of the collection that its build reads.", |view| view.parts.1 as f64),
    ("build_parts_done", "Parts of the collection that its build has read.", |view| view.parts.0 as f64),
    ("build_seconds", "Time that its build has taken.", |view| view.elapsed.as_secs_f64()),
    ("build_seconds_left", "Time that its build will still take, NaN if unknown.", |view| {
        view.remaining.map_or(f64::NAN, |left| left.as_secs_f64())
    }),
];

fn as_number(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// How many metrics a view has.
pub(crate) const METRICS_COUNT: usize = METRICS.len();

/// Appends one of the metrics, by its number. The list has an old definition, which serves until the declared one is built, after
/// the declared one; the old one is left out.
pub(crate) fn append(number: usize, views: &[ViewStatus], out: &mut String) {
    let Some((name, help, value)) = METRICS.get(number).filter(|_| !views.is_empty()) else { return };
    // Writing into a String does not fail.
    let _ = write!(out, "# HELP sapsan_view_{name} {help}\n# TYPE sapsan_view_{name} gauge\n");
    for (place, view) in views.iter().enumerate() {
        if !views[..place].iter().any(|before| before.name == view.name) {
            let _ = writeln!(out, "sapsan_view_{name}{{view=\"{}\"}} {}", view.name, value(view));
        }
    }
}
