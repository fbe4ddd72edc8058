//! A loop's cache of files, so that the usual request costs no system call but the write.
//!
//! ```text
//!  folder ─► name ─► plain  ─► last state, valid until ─► representation
//!                    brotli ─► ...                        in memory up to 64 KB,
//!                    gzip   ─► ...                        else an open file
//! ```
//!
//! The result of a lookup is valid for a second. Then the name is resolved again and compared: an unchanged file stays, a changed
//! one is read again. The folder's own path is resolved again in the same way. Names without a file are not cached, so a client
//! that invents names fills nothing.
//!
//! Bounds, for each loop: bytes in memory ([`FileCache::new`]), [`OPEN_FILES_MAX`], and [`NAMES_MAX`]. Beyond one of them the
//! least recently used name is evicted.
//!
//! A file that is being sent is held until it was sent, even if its name was evicted: it is pinned, and counts. If pinned files
//! fill the memory, further files are sent from open files; if [`SENT_FILES_MAX`] open files are pinned, requests are refused.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::{Arc, Weak};

use reactor::Loop;
use rustix::fs::{Advice, fadvise};

use super::encoding::{Accepts, Coding};
use super::folder::{Folder, Kind, Root, Stamp};
use super::media::Media;
use super::representation::{Content, Pin, Representation, modified_of, tag_of};
use super::{FileMiss, Options};

/// The largest file kept in memory, in bytes; a larger one is kept open.
pub const FILE_BYTES_IN_MEMORY_MAX: usize = 64 << 10;
/// Files that a loop keeps open.
pub const OPEN_FILES_MAX: usize = 64;
/// Further files that a loop keeps open because they are being sent.
const SENT_FILES_MAX: usize = 1024;
/// Names that a loop caches.
const NAMES_MAX: usize = 1024;
/// How long a lookup is valid.
const COUNTS_FOR_NS: u64 = 1_000_000_000;
/// How many times a file is read if it changes while it is read.
const READS_MAX: usize = 3;
/// Bytes of a large file that the kernel is asked to read ahead when it is opened.
const READ_AHEAD_BYTES: u64 = 1 << 20;

/// A loop's cache of the files of all [`super::Files`] that it serves.
pub struct FileCache {
    lp: Loop,
    bytes_max: usize,
    folders: Vec<Known>,
    held: Held,
    pins: Vec<Pin>,
    pinned: Held,
    /// Use counter, raised with each lookup.
    uses: u64,
    /// Buffer for names that differ from their paths.
    text: String,
}

/// Amounts that count against the bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    names: usize,
    bytes: usize,
    open_files: usize,
}

/// A cached folder with its files.
#[derive(Debug)]
struct Known {
    folder: Weak<Folder>,
    /// `None`: its path leads to no folder at present.
    root: Option<Root>,
    due_ns: u64,
    names: HashMap<Box<str>, Name>,
}

/// A cached name.
#[derive(Debug)]
struct Name {
    media: Media,
    forms: [Form; Coding::COUNT],
    used: u64,
}

/// A cached file in one coding.
#[derive(Debug, Default)]
enum Form {
    #[default]
    Unknown,
    Absent {
        due_ns: u64,
    },
    Present {
        due_ns: u64,
        stamp: Stamp,
        file: Option<Arc<Representation>>,
    },
}

/// Result of a lookup.
#[derive(Debug)]
pub(super) enum Lookup {
    File(Arc<Representation>),
    Folder,
}

impl FileCache {
    /// A cache that keeps at most `bytes_max` bytes of files in memory.
    pub fn new(lp: &Loop, bytes_max: usize) -> FileCache {
        FileCache {
            lp: lp.clone(),
            bytes_max,
            folders: Vec::new(),
            held: Held::default(),
            pins: Vec::new(),
            pinned: Held::default(),
            uses: 0,
            text: String::new(),
        }
    }

    pub(super) fn take_text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    pub(super) fn give_text(&mut self, text: String) {
        self.text = text;
    }

