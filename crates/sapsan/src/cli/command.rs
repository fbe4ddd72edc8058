//! The table of commands, from which help is made.

use super::data_folder::{Backup, Folder, Restore, Stat, Verify};
use super::documents::{Export, Generate, Import, Init, Query};
use super::proxy::Proxy;
use super::reshard::Reshard;
use super::service::{CheckConfig, Demo, Serve, Token};
use super::shell::{Completions, Man};
use clap::{Parser, Subcommand};

/// A document server for hot data: one config file becomes a JSON service.
#[derive(Debug, Parser)]
#[command(
    name = "sapsan",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve generated travels data from a temporary folder: nothing to set up
    Demo(Demo),
    /// Serve the collections and endpoints that a config file declares
    Serve(Serve),
    /// Draft a service file from data: collections, keys, types, and candidates for indexes
    Init(Init),
    /// Load files into a data folder: zip, json, ndjson, csv, or - for standard input
    Import(Import),
    /// Write the documents of a data folder as lines of JSON, as arrays or as CSV: as of one moment
    Export(Export),
    /// Write seeded test data
    Generate(Generate),
    /// Run one SQL statement on a data folder: a query, EXPLAIN of one, INSERT, UPDATE or DELETE
    Query(Query),
    /// Tell every mistake of a config file without starting
    CheckConfig(CheckConfig),
    /// Copy the data of a running server, or of a data folder that nobody has open
    Backup(Backup),
    /// Make a data folder of a backup
    Restore(Restore),
    /// Write a data folder anew, as small as it goes; nobody may have it open
    Compact(Folder),
    /// Make a token that opens the general API, or declared endpoints, to those who send it
    Token(Token),
    /// Check every page, tree and index of a data folder, or the views of a running server
    Verify(Verify),
    /// Copy every key of one Redis, with its time to live, to the nodes that a placement gives them
    Reshard(Reshard),
    /// Show what a data folder holds, or what a running server (http://ADDRESS:PORT, unix:PATH) tells of its store
    Stat(Stat),
    /// Serve several Redis nodes as one: keys are spread over them, commands of many keys are split
    Proxy(Box<Proxy>),
    /// Load a server with requests at planned moments, and tell how long users would have waited
    Loadtest(Box<loadtest::cli::Arguments>),
    /// Run the same requests through many execution models, beside the optimum that theory allows
    Lab(Box<lab::cli::Lab>),
    /// Write a script by which a shell completes these commands
    Completions(Completions),
    /// Write a manual page, of all or of one command
    Man(Man),
}
