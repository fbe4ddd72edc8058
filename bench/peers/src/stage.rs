//! Where a run happens: a temporary folder on the real disk, the engines chosen, databases loaded once and shared.

use crate::data::{Records, Shape};
use crate::engine::{Engine, Kind, Outcome, Purpose};
use crate::engines::open;
use crate::table::{NO_PEER, Row};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Documents.
    pub(crate) records: u64,
    /// Rounds, of which the median counts.
    pub(crate) rounds: usize,
    /// Time of one measurement.
    pub(crate) time: Duration,
    /// Time of the sustained load: ours.
    pub(crate) sustained: Duration,
    /// Time of the steady updates.
    pub(crate) steady: Duration,
    /// Time of the log syncs beside checkpoints.
    pub(crate) syncs: Duration,
    /// Time that one engine may take for a million inserts or updates.
    pub(crate) bulk_most: Duration,
}

impl Effort {
    /// For the record.
    pub(crate) const FULL: Effort = Effort {
        records: 1_000_000,
        rounds: 3,
        time: Duration::from_millis(1_200),
        sustained: Duration::from_secs(60),
        steady: Duration::from_secs(600),
        syncs: Duration::from_secs(20),
        bulk_most: Duration::from_secs(12),
    };
    /// To try a change.
    pub(crate) const QUICK: Effort = Effort {
        records: 200_000,
        rounds: 1,
        time: Duration::from_millis(400),
        sustained: Duration::from_secs(6),
        steady: Duration::from_secs(20),
        syncs: Duration::from_secs(5),
        bulk_most: Duration::from_secs(3),
    };
}

/// A loaded database.
pub(crate) struct Loaded {
    /// Whose.
    pub(crate) kind: Kind,
    /// Where.
    pub(crate) folder: PathBuf,
    /// Open.
    pub(crate) engine: Box<dyn Engine>,
}

/// See the module's text.
pub(crate) struct Stage {
    /// How much and how long.
    pub(crate) effort: Effort,
    /// Which engines.
    pub(crate) kinds: Vec<Kind>,
    folder: tempfile::TempDir,
    short: Option<Vec<Loaded>>,
}

impl Stage {
    /// A stage in a new folder inside `parent`.
    pub(crate) fn new(parent: &Path, effort: Effort, kinds: Vec<Kind>) -> Outcome<Stage> {
        std::fs::create_dir_all(parent)?;
        Ok(Stage { effort, kinds, folder: tempfile::tempdir_in(parent)?, short: None })
    }

    /// The folder itself.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// An empty folder of this name.
    pub(crate) fn fresh(&self, kind: Kind, name: &str) -> Outcome<PathBuf> {
        let folder = self.folder.path().join(format!("{}-{name}", kind.name()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// All engines loaded with all records, in order, at rest.
    pub(crate) fn load(&self, shape: Shape, name: &str) -> Outcome<Vec<Loaded>> {
        let records = Records::make(shape, self.effort.records);
        let sorted = records.sorted();
        let mut loaded = Vec::new();
        for &kind in &self.kinds {
            eprintln!("loading {} with {} records", kind.name(), self.effort.records);
            let folder = self.fresh(kind, name)?;
            let engine = open(kind, &folder, Purpose::usual(shape))?;
            engine.load(&mut sorted.iter().copied())?;
            engine.settle()?;
            loaded.push(Loaded { kind, folder, engine });
        }
        Ok(loaded)
    }

    /// Loads the databases with 8-byte keys unless they are.
    pub(crate) fn prepare(&mut self) -> Outcome<()> {
        if self.short.is_none() {
            self.short = Some(self.load(Shape::Short, "shared")?);
        }
        Ok(())
    }

    /// The databases with 8-byte keys, after [`Stage::prepare`].
    pub(crate) fn shared(&self) -> &[Loaded] {
        self.short.as_deref().unwrap_or_default()
    }

    /// Closes and removes them: later groups need the space.
    pub(crate) fn clear(&mut self) {
        for Loaded { folder, engine, .. } in self.short.take().unwrap_or_default() {
            drop(engine);
            let _ = std::fs::remove_dir_all(folder);
        }
    }

    /// Prints rows, as far as there is something to compare.
    pub(crate) fn tell(&self, rows: &[Row]) {
        rows.iter().filter(|row| row.figure != NO_PEER).for_each(Row::print);
    }
}