    /// The file of this name, in the best accepted coding.
    pub(super) fn find(
        &mut self,
        folder: &Arc<Folder>,
        name: &str,
        options: Options,
        accepts: Accepts,
    ) -> Result<Lookup, FileMiss> {
        let now_ns = self.lp.now_ns();
        let place = self.place_of(folder);
        if now_ns >= self.folders[place].due_ns {
            self.open_root(place, folder, now_ns)?;
        }
        self.uses += 1;
        if let Some(known) = self.folders[place].names.get_mut(name)
            && let Some(file) = known.current(accepts, now_ns)
        {
            known.used = self.uses;
            return Ok(Lookup::File(file));
        }
        self.look_up(place, name, options, (accepts, now_ns))
    }

    fn place_of(&mut self, folder: &Arc<Folder>) -> usize {
        let known = self.folders.iter().position(|known| std::ptr::eq(known.folder.as_ptr(), Arc::as_ptr(folder)));
        known.unwrap_or_else(|| {
            self.forget_closed();
            let folder = Arc::downgrade(folder);
            self.folders.push(Known { folder, root: None, due_ns: 0, names: HashMap::new() });
            self.folders.len() - 1
        })
    }

    /// Removes folders that are no longer served.
    fn forget_closed(&mut self) {
        for place in (0..self.folders.len()).rev() {
            if self.folders[place].folder.strong_count() == 0 {
                self.forget_names(place);
                self.folders.swap_remove(place);
            }
        }
    }

    fn forget_names(&mut self, place: usize) {
        let names = std::mem::take(&mut self.folders[place].names);
        names.iter().for_each(|(name, known)| self.forget(name, known));
    }

    /// Removes a name, and pins its files that are being sent.
    fn forget(&mut self, name: &str, known: &Name) {
        self.held.remove(known.held(name));
        known.files().for_each(|file| self.pin(file));
    }

    fn pin(&mut self, file: &Representation) {
        if let Some(pin) = file.pin() {
            self.pinned.add(Held::of_pin(&pin));
            self.pins.push(pin);
        }
    }

    /// Drops the pins of files that were sent.
    fn unpin(&mut self) {
        self.pins.retain(|pin| pin.memory_bytes().is_some());
        self.pinned = Held::default();
        self.pins.iter().for_each(|pin| self.pinned.add(Held::of_pin(pin)));
    }

    /// Opens the folder at the path.
    #[cold]
    fn open_root(&mut self, place: usize, folder: &Folder, now_ns: u64) -> Result<(), FileMiss> {
        let root = match folder.root() {
            Ok(root) => Some(root),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
            Err(error) => return Err(FileMiss::Unavailable(error)),
        };
        let known = &mut self.folders[place];
        let is_same = matches!((&known.root, &root), (Some(a), Some(b)) if a.stamp.is_same_file(&b.stamp));
        known.root = root;
        known.due_ns = now_ns.saturating_add(COUNTS_FOR_NS);
        if !is_same {
            self.forget_names(place);
        }
        Ok(())
    }

