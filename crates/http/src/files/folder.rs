//! Opens files inside a folder, and nothing outside it.
//!
//! The kernel resolves the whole name beneath the folder's descriptor (openat2(2) with RESOLVE_BENEATH): a symbolic link is
//! followed if it leads inside, and a link that leads outside is an error, whenever it was created. If the kernel has no openat2
//! (before 5.6, or behind a filter of system calls), the name is walked segment by segment, and no link is followed.
//!
//! The type of a file is checked before it is opened: opening a device may have effects.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat, openat2};
use rustix::io::Errno;

/// How many times a name is resolved if it changes meanwhile.
const ATTEMPTS_MAX: usize = 4;

/// A folder that is served.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    resolves_beneath: bool,
}

/// Descriptor of the folder that the path leads to at present.
#[derive(Debug)]
pub(super) struct Root {
    descriptor: OwnedFd,
    resolves_beneath: bool,
    pub(super) stamp: Stamp,
}

/// Distinguishes the states of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    pub(super) bytes: u64,
    /// Seconds since 1970, and nanoseconds.
    pub(super) modified: (i64, u64),
    changed: (i64, u64),
}

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File(Stamp),
    Folder,
}

impl Folder {
    /// Opens an existing folder.
    pub(super) fn open(path: &Path) -> io::Result<Folder> {
        let path = std::path::absolute(path)?;
        let mut folder = Folder { path, resolves_beneath: true };
        let root = folder.root()?;
        folder.resolves_beneath = root.has_openat2();
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder that the path leads to at present.
    pub(super) fn root(&self) -> io::Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = open(&self.path, flags, Mode::empty())?;
        let stamp = Stamp::of(&fstat(&descriptor)?);
        Ok(Root { descriptor, resolves_beneath: self.resolves_beneath, stamp })
    }

    #[cfg(test)]
    fn without_openat2(self) -> Folder {
        Folder { resolves_beneath: false, ..self }
    }
}

impl Root {
    fn has_openat2(&self) -> bool {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat2(&self.descriptor, ".", flags, Mode::empty(), ResolveFlags::BENEATH).is_ok()
    }

    /// What a name leads to; `None`: nothing that is served.
    pub(super) fn look_up(&self, name: &str) -> io::Result<Option<Kind>> {
        let Some(descriptor) = none_if_missing(self.resolve(name, OFlags::PATH))? else { return Ok(None) };
        Ok(Kind::of(&fstat(descriptor)?))
    }

    /// Opens a regular file.
    pub(super) fn open(&self, name: &str) -> io::Result<Option<(File, Stamp)>> {
        if !matches!(self.look_up(name)?, Some(Kind::File(_))) {
            return Ok(None);
        }
        // Another file may have taken its place: opening a pipe must not block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let Some(descriptor) = none_if_missing(self.resolve(name, flags))? else { return Ok(None) };
        let Some(Kind::File(stamp)) = Kind::of(&fstat(&descriptor)?) else { return Ok(None) };
        Ok(Some((File::from(descriptor), stamp)))
    }

    fn resolve(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        if !self.resolves_beneath {
            return self.walk(name, flags);
        }
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 1..ATTEMPTS_MAX {
            match openat2(&self.descriptor, name, flags, Mode::empty(), resolve) {
                // A file was renamed meanwhile.
                Err(Errno::AGAIN | Errno::INTR) => {}
                done => return done,
            }
        }
        openat2(&self.descriptor, name, flags, Mode::empty(), resolve)
    }

    /// The same without openat2: every segment is opened in the folder before it.
    fn walk(&self, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder: Option<OwnedFd> = None;
        let mut rest = name;
        loop {
            let at = folder.as_ref().unwrap_or(&self.descriptor);
            match rest.split_once('/') {
                // Checked names contain no such segments; here they would matter.
                Some((".." | "", _)) => return Err(Errno::XDEV),
                None if rest == ".." => return Err(Errno::XDEV),
                None => return openat(at, rest, flags | OFlags::NOFOLLOW, Mode::empty()),
                Some((segment, after)) => {
                    folder = Some(openat(at, segment, through, Mode::empty())?);
                    rest = after;
                }
            }
        }
    }
}

