//! The table of commands: those of Redis 7.0, extended and corrected by a node's reply to `COMMAND`.
//!
//! A command keeps its number for the life of the table, so counters can be indexed by it.

use hashbrown::HashMap;
use resp::codec::{Elements, ReplyView};

use super::handling::{Handling, handling};
use super::key_rule::{Find, KeyPositions, KeyRule, KeySpec, MalformedKeys, RANGES_MAX, SearchStart};
use super::movable;
use super::request::CommandRequest;

/// Largest number of commands and subcommands in a table; further ones of a node are ignored.
pub const COMMANDS_MAX: usize = 1024;
/// Largest size of a command's name, with its subcommand, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Redis 7.0's commands: NAME ARITY FIRST LAST STEP [FLAG,…] on each line.
const BUILTIN: &str = include_str!("builtin.txt");

/// The number of a command in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandId(pub u16);

/// A command, or a subcommand such as `script|load`.
#[derive(Clone, Debug)]
pub struct Command {
    /// In lower case.
    pub name: Box<str>,
    /// Number of arguments, the name included; if negative, the smallest number.
    pub arity: i64,
    /// Positions of its keys.
    pub key_rule: KeyRule,
    /// What the proxy does with it.
    pub handling: Handling,
    /// The position of its only key, if it is handled by that key's node alone.
    pub only_key: Option<usize>,
    /// Whether it only reads, as the nodes' COMMAND reports; false for all commands until a node has reported.
    pub only_reads: bool,
    has_subcommands: bool,
}

impl Command {
    fn new(name: &str, arity: i64, key_rule: KeyRule, may_block: bool, only_reads: bool) -> Command {
        let handling = handling(name, may_block, key_rule != KeyRule::None);
        let only_key = key_rule.only_key().filter(|_| handling == Handling::Keyed);
        Command { name: name.into(), arity, key_rule, handling, only_key, only_reads, has_subcommands: false }
    }

    /// Whether a request may have this many arguments, the name included.
    #[inline]
    pub fn takes(&self, arguments: u64) -> bool {
        match usize::try_from(self.arity) {
            Ok(arity) => arguments == arity as u64,
            Err(_) => arguments >= self.arity.unsigned_abs(),
        }
    }

    /// Finds the keys of a request.
    ///
    /// # Errors
    /// The arguments do not fit the command.
    pub fn keys(&self, request: &CommandRequest<'_>) -> Result<KeyPositions, MalformedKeys> {
        self.key_rule.keys(request)
    }
}

/// The commands by their names.
#[derive(Clone, Debug)]
pub struct CommandTable {
    commands: Vec<Command>,
    by_name: HashMap<Box<[u8]>, CommandId>,
}

impl Default for CommandTable {
    fn default() -> CommandTable {
        CommandTable::new()
    }
}

impl CommandTable {
    /// Redis 7.0's commands.
    pub fn new() -> CommandTable {
        let mut table = CommandTable { commands: Vec::new(), by_name: HashMap::new() };
        let lines = BUILTIN.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(builtin).for_each(|command| table.add(command));
        table
    }

    /// Applies a node's reply to `COMMAND`. Entries that it lacks stay as they are.
    pub fn learn(&mut self, reply: &ReplyView<'_>) {
        for entry in reply.elements().into_iter().flatten() {
            let Some(entry) = Entry::read(&entry) else { continue };
            // The command first: adding its subcommands then marks it.
            self.add_entry(&entry);
            entry
                .subcommands
                .into_iter()
                .flatten()
                .filter_map(|sub| Entry::read(&sub))
                .for_each(|sub| self.add_entry(&sub));
        }
    }

    fn add_entry(&mut self, entry: &Entry<'_>) {
        // COMMAND reports which commands block only from Redis 7.0 on; for an older node the built-in table decides.
        let is_known_to_block =
            |name: &str| self.find(name.as_bytes()).is_some_and(|id| self.get(id).handling == Handling::Blocking);
        if let Some(command) = entry.command(is_known_to_block) {
            self.add(command);
        }
    }

    fn add(&mut self, command: Command) {
        let name = command.name.as_bytes();
        if let Some((parent, _)) = command.name.split_once('|')
            && let Some(parent) = self.by_name.get(parent.as_bytes())
        {
            self.commands[usize::from(parent.0)].has_subcommands = true;
        }
        if let Some(known) = self.by_name.get(name) {
            let place = &mut self.commands[usize::from(known.0)];
            let has_subcommands = place.has_subcommands;
            *place = Command { has_subcommands, ..command };
        } else if self.commands.len() < COMMANDS_MAX && name.len() <= NAME_BYTES_MAX {
            self.by_name.insert(name.into(), CommandId(self.commands.len() as u16));
            self.commands.push(command);
        }
    }

    /// The command of this name, without regard to case; of commands with subcommands only the name itself.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<CommandId> {
        let mut small = [0; NAME_BYTES_MAX];
        let small = small.get_mut(..name.len())?;
        small.iter_mut().zip(name).for_each(|(to, from)| *to = from.to_ascii_lowercase());
        self.by_name.get(&*small).copied()
    }

    /// The command of a request; for `SCRIPT LOAD …` the subcommand, if the table has it.
    pub fn find_request(&self, request: &CommandRequest<'_>) -> Option<CommandId> {
        let id = self.find(request.get(0)?)?;
        if !self.get(id).has_subcommands {
            return Some(id);
        }
        let (name, sub) = (request.get(0)?, request.get(1).unwrap_or_default());
        let mut both = [0; NAME_BYTES_MAX];
        let Some(both) = both.get_mut(..name.len() + 1 + sub.len()) else { return Some(id) };
        both[..name.len()].copy_from_slice(name);
        both[name.len()] = b'|';
        both[name.len() + 1..].copy_from_slice(sub);
        Some(self.find(both).unwrap_or(id))
    }

    /// A command by its number.
    ///
    /// # Panics
    /// The number belongs to another table.
    #[inline]
    pub fn get(&self, id: CommandId) -> &Command {
        &self.commands[usize::from(id.0)]
    }

    /// All commands, indexed by their numbers.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }
}

