//! The unit of work of a mix: what it computes, and how many of them fill a microsecond on this machine.

use crate::request::TEXT;
use crate::usage::thread_cpu;
use std::hint::black_box;
use std::time::Duration;

/// Bytes of a unit of work, which takes a fraction of a microsecond.
const UNIT_BYTES: usize = 1024;
/// Number of measurements, of which the cheapest counts: the others were disturbed.
pub(crate) const ROUNDS: usize = 5;
/// Units of work in one measurement of a unit.
const UNITS: u64 = 8000;

/// Computes: copies and changes a piece of the text `units` times.
pub(crate) fn compute(units: u64, buffer: &mut Vec<u8>) {
    for _ in 0..units {
        buffer.clear();
        buffer.extend_from_slice(&TEXT.as_bytes()[..UNIT_BYTES]);
        for byte in buffer.iter_mut() {
            *byte = byte.wrapping_mul(31).wrapping_add(7);
        }
        black_box(&mut *buffer);
    }
}

/// Processor time of this thread, in seconds.
pub(crate) fn timed(work: impl FnOnce()) -> f64 {
    let before = thread_cpu();
    work();
    (thread_cpu() - before).as_secs_f64()
}

/// Number of work units that fill a microsecond on this machine.
pub(crate) fn units_per_us() -> f64 {
    let mut buffer = Vec::new();
    let seconds = (0..ROUNDS).map(|_| timed(|| compute(UNITS, &mut buffer))).fold(f64::INFINITY, f64::min);
    // A clock that stands still would give infinity.
    UNITS as f64 / (seconds * 1e6).max(Duration::from_nanos(1).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_microsecond_has_room_for_work() {
        assert!(units_per_us() > 0.0);
    }
}
