//! Unix sockets, listening and connecting: a file in a folder, with its permissions, for peers of this machine.
//!
//! - The file's mode decides which users may connect. It is set between bind and listen, before anyone can connect.
//! - The file of a dead server is replaced. If a server answers behind it, binding fails. Any file that is not a socket is left
//!   alone.
//! - The file is removed with its [`SocketFile`], unless another server has replaced it meanwhile.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use mio::net::UnixListener;
use socket2::{Domain, SockAddr, Socket, Type};

/// Only its owner may connect.
const MODE: u32 = 0o600;

/// The file of a listening socket; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Identifies the file, whatever is at its path later: while it is open no other file gets its inode number.
    file: File,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
        Ok(SocketFile { path: path.to_owned(), file })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let number = |file: Metadata| (file.dev(), file.ino());
        let own = self.file.metadata().map(number);
        if let (Ok(own), Ok(there)) = (own, fs::symlink_metadata(&self.path).map(number))
            && own == there
        {
            // If this fails, the next server finds the file stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a socket can be made at this path: nothing is there, or the file of a dead server. The error says what is there.
pub fn try_unix(path: &Path) -> io::Result<()> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !file.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(ErrorKind::AddrInUse.into()),
    }
}

/// Listens at this path.
pub(crate) fn bind_unix(path: &Path, backlog: u32) -> io::Result<(UnixListener, SocketFile)> {
    try_unix(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile::of(path)?;
    fs::set_permissions(path, Permissions::from_mode(MODE))?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    let listener: std::os::unix::net::UnixListener = socket.into();
    Ok((UnixListener::from_std(listener), file))
}

/// Connects to the server at this path: at once or not at all.
pub(crate) fn connect_unix(path: &Path) -> io::Result<mio::net::UnixStream> {
    mio::net::UnixStream::connect(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_a_living_one_or_a_file_is_not() {
        let folder = std::env::temp_dir().join(format!("sapsan-unix-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("s");
        let (first, file) = bind_unix(&path, 8).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        assert_eq!(bind_unix(&path, 8).unwrap_err().kind(), ErrorKind::AddrInUse);
        // The server dies and leaves the file.
        drop(first);
        assert!(path.exists());
        let (second, other) = bind_unix(&path, 8).unwrap();
        // A server removes only its own file.
        drop(file);
        assert!(path.exists());
        drop((second, other));
        assert!(!path.exists());
        fs::write(&path, "text").unwrap();
        assert_eq!(bind_unix(&path, 8).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
        fs::remove_dir_all(&folder).unwrap();
    }
}
