//! A file that the user names, on the command line or inside the configuration: a regular file of a bounded size.
//!
//! Reading a device may never end, and opening a pipe without a writer blocks; both are refused before they are opened. The
//! file is also opened without blocking, because a pipe may have replaced it meanwhile.

use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Reads a regular file of at most `bytes_max` bytes.
pub fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    check(&fs::metadata(path)?, bytes_max)?;
    read(path, bytes_max)
}

/// The same without the check before opening.
fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    // Checked again: the path may name another file by now. Reading is bounded too, since the file may grow.
    check(&file.metadata()?, bytes_max)?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has over {bytes_max} bytes")));
    }
    Ok(bytes)
}

fn check(found: &fs::Metadata, bytes_max: u64) -> io::Result<()> {
    if !found.is_file() {
        return Err(io::Error::other(format!("it is a {}, not a regular file", kind(found.file_type()))));
    }
    if found.len() > bytes_max {
        return Err(io::Error::other(format!("it has {} bytes, allowed are {bytes_max}", found.len())));
    }
    Ok(())
}

fn kind(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "folder",
        kind if kind.is_fifo() => "pipe",
        kind if kind.is_socket() => "socket",
        _ => "device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// After this time the call counts as blocked.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_pipe_that_has_taken_the_files_place_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schema.json");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(read(&path, 100)));
        let refused = receiver.recv_timeout(PATIENCE).expect("opening it waits for nobody").unwrap_err();
        assert!(refused.to_string().contains("a pipe, not a regular file"), "{refused}");
    }
}
