//! Scales of axes: from a value to its position, and the round values that are labelled.
//!
//! A position is a share of the axis, 0 to 1. The number of ticks is bounded whatever the values are.

/// Largest number of ticks of an axis.
const TICKS_MAX: usize = 12;
/// Distances of ticks on a time axis, in seconds.
const TIME_STEPS: [f64; 16] =
    [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 21_600.0, 86_400.0];
/// A logarithmic axis spans at least this factor, so that small differences look small.
const LEAST_FACTOR: f64 = 10.0;

/// Maps values to positions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    is_logarithmic: bool,
    from: f64,
    to: f64,
    /// The labelled values.
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    /// From zero to a round value of at least `most`.
    pub(super) fn from_zero(most: f64) -> Scale {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let step = round_step(most / 5.0);
        let count = (most / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=(count as usize).min(TICKS_MAX)).map(|index| index as f64 * step).collect();
        Scale { is_logarithmic: false, from: 0.0, to: count * step, ticks }
    }

    /// The seconds of a run, with ticks at round times.
    pub(super) fn time(seconds: f64) -> Scale {
        let to = if seconds.is_finite() && seconds > 0.0 { seconds } else { 1.0 };
        let fits = |step: &&f64| to / **step <= 8.0;
        let step = TIME_STEPS.iter().find(fits).copied().unwrap_or_else(|| round_step(to / 8.0));
        let ticks = (0..TICKS_MAX).map(|index| index as f64 * step).take_while(|tick| *tick <= to).collect();
        Scale { is_logarithmic: false, from: 0.0, to, ticks }
    }

    /// Logarithmic, around positive values `least` to `most`; ticks at 1, 2 and 5 for few decades, at 1 for
    /// many.
    pub(super) fn logarithmic(least: f64, most: f64) -> Scale {
        let is_usable = least.is_finite() && most.is_finite() && least > 0.0 && most >= least;
        let (least, most) = if is_usable { (least, most) } else { (1.0, LEAST_FACTOR) };
        let from = below(least);
        let to = above(most).max(from * LEAST_FACTOR);
        let decades = (to / from).log10();
        let digits: &[f64] = if decades <= 3.01 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let first = from.log10().floor() as i32;
        let all = (first..).flat_map(|decade| digits.iter().map(move |digit| digit * 10_f64.powi(decade)));
        let ticks = all.skip_while(|tick| *tick < from * 0.999).take_while(|tick| *tick <= to * 1.001).take(TICKS_MAX);
        Scale { is_logarithmic: true, from, to, ticks: ticks.collect() }
    }

    /// Positions of a distribution with `end` nines: ticks at 0, 50, 90, 99, 99.9 percent and so on.
    pub(super) fn nines(end: f64) -> Scale {
        let whole = (1..TICKS_MAX as u32).map(f64::from).take_while(|nines| *nines <= end);
        Scale {
            is_logarithmic: false,
            from: 0.0,
            to: end,
            ticks: [0.0, 2_f64.log10()].into_iter().chain(whole).collect(),
        }
    }

    /// The position of `value`; values outside are at the nearer end.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value / self.from).ln() / (self.to / self.from).ln()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) }
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(least)
}

/// The next lower value of 1, 2 and 5 times a power of ten.
fn below(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [5.0, 2.0].into_iter().map(|digit| digit * power).find(|round| *round <= value).unwrap_or(power)
}

/// The next higher value.
fn above(value: f64) -> f64 {
    round_step(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_are_round() {
        assert_eq!(Scale::from_zero(430.0).ticks, [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]);
        assert_eq!(Scale::from_zero(7.0).ticks, [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(Scale::time(180.0).ticks, [0.0, 30.0, 60.0, 90.0, 120.0, 150.0, 180.0]);
        assert_eq!(Scale::logarithmic(0.3e6, 40e6).ticks.len(), 8, "0.2 … 50 ms");
        let decades = Scale::logarithmic(1e3, 2e9).ticks;
        assert!(decades.windows(2).all(|pair| (pair[1] / pair[0] - 10.0).abs() < 1e-6), "{decades:?}");
    }

    #[test]
    fn nothing_and_what_is_no_number_have_a_scale_too() {
        for scale in [
            Scale::from_zero(0.0),
            Scale::from_zero(f64::NAN),
            Scale::time(f64::INFINITY),
            Scale::logarithmic(0.0, 0.0),
            Scale::logarithmic(f64::INFINITY, 0.0),
        ] {
            assert!(!scale.ticks.is_empty() && (0.0..=1.0).contains(&scale.share(f64::NAN)), "{scale:?}");
        }
    }

    proptest! {
        #[test]
        fn places_rise_with_values_and_marks_are_few(least in 1e-3..1e9_f64, factor in 1.0..1e9_f64) {
            let most = least * factor;
            for scale in [Scale::from_zero(most), Scale::time(most), Scale::logarithmic(least, most)] {
                prop_assert!(scale.to >= most * 0.999);
                prop_assert!((1..=TICKS_MAX + 1).contains(&scale.ticks.len()), "{:?}", scale);
                prop_assert!(scale.share(least) <= scale.share(most));
                prop_assert!(scale.ticks.is_sorted());
            }
        }
    }
}
