//! The arguments that name the source of requests, and the source that is made from them.

use crate::ammo::{Ammo, AmmoOptions, Defaults, Format, Loops, OnBroken, SkippedRecords};
use crate::answers::Comparison;
use clap::Args;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Default seed of placeholders.
pub(super) const SEED: u64 = 1;

/// Requests from a file.
#[derive(Clone, Debug, Default, Args)]
pub struct AmmoArguments {
    /// Requests from a file, or - for standard input: phantom, URLs, NDJSON, HAR, access log, lists of yandex-tank, targets of vegeta
    #[arg(long, value_name = "FILE", group = "templates", conflicts_with_all = ["method", "body"])]
    pub ammo: Option<PathBuf>,
    /// Steps that each connection takes as a user, with values from earlier replies and think time, from a file of TOML
    #[arg(long, value_name = "FILE", group = "templates",
        conflicts_with_all = ["method", "body", "profile", "rate", "pipeline", "new_connections"])]
    pub scenario: Option<PathBuf>,
    /// The format of the ammo, instead of the one detected from its content: phantom, urls, ndjson, har, access-log, uri, uripost,
    /// jsonline, vegeta, vegeta-json
    #[arg(long, value_name = "FORMAT", requires = "ammo")]
    pub ammo_format: Option<Format>,
    /// How often the ammo is read (default: as often as the run needs)
    #[arg(long, value_name = "N", requires = "ammo", value_parser = loops)]
    pub loops: Option<NonZeroU64>,
    /// A random order, the same for the same seed: uniform among 65,536 requests or 32 MB
    #[arg(long, value_name = "SEED", requires = "ammo")]
    pub shuffle: Option<u64>,
    /// Skip broken records and count them
    #[arg(long, requires = "ammo")]
    pub skip_broken: bool,
    /// The expected answers, in the order of the ammo: lines METHOD, PATH, STATUS, BODY with tabs, or NDJSON
    #[arg(long, value_name = "FILE", requires = "ammo")]
    pub answers: Option<PathBuf>,
}

fn loops(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| "a whole number, 1 or more".to_owned())
}

/// Open ammo, with what the end of the run needs of it.
pub(super) struct Opened {
    pub(super) ammo: Ammo,
    /// The comparison with the answers file.
    pub(super) comparison: Option<Arc<Comparison>>,
    pub(super) counts: Arc<SkippedRecords>,
}

impl AmmoArguments {
    /// Opens the ammo. `None`: none is named. `seed` is that of placeholders.
    pub(super) fn open(&self, seed: Option<u64>, defaults: Defaults) -> Result<Option<Opened>, String> {
        let Some(path) = &self.ammo else { return Ok(None) };
        let options = AmmoOptions {
            format: self.ammo_format,
            loops: self.loops.map_or(Loops::Endless, Loops::Times),
            shuffle: self.shuffle,
            seed: seed.unwrap_or(SEED),
            on_broken: if self.skip_broken { OnBroken::Skip } else { OnBroken::Stop },
            defaults,
        };
        let comparison = self.answers.as_ref().map(|_| Arc::new(Comparison::default()));
        let ammo = match (&self.answers, &comparison) {
            (Some(answers), Some(comparison)) => {
                Ammo::open_with_answers(path, answers, Arc::clone(comparison), options)
            }
            _ => Ammo::open(path, options),
        };
        let ammo = ammo.map_err(|error| error.to_string())?;
        Ok(Some(Opened { counts: ammo.counts(), ammo, comparison }))
    }
}

/// Notices about the ammo after a run.
pub(super) fn notices(counts: &SkippedRecords, comparison: Option<&Comparison>) -> Vec<String> {
    let (broken, left_out) = (counts.broken.load(Ordering::Relaxed), counts.left_out.load(Ordering::Relaxed));
    let mut notices = Vec::new();
    if broken > 0 {
        notices.push(format!("{broken} broken records of the ammo were left out"));
    }
    if left_out > 0 {
        notices.push(format!(
            "{left_out} requests of the HAR were left out, because they are for other hosts than the first"
        ));
    }
    let differences = comparison.map(Comparison::differences);
    notices.extend(differences.filter(|found| found.count + found.uncompared > 0).map(|found| found.to_string()));
    notices
}
