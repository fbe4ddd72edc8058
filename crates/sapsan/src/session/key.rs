//! Keys: each is at least 32 secret random bytes. The first key of a list signs or encrypts; all of them verify or decrypt.
//!
//! To rotate: put a new key before the old one, and remove the old one when its sessions have expired. A session that
//! arrives under an old key is sent again under the first one.
//!
//! A key is written as base64, in either alphabet, with or without padding: `openssl rand -base64 32`.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Fewest bytes of a key: the length of the signature, so that guessing the key is no easier than guessing a signature.
const KEY_BYTES_MIN: usize = 32;
/// Most bytes of a key; more bytes add no security.
const KEY_BYTES_MAX: usize = 1024;
/// Most keys of a list: an invalid cookie costs a try with each of them.
const KEYS_MAX: usize = 8;
/// Most bytes of a file of keys.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a generated key.
const MADE_BYTES: usize = 32;

/// Text in the other alphabet is converted to this one first.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A list of keys, never empty.
#[derive(Clone)]
pub struct Keys(Vec<Box<[u8]>>);

/// Why keys cannot be used: their source, and the fault. The text never contains a key.
#[derive(Debug)]
pub struct KeyFault {
    place: String,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Unset,
    None,
    TooMany(usize),
    TooShort { number: usize, bytes: usize },
    TooLong { number: usize, bytes: usize },
    NotBase64 { number: usize },
    Io(io::Error),
    NoRandomBytes,
}

impl Keys {
    /// One key from its bytes: at least 32 random bytes. A password is not a key: no key-stretching is done.
    pub fn from_bytes(key: &[u8]) -> Result<Keys, KeyFault> {
        Keys::checked("session key", vec![key.into()])
    }

    /// Keys from an environment variable, separated by commas or blanks.
    pub fn from_env(variable: &str) -> Result<Keys, KeyFault> {
        let place = format!("environment variable {variable}");
        match std::env::var(variable) {
            Ok(text) => Keys::from_text(&place, &text),
            Err(std::env::VarError::NotPresent) => Err(KeyFault { place, problem: Problem::Unset }),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(KeyFault { place, problem: Problem::NotBase64 { number: 1 } })
            }
        }
    }

    /// Keys from a file, one a line; lines that begin with `#` are comments. If the file is missing, it is created with one
    /// new key, readable only by its owner (mode 0600). Several processes may start with the same file at once.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Keys, KeyFault> {
        let path = path.as_ref();
        let place = format!("key file {}", path.display());
        let text = match read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_file(path).and_then(|()| read(path)),
            read => read,
        };
        let text = text.map_err(|error| KeyFault { place: place.clone(), problem: Problem::Io(error) })?;
        let keys = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        Keys::from_text(&place, &keys.collect::<Vec<_>>().join(" "))
    }

    /// A new key that is not stored: sessions end with the process. For tests and first steps.
    pub fn generate() -> Result<Keys, KeyFault> {
        let made = made_key().map_err(|problem| KeyFault { place: "session key".to_owned(), problem })?;
        Ok(Keys(vec![made.into()]))
    }

    /// The same list followed by older keys, which only verify and decrypt.
    pub fn and_older(mut self, older: Keys) -> Result<Keys, KeyFault> {
        self.0.extend(older.0);
        Keys::checked("session keys", self.0)
    }

    fn from_text(place: &str, text: &str) -> Result<Keys, KeyFault> {
        let words = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
        let decode = |(index, word): (usize, &str)| {
            let word = word.replace('-', "+").replace('_', "/");
            BASE64
                .decode(word)
                .map(Box::from)
                .map_err(|_| KeyFault { place: place.to_owned(), problem: Problem::NotBase64 { number: index + 1 } })
        };
        Keys::checked(place, words.enumerate().map(decode).collect::<Result<_, _>>()?)
    }

    fn checked(place: &str, keys: Vec<Box<[u8]>>) -> Result<Keys, KeyFault> {
        let fault = |problem| Err(KeyFault { place: place.to_owned(), problem });
        if keys.is_empty() {
            return fault(Problem::None);
        }
        if keys.len() > KEYS_MAX {
            return fault(Problem::TooMany(keys.len()));
        }
        for (index, key) in keys.iter().enumerate() {
            let (number, bytes) = (index + 1, key.len());
            if bytes < KEY_BYTES_MIN {
                return fault(Problem::TooShort { number, bytes });
            }
            if bytes > KEY_BYTES_MAX {
                return fault(Problem::TooLong { number, bytes });
            }
        }
        Ok(Keys(keys))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|key| &**key)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} secret)", self.0.len())
    }
}

fn made_key() -> Result<[u8; MADE_BYTES], Problem> {
    let mut key = [0; MADE_BYTES];
    SystemRandom::new().fill(&mut key).map_err(|_| Problem::NoRandomBytes)?;
    Ok(key)
}

