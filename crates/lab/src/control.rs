//! Control values: the results that a run must have, whatever the model. If they differ, a request was lost,
//! duplicated or cut off.

use crate::request::result;
use crate::workload::Workload;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Requests of the classic experiment.
pub(crate) const SOURCE_REQUESTS: u32 = 100_000;

/// Sums over all requests of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Control {
    /// Requests that have ended.
    pub requests: u64,
    /// Sum of the results, added in the order of the ids.
    pub result_sum: f64,
    /// Sum of the requested waits before scaling, in milliseconds.
    pub waits_ms: f64,
    /// Number of yields.
    pub yields: u64,
}

/// A run whose control values are wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Differs {
    /// The control values of the requests.
    pub expected: Control,
    /// The control values of the run.
    pub found: Control,
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the control values are wrong: {}, and should be {}", self.found, self.expected)
    }
}

impl std::error::Error for Differs {}

/// In the format of the source.
impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sum, waits) = (scientific(self.result_sum), self.waits_ms);
        write!(f, "result {sum}, waits {waits:.0} ms, yields {}, requests {}", self.yields, self.requests)
    }
}

/// Six significant digits, as C's `%g` writes large numbers: `6.49994e+10`.
fn scientific(number: f64) -> String {
    let text = format!("{number:.5e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) if !exponent.starts_with('-') => format!("{mantissa}e+{exponent:0>2}"),
        _ => text,
    }
}

impl Control {
    /// The control values of the first `requests` ids of a workload.
    pub fn of(workload: &Workload, requests: u32) -> Self {
        let mut control = Self { requests: u64::from(requests), result_sum: 0.0, waits_ms: 0.0, yields: 0 };
        let mut waits = Duration::ZERO;
        for id in 0..requests {
            let (wait, yields) = workload.asked(id);
            waits += wait;
            control.yields += u64::from(yields);
            if workload.is_source() {
                control.result_sum += result(id);
            }
        }
        control.waits_ms = waits.as_secs_f64() * 1e3;
        control
    }

    /// Compares the control values of a run. Sums are added in a fixed order, so they are equal to the last bit.
    pub fn check(self, expected: Self) -> Result<Self, Differs> {
        if self == expected { Ok(self) } else { Err(Differs { expected, found: self }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classic_experiment_has_the_control_values_of_its_source() {
        let control = Control::of(&Workload::source(0.01, 1), SOURCE_REQUESTS);
        let text = control.to_string();
        assert_eq!(text, "result 6.49994e+10, waits 18920 ms, yields 49800, requests 100000");
    }

    #[test]
    fn one_lost_request_is_a_difference() {
        let workload = Workload::source(1.0, 1);
        let (expected, found) = (Control::of(&workload, 1000), Control::of(&workload, 999));
        let text = found.check(expected).unwrap_err().to_string();
        assert!(text.contains("requests 999, and should be result 6.49"), "{text}");
        assert_eq!(expected.check(expected), Ok(expected));
    }
}