    /// Looks a name up in the file system, and caches the result.
    #[cold]
    fn look_up(
        &mut self,
        place: usize,
        name: &str,
        options: Options,
        (accepts, now_ns): (Accepts, u64),
    ) -> Result<Lookup, FileMiss> {
        self.unpin();
        if self.pinned.open_files >= SENT_FILES_MAX {
            return Err(FileMiss::Busy);
        }
        let memory_bytes_max = self.bytes_max.saturating_sub(self.pinned.bytes).min(FILE_BYTES_IN_MEMORY_MAX) as u64;
        let known = &mut self.folders[place];
        let Some(root) = &known.root else { return Err(FileMiss::NotFound) };
        let before = known.names.remove_entry(name);
        if let Some((name, known)) = &before {
            self.held.remove(known.held(name));
        }
        let (key, mut one) = before.unwrap_or_else(|| (name.into(), Name::new(name)));
        let files: Vec<_> = one.files().cloned().collect();
        let found = one.look_up(root, (name, options), (accepts, now_ns), memory_bytes_max);
        let is_file = matches!(found, Ok(Some(Lookup::File(_))));
        let is_folder = matches!(found, Ok(Some(Lookup::Folder)));
        for file in files.iter().filter(|file| !is_file || !one.files().any(|kept| Arc::ptr_eq(kept, file))) {
            // The list holds the file too; what counts is whether a reply holds its bytes.
            self.pin(file);
        }
        let Some(Lookup::File(file)) = found.map_err(FileMiss::Unavailable)? else {
            return if is_folder { Ok(Lookup::Folder) } else { Err(FileMiss::NotFound) };
        };
        one.used = self.uses;
        self.held.add(one.held(&key));
        self.folders[place].names.insert(key, one);
        self.shrink();
        Ok(Lookup::File(file))
    }

    /// Evicts names until everything is within its bounds, except the name of this request: no reply holds it yet, so it would
    /// not be pinned.
    fn shrink(&mut self) {
        while self.held.bytes + self.pinned.bytes > self.bytes_max
            || self.held.open_files > OPEN_FILES_MAX
            || self.held.names > NAMES_MAX
        {
            let names =
                self.folders.iter().enumerate().flat_map(|(place, folder)| {
                    folder.names.iter().map(move |(name, known)| (known.used, place, name))
                });
            let oldest = names.min_by_key(|(used, ..)| *used).filter(|(used, ..)| *used < self.uses);
            let Some((_, place, name)) = oldest else { return };
            let name = name.clone();
            if let Some(known) = self.folders[place].names.remove(&name) {
                self.forget(&name, &known);
            }
        }
    }
}

impl Held {
    fn of_pin(pin: &Pin) -> Held {
        Held { names: 0, bytes: pin.memory_bytes().unwrap_or(0), open_files: usize::from(pin.is_open_file()) }
    }

    fn add(&mut self, other: Held) {
        self.names += other.names;
        self.bytes += other.bytes;
        self.open_files += other.open_files;
    }

    fn remove(&mut self, other: Held) {
        self.names -= other.names;
        self.bytes -= other.bytes;
        self.open_files -= other.open_files;
    }
}

impl Name {
    fn new(name: &str) -> Name {
        Name { media: Media::of(name), forms: Default::default(), used: 0 }
    }

    /// Its files that were read.
    fn files(&self) -> impl Iterator<Item = &Arc<Representation>> {
        self.forms.iter().filter_map(|form| match form {
            Form::Present { file, .. } => file.as_ref(),
            _ => None,
        })
    }

    fn held(&self, name: &str) -> Held {
        let bytes = self.files().map(|file| file.memory_bytes()).sum::<usize>();
        let open_files = self.files().filter(|file| file.is_open_file()).count();
        Held { names: 1, bytes: bytes + name.len() + size_of::<Name>(), open_files }
    }

    /// The codings to try, best first.
    fn codings(&self, accepts: Accepts) -> impl Iterator<Item = Coding> + use<> {
        let is_compressible = self.media.is_compressible;
        accepts.before_plain().filter(move |_| is_compressible)
    }

    /// The cached file, if everything that determines the choice is still valid.
    fn current(&self, accepts: Accepts, now_ns: u64) -> Option<Arc<Representation>> {
        let Form::Present { due_ns, file, .. } = &self.forms[Coding::Identity as usize] else { return None };
        if now_ns >= *due_ns {
            return None;
        }
        for coding in self.codings(accepts) {
            match &self.forms[coding as usize] {
                Form::Absent { due_ns } if now_ns < *due_ns => {}
                Form::Present { due_ns, file, .. } if now_ns < *due_ns => return file.clone(),
                _ => return None,
            }
        }
        file.clone()
    }

