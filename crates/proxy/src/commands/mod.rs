//! The commands of Redis: their names, the positions of their keys, their handling by the proxy.
//!
//! | subject | file |
//! |---|---|
//! | a request's arguments by position | `request` |
//! | positions of keys | `key_rule`, `movable` (rules that `COMMAND` does not report) |
//! | handling of a command | `handling` |
//! | all commands by name | `table` |

mod handling;
mod key_rule;
mod movable;
mod request;
mod table;

pub use handling::{Handling, Join, Local, Split, Subscription, TransactionCommand};
pub use key_rule::{Find, KeyPositions, KeyRule, KeySpec, KeyStride, MalformedKeys, RANGES_MAX, SearchStart};
pub use request::{CommandRequest, Span};
pub use table::{COMMANDS_MAX, Command, CommandId, CommandTable};