/// Errors that mean that the file does not exist or may not be read are not system errors.
fn none_if_missing(opened: Result<OwnedFd, Errno>) -> io::Result<Option<OwnedFd>> {
    match opened {
        Ok(descriptor) => Ok(Some(descriptor)),
        Err(
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NAMETOOLONG
            | Errno::INVAL
            | Errno::ACCESS
            | Errno::PERM
            | Errno::ISDIR
            | Errno::NXIO,
        ) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Kind {
    fn of(stat: &Stat) -> Option<Kind> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Some(Kind::File(Stamp::of(stat))),
            FileType::Directory => Some(Kind::Folder),
            _ => None,
        }
    }
}

impl Stamp {
    #[allow(clippy::unnecessary_cast, reason = "the fields' types differ from machine to machine")]
    fn of(stat: &Stat) -> Stamp {
        Stamp {
            device: stat.st_dev as u64,
            inode: stat.st_ino as u64,
            bytes: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u64),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        }
    }

    /// Whether both are the same file, changed or not.
    pub(super) fn is_same_file(&self, other: &Stamp) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    struct Place(PathBuf);

    impl Place {
        /// A folder `root` beside a secret, with links of all kinds.
        fn new(name: &str) -> Place {
            let place = std::env::temp_dir().join(format!("sapsan-folder-{name}-{}", std::process::id()));
            let root = place.join("root");
            std::fs::create_dir_all(root.join("css")).unwrap();
            std::fs::write(place.join("secret"), "secret").unwrap();
            std::fs::write(root.join("css/a.css"), "a").unwrap();
            symlink("css/a.css", root.join("inside")).unwrap();
            symlink("css", root.join("folder")).unwrap();
            symlink("../secret", root.join("outside")).unwrap();
            symlink(place.join("secret"), root.join("absolute")).unwrap();
            symlink("..", root.join("up")).unwrap();
            symlink("loop", root.join("loop")).unwrap();
            symlink("/proc/self/root", root.join("magic")).unwrap();
            rustix::fs::mkfifoat(CWD, root.join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
            symlink("/dev/zero", root.join("device")).unwrap();
            Place(place)
        }

        fn folder(&self) -> Folder {
            Folder::open(&self.0.join("root")).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Content of a file; `None` if none is opened.
    fn read(root: &Root, name: &str) -> Option<String> {
        let (mut file, _) = root.open(name).unwrap()?;
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        Some(text)
    }

    const CLOSED: [&str; 13] = [
        "outside",
        "absolute",
        "up/secret",
        "up/root/css/a.css",
        "loop",
        "magic/etc/passwd",
        "pipe",
        "device",
        "css",
        "folder",
        "css/none",
        "css/a.css/b",
        "none",
    ];

    #[test]
    fn links_are_followed_inside_the_folder_and_never_out_of_it() {
        let place = Place::new("beneath");
        let root = place.folder().root().unwrap();
        for name in ["css/a.css", "inside", "folder/a.css"] {
            assert_eq!(read(&root, name).as_deref(), Some("a"), "{name}");
        }
        for name in CLOSED.into_iter().chain(["../secret", "css/../../secret", "/etc/passwd"]) {
            assert_eq!(read(&root, name), None, "{name}");
        }
        assert_eq!(root.look_up("css").unwrap(), Some(Kind::Folder));
    }

    #[test]
    fn without_openat2_no_link_is_followed() {
        let place = Place::new("walk");
        let root = place.folder().without_openat2().root().unwrap();
        assert_eq!(read(&root, "css/a.css").as_deref(), Some("a"));
        for name in
            CLOSED.into_iter().chain(["inside", "folder/a.css", "..", "../secret", "css/../../secret", "/etc/passwd"])
        {
            assert_eq!(read(&root, name), None, "{name}");
        }
        assert_eq!(root.look_up("css").unwrap(), Some(Kind::Folder));
    }

    #[test]
    fn a_folder_that_is_none_is_an_error() {
        let place = Place::new("none");
        assert!(Folder::open(&place.0.join("secret")).is_err());
        assert!(Folder::open(&place.0.join("missing")).is_err());
    }
}