    /// The same from the file system. `None`: no file has this name.
    fn look_up(
        &mut self,
        root: &Root,
        (name, options): (&str, Options),
        (accepts, now_ns): (Accepts, u64),
        memory_bytes_max: u64,
    ) -> io::Result<Option<Lookup>> {
        match root.look_up(name)? {
            None => return Ok(None),
            Some(Kind::Folder) => return Ok(Some(Lookup::Folder)),
            Some(Kind::File(stamp)) => self.forms[Coding::Identity as usize].renew(Some(stamp), now_ns),
        }
        for coding in self.codings(accepts) {
            let sibling = format!("{name}{}", coding.suffix());
            let stamp = match root.look_up(&sibling)? {
                Some(Kind::File(stamp)) => Some(stamp),
                _ => None,
            };
            self.forms[coding as usize].renew(stamp, now_ns);
            if let Some(file) = self.read(root, (name, options), coding, memory_bytes_max)? {
                return Ok(Some(Lookup::File(file)));
            }
        }
        Ok(self.read(root, (name, options), Coding::Identity, memory_bytes_max)?.map(Lookup::File))
    }

    /// The file in one coding, read if it is not cached.
    fn read(
        &mut self,
        root: &Root,
        (name, options): (&str, Options),
        coding: Coding,
        memory_bytes_max: u64,
    ) -> io::Result<Option<Arc<Representation>>> {
        let Form::Present { due_ns, file, .. } = &mut self.forms[coding as usize] else { return Ok(None) };
        if let Some(file) = file {
            return Ok(Some(Arc::clone(file)));
        }
        let due_ns = *due_ns;
        let form = &mut self.forms[coding as usize];
        let Some((content, stamp)) = read(root, &format!("{name}{}", coding.suffix()), memory_bytes_max)? else {
            *form = Form::Absent { due_ns };
            return Ok(None);
        };
        let about = (tag_of(&stamp), modified_of(&stamp));
        let of = (name, self.media, options);
        let read = Representation::new(of, coding, content, stamp.bytes, (&about.0, about.1));
        let read = Arc::new(read);
        *form = Form::Present { due_ns, stamp, file: Some(Arc::clone(&read)) };
        Ok(Some(read))
    }
}

impl Form {
    /// Sets the present state; an unchanged file stays.
    fn renew(&mut self, now: Option<Stamp>, now_ns: u64) {
        let until_ns = now_ns.saturating_add(COUNTS_FOR_NS);
        match (&mut *self, now) {
            (_, None) => *self = Form::Absent { due_ns: until_ns },
            (Form::Present { due_ns, stamp, .. }, Some(now)) if *stamp == now => *due_ns = until_ns,
            (_, Some(stamp)) => *self = Form::Present { due_ns: until_ns, stamp, file: None },
        }
    }
}

