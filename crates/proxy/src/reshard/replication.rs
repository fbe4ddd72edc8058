//! The source's replication stream: every command that changes a key, in order.
//!
//! The source is followed as a replica follows its master (PSYNC), but only the **keys** of its commands are used: their values are read
//! from the source again. Why so:
//!
//! - Keyspace notifications are published for some commands only (none for XREADGROUP, XACK, XCLAIM, FLUSHALL), and what is published
//!   while a connection is lost is lost. The stream has every change, with a position: after a lost connection the source continues it
//!   from there, and reading is complete when a position is reached.
//! - Executing the commands on the nodes, as replicas do, was rejected. A command whose outcome is unknown cannot be repeated, one with
//!   keys of several nodes cannot be executed, and the copy of all keys (an RDB file, whose formats would have to be read) must end
//!   before the source's buffer of later commands is full. Copying a key can be repeated at any time, and the stream is read at
//!   once, however slow the nodes are.
//!
//! A stream that begins at the source's current position needs no RDB file. Only a source that once had a replica keeps a stream; another
//! one is brought to it by a replica's first request, which is given up before the source has made the file.
//!
//! Which arguments are keys, and which commands change keys without naming them, the source's reply to COMMAND says.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use resp::codec::ReplyView;
use resp::{Client, ClientSettings, CommandError, MessageFeed};

use super::ReshardError;
use super::error::{ServerRole, address};
use super::servers::Server;
use crate::commands::{CommandRequest, CommandTable, Span};

/// Interval of the messages without which the source takes a replica to be dead.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_secs(1);
/// How long the source may take to answer PSYNC.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// How often the source is asked for its position and its stream from there. The stream may run on in between.
const TRIES: usize = 5;
/// Commands of the stream that change all keys of a database.
const OF_ALL_KEYS: [&str; 3] = ["flushall", "flushdb", "swapdb"];
/// Commands of a stream whose scripts are executed by the replica: what they change is unknown. Redis 7 sends the changes instead.
const SCRIPTS: [&str; 3] = ["eval", "evalsha", "fcall"];
/// Commands that remove keys or fields, also when they have expired.
const REMOVALS: [&str; 3] = ["del", "unlink", "hdel"];

/// What a command of the stream has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// These keys of a database. None: of any database.
    Keys {
        database: Option<u32>,
        keys: Vec<Vec<u8>>,
        is_removal: bool,
    },
    /// All keys, perhaps.
    Everything,
    /// Libraries of functions.
    Functions,
    Nothing,
    /// It cannot be told.
    Unknown,
}

/// What the commands of a source change.
pub(super) struct Commands {
    table: CommandTable,
    /// Those that change keys without naming them and that are not followed.
    unfollowed: BTreeSet<String>,
    /// Database of the next command; none if the stream has not told yet.
    database: Option<u32>,
    spans: Vec<Span>,
}

impl Commands {
    /// By a source's reply to COMMAND.
    fn of(reply: &ReplyView<'_>) -> Commands {
        let mut table = CommandTable::new();
        table.learn(reply);
        let mut commands = Commands { table, unfollowed: BTreeSet::new(), database: None, spans: Vec::new() };
        for entry in reply.elements().into_iter().flatten() {
            commands.add_entry(&entry);
        }
        commands
    }

    /// Notes a command that changes keys without naming them, from an element of the reply to COMMAND.
    fn add_entry(&mut self, entry: &ReplyView<'_>) {
        let Some(mut fields) = entry.elements() else { return };
        let name = fields.next().and_then(|name| Some(String::from_utf8_lossy(name.text()?).to_ascii_lowercase()));
        let flags = fields.nth(1).and_then(|flags| flags.elements());
        let (Some(name), Some(mut flags)) = (name, flags) else { return };
        let subcommands = fields.nth(6).and_then(|subcommands| subcommands.elements());
        let known = self.table.find(name.as_bytes()).map(|id| self.table.get(id));
        let has_no_keys = known.is_none_or(|command| command.key_rule == crate::commands::KeyRule::None);
        let is_followed = OF_ALL_KEYS.contains(&name.as_str()) || name.starts_with("function|");
        if flags.any(|flag| flag.text() == Some(b"write")) && has_no_keys && !is_followed {
            self.unfollowed.insert(name);
        }
        for subcommand in subcommands.into_iter().flatten() {
            self.add_entry(&subcommand);
        }
    }

    /// What a command has changed, and its name.
    fn change(&mut self, message: &[u8]) -> (String, Change) {
        if !message.starts_with(b"*") {
            return (String::new(), Change::Nothing);
        }
        let request = CommandRequest::of(message, &mut self.spans);
        let command = self.table.find_request(&request).map(|id| self.table.get(id));
        let Some(command) = command else {
            let name = String::from_utf8_lossy(request.get(0).unwrap_or_default()).into_owned();
            return (name, Change::Unknown);
        };
        let name = &*command.name;
        let change = match (name, command.keys(&request)) {
            ("select", _) => {
                self.database = request.number(1).and_then(|number| u32::try_from(number).ok());
                Change::Nothing
            }
            _ if OF_ALL_KEYS.contains(&name) => Change::Everything,
            _ if name.starts_with("function") => Change::Functions,
            _ if SCRIPTS.contains(&name) || self.unfollowed.contains(name) => Change::Unknown,
            (_, Err(_)) => Change::Unknown,
            (_, Ok(keys)) if keys.is_empty() => Change::Nothing,
            (_, Ok(keys)) => Change::Keys {
                // MOVE and COPY also write to another database.
                database: self.database.filter(|_| !matches!(name, "move" | "copy")),
                keys: keys.iter().filter_map(|at| request.get(at)).map(<[u8]>::to_vec).collect(),
                is_removal: REMOVALS.contains(&name),
            },
        };
        (name.to_owned(), change)
    }
}

