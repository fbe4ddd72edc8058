//! The setup of every bench of the server: built programs, a data folder, imported and served data, the floor.

use super::process::{Server, free_address};
use crate::bench::{Cores, Effort};
use crate::tools;
use std::path::{Path, PathBuf};
use std::process::Command;

/// "Now" of the generated travels data.
const NOW: &str = "now=1503966608";

/// Users, locations and visits of a data set.
pub(in crate::bench) type Counts = [u32; 3];

/// As large as the contest's train set.
pub(in crate::bench) const TRAIN: Counts = [10_057, 7_628, 100_570];

/// Returns an error if the disk has too little free space.
pub(in crate::bench) fn require_room(folder: &Path, bytes: u64) -> Result<(), String> {
    let output = Command::new("df").args(["--output=avail", "-B1"]).arg(folder).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let free: u64 = text.lines().nth(1).and_then(|line| line.trim().parse().ok()).unwrap_or(0);
    if free < bytes {
        let [free, bytes] = [free, bytes].map(|bytes| bytes as f64 / 1e9);
        return Err(format!("{}: {free:.1} GB are free, {bytes:.1} GB are needed", folder.display()));
    }
    Ok(())
}

/// Programs and folders of one run.
pub(in crate::bench) struct Stage {
    pub(in crate::bench) effort: Effort,
    pub(in crate::bench) cores: Cores,
    pub(in crate::bench) folder: tempfile::TempDir,
    pub(in crate::bench) sapsan: PathBuf,
    floor: PathBuf,
}

/// The train data in a folder, and the build of the server that imported it.
pub(in crate::bench) struct Imported {
    sapsan: PathBuf,
    store: PathBuf,
}

impl Imported {
    /// The data folder.
    pub(in crate::bench) fn into_folder(self) -> PathBuf {
        self.store
    }
}

impl Stage {
    /// Builds the server and the floor.
    pub(in crate::bench) fn set(effort: Effort) -> Result<Stage, String> {
        for (program, package) in [("cc", "build-essential"), ("wrk", "wrk"), ("taskset", "util-linux")] {
            tools::require(program, package)?;
        }
        // Next to the build, not in /tmp, which may be in memory: durable writes must be measured on a disk.
        let target = tools::target();
        let folder = std::fs::create_dir_all(&target).and_then(|()| tempfile::tempdir_in(&target));
        let folder = folder.map_err(|error| format!("a temporary folder: {error}"))?;
        let floor = folder.path().join("floor");
        let source = tools::root().join("bench/floor.c");
        tools::run_with(Command::new("cc").args(["-O2", "-pthread", "-o"]).arg(&floor).arg(source))?;
        Ok(Stage { effort, cores: Cores::of_machine(), folder, sapsan: crate::bench::sapsan()?, floor })
    }

    /// The travels service file.
    pub(in crate::bench) fn config() -> PathBuf {
        tools::root().join("apps/travels/travels.toml")
    }

    /// Generates a data set as a zip.
    pub(in crate::bench) fn generate(&self, counts: Counts) -> Result<PathBuf, String> {
        self.generate_as("all", counts, &[])
    }

    /// Generates only the visits of a data set.
    pub(in crate::bench) fn generate_visits(&self, counts: Counts) -> Result<PathBuf, String> {
        self.generate_as("visits", counts, &["--only-visits"])
    }

    fn generate_as(&self, name: &str, [users, locations, visits]: Counts, more: &[&str]) -> Result<PathBuf, String> {
        let zip = self.folder.path().join(format!("{name}-{users}-{locations}-{visits}.zip"));
        if zip.is_file() {
            return Ok(zip); // the same seed, so the same data; the command overwrites no file
        }
        let counts = [users, locations, visits].map(|count| count.to_string());
        let mut command = Command::new(&self.sapsan);
        command.args(["generate", "travels"]).arg(&zip);
        for (name, count) in ["--users", "--locations", "--visits"].iter().zip(&counts) {
            command.args([name, count.as_str()]);
        }
        command.args(more);
        tools::run_with(&mut command)?;
        Ok(zip)
    }

    /// Generates, imports and serves a data set.
    pub(in crate::bench) fn serve(&self, counts: Counts) -> Result<Server, String> {
        self.serve_folder(&self.import(counts)?)
    }

    /// Generates and imports a data set, and returns its folder.
    pub(in crate::bench) fn import(&self, counts: Counts) -> Result<PathBuf, String> {
        let zip = self.generate(counts)?;
        let store = zip.with_extension("store");
        tools::run_with(
            Command::new(&self.sapsan).arg("import").arg(Stage::config()).arg("--data").arg(&store).arg(&zip),
        )?;
        Ok(store)
    }

    /// Imports the train data with another build of the server, into a folder of this name.
    pub(in crate::bench) fn imported_with(&self, name: &str, sapsan: PathBuf) -> Result<Imported, String> {
        let (zip, store) = (self.generate(TRAIN)?, self.folder.path().join(name));
        tools::run_with(Command::new(&sapsan).arg("import").arg(Stage::config()).arg("--data").arg(&store).arg(&zip))?;
        Ok(Imported { sapsan, store })
    }

    /// Serves it with the build that imported it.
    pub(in crate::bench) fn serve_imported(&self, imported: &Imported) -> Result<Server, String> {
        self.serve_with(&imported.sapsan, &imported.store)
    }

    /// Serves a data folder.
    pub(in crate::bench) fn serve_folder(&self, store: &Path) -> Result<Server, String> {
        self.serve_with(&self.sapsan, store)
    }

    fn serve_with(&self, sapsan: &Path, store: &Path) -> Result<Server, String> {
        self.serve_file(sapsan, &Stage::config(), store)
    }

    /// Serves a data folder with another service file of the same collections.
    pub(in crate::bench) fn serve_folder_by(&self, file: &Path, store: &Path) -> Result<Server, String> {
        self.serve_file(&self.sapsan, file, store)
    }

    fn serve_file(&self, sapsan: &Path, file: &Path, store: &Path) -> Result<Server, String> {
        let address = free_address()?;
        let arguments = [
            "serve".to_owned(),
            file.display().to_string(),
            "--data".to_owned(),
            store.display().to_string(),
            "--http".to_owned(),
            address.to_string(),
            "--threads".to_owned(),
            self.cores.threads.to_string(),
            "--set".to_owned(),
            NOW.to_owned(),
        ];
        Server::start(&self.cores.server, sapsan, &arguments, address)
    }

    /// Starts the floor with this body size.
    pub(in crate::bench) fn floor(&self, body_bytes: usize, close: bool) -> Result<Server, String> {
        let address = free_address()?;
        let mut arguments = vec![address.port().to_string(), self.cores.threads.to_string(), body_bytes.to_string()];
        if close {
            arguments.push("close".to_owned());
        }
        Server::start(&self.cores.server, &self.floor, &arguments, address)
    }
}
