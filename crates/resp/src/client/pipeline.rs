//! Commands that are sent together.

use super::command::{self, ToArguments};

/// Commands in the order in which they are added, encoded already: a pipeline can be sent many times.
///
/// It holds its commands' bytes; a client sends no more than `Settings::request_bytes_max` at once.
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

    /// Commands.
    pub fn len(&self) -> usize {
        self.commands
    }

    /// Whether there is no command.
    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Forgets the commands and keeps their memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.commands = 0;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