/// A connection that reads the stream.
pub(super) struct Replication {
    settings: ClientSettings,
    feed: MessageFeed,
    commands: Commands,
    position: Position,
    acknowledged: Instant,
}

/// A position in a source's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The stream's name.
    id: String,
    /// Bytes before it.
    pub(super) offset: u64,
    /// Whether the source keeps the stream.
    is_kept: bool,
}

impl Position {
    /// The source's current one.
    pub(super) fn of(source: &mut Server) -> Result<Position, ReshardError> {
        let info: String = source.command(("INFO", "replication"))?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        match (
            field("role"),
            field("master_replid"),
            field("master_repl_offset").and_then(|offset| offset.parse().ok()),
        ) {
            (Some("master"), Some(id), Some(offset)) => {
                let is_kept = field("repl_backlog_active") == Some("1");
                Ok(Position { id: id.to_owned(), offset, is_kept })
            }
            (Some("slave"), ..) => Err(ReshardError::NoStream(format!(
                "{} is a replica; give its master, which has the changes first",
                source.address()
            ))),
            _ => Err(ReshardError::NoStream("INFO names no position (master_repl_offset)".to_owned())),
        }
    }
}

impl Replication {
    /// Begins to read at the source's current position.
    pub(super) fn open(settings: &ClientSettings) -> Result<Replication, ReshardError> {
        let mut source = Server::new(settings, ServerRole::Source);
        let mut client = Client::new(settings.clone());
        let commands = Commands::of(&client.view("COMMAND").map_err(|error| source.error(error))?);
        for _ in 0..TRIES {
            let position = Position::of(&mut source)?;
            if !position.is_kept {
                make_kept(settings, &mut source)?;
            } else if let Some(feed) = continued(settings, &position)? {
                let settings = settings.clone();
                return Ok(Replication { settings, feed, commands, position, acknowledged: Instant::now() });
            }
        }
        Err(ReshardError::NoStream("it does not continue the stream from its own position".to_owned()))
    }

    /// Commands that are not followed: if the source executes one, it is an error.
    pub(super) fn unfollowed(&self) -> Vec<String> {
        self.commands.unfollowed.iter().cloned().collect()
    }

    /// Bytes of the stream that were read.
    pub(super) fn offset(&self) -> u64 {
        self.position.offset
    }

    /// What the next command has changed, and its name. None if `time_max` ends first.
    ///
    /// # Errors
    /// The connection is lost: [`Replication::resume`].
    pub(super) fn next(&mut self, time_max: Duration) -> Result<Option<(String, Change)>, ReshardError> {
        let lost = |error| of_source(&self.settings, error);
        if self.acknowledged.elapsed() >= ACKNOWLEDGE_EVERY {
            self.acknowledged = Instant::now();
            // Position 0: WAIT must not count what holds no keys.
            self.feed.send(("REPLCONF", "ACK", 0)).map_err(lost)?;
        }
        let Some(message) = self.feed.next(time_max).map_err(lost)? else { return Ok(None) };
        self.position.offset += message.len() as u64;
        Ok(Some(self.commands.change(message)))
    }

