//! Whether paired measurements of two servers differ: a randomisation test, with one error rate for all figures of a comparison.
//!
//! In each pair both servers are measured once, in an order that was drawn at random. If the servers are equal, the order alone
//! decides which of the two values is "the second server's": each difference could as well have had the other sign. So the
//! observed differences are compared with those of all other assignments of signs. That holds whatever the noise is: drift,
//! autocorrelation and outliers change what the values are, not which server got them (Fisher 1935; Edgington and Onghena,
//! "Randomization Tests").
//!
//! Several figures are tested at once, and they depend on one another (p50 and p90 of the same requests). The step-down procedure
//! of Westfall and Young with the largest statistic keeps the probability that any of the equal figures is called different at
//! [`ERROR_RATE`], and takes the dependence from the data: the same signs apply to all figures.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Largest probability with which a comparison of equal servers calls any figure different.
pub(crate) const ERROR_RATE: f64 = 0.05;
/// Fewest pairs that can show a difference: with fewer, even differences of one sign alone are more probable than [`ERROR_RATE`].
pub(crate) const PAIRS_MIN: usize = 6;
/// Largest number of pairs for which all assignments of signs are counted.
const PAIRS_COUNTED_MAX: usize = 12;
/// Assignments that are drawn at random for more pairs.
const ASSIGNMENTS_DRAWN: u32 = 4_999;
/// Seed of these assignments: the same differences always have the same result.
const SEED: u64 = 1;
/// Sums that differ by less than this share are equal: the order of additions differs.
const ROUNDING: f64 = 1e-9;

// Two of the 2^n assignments have differences of one sign alone.
const _: () =
    assert!(2.0 / (1_u32 << PAIRS_MIN) as f64 <= ERROR_RATE && 2.0 / (1_u32 << (PAIRS_MIN - 1)) as f64 > ERROR_RATE);

/// For each figure the probability that the most extreme figure of equal servers is at least as extreme. `figures` has the
/// differences of each figure, one for each pair; all lists have the same length.
pub(crate) fn probabilities(figures: &[Vec<f64>]) -> Vec<f64> {
    let scales: Vec<f64> = figures.iter().map(|of| of.iter().map(|value| value * value).sum::<f64>().sqrt()).collect();
    // The t statistic rises with this one, whose scale no sign changes.
    let statistic = |figure: usize, sum: f64| if scales[figure] > 0.0 { sum.abs() / scales[figure] } else { 0.0 };
    let observed: Vec<f64> =
        figures.iter().enumerate().map(|(figure, of)| statistic(figure, of.iter().sum::<f64>())).collect();
    let mut order: Vec<usize> = (0..figures.len()).collect();
    order.sort_by(|one, other| observed[*other].total_cmp(&observed[*one]));
    let (mut reached, mut assignments) = (vec![0_u32; figures.len()], 0_u32);
    each_assignment(figures, |sums| {
        assignments += 1;
        let mut most = 0.0_f64;
        for figure in order.iter().rev() {
            most = most.max(statistic(*figure, sums[*figure]));
            reached[*figure] += u32::from(most >= observed[*figure] * (1.0 - ROUNDING));
        }
    });
    let mut probabilities = vec![1.0; figures.len()];
    let mut before = 0.0_f64;
    for figure in order {
        // A figure is at most as significant as one that is more extreme.
        before = before.max(f64::from(reached[figure]) / f64::from(assignments.max(1)));
        probabilities[figure] = before;
    }
    probabilities
}

/// Calls `visit` with the sums of all figures for each assignment of signs; the first is the observed one. An assignment and its
/// opposite have the same absolute sums, so only one of the two is counted.
fn each_assignment(figures: &[Vec<f64>], mut visit: impl FnMut(&[f64])) {
    let pairs = figures.first().map_or(0, Vec::len);
    let mut sums: Vec<f64> = figures.iter().map(|of| of.iter().sum()).collect();
    visit(&sums);
    if pairs > PAIRS_COUNTED_MAX {
        let mut random = ChaCha8Rng::seed_from_u64(SEED);
        for _ in 0..ASSIGNMENTS_DRAWN {
            let signs: Vec<bool> = (0..pairs).map(|_| random.random()).collect();
            for (sum, of) in sums.iter_mut().zip(figures) {
                *sum = of.iter().zip(&signs).map(|(value, is_kept)| if *is_kept { *value } else { -value }).sum();
            }
            visit(&sums);
        }
        return;
    }
    // Gray code: each assignment differs from the one before in the sign of one pair.
    let mut signs = vec![1.0; pairs];
    for number in 1_u32..1 << pairs.saturating_sub(1) {
        let pair = number.trailing_zeros() as usize;
        for (sum, of) in sums.iter_mut().zip(figures) {
            *sum -= 2.0 * signs[pair] * of[pair];
        }
        signs[pair] = -signs[pair];
        visit(&sums);
    }
}

