//! Unix sockets, listening and connecting: a file in a folder, with its permissions, for peers of this machine.
//!
//! - Who may connect is said by the file's mode before anybody can: it is set between bind and listen.
//! - A file that a dead server left is replaced; behind that of a living one somebody answers, and it is refused. Anything but a
//!   socket is left alone.
//! - The file goes with its [`SocketFile`], unless another server has put its own there meanwhile.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use mio::net::UnixListener;
use socket2::{Domain, SockAddr, Socket, Type};

/// Its owner alone may connect.
const MODE: u32 = 0o600;

/// The file of a listening socket; removed when it is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Which file it is, whatever stands at its path later: as long as it is open no other one gets its number.
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
            // Where it fails it is found stale by the next server.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a socket can be made at this path: nothing is there, or what a dead server left. An error says what is.
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

/// Connects to the server behind this path: at once or not at all.
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
        // Its server dies, and leaves the file.
        drop(first);
        assert!(path.exists());
        let (second, other) = bind_unix(&path, 8).unwrap();
        // What is removed is one's own file.
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
