//! The request of the classic experiment: some arithmetic, a wait that depends on the id, and a text that is copied and changed.
//!
//! For a request `id`:
//!
//! 1. `t` is 13·id as a double, the result √(t² + 3.1415·sin(2·t/π)); `Resp: ` and the result with six digits are formatted into the
//!    reply's buffer.
//! 2. It waits as [`wait_of`] says.
//! 3. The text of [`TEXT_BYTES`] is copied into the buffer, and every `v` in it becomes `V`.
//!
//! The experiment, its formula and its control values are from R. Równiak, "Architektura serwerów: wydajność przetwarzania
//! zapytań", part 1, 2019. The text is our own.

use std::f64::consts::PI;
use std::io::Write;
use std::time::Duration;

/// Length of a reply.
pub const TEXT_BYTES: usize = 12_386;

/// The text of every reply, before its letters are changed.
pub const TEXT: &str = include_str!("reply.txt");

const _: () = assert!(TEXT.len() == TEXT_BYTES);

/// Factor of the sine in the result.
#[allow(clippy::approx_constant)] // The experiment uses this number instead of π.
const SINE_FACTOR: f64 = 3.1415;

/// The action of a request between its two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It continues at once.
    Nothing,
    /// It lets other tasks run first.
    Yield,
    /// It waits for a disk or another service.
    For(Duration),
}

/// The wait of a request: few wait for long, half of them only yield.
pub fn wait_of(id: u32) -> Wait {
    match id {
        id if id.is_multiple_of(10_000) => Wait::For(Duration::from_secs(1)),
        id if id.is_multiple_of(1000) => Wait::For(Duration::from_millis(88)),
        id if id.is_multiple_of(500) => Wait::For(Duration::from_millis(10)),
        id if id.is_multiple_of(2) => Wait::Yield,
        _ => Wait::Nothing,
    }
}

/// The result of a request.
pub fn result(id: u32) -> f64 {
    let t = f64::from(id) * 13.0;
    (t * t + SINE_FACTOR * (2.0 * t / PI).sin()).sqrt()
}

/// Formats a result into an empty buffer: the output of the first part.
pub(crate) fn write_result(buffer: &mut Vec<u8>, result: f64) {
    // Writing into a Vec does not fail.
    let _ = write!(buffer, "Resp: {result:.6}");
}

/// Replaces the buffer's content by the text and changes its letters: the second part. Not inlined, so that the measurement of its cost
/// and the models run the same machine code: two inlined copies differed by a factor of 1.6.
#[inline(never)]
pub fn fill(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.extend_from_slice(TEXT.as_bytes());
    for byte in buffer.iter_mut() {
        if *byte == b'v' {
            *byte = b'V';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_follows_the_largest_round_number_that_divides_the_id() {
        let of = |ms| Wait::For(Duration::from_millis(ms));
        for (id, wait) in [(0, of(1000)), (10_000, of(1000)), (3000, of(88)), (1500, of(10)), (500, of(10))] {
            assert_eq!(wait_of(id), wait, "{id}");
        }
        assert_eq!([2, 498, 7, 99_999].map(wait_of), [Wait::Yield, Wait::Yield, Wait::Nothing, Wait::Nothing]);
    }

    #[test]
    fn a_result_is_formatted_as_percent_f_and_the_text_takes_its_place() {
        let mut buffer = Vec::new();
        write_result(&mut buffer, result(1));
        let first = String::from_utf8(buffer.clone()).unwrap();
        // √(169 + 3.1415·sin(26/π)), computed by another program.
        assert_eq!(first, "Resp: 13.109760");
        fill(&mut buffer);
        assert_eq!(buffer.len(), TEXT_BYTES);
        assert_eq!(String::from_utf8(buffer).unwrap(), TEXT.replace('v', "V"));
        assert!(TEXT.contains('v'));
    }
}
