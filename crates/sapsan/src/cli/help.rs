//! What help adds to the table of commands: an example for each command, and the defaults that other code sets.
//! Help, completions and manual pages are made from the same [`table`].

use super::command::Cli;
use clap::CommandFactory;
use proxy::config::ProxyLimits;

/// Commands with their examples. A test parses each of them.
const EXAMPLES: [(&str, &[&str]); 22] = [
    ("demo", &["sapsan demo"]),
    (
        "serve",
        &["sapsan serve shop.toml --data shop", "sapsan serve shop.toml --data shop --http 0.0.0.0:8080 --log warn"],
    ),
    ("init", &["sapsan init goods.ndjson --out shop.toml", "sapsan init goods.csv --collection products"]),
    (
        "import",
        &[
            "sapsan import shop.toml --data shop --collection goods goods.csv",
            "sapsan import shop.toml --data shop --collection goods --format csv - < goods.csv",
        ],
    ),
    (
        "export",
        &[
            "sapsan export shop.toml --data shop --collection goods --out goods.csv",
            "sapsan export --url http://127.0.0.1:8080 --collection goods",
        ],
    ),
    ("generate travels", &["sapsan generate travels travels.zip"]),
    ("generate stackoverflow-users", &["sapsan generate stackoverflow-users --docs 1000 --out users.ndjson"]),
    ("query", &["sapsan query shop.toml --data shop --param least=100 'SELECT sku FROM goods WHERE price >= :least'"]),
    ("check-config", &["sapsan check-config shop.toml"]),
    ("backup", &["sapsan backup http://127.0.0.1:8080 monday", "sapsan backup data backups/monday"]),
    ("restore", &["sapsan restore backups/monday data"]),
    ("compact", &["sapsan compact data"]),
    ("token", &["sapsan token reader --allow read --until 2027-01-01"]),
    ("verify", &["sapsan verify data --config shop.toml", "sapsan verify http://127.0.0.1:8080 --views"]),
    ("reshard", &["sapsan reshard --from 127.0.0.1:6379 --nodes 10.0.0.1:6379,10.0.0.2:6379 --verify"]),
    ("stat", &["sapsan stat data", "sapsan stat http://127.0.0.1:8080"]),
    ("proxy", &["sapsan proxy --nodes 10.0.0.1:6379,10.0.0.2:6379 --hash ketama"]),
    ("loadtest", &["sapsan loadtest http://127.0.0.1:8080/ --profile 'line(1,2000,1m)'"]),
    ("lab", &["sapsan lab --only 1,12,15"]),
    ("generate", &["sapsan generate travels travels.zip"]),
    ("completions", &["sapsan completions bash > /etc/bash_completion.d/sapsan"]),
    ("man", &["sapsan man serve | man -l -"]),
];

/// A row for each option whose default other code sets: command, option, and what holds without the option.
fn defaults() -> Vec<(&'static str, &'static str, String)> {
    let limits = ProxyLimits::default();
    let known = [
        ("serve", "http", "127.0.0.1:8080"),
        ("serve", "threads", "as many as there are cores"),
        ("serve", "backups", "none: backups are refused"),
        ("serve", "log", "info"),
        ("init", "out", "standard output"),
        ("init", "collection", "the data file's name, without its ending"),
        ("import", "format", "as the file's name says; json for standard input"),
        ("import", "collection", "none"),
        ("import", "threads", "as many as there are cores"),
        ("export", "collection", "the only one; with --format json all"),
        ("export", "format", "as the name of --out says, else ndjson"),
        ("export", "out", "standard output"),
        ("generate stackoverflow-users", "out", "standard output"),
        ("token", "until", "never"),
        ("verify", "config", "none: only pages and trees are checked"),
        ("proxy", "threads", "as many as there are cores"),
        ("proxy", "timeout", "none"),
        ("proxy", "idle_timeout", "none"),
        ("proxy", "slow", "none"),
        ("proxy", "metrics", "none"),
        ("proxy", "node_user", "the default user"),
        ("proxy", "eject_after", "never"),
        ("proxy", "hash_tag", "none; crc32: a part in {} at the end of a key"),
        ("reshard", "hash_tag", "none; crc32: a part in {} at the end of a key"),
        ("reshard", "pattern", "all keys"),
        ("reshard", "keys_per_second", "none"),
        ("proxy", "log", "info"),
    ];
    let bounds = [
        ("clients_max", limits.clients_max.to_string()),
        ("commands_max", limits.commands_max.to_string()),
        ("client_bytes_max", limits.client_bytes_max.to_string()),
        ("request_bytes_max", limits.request_bytes_max.to_string()),
        ("joined_bytes_max", limits.joined_bytes_max.to_string()),
        ("total_bytes_max", limits.total_bytes_max.to_string()),
        ("own_connections_max", limits.own_connections_max.to_string()),
        ("subscriptions_max", limits.subscriptions_max.to_string()),
        ("stall_max", limits.stall_max.as_secs().to_string()),
    ];
    let known = known.into_iter().map(|(command, option, text)| (command, option, text.to_owned()));
    known.chain(bounds.into_iter().map(|(option, text)| ("proxy", option, text))).collect()
}