fn builtin(line: &str) -> Option<Command> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let mut number = || words.next()?.parse().ok();
    let (arity, first, last, step) = (number()?, number()?, number()?, number()?);
    let flags = words.next().unwrap_or_default();
    let rule = movable::rule(name).unwrap_or_else(|| KeyRule::classic(first, last, step));
    Some(Command::new(name, arity, rule, flags.contains("blocking"), false))
}

/// An element of the reply to `COMMAND`: name, arity, flags, first key, last key, step; from Redis 7 on categories, hints, key
/// specifications and subcommands.
struct Entry<'v> {
    name: &'v str,
    arity: i64,
    flags: Elements<'v>,
    classic: [i64; 3],
    specs: Option<Elements<'v>>,
    subcommands: Option<Elements<'v>>,
}

impl<'v> Entry<'v> {
    fn read(entry: &ReplyView<'v>) -> Option<Entry<'v>> {
        let mut fields = entry.elements()?;
        let name = std::str::from_utf8(fields.next()?.text()?).ok()?;
        let arity = integer(fields.next()?)?;
        let flags = fields.next()?.elements()?;
        let classic = [integer(fields.next()?)?, integer(fields.next()?)?, integer(fields.next()?)?];
        let mut behind = fields.skip(2);
        let (specs, subcommands) = (behind.next(), behind.next());
        let elements = |view: Option<ReplyView<'v>>| view.and_then(|view| view.elements());
        Some(Entry { name, arity, flags, classic, specs: elements(specs), subcommands: elements(subcommands) })
    }

    fn has_flag(&self, flag: &[u8]) -> bool {
        self.flags.into_iter().any(|one| one.text() == Some(flag))
    }

    fn command(&self, is_known_to_block: impl Fn(&str) -> bool) -> Option<Command> {
        let name = self.name.to_ascii_lowercase();
        let (rule, may_block) = (self.key_rule(&name), self.has_flag(b"blocking") || is_known_to_block(&name));
        Some(Command::new(&name, self.arity, rule, may_block, self.has_flag(b"readonly")))
    }

    fn key_rule(&self, name: &str) -> KeyRule {
        let known = movable::rule(name);
        let specs = self.specs.filter(|specs| !specs.is_empty()).filter(|_| !movable::is_always_used(name));
        let specs = specs.and_then(|specs| specs.map(|spec| key_spec(&spec)).collect::<Option<Vec<_>>>());
        match (specs, known) {
            (Some(specs), _) if specs.len() <= RANGES_MAX => KeyRule::Specs(specs.into()),
            (_, Some(known)) if self.has_flag(b"movablekeys") => known,
            _ => KeyRule::classic(self.classic[0], self.classic[1], self.classic[2]),
        }
    }
}

fn integer(view: ReplyView<'_>) -> Option<i64> {
    if let ReplyView::Integer(integer) = view { Some(integer) } else { None }
}

/// The value of a name in a map, which under RESP2 is a list of alternating names and values.
fn value<'v>(map: &ReplyView<'v>, name: &[u8]) -> Option<ReplyView<'v>> {
    let mut elements = map.elements()?;
    while let Some(key) = elements.next() {
        let value = elements.next()?;
        if key.text() == Some(name) {
            return Some(value);
        }
    }
    None
}

/// One key specification; none if it is incomplete or unknown.
fn key_spec(spec: &ReplyView<'_>) -> Option<KeySpec> {
    let is_incomplete =
        |flags: ReplyView<'_>| flags.elements().into_iter().flatten().any(|flag| flag.text() == Some(b"incomplete"));
    if value(spec, b"flags").is_some_and(is_incomplete) {
        return None;
    }
    let (begin, find) = (value(spec, b"begin_search")?, value(spec, b"find_keys")?);
    let number = |of: &ReplyView<'_>, name: &[u8]| value(of, name).and_then(integer);
    let size = |of: &ReplyView<'_>, name: &[u8]| number(of, name).and_then(|number| usize::try_from(number).ok());
    let begin = match (value(&begin, b"type")?.text()?, value(&begin, b"spec")?) {
        (b"index", spec) => SearchStart::Index(size(&spec, b"index")?),
        (b"keyword", spec) => {
            SearchStart::Keyword { word: value(&spec, b"keyword")?.text()?.into(), from: number(&spec, b"startfrom")? }
        }
        _ => return None,
    };
    let find = match (value(&find, b"type")?.text()?, value(&find, b"spec")?) {
        (b"range", spec) => Find::Range {
            last: number(&spec, b"lastkey")?,
            step: size(&spec, b"keystep")?.max(1),
            limit: size(&spec, b"limit")?,
        },
        (b"keynum", spec) => Find::Number {
            at: size(&spec, b"keynumidx")?,
            first: size(&spec, b"firstkey")?,
            step: size(&spec, b"keystep")?.max(1),
        },
        _ => return None,
    };
    Some(KeySpec { begin, find })
}
