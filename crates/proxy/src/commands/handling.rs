//! What the proxy does with each command.
//!
//! A command that is not named here goes to the node of its keys, which must share one; without keys it is refused.

/// What is done with a request of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// To the node of its keys.
    Keyed,
    /// The same, but it may wait on the node, and so needs a connection of its own.
    Blocking,
    /// Parts to the nodes of its keys, and the replies joined.
    Split(Split),
    /// To all nodes, and the replies joined.
    Everywhere(Join),
    /// To one node after another: the cursor says to which.
    Scan,
    /// PUBLISH: to the node of its channel.
    Publish,
    /// Answered by the proxy itself.
    Local(Local),
    /// MULTI, EXEC and those around them.
    Transaction(Transaction),
    /// SUBSCRIBE and its family.
    Subscription(Subscription),
    /// What cannot be done over several nodes, or would disturb others that share a node connection.
    Refused,
}

/// Commands that are split by node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// MGET: the values in the order of the keys.
    Values,
    /// MSET: one status.
    Pairs,
    /// MSETNX: refused over several nodes unless that is permitted, and then the least of the replies.
    PairsIfNone,
    /// DEL, UNLINK, EXISTS, TOUCH: the numbers added.
    Count,
}

/// How the replies of nodes become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Integers are added.
    Sum,
    /// The least of integers.
    Least,
    /// All must be the same; else the reply is an error that names the nodes.
    Same,
    /// Lists one behind the other.
    Lists,
    /// Texts one behind the other, each below a line that names its node.
    Texts,
    /// One of those that are not null.
    Any,
    /// Lists of numbers of the same length: of each place the least.
    LeastOfEach,
}

/// Commands that the proxy answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs)] // Each is the command of its name.
pub enum Local {
    Auth,
    Client,
    Command,
    Echo,
    Hello,
    Ping,
    Quit,
    Reset,
    Select,
    Time,
}

/// Commands of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs)] // Each is the command of its name.
pub enum Transaction {
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
    /// Its name, in small letters.
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

    /// Whether it begins to listen, rather than to end it.
    pub fn is_joining(self) -> bool {
        matches!(self, Subscription::Subscribe | Subscription::Psubscribe | Subscription::Ssubscribe)
    }
}

/// What is done with the command of this name, in small letters; `script|load` for subcommands.
pub(super) fn handling(name: &str, may_block: bool, has_keys: bool) -> Handling {
    use Handling::{Everywhere, Local as Own, Split as Parts, Subscription as Listening, Transaction as Atomic};
    match name {
        "mget" => Parts(Split::Values),
        "mset" => Parts(Split::Pairs),
        "msetnx" => Parts(Split::PairsIfNone),
        "del" | "unlink" | "exists" | "touch" => Parts(Split::Count),
        "dbsize" => Everywhere(Join::Sum),
        "flushdb" | "flushall" | "script|load" | "script|flush" | "script|kill" => Everywhere(Join::Same),
        "function|load" | "function|delete" | "function|flush" => Everywhere(Join::Same),
        "script|exists" => Everywhere(Join::LeastOfEach),
        "keys" | "pubsub|channels" | "pubsub|shardchannels" => Everywhere(Join::Lists),
        "info" => Everywhere(Join::Texts),
        "randomkey" => Everywhere(Join::Any),
        "scan" => Handling::Scan,
        "publish" => Handling::Publish,
        "auth" => Own(Local::Auth),
        "client" => Own(Local::Client),
        name if name.starts_with("client|") => Own(Local::Client),
        name if name.starts_with("command|") => Own(Local::Command),
        "command" => Own(Local::Command),
        "echo" => Own(Local::Echo),
        "hello" => Own(Local::Hello),
        "ping" => Own(Local::Ping),
        "quit" => Own(Local::Quit),
        "reset" => Own(Local::Reset),
        "select" => Own(Local::Select),
        "time" => Own(Local::Time),
        "multi" => Atomic(Transaction::Multi),
        "exec" => Atomic(Transaction::Exec),
        "discard" => Atomic(Transaction::Discard),
        "watch" => Atomic(Transaction::Watch),
        "unwatch" => Atomic(Transaction::Unwatch),
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
