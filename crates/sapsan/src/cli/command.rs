//! The table of commands, from which help is made.

use super::data_folder::{Backup, Folder, Restore, Stat, Verify};
use super::documents::{Export, Generate, Import, Init, QueryArguments};
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
    /// Load documents into a data folder: .json, .ndjson, .csv, .tsv and .zip files, or - for standard input
    Import(Import),
    /// Write the documents of a data folder or a running server: as NDJSON, JSON or CSV
    Export(Export),
    /// Write generated test data: the same seed gives the same bytes
    Generate(Generate),
    /// Run one SQL statement on a data folder: SELECT, EXPLAIN, INSERT, UPDATE or DELETE
    Query(QueryArguments),
    /// Report every mistake of a config file, without starting the server
    CheckConfig(CheckConfig),
    /// Copy the data of a running server, or of a data folder that no process has open
    Backup(Backup),
    /// Make a data folder from a backup
    Restore(Restore),
    /// Rewrite a data folder in its smallest size; no process may have it open
    Compact(Folder),
    /// Make a token, with which a client may use the general API or declared endpoints
    Token(Token),
    /// Check every page, tree and index of a data folder, or the views of a running server
    Verify(Verify),
    /// Copy every key of one Redis, with its time to live, to the nodes of a proxy
    Reshard(Reshard),
    /// Show the trees and sizes of a data folder, or the store's metrics of a running server
    Stat(Stat),
    /// Serve several Redis nodes as one: keys are spread over them, commands of many keys are split
    Proxy(Box<Proxy>),
    /// Send requests at scheduled times, and report how long users would have waited
    Loadtest(Box<loadtest::cli::LoadArguments>),
    /// Run the same requests through many execution models, and compare each with the theoretical optimum
    Lab(Box<lab::cli::Lab>),
    /// Write a completion script for a shell
    Completions(Completions),
    /// Write the manual page of the program, or of one command
    Man(Man),
}
