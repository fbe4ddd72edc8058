//! What the proxy does with each command.
//!
//! A command that is not listed here goes to the node of its keys, which must all be on one node; without keys it
//! is refused.

/// How a command's requests are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// To the node of its keys.
    Keyed,
    /// The same, but the command may block on the node, and so needs a connection of its own.
    Blocking,
    /// Split by the nodes of its keys; the replies are joined.
    Split(Split),
    /// Sent to all nodes; the replies are joined.
    Everywhere(Join),
    /// Sent to one node after another; the cursor names the node.
    Scan,
    /// PUBLISH: to the node of its channel.
    Publish,
    /// Handled by the proxy.
    Local(Local),
    /// MULTI, EXEC and the other commands of transactions.
    Transaction(TransactionCommand),
    /// SUBSCRIBE and its family.
    Subscription(Subscription),
    /// Refused: impossible over several nodes, or harmful to other clients of a shared node connection.
    Refused,
}

/// Commands that are split by node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// MGET: the values in the order of the keys.
    Values,
    /// MSET: one status.
    Pairs,
    /// MSETNX: over several nodes refused unless splitting is permitted; then the smallest of the replies.
    PairsIfNone,
    /// DEL, UNLINK, EXISTS, TOUCH: the sum of the counts.
    Count,
}

/// How the nodes' replies are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// The sum of integers.
    Sum,
    /// The smallest integer.
    Least,
    /// All must be equal; otherwise the reply is an error that names the nodes.
    Same,
    /// Lists, concatenated.
    Lists,
    /// Texts, concatenated, each after a line that names its node.
    Texts,
    /// Any reply that is not null.
    Any,
    /// Lists of names and numbers, alternately: for each name the sum of the numbers.
    Counts,
    /// Lists of numbers of equal length: at each position the smallest.
    LeastOfEach,
}

/// Commands that the proxy handles. COMMAND is sent to one node, and stands for others that any node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs)] // Each is the command of its name.
pub enum Local {
    Auth,
    Client,
    Command,
    Echo,
    Hello,
    Info,
    Ping,
    Quit,
    Reset,
    Select,
    Time,
}

/// Commands of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs)] // Each is the command of its name.
pub enum TransactionCommand {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

/// Commands of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs)] // Each is the command of its name.
pub enum Subscription {
    Subscribe,
    Psubscribe,
    Ssubscribe,
    Unsubscribe,
    Punsubscribe,
    Sunsubscribe,
}

impl Subscription {
    /// Its name, in lower case.
    pub fn word(self) -> &'static str {
        match self {
            Subscription::Subscribe => "subscribe",
            Subscription::Psubscribe => "psubscribe",
            Subscription::Ssubscribe => "ssubscribe",
            Subscription::Unsubscribe => "unsubscribe",
            Subscription::Punsubscribe => "punsubscribe",
            Subscription::Sunsubscribe => "sunsubscribe",
        }
    }

    /// Whether it begins a subscription rather than ending one.
    pub fn is_joining(self) -> bool {
        matches!(self, Subscription::Subscribe | Subscription::Psubscribe | Subscription::Ssubscribe)
    }
}

/// The handling of the command of this name, in lower case; `script|load` for subcommands.
pub(super) fn handling(name: &str, may_block: bool, has_keys: bool) -> Handling {
    use Handling::{Everywhere, Local as Own, Split as Parts, Subscription as Listening, Transaction as Atomic};
    match name {
        "mget" => Parts(Split::Values),
        "mset" => Parts(Split::Pairs),
        "msetnx" => Parts(Split::PairsIfNone),
        "del" | "unlink" | "exists" | "touch" => Parts(Split::Count),
        "dbsize" => Everywhere(Join::Sum),
        "flushdb" | "flushall" | "script|load" | "script|flush" | "script|kill" => Everywhere(Join::Same),
        "function|load" | "function|delete" | "function|flush" | "function|restore" => Everywhere(Join::Same),
        "script|exists" => Everywhere(Join::LeastOfEach),
        "keys" | "pubsub|channels" | "pubsub|shardchannels" => Everywhere(Join::Lists),
        "info" => Own(Local::Info),
        "randomkey" => Everywhere(Join::Any),
        "scan" => Handling::Scan,
        "publish" => Handling::Publish,
        "auth" => Own(Local::Auth),
        "client" => Own(Local::Client),
        name if name.starts_with("client|") => Own(Local::Client),
        name if name.starts_with("command|") => Own(Local::Command),
        "command" | "config|get" | "function|list" | "function|dump" | "pubsub|numpat" => Own(Local::Command),
        "pubsub|numsub" | "pubsub|shardnumsub" => Everywhere(Join::Counts),
        "echo" => Own(Local::Echo),
        "hello" => Own(Local::Hello),
        "ping" => Own(Local::Ping),
        "quit" => Own(Local::Quit),
        "reset" => Own(Local::Reset),
        "select" => Own(Local::Select),
        "time" => Own(Local::Time),
        "multi" => Atomic(TransactionCommand::Multi),
        "exec" => Atomic(TransactionCommand::Exec),
        "discard" => Atomic(TransactionCommand::Discard),
        "watch" => Atomic(TransactionCommand::Watch),
        "unwatch" => Atomic(TransactionCommand::Unwatch),
        "subscribe" => Listening(Subscription::Subscribe),
        "psubscribe" => Listening(Subscription::Psubscribe),
        "unsubscribe" => Listening(Subscription::Unsubscribe),
        "punsubscribe" => Listening(Subscription::Punsubscribe),
        "ssubscribe" => Listening(Subscription::Ssubscribe),
        "sunsubscribe" => Listening(Subscription::Sunsubscribe),
        _ if may_block && has_keys => Handling::Blocking,
        _ if has_keys => Handling::Keyed,
        _ => Handling::Refused,
    }
}
