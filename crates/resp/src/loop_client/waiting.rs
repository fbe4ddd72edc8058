//! Commands that wait for a connection: encoded, in order, bounded in bytes.

use crate::client::NotSent;
use std::collections::VecDeque;

use super::append::append;
use super::in_flight::Entry;

pub(super) struct Waiting {
    bytes: Vec<u8>,
    /// Each with the number of its bytes.
    entries: VecDeque<(Entry, usize)>,
    /// Number of replies that all of them will have.
    replies: usize,
    bytes_max: usize,
}

impl Waiting {
    pub(super) fn new(bytes_max: usize) -> Waiting {
        Waiting { bytes: Vec::new(), entries: VecDeque::new(), replies: 0, bytes_max }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of replies that the commands will have.
    pub(super) fn replies(&self) -> usize {
        self.replies
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a command that `write` appends.
    ///
    /// # Errors
    /// There is no room for it, or it is larger than `request_bytes_max`; nothing was added.
    pub(super) fn push(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>),
        entry: Entry,
        request_bytes_max: usize,
    ) -> Result<(), NotSent> {
        let before = self.bytes.len();
        let bytes = append(&mut self.bytes, request_bytes_max, write)?;
        // The first one may be of any size: an unconnected client accepts the same commands as a connected
        // one.
        if before > 0 && self.bytes.len() > self.bytes_max {
            self.bytes.truncate(before);
            return Err(NotSent::QueueFull);
        }
        self.replies += entry.replies_left;
        self.entries.push_back((entry, bytes));
        Ok(())
    }

    /// Moves all bytes to `output`, and returns their commands.
    pub(super) fn send(&mut self, output: &mut Vec<u8>) -> impl Iterator<Item = Entry> + use<> {
        output.extend_from_slice(&self.bytes);
        (self.bytes, self.replies) = (Vec::new(), 0);
        std::mem::take(&mut self.entries).into_iter().map(|(entry, _)| entry)
    }

    /// Removes the chosen commands and their bytes.
    pub(super) fn take(&mut self, mut is_chosen: impl FnMut(&Entry) -> bool) -> Vec<Entry> {
        let (mut taken, mut kept) = (Vec::new(), VecDeque::new());
        let (mut from, mut to) = (0, 0);
        for (entry, bytes) in std::mem::take(&mut self.entries) {
            if is_chosen(&entry) {
                self.replies -= entry.replies_left;
                taken.push(entry);
            } else {
                self.bytes.copy_within(from..from + bytes, to);
                to += bytes;
                kept.push_back((entry, bytes));
            }
            from += bytes;
        }
        self.bytes.truncate(to);
        self.entries = kept;
        taken
    }

    /// The earliest deadline; `u64::MAX` if no command has one.
    pub(super) fn deadline_ns(&self) -> u64 {
        self.entries.iter().map(|(entry, _)| entry.deadline_ns).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::in_flight::Then;
    use super::*;

    fn entry(deadline_ns: u64) -> Entry {
        Entry { then: Then::Nothing, replies_left: 1, deadline_ns }
    }

    fn push(waiting: &mut Waiting, text: &str, deadline_ns: u64) -> Result<(), NotSent> {
        waiting.push(|bytes| bytes.extend_from_slice(text.as_bytes()), entry(deadline_ns), 5)
    }

    #[test]
    fn commands_that_are_taken_out_leave_the_bytes_of_the_others_in_order() {
        let mut waiting = Waiting::new(10);
        for (text, deadline_ns) in [("aa", 1), ("bbb", 2), ("c", 1), ("dd", 3)] {
            push(&mut waiting, text, deadline_ns).unwrap();
        }
        assert_eq!(waiting.deadline_ns(), 1);
        assert_eq!(waiting.take(|entry| entry.deadline_ns == 1).len(), 2);
        assert_eq!((waiting.deadline_ns(), waiting.bytes()), (2, 5));
        let mut output = b"-".to_vec();
        assert_eq!(waiting.send(&mut output).count(), 2);
        assert_eq!(output, b"-bbbdd");
        assert!(waiting.is_empty() && waiting.bytes() == 0);
    }

    #[test]
    fn the_first_command_may_be_larger_than_the_queue() {
        let mut waiting = Waiting::new(3);
        push(&mut waiting, "aaaaa", 1).unwrap();
        assert!(matches!(push(&mut waiting, "b", 1), Err(NotSent::QueueFull)));
        assert_eq!(waiting.bytes(), 5);
    }

    #[test]
    fn what_has_no_room_leaves_nothing_behind() {
        let mut waiting = Waiting::new(6);
        push(&mut waiting, "aaaa", 1).unwrap();
        assert!(matches!(push(&mut waiting, "bbbbbb", 1), Err(NotSent::TooLarge { bytes: 6 })));
        assert!(matches!(push(&mut waiting, "bbb", 1), Err(NotSent::QueueFull)));
        push(&mut waiting, "bb", 1).unwrap();
        assert_eq!(waiting.bytes(), 6);
    }
}
