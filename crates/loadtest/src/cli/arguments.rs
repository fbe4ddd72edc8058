//! The arguments of `sapsan loadtest`.

use super::ammo::AmmoArguments;
use super::expect::ExpectArguments;
use super::results::ResultArguments;
use crate::cup::CupArguments;
use crate::duration;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// A load on one server, or one of the commands.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct LoadArguments {
    /// What is run instead of a load on a URL.
    #[command(subcommand)]
    pub command: Option<LoadtestCommand>,
    /// The server: `http://HOST:PORT/PATH` or `https://HOST/PATH`
    #[arg(value_name = "URL", required = true)]
    pub url: Option<String>,
    /// When requests are sent: line(FROM,TO,DURATION), const(RATE,DURATION), step(FROM,TO,STEP,DURATION), chained with spaces
    #[arg(long, value_name = "PROFILE", conflicts_with_all = ["rate", "duration"])]
    pub profile: Option<String>,
    /// Requests per second at a constant rate: short for --profile 'const(RATE,DURATION)'
    #[arg(long, value_name = "RATE")]
    pub rate: Option<f64>,
    /// Length of the load, such as 500ms, 30s, 3m (default: 10s)
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub duration: Option<Duration>,
    /// Connections. Without a profile or rate: each sends its next request after a reply (default: 64). With one: at most this many, and
    /// all are opened before the start if the number is given (default: 1000, of which 16 for each thread are opened before the start)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: Option<u32>,
    /// Requests in flight on one connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub pipeline: u32,
    /// A new connection for each request
    #[arg(long, conflicts_with = "pipeline")]
    pub new_connections: bool,
    /// Event loops (default: one for each core)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,
    /// A request without a reply for this long is lost; a reply later than this after the planned moment is late
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = timeout)]
    pub timeout: Duration,
    /// The method (default: GET, or POST with a body)
    #[arg(long, value_name = "METHOD")]
    pub method: Option<String>,
    /// A header field; may be given several times
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub header: Vec<(String, String)>,
    /// The body: its text, or @FILE
    #[arg(long, value_name = "TEXT")]
    pub body: Option<String>,
    /// Requests from a file instead.
    #[command(flatten)]
    pub ammo: AmmoArguments,
    /// Which replies are right.
    #[command(flatten)]
    pub expect: ExpectArguments,
    /// Trusted certificates for the server, in PEM, instead of the system's
    #[arg(long, value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// Seed of the placeholders in ammo or scenario (default: 1)
    #[arg(long, value_name = "N", requires = "templates")]
    pub seed: Option<u64>,
    /// What is shown and kept of the run.
    #[command(flatten)]
    pub results: ResultArguments,
    /// Permit a target that is neither this machine nor in a private network
    #[arg(long)]
    pub i_may_load_this_host: bool,
}

/// Commands of the load tester beside a load on a URL.
#[derive(Clone, Debug, Subcommand)]
pub enum LoadtestCommand {
    /// Run the phases of HighLoad Cup 2017 on a travels service, and print its rating together with the published ones
    Cup(CupArguments),
}

/// The histograms cannot distinguish longer times, so a longer timeout would be invisible in them.
fn timeout(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text)?;
    let longest = Duration::from_nanos(crate::recording::LONGEST_NS);
    if time >= Duration::from_millis(1) && time <= longest {
        Ok(time)
    } else {
        Err(format!("a timeout is 1ms to {}s", longest.as_secs()))
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    if ["content-length", "transfer-encoding"].iter().any(|framing| name.trim().eq_ignore_ascii_case(framing)) {
        return Err(format!("{} is made of the body: leave it out", name.trim()));
    }
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