fn read(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "the file of session keys is open to others than its owner: chmod 600 it");
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Writes the file under a temporary name and links it to its own. Of several processes one wins, and none reads half a
/// key.
fn make_file(path: &Path) -> io::Result<()> {
    let key = made_key().map_err(|_| io::Error::other("the system gives no random bytes"))?;
    let text = format!("# Session keys, one a line; the first signs, all verify.\n{}\n", BASE64.encode(key));
    let new = new_name(path)?;
    let written = write(&new, &text).and_then(|()| match std::fs::hard_link(&new, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    let removed = std::fs::remove_file(&new);
    written.and(removed)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// A temporary name in the same folder, which no other process uses.
fn new_name(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 8];
    SystemRandom::new().fill(&mut random).map_err(|_| io::Error::other("the system gives no random bytes"))?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", u64::from_le_bytes(random)));
    Ok(name.into())
}

impl fmt::Display for KeyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAKE: &str = "make one with `openssl rand -base64 32`";
        write!(f, "{}: ", self.place)?;
        match &self.problem {
            Problem::Unset => write!(f, "not set; it holds the keys of sessions: {MAKE}"),
            Problem::None => write!(f, "no key; {MAKE}"),
            Problem::TooMany(keys) => write!(f, "{keys} keys; at most {KEYS_MAX} are allowed: remove the oldest"),
            Problem::TooShort { number, bytes } => {
                write!(f, "key {number} has {bytes} bytes, fewer than {KEY_BYTES_MIN}; {MAKE}")
            }
            Problem::TooLong { number, bytes } => {
                write!(f, "key {number} has {bytes} bytes, more than {KEY_BYTES_MAX}; {MAKE}")
            }
            Problem::NotBase64 { number } => write!(f, "key {number} is not base64; {MAKE}"),
            Problem::Io(error) => write!(f, "{error}"),
            Problem::NoRandomBytes => f.write_str("the system gives no random bytes"),
        }
    }
}

impl std::error::Error for KeyFault {}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_text(byte: u8) -> String {
        BASE64.encode([byte; 32])
    }

    #[track_caller]
    fn check_fault(keys: Result<Keys, KeyFault>, expected: &str) {
        assert_eq!(keys.unwrap_err().to_string(), expected);
    }

    #[test]
    fn keys_are_base64_of_either_alphabet_separated_by_commas_or_blanks() {
        let text = format!("{}, {}\n{}", key_text(0xff), key_text(0xff).replace('/', "_"), "b".repeat(64));
        let keys = Keys::from_text("text", &text).unwrap();
        assert_eq!(keys.iter().map(<[u8]>::len).collect::<Vec<_>>(), [32, 32, 48]);
        assert!(keys.iter().take(2).all(|key| key == [0xff; 32]));
        assert_eq!(format!("{keys:?}"), "Keys(3 secret)");
    }

    #[test]
    fn a_file_that_is_too_long_is_refused_and_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, format!("{}\n{}", key_text(1), "#".repeat(FILE_BYTES_MAX as usize))).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("more than 65536 bytes"));
    }

    #[test]
    fn a_fault_tells_which_key_and_never_what_it_is() {
        check_fault(
            Keys::from_text("text", &format!("{} c2hvcnQ=", key_text(1))),
            "text: key 2 has 5 bytes, fewer than 32; make one with `openssl rand -base64 32`",
        );
        check_fault(
            Keys::from_text("text", "not*base64"),
            "text: key 1 is not base64; make one with `openssl rand -base64 32`",
        );
        check_fault(Keys::from_text("text", " , "), "text: no key; make one with `openssl rand -base64 32`");
        check_fault(
            Keys::from_text("text", &vec![key_text(1); 9].join(",")),
            "text: 9 keys; at most 8 are allowed: remove the oldest",
        );
        check_fault(
            Keys::from_bytes(&[1; 1025]),
            "session key: key 1 has 1025 bytes, more than 1024; make one with `openssl rand -base64 32`",
        );
        check_fault(
            Keys::from_env("SAPSAN_NO_SUCH_VARIABLE"),
            "environment variable SAPSAN_NO_SUCH_VARIABLE: not set; it holds the keys of sessions: make one with `openssl rand -base64 32`",
        );
    }

    #[test]
    fn a_missing_file_is_made_once_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.keys");
        let made = Keys::from_file(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(made.0, Keys::from_file(&path).unwrap().0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        assert_ne!(made.0, Keys::generate().unwrap().0);
    }

    #[test]
    fn processes_that_start_at_once_have_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("session.keys");
        let starts: Vec<_> = (0..8)
            .map(|_| {
                std::thread::spawn({
                    let path = path.clone();
                    move || Keys::from_file(path)
                })
            })
            .collect();
        let keys: Vec<_> = starts.into_iter().map(|start| start.join().unwrap().unwrap().0).collect();
        assert!(keys.iter().all(|key| *key == keys[0]));
    }

    #[test]
    fn a_folder_in_the_place_of_the_file_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let fault = Keys::from_file(folder.path()).unwrap_err().to_string();
        assert!(fault.starts_with(&format!("key file {}: ", folder.path().display())), "{fault}");
    }
}