/// The mean difference lies between these two, with the confidence 1 - [`ERROR_RATE`] for this figure alone. `None`: there are
/// fewer than [`PAIRS_MIN`] pairs.
///
/// The means of all subsets of the differences divide the line into intervals of equal probability (Hartigan, "Using subsample
/// values as typical values", 1969). The interval excludes zero if [`probabilities`] of this figure alone is at most [`ERROR_RATE`].
pub(crate) fn interval(differences: &[f64]) -> Option<(f64, f64)> {
    if differences.len() < PAIRS_MIN {
        return None;
    }
    let mut means = subset_means(differences);
    means.sort_by(f64::total_cmp);
    let outside = ((means.len() + 1) as f64 * ERROR_RATE / 2.0) as usize;
    Some((*means.get(outside.checked_sub(1)?)?, *means.get(means.len() - outside)?))
}

/// The means of all subsets but the empty one, or of random ones.
fn subset_means(differences: &[f64]) -> Vec<f64> {
    let pairs = differences.len();
    if pairs <= PAIRS_COUNTED_MAX {
        let mut sums = vec![0.0; 1 << pairs];
        let mean = |subset: usize| {
            sums[subset] = sums[subset & (subset - 1)] + differences[subset.trailing_zeros() as usize];
            sums[subset] / f64::from(subset.count_ones())
        };
        return (1..1 << pairs).map(mean).collect();
    }
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let subset = |_| {
        let chosen: Vec<f64> = differences.iter().copied().filter(|_| random.random()).collect();
        (!chosen.is_empty()).then(|| chosen.iter().sum::<f64>() / chosen.len() as f64)
    };
    (0..ASSIGNMENTS_DRAWN).filter_map(subset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_of_one_sign_alone_have_the_probability_of_two_assignments() {
        let one_sign = |pairs: usize| probabilities(&[vec![0.1; pairs]])[0];
        assert_eq!([one_sign(5), one_sign(6), one_sign(10)], [2.0 / 32.0, 2.0 / 64.0, 2.0 / 1024.0]);
        // The drawn assignments do not contain it, and the observed one counts.
        assert_eq!(one_sign(30), 1.0 / f64::from(ASSIGNMENTS_DRAWN + 1));
    }

    #[test]
    fn a_probability_counted_by_hand() {
        // Of the eight assignments, ±(1+2-3) = 0 is the least extreme sum; ±(1+2+3), ±(-1+2+3) and ±(1-2+3) are more extreme.
        assert_eq!(probabilities(&[vec![1.0, 2.0, -3.0]]), [1.0]);
        // ±6 and ±4 are at least as extreme as -1+2+3.
        assert_eq!(probabilities(&[vec![-1.0, 2.0, 3.0]]), [0.5]);
        assert_eq!(probabilities(&[vec![0.0; 8]]), [1.0]);
        assert!(probabilities(&[]).is_empty());
    }

    #[test]
    fn a_second_figure_raises_the_probability_of_the_first_unless_it_is_the_same() {
        let clear = vec![1.0, 1.1, 0.9, 1.2, -0.3, 1.0, 0.8, 1.1];
        let other = vec![1.0, -1.1, 1.3, -1.2, 1.0, 0.9, -0.8, -1.0];
        let alone = probabilities(std::slice::from_ref(&clear))[0];
        let same = probabilities(&[clear.clone(), clear.iter().map(|value| 5.0 * value).collect()]);
        let both = probabilities(&[clear, other]);
        assert_eq!(same, [alone, alone]);
        assert!(both[0] > alone && both[1] >= both[0], "{both:?} {alone}");
    }

    #[test]
    fn the_interval_excludes_zero_where_the_figure_alone_differs() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let mut excluded = 0;
        for shift in 0..60 {
            let differences: Vec<f64> =
                (0..10).map(|_| f64::from(shift) * 0.02 + random.random_range(-1.0..1.0)).collect();
            let (low, high) = interval(&differences).unwrap();
            let is_outside = low > 0.0 || high < 0.0;
            let differs = probabilities(std::slice::from_ref(&differences))[0] <= ERROR_RATE;
            assert!(!differs || is_outside, "{differences:?}: {low} to {high}");
            excluded += u32::from(is_outside);
        }
        assert!((20..50).contains(&excluded), "{excluded}");
        assert_eq!(interval(&[1.0; PAIRS_MIN - 1]), None);
        let (low, high) = interval(&[0.5; 40]).unwrap();
        assert!((low - 0.5).abs() < 1e-12 && (high - 0.5).abs() < 1e-12);
    }
}