    /// Connects again. True: the stream continues where it was lost. False: it continues at the source's current position, and the
    /// changes in between are unknown.
    pub(super) fn resume(&mut self) -> Result<bool, ReshardError> {
        match continued(&self.settings, &self.position)? {
            Some(feed) => self.feed = feed,
            None => {
                *self = Replication::open(&self.settings)?;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A connection on which the stream continues from this position; none if the source does not have it any more.
fn continued(settings: &ClientSettings, position: &Position) -> Result<Option<MessageFeed>, ReshardError> {
    let mut feed = replica(settings)?;
    let lost = |error| of_source(settings, error);
    feed.send(("PSYNC", &position.id, position.offset + 1)).map_err(lost)?;
    match feed.next(ANSWER_TIME_MAX) {
        Ok(Some(answer)) if answer.starts_with(b"+CONTINUE") => Ok(Some(feed)),
        Ok(Some(refusal)) if refusal.starts_with(b"-") => Err(no_stream(refusal)),
        // It offers all of its keys instead, with line ends while it collects them.
        Ok(_) | Err(CommandError::Protocol(_)) => Ok(None),
        Err(error) => Err(lost(error)),
    }
}

/// Makes a source that has had no replica keep its stream.
fn make_kept(settings: &ClientSettings, source: &mut Server) -> Result<(), ReshardError> {
    let mut feed = replica(settings)?;
    feed.send(("PSYNC", "?", -1)).map_err(|error| of_source(settings, error))?;
    let began = Instant::now();
    while !Position::of(source)?.is_kept {
        if let Ok(Some(refusal)) = feed.next(Duration::from_millis(20))
            && refusal.starts_with(b"-")
        {
            return Err(no_stream(refusal));
        }
        if began.elapsed() > ANSWER_TIME_MAX {
            return Err(ReshardError::NoStream("it keeps none for a replica".to_owned()));
        }
    }
    Ok(())
}

/// A connection that has said what it understands, so that the source sends its keys without writing a file, after a pause.
fn replica(settings: &ClientSettings) -> Result<MessageFeed, ReshardError> {
    let lost = |error| of_source(settings, error);
    let mut feed = MessageFeed::connect(settings).map_err(lost)?;
    feed.send(("REPLCONF", "capa", "eof", "capa", "psync2")).map_err(lost)?;
    match feed.next(ANSWER_TIME_MAX).map_err(lost)? {
        Some(refusal) if refusal.starts_with(b"-") => Err(no_stream(refusal)),
        Some(_) => Ok(feed),
        None => Err(ReshardError::NoStream("it does not answer REPLCONF".to_owned())),
    }
}

fn of_source(settings: &ClientSettings, error: CommandError) -> ReshardError {
    ReshardError::Server { role: ServerRole::Source, address: address(&settings.endpoint), error }
}

fn no_stream(refusal: &[u8]) -> ReshardError {
    ReshardError::NoStream(String::from_utf8_lossy(refusal.trim_ascii_end()).trim_start_matches('-').to_owned())
}

#[cfg(test)]
mod tests {
    use resp::codec::{FrameLimits, ReplyFramer};

    use super::*;

    /// The commands of a source with this reply to COMMAND.
    fn commands(reply: &str) -> Commands {
        let mut framer = ReplyFramer::new(FrameLimits::default());
        assert!(framer.advance(reply.as_bytes()).unwrap().is_complete);
        Commands::of(&framer.view(reply.as_bytes()))
    }

    fn encoded(arguments: &[&str]) -> Vec<u8> {
        let arguments: String = arguments.iter().map(|one| format!("${}\r\n{one}\r\n", one.len())).collect();
        let count = arguments.matches('$').count();
        format!("*{count}\r\n{arguments}").into_bytes()
    }

    #[test]
    fn what_a_command_changes_is_read_from_the_servers_table() {
        // A module's commands: one with a key, one without.
        let keyed = "*6\r\n$7\r\nMOD.SET\r\n:-3\r\n*1\r\n+write\r\n:2\r\n:2\r\n:1\r\n";
        let keyless = "*6\r\n$9\r\nMOD.RESET\r\n:1\r\n*1\r\n+write\r\n:0\r\n:0\r\n:0\r\n";
        let flush = "*6\r\n$8\r\nflushall\r\n:-1\r\n*1\r\n+write\r\n:0\r\n:0\r\n:0\r\n";
        let mut commands = commands(&format!("*3\r\n{keyed}{keyless}{flush}"));
        assert_eq!(commands.unfollowed, BTreeSet::from(["mod.reset".to_owned()]));
        let mut change = |arguments: &[&str]| commands.change(&encoded(arguments)).1;
        let keys = |database, keys: &[&str], is_removal| {
            let keys = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
            Change::Keys { database, keys, is_removal }
        };
        assert_eq!(change(&["PING"]), Change::Nothing);
        assert_eq!(change(&["SET", "a", "1"]), keys(None, &["a"], false));
        assert_eq!(change(&["SELECT", "3"]), Change::Nothing);
        assert_eq!(change(&["XCLAIM", "s", "g", "c", "0", "1-1"]), keys(Some(3), &["s"], false));
        assert_eq!(change(&["XGROUP", "SETID", "s", "g", "1-1"]), keys(Some(3), &["s"], false));
        assert_eq!(change(&["RENAME", "a", "b"]), keys(Some(3), &["a", "b"], false));
        assert_eq!(change(&["DEL", "a", "b"]), keys(Some(3), &["a", "b"], true));
        assert_eq!(change(&["MOVE", "a", "5"]), keys(None, &["a"], false));
        assert_eq!(change(&["mod.set", "x", "k"]), keys(Some(3), &["k"], false));
        assert_eq!(change(&["MOD.RESET"]), Change::Unknown);
        assert_eq!(change(&["NOBODYS", "k"]), Change::Unknown);
        assert_eq!(change(&["EVAL", "return 1", "0"]), Change::Unknown);
        for everything in [&["FLUSHALL"][..], &["FLUSHDB", "ASYNC"], &["SWAPDB", "0", "1"]] {
            assert_eq!(change(everything), Change::Everything);
        }
        assert_eq!(change(&["FUNCTION", "FLUSH"]), Change::Functions);
        for nothing in [&["MULTI"][..], &["EXEC"], &["PUBLISH", "c", "m"], &["REPLCONF", "GETACK", "*"]] {
            assert_eq!(change(nothing), Change::Nothing, "{nothing:?}");
        }
    }
}
