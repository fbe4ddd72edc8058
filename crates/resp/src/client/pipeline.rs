//! Commands that are sent together.

use super::command::{self, ToArguments};

/// Encoded commands, in the order in which they were added. A pipeline can be sent many times.
///
/// Its size is not bounded here; a client refuses one that is larger than
/// `ClientSettings::request_bytes_max`.
#[derive(Clone, Debug, Default)]
pub struct Pipeline {
    bytes: Vec<u8>,
    commands: usize,
}

impl Pipeline {
    /// An empty pipeline.
    pub fn new() -> Pipeline {
        Pipeline::default()
    }

    /// Adds a command.
    #[inline]
    pub fn add(&mut self, command: impl ToArguments) -> &mut Pipeline {
        command::write(&mut self.bytes, &command);
        self.commands += 1;
        self
    }

    /// Number of commands.
    pub fn len(&self) -> usize {
        self.commands
    }

    /// Whether there is no command.
    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Removes all commands and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.commands = 0;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
