//! A memory limit of processes, page cache included, by a control group of the kernel (cgroups(7)).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = "/sys/fs/cgroup";

/// A control group with a limit. Dropping it removes the group; its processes must have ended before.
pub(in crate::bench) struct MemoryLimit {
    folder: PathBuf,
    /// How the limit is enforced, for the record.
    pub(in crate::bench) name: &'static str,
}

impl MemoryLimit {
    /// Makes a group with this limit: of version 2 if that has the memory controller, otherwise of version 1.
    pub(in crate::bench) fn new(bytes: u64) -> Result<MemoryLimit, String> {
        let own = format!("sapsan-bench-{}", std::process::id());
        let controllers = fs::read_to_string(Path::new(ROOT).join("cgroup.controllers")).unwrap_or_default();
        let (folder, file, name) = if controllers.split_whitespace().any(|controller| controller == "memory") {
            let _ = fs::write(Path::new(ROOT).join("cgroup.subtree_control"), "+memory");
            (Path::new(ROOT).join(own), "memory.max", "cgroup v2")
        } else {
            (Path::new(ROOT).join("memory").join(own), "memory.limit_in_bytes", "cgroup v1")
        };
        let failed = |error: std::io::Error| {
            format!(
                "no limit on memory can be made here ({}: {error}): it takes root, and a memory controller",
                folder.display()
            )
        };
        fs::create_dir(&folder).map_err(failed)?;
        let limit = MemoryLimit { folder: folder.clone(), name };
        fs::write(folder.join(file), bytes.to_string()).map_err(failed)?;
        Ok(limit)
    }

    /// A script that adds itself to the group and then executes its arguments.
    pub(in crate::bench) fn script(&self, folder: &Path) -> Result<PathBuf, String> {
        let path = folder.join("limited.sh");
        let text =
            format!("#!/bin/sh\necho $$ > '{}' || exit 99\nexec \"$@\"\n", self.folder.join("cgroup.procs").display());
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        crate::tools::run_with(Command::new("chmod").arg("+x").arg(&path))?;
        Ok(path)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}
