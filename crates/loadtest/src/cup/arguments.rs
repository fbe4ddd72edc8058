//! The arguments of `sapsan loadtest cup`.

use super::contest::Contest;
use clap::Args;
use std::path::PathBuf;

/// Run the contest's phases on a service and print its rating together with the published ones
#[derive(Clone, Debug, Args)]
pub struct CupArguments {
    /// The travels service's config file
    pub config: PathBuf,
    /// The contest's data: a zip; several may be named
    #[arg(long, value_name = "ZIP", required = true, num_args = 1..)]
    pub data: Vec<PathBuf>,
    /// Which run: 2017 (7 minutes), final (11 minutes), tenth (2017 in a tenth of its time)
    #[arg(long, value_name = "NAME", default_value = "2017")]
    pub profile: Contest,
    /// Ammo and answers under the contest's names (phase_N_….ammo, phase_N_….answ); short files are repeated, missing ones generated
    #[arg(long, value_name = "DIR")]
    pub ammo_dir: Option<PathBuf>,
    /// Fixes a value of the file's params: NAME=VALUE; without it, now is taken from options.txt beside the data
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Event loops of the server (default: as in its file)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub server_threads: Option<u16>,
    /// Event loops of the load generator
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,
    /// Seed of generated ammo
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// A page of charts and tables of each phase: DIR/phase-1.html, phase-2.html, phase-3.html
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
    /// Part of the contest's time, for a try
    #[arg(long, value_name = "PART", default_value_t = 1.0, hide = true, value_parser = scale)]
    pub scale: f64,
}

fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse::<f64>().ok().filter(|scale| (0.001..=1.0).contains(scale));
    scale.ok_or_else(|| "expected a number from 0.001 to 1".to_owned())
}
