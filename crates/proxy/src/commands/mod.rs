//! The commands of Redis: which there are, where their keys stand, what the proxy does with each.
//!
//! | subject | file |
//! |---|---|
//! | a request's arguments by number | `request` |
//! | where keys stand | `key_rule`, `movable` (rules for what `COMMAND` does not tell) |
//! | what is done with a command | `handling` |
//! | all commands by name | `table` |

mod handling;
mod key_rule;
mod movable;
mod request;
mod table;

pub use handling::{Handling, Join, Local, Split, Subscription, Transaction};
pub use key_rule::{Begin, Find, KeyRange, KeyRule, KeySpec, Keys, MalformedKeys, RANGES_MAX};
pub use request::{Request, Span};
pub use table::{COMMANDS_MAX, Command, CommandId, CommandTable};