/// The table of commands, as help, completions and manual pages show it.
pub(crate) fn table() -> clap::Command {
    let mut all = Cli::command();
    for (path, examples) in EXAMPLES {
        let heading = if examples.len() == 1 { "Example:" } else { "Examples:" };
        let text = format!("{heading}\n  {}", examples.join("\n  "));
        all = at(all, path, |command| command.after_help(text));
    }
    for (path, option, default) in defaults() {
        all = at(all, path, |command| command.mut_arg(option, |argument| with_default(argument, &default)));
    }
    all
}

/// Applies a change to the command at a path, as in "generate travels".
fn at(all: clap::Command, path: &str, change: impl FnOnce(clap::Command) -> clap::Command) -> clap::Command {
    match path.split_once(' ') {
        None => all.mut_subcommand(path, change),
        Some((first, rest)) => all.mut_subcommand(first, |command| at(command, rest, change)),
    }
}

fn with_default(argument: clap::Arg, default: &str) -> clap::Arg {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    argument.help(format!("{help} [default: {default}]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, ArgAction, Command, Parser};

    /// Commands whose options are tables of other crates.
    const ELSEWHERE: [&str; 2] = ["loadtest", "lab"];

    fn words(example: &str) -> Vec<String> {
        let shell = [" | ", " > ", " < "].iter().filter_map(|sign| example.find(sign)).min();
        let example = &example[..shell.unwrap_or(example.len())];
        let mut words = Vec::new();
        for (number, part) in example.split('\'').enumerate() {
            match number % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        words
    }

    #[test]
    fn every_command_has_an_example_that_is_understood() {
        for command in table().get_subcommands() {
            let name = command.get_name();
            let help = command.clone().render_help().to_string();
            assert!(help.contains(&format!("sapsan {name}")) && help.contains("Example"), "{help}");
        }
        for (path, examples) in EXAMPLES {
            for example in examples {
                let words = words(example);
                assert!(example.starts_with(&format!("sapsan {}", path.split(' ').next().unwrap_or_default())));
                Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{example}: {error}"));
            }
        }
    }

    /// Options of a command and those below it that take one value and may be left out, but whose help has no default.
    fn without_default(command: &Command, found: &mut Vec<String>) {
        let is_bare = |argument: &&Arg| {
            !argument.is_positional()
                && matches!(argument.get_action(), ArgAction::Set)
                && !argument.is_required_set()
                && argument.get_default_values().is_empty()
                && argument.get_env().is_none()
                && !argument.get_help().is_some_and(|help| help.to_string().contains("[default: "))
        };
        let options = command
            .get_arguments()
            .filter(is_bare)
            .map(|argument| format!("{} {}", command.get_name(), argument.get_id()));
        found.extend(options);
        command.get_subcommands().for_each(|command| without_default(command, found));
    }

    #[test]
    fn every_option_that_may_be_left_out_says_what_holds_then() {
        let mut found = Vec::new();
        let all = table();
        for command in all.get_subcommands().filter(|command| !ELSEWHERE.contains(&command.get_name())) {
            without_default(command, &mut found);
        }
        // What stands for a file has none, and the alternatives of a source exclude each other.
        found.retain(|option| {
            let files = ["tls", "nodes_file", "nutcracker"].iter().any(|part| option.contains(part));
            !files && option != "export url" && option != "export data"
        });
        assert_eq!(found, [""; 0]);
    }
}