/// A file's content and state, in memory if it is not too large; `None`: it does not exist any more.
fn read(root: &Root, name: &str, memory_bytes_max: u64) -> io::Result<Option<(Content, Stamp)>> {
    for _ in 0..READS_MAX {
        let Some((file, stamp)) = root.open(name)? else { return Ok(None) };
        if stamp.bytes > memory_bytes_max {
            // Hints: if they fail, the file is read all the same.
            let _ = fadvise(&file, 0, None, Advice::Sequential);
            let _ = fadvise(&file, 0, std::num::NonZeroU64::new(READ_AHEAD_BYTES), Advice::WillNeed);
            return Ok(Some((Content::File(Arc::new(file)), stamp)));
        }
        let mut bytes = Vec::with_capacity(stamp.bytes as usize + 1);
        (&file).take(stamp.bytes + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == stamp.bytes {
            return Ok(Some((Content::Memory(bytes.into()), stamp)));
        }
    }
    Err(io::Error::other(format!("{name} changes while it is read: replace it by a rename")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A folder with files of these lengths, named by their numbers.
    struct Place(PathBuf, Arc<Folder>);

    impl Place {
        fn new(name: &str, lengths: &[usize]) -> Place {
            let path = std::env::temp_dir().join(format!("sapsan-cache-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            for (number, length) in lengths.iter().enumerate() {
                std::fs::write(path.join(number.to_string()), vec![b'x'; *length]).unwrap();
            }
            let folder = Arc::new(Folder::open(&path).unwrap());
            Place(path, folder)
        }

        #[track_caller]
        fn find(&self, cache: &mut FileCache, number: usize) -> Arc<Representation> {
            match cache.find(&self.1, &number.to_string(), Options::DEFAULT, Accepts::PLAIN) {
                Ok(Lookup::File(file)) => file,
                other => panic!("{other:?}"),
            }
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A cache whose loop's clock stands still.
    fn cache(bytes_max: usize) -> FileCache {
        let settings = reactor::ReactorSettings { loops: 1, ..reactor::ReactorSettings::default() };
        FileCache::new(&reactor::Reactor::new(settings).unwrap().loops()[0], bytes_max)
    }

    /// The cache's counts equal the sum over its names and pins.
    #[track_caller]
    fn check_held(cache: &FileCache) {
        let mut held = Held::default();
        let names = cache.folders.iter().flat_map(|folder| &folder.names);
        names.for_each(|(name, known)| held.add(known.held(name)));
        assert_eq!(cache.held, held);
        let mut pinned = Held::default();
        cache.pins.iter().for_each(|pin| pinned.add(Held::of_pin(pin)));
        assert_eq!(cache.pinned, pinned);
    }

    #[test]
    fn beyond_the_bound_the_file_goes_that_was_not_asked_for_for_longest() {
        let place = Place::new("bound", &[1000; 10]);
        let mut cache = cache(6000);
        let first = place.find(&mut cache, 0);
        for number in 1..10 {
            place.find(&mut cache, number);
            assert!(Arc::ptr_eq(&first, &place.find(&mut cache, 0)), "it was used last");
            check_held(&cache);
            assert!(cache.held.bytes <= 6000 || cache.held.names == 1, "{:?}", cache.held);
        }
        assert!(cache.held.names < 6, "{:?}", cache.held);
    }

    #[test]
    fn open_files_have_a_bound() {
        let place = Place::new("open", &[FILE_BYTES_IN_MEMORY_MAX + 1; OPEN_FILES_MAX + 20]);
        let mut cache = cache(1 << 20);
        for number in 0..OPEN_FILES_MAX + 20 {
            assert!(place.find(&mut cache, number).is_open_file());
            check_held(&cache);
            assert!(cache.held.open_files <= OPEN_FILES_MAX, "{:?}", cache.held);
        }
        assert_eq!(cache.held.open_files, OPEN_FILES_MAX);
    }

    #[test]
    fn files_that_are_being_sent_count_until_they_were_sent() {
        let place = Place::new("pins", &[20_000; 20]);
        let mut cache = cache(100_000);
        let sent: Vec<_> = (0..20).map(|number| place.find(&mut cache, number).piece()).collect();
        check_held(&cache);
        let all = cache.held.bytes + cache.pinned.bytes;
        assert!(all <= 100_000 + FILE_BYTES_IN_MEMORY_MAX, "{all} bytes");
        assert!(sent.iter().any(|piece| matches!(piece, reactor::Piece::File(_))), "no further file fits into memory");
        drop(sent);
        let again = place.find(&mut cache, 0);
        check_held(&cache);
        assert!(again.memory().is_some() && cache.pinned.bytes == 0, "{:?}", cache.pinned);
    }

    #[test]
    fn a_folder_that_is_served_no_more_is_forgotten() {
        let mut cache = cache(1 << 20);
        let first = Place::new("first", &[10]);
        first.find(&mut cache, 0);
        drop(first);
        let second = Place::new("second", &[10]);
        second.find(&mut cache, 0);
        assert_eq!((cache.folders.len(), cache.held.names), (1, 1));
        check_held(&cache);
    }
}
