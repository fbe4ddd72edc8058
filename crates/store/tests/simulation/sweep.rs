//! The fault sweep: every kind of fault at every operation of a simulated disk, for any test that can run one life on it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::disk::{Fault, FaultPlan};

/// The faults that are tried, with the number of operations that fail.
pub(crate) const FAULTS: &[(Fault, u64)] = &[
    (Fault::Broken, 1),
    (Fault::Broken, u64::MAX),
    (Fault::Full, 1),
    (Fault::Full, u64::MAX),
    (Fault::Short, u64::MAX),
    (Fault::Interrupted, 3),
    (Fault::WriteBack, 1),
];

/// The faults of syncs, for lives in which many threads sync one file.
pub(crate) const SYNC_FAULTS: &[(Fault, u64)] = &[(Fault::Told, 1)];

/// A life on a simulated disk.
pub(crate) trait Lives {
    /// Runs one life with one fault plan. Returns false if the life ended before the operation was reached.
    fn live_with(&self, faults: FaultPlan) -> Result<bool, String>;

    /// Runs the life, and adds the fault to the error. A panic is an error too.
    fn check(&self, fault: Fault, count: u64, at: u64) -> Result<bool, String> {
        let context = |what| format!("{fault:?} {count} times from operation {at} on: {what}");
        let checked = catch_unwind(AssertUnwindSafe(|| self.live_with(FaultPlan { fault, at, count })));
        checked.unwrap_or_else(|panic| Err(format!("panic: {}", text_of(&*panic)))).map_err(context)
    }
}

/// Tries these faults at every `step`th operation from `first` on; returns the number of tries.
pub(crate) fn sweep(start: &impl Lives, faults: &[(Fault, u64)], first: u64, step: usize) -> Result<u64, String> {
    let mut tried = 0;
    for (fault, count) in faults {
        for at in (first..).step_by(step) {
            if !start.check(*fault, *count, at)? {
                break;
            }
            tried += 1;
        }
    }
    Ok(tried)
}

pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_string())).unwrap_or_default()
}
