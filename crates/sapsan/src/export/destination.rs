//! Destination of an export. A file is written under a temporary name in the same folder, and renamed when it is complete and on disk.
//! So an export that ends early leaves no file, also if a signal ends it ([`UnfinishedFile`]).

use super::source::Stopped;
use crate::console::process::UnfinishedFile;
use crate::console::{Outcome, output};
use std::io::{BufWriter, Seek, SeekFrom, Stdout, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Standard output, or a new file.
pub(crate) enum Destination {
    StandardOutput(BufWriter<Stdout>),
    File {
        /** Its final name. */
        name: PathBuf,
        /** The temporary file. It is removed if it is dropped before it gets its final name. */
        file: BufWriter<NamedTempFile>,
    },
}

impl Destination {
    /// Opens a new file, or standard output if `name` is `None`. The temporary file is noted in `unfinished`.
    pub(crate) fn open(name: Option<&Path>, unfinished: &UnfinishedFile) -> Result<Destination, String> {
        let Some(name) = name else {
            return Ok(Destination::StandardOutput(BufWriter::with_capacity(BUFFER_BYTES, std::io::stdout())));
        };
        name_is_free(name)?;
        let file = temporary(name).map_err(|error| unwritten(name, &error))?;
        unfinished.set(file.path());
        Ok(Destination::File { name: name.to_owned(), file: BufWriter::with_capacity(BUFFER_BYTES, file) })
    }

    /// Ends the export: gives the file its name, or removes it.
    pub(crate) fn finish(self, exported: Result<(), Stopped>) -> Outcome {
        match (self, exported) {
            (_, Err(Stopped::Failed(why))) => Err(why),
            (Destination::StandardOutput(_), Err(Stopped::Unwritten(error))) => output::ended(Err(error)),
            (Destination::StandardOutput(mut out), Ok(())) => output::ended(out.flush()),
            (Destination::File { name, .. }, Err(Stopped::Unwritten(error))) => Err(unwritten(&name, &error)),
            (Destination::File { name, file }, Ok(())) => complete(&name, file),
        }
    }
}

/// Returns an error if a file has this name.
pub(crate) fn name_is_free(name: &Path) -> Outcome {
    match name.symlink_metadata() {
        Ok(_) => Err(there_already(name)),
        Err(_) => Ok(()),
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Destination::StandardOutput(out) => out.write(bytes),
            Destination::File { file, .. } => file.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Destination::StandardOutput(out) => out.flush(),
            Destination::File { file, .. } => file.flush(),
        }
    }
}

/// A file only: an archive is written with its places.
impl Seek for Destination {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        match self {
            Destination::StandardOutput(_) => Err(std::io::ErrorKind::NotSeekable.into()),
            Destination::File { file, .. } => file.seek(to),
        }
    }
}

/// A temporary file in the folder of `name`, so that it can be renamed. It has the permissions of any new file.
fn temporary(name: &Path) -> std::io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name.file_name().unwrap_or_default());
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // The process's mask (umask) takes permissions away from these.
    let builder = builder.prefix(&prefix).suffix(".part").permissions(std::fs::Permissions::from_mode(0o666));
    builder.tempfile_in(folder)
}

fn complete(name: &Path, file: BufWriter<NamedTempFile>) -> Outcome {
    let file = file.into_inner().map_err(|error| unwritten(name, error.error()))?;
    file.as_file().sync_all().map_err(|error| unwritten(name, &error))?;
    match file.persist_noclobber(name) {
        Ok(_) => Ok(()),
        Err(failed) if failed.error.kind() == std::io::ErrorKind::AlreadyExists => Err(there_already(name)),
        Err(failed) => Err(unwritten(name, &failed.error)),
    }
}

fn there_already(name: &Path) -> String {
    format!("{} exists already and is not overwritten: choose another name, or remove the file", name.display())
}

fn unwritten(name: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", name.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_file_has_its_name_only_when_it_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("out.ndjson");
        let mut failing = Destination::open(Some(&name), &UnfinishedFile::default()).expect("a destination");
        failing.write_all(b"half").and_then(|()| failing.flush()).expect("written");
        let found = names(folder.path());
        assert!(
            matches!(&found[..], [part] if part.starts_with(".out.ndjson") && part.ends_with(".part")),
            "{found:?}"
        );
        let failed = failing.finish(Err(Stopped::Failed("no".to_owned())));
        assert_eq!((failed, names(folder.path()).len()), (Err("no".to_owned()), 0));
        let mut whole = Destination::open(Some(&name), &UnfinishedFile::default()).expect("a destination");
        whole.write_all(b"whole").expect("written");
        assert_eq!(whole.finish(Ok(())), Ok(()));
        assert_eq!(
            (names(folder.path()), std::fs::read(&name).expect("it")),
            (vec!["out.ndjson".to_owned()], b"whole".to_vec())
        );
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "").expect("a file");
        let permissions = |file: &Path| std::fs::metadata(file).expect("it").permissions();
        assert_eq!(permissions(&name), permissions(&plain));
    }

    #[test]
    fn a_file_that_is_there_is_not_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("out.csv");
        let early = Destination::open(Some(&name), &UnfinishedFile::default()).expect("a destination");
        std::fs::write(&name, "mine").expect("a file");
        for refused in [early.finish(Ok(())), Destination::open(Some(&name), &UnfinishedFile::default()).map(|_| ())] {
            assert!(refused.is_err_and(|why| why.contains("exists already")));
        }
        assert_eq!((names(folder.path()).len(), std::fs::read(&name).expect("it")), (1, b"mine".to_vec()));
    }
}
