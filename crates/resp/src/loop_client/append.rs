//! Appends a command to the output: all of it or nothing.

use crate::client::NotSent;

/// Lets `write` append a command, and returns its size in bytes.
///
/// # Errors
/// [`NotSent::TooLarge`]: it has more than `bytes_max`. In this case, and if `write` panics, `output` is restored: after a
/// partial command the server would read the next one as its rest.
#[inline]
pub(super) fn append(
    output: &mut Vec<u8>,
    bytes_max: usize,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<usize, NotSent> {
    let mut appended = Appended { before: output.len(), output, is_whole: false };
    write(appended.output);
    let bytes = appended.output.len() - appended.before;
    appended.is_whole = bytes <= bytes_max;
    if appended.is_whole { Ok(bytes) } else { Err(NotSent::TooLarge { bytes }) }
}

struct Appended<'o> {
    output: &'o mut Vec<u8>,
    before: usize,
    is_whole: bool,
}

impl Drop for Appended<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.is_whole {
            self.output.truncate(self.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_command_that_is_too_large_or_panics_leaves_nothing_behind() {
        let mut output = b"before".to_vec();
        assert_eq!(append(&mut output, 5, |output| output.extend_from_slice(b" fits")).ok(), Some(5));
        let refused = append(&mut output, 5, |output| output.extend_from_slice(b"larger"));
        assert!(matches!(refused, Err(NotSent::TooLarge { bytes: 6 })));
        let panicking = AssertUnwindSafe(|| {
            append(&mut output, 5, |output| {
                output.push(b'!');
                panic!("on purpose");
            })
        });
        assert!(catch_unwind(panicking).is_err());
        assert_eq!(output, b"before fits");
    }
}
