//! The files of an import: lines of tab-separated fields.
//!
//! | file | fields of a line |
//! |---|---|
//! | `users.tsv` | id, login, password (for load generators: ignored here), salt, hash |
//! | `log.tsv` | `YYYY-MM-DD HH:MM:SS`, user id or nothing, login, address, 1 or 0 |
//!
//! A file is read line by line, so its length does not matter.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::clock;
use crate::user::{HASH_DIGITS, LOGIN_BYTES_MAX, User, recorded_login};

/// Longest line in bytes, without its end.
pub const LINE_BYTES_MAX: usize = 4096;

/// A line that cannot be imported, or a file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 for the whole file.
    pub line: u64,
    /// The problem, and what is allowed.
    pub why: String,
}

impl fmt::Display for TableError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.file, self.why),
            line => write!(out, "{}, line {line}: {}", self.file, self.why),
        }
    }
}

impl std::error::Error for TableError {}

/// The lines of a file.
pub struct Lines {
    file: String,
    reader: Box<dyn BufRead + Send>,
    line: u64,
    text: Vec<u8>,
}

/// A line of `users.tsv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLine {
    /// Login.
    pub login: String,
    /// The user.
    pub user: User,
}

/// A line of `log.tsv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Unix time in seconds.
    pub at: i64,
    /// The user, if the login exists.
    pub user: Option<u32>,
    /// The login as it was sent.
    pub login: String,
    /// The client's address.
    pub address: String,
    /// Whether the user was logged in.
    pub succeeded: bool,
}

impl Lines {
    /// Opens a file.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Lines, TableError> {
        let file = path.display().to_string();
        let opened = std::fs::File::open(path);
        let opened = opened.map_err(|error| TableError { file: file.clone(), line: 0, why: error.to_string() })?;
        Ok(Lines::new(file, opened))
    }

    /// The lines of a reader; `file` is its name for messages.
    pub fn new(file: impl Into<String>, read: impl Read + Send + 'static) -> Lines {
        Lines { file: file.into(), reader: Box::new(BufReader::new(read)), line: 0, text: Vec::new() }
    }

    /// An error in the line read last.
    pub fn mistake(&self, why: impl Into<String>) -> TableError {
        TableError { file: self.file.clone(), line: self.line, why: why.into() }
    }

    /// Reads the next line and parses its fields with `parse`. `None` after the last one.
    ///
    /// # Errors
    /// The file cannot be read, a line is too long or not UTF-8, or `parse` refuses its fields.
    pub fn next_with<T>(&mut self, parse: impl FnOnce(&[&str]) -> Result<T, String>) -> Result<Option<T>, TableError> {
        self.line += 1;
        if !self.read_line()? {
            return Ok(None);
        }
        let text = std::str::from_utf8(&self.text).map_err(|_| self.mistake("it is no UTF-8"))?;
        let fields: Vec<&str> = text.split('\t').collect();
        parse(&fields).map(Some).map_err(|why| self.mistake(why))
    }

    fn read_line(&mut self) -> Result<bool, TableError> {
        self.text.clear();
        let mut bounded = (&mut self.reader).take(LINE_BYTES_MAX as u64 + 1);
        let read = bounded.read_until(b'\n', &mut self.text).map_err(|error| self.mistake(error.to_string()))?;
        if self.text.last() == Some(&b'\n') {
            self.text.pop();
        }
        if self.text.len() > LINE_BYTES_MAX {
            return Err(self.mistake(format!("it is longer than {LINE_BYTES_MAX} bytes")));
        }
        Ok(read > 0)
    }
}

impl UserLine {
    /// Parses the fields of a line.
    ///
    /// # Errors
    /// The text names the problem.
    pub fn parse(fields: &[&str]) -> Result<UserLine, String> {
        let [id, login, _, salt, hash] = fields else { return Err(wrong_count(fields, 5)) };
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hash.len() != HASH_DIGITS || !hash.bytes().all(is_digit) {
            return Err(format!("the hash {hash:?} is not {HASH_DIGITS} lower-case hexadecimal digits"));
        }
        if salt.len() > LOGIN_BYTES_MAX {
            return Err(format!("the salt is longer than {LOGIN_BYTES_MAX} bytes"));
        }
        let user = User { id: user_id(id)?, salt: (*salt).to_owned(), hash: (*hash).to_owned() };
        Ok(UserLine { login: login_of(login)?, user })
    }
}

impl LogLine {
    /// Parses the fields of a line.
    ///
    /// # Errors
    /// The text names the problem.
    pub fn parse(fields: &[&str]) -> Result<LogLine, String> {
        let [at, user, login, address, succeeded] = fields else { return Err(wrong_count(fields, 5)) };
        let at = clock::seconds(at).ok_or_else(|| format!("{at:?} is no time such as 2014-09-27 10:00:00"))?;
        let user = if user.is_empty() { None } else { Some(user_id(user)?) };
        let address: std::net::IpAddr =
            address.parse().map_err(|_| format!("{address:?} is no address such as 192.0.2.1 or 2001:db8::1"))?;
        let succeeded = match *succeeded {
            "1" => true,
            "0" => false,
            other => return Err(format!("{other:?} is neither 1 (succeeded) nor 0")),
        };
        if succeeded && user.is_none() {
            return Err("a success without a user id".to_owned());
        }
        let login = match user {
            Some(_) => login_of(login)?,
            None => recorded_login(login),
        };
        Ok(LogLine { at, user, login, address: address.to_canonical().to_string(), succeeded })
    }
}

fn wrong_count(fields: &[&str], expected: usize) -> String {
    format!("{} fields instead of {expected}, separated by tabs", fields.len())
}

fn user_id(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("{text:?} is no user id: a whole number up to {}", u32::MAX))
}

fn login_of(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("the login is empty".to_owned()),
        _ if text.contains(char::is_control) => Err(format!("the login {text:?} has control characters")),
        1..=LOGIN_BYTES_MAX => Ok(text.to_owned()),
        bytes => Err(format!("the login has {bytes} bytes; {LOGIN_BYTES_MAX} are the most")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<T>(text: &str, parse: fn(&[&str]) -> Result<T, String>) -> Result<Vec<T>, String> {
        let mut lines = Lines::new("f.tsv", std::io::Cursor::new(text.to_owned().into_bytes()));
        let mut found = Vec::new();
        while let Some(one) = lines.next_with(parse).map_err(|error| error.to_string())? {
            found.push(one);
        }
        Ok(found)
    }

    #[track_caller]
    fn check<T: std::fmt::Debug>(text: &str, parse: fn(&[&str]) -> Result<T, String>, told: &str) {
        let error = all(text, parse).unwrap_err();
        assert!(error.contains(told), "{error}");
    }

    #[test]
    fn lines_of_both_files_are_read() {
        let hash = "0".repeat(64);
        let users = all(&format!("1\tann\tpw\ts\t{hash}\n2\tbob\tpw\ts\t{hash}"), UserLine::parse).unwrap();
        assert_eq!(users.len(), 2);
        assert_eq!((users[1].login.as_str(), users[1].user.id), ("bob", 2));
        let log = all(
            "2014-09-27 10:00:00\t1\tann\t::ffff:10.0.0.1\t1\n2014-09-27 10:00:01\t\tx\t10.0.0.2\t0\n",
            LogLine::parse,
        );
        let log = log.unwrap();
        assert_eq!((log[0].user, log[0].succeeded, log[0].address.as_str()), (Some(1), true, "10.0.0.1"));
        assert_eq!((log[1].user, log[1].succeeded, log[1].at - log[0].at), (None, false, 1));
    }

    #[test]
    fn a_mistake_has_its_line() {
        let (hash, good) = ("0".repeat(64), "2014-09-27 10:00:00\t1\tann\t10.0.0.1\t1\n");
        check(
            &format!("1\tann\tpw\ts\t{hash}\n2\tbob\tpw\ts\n"),
            UserLine::parse,
            "f.tsv, line 2: 4 fields instead of 5",
        );
        check(&format!("x\tann\tpw\ts\t{hash}"), UserLine::parse, "line 1: \"x\" is no user id");
        check(&format!("1\t\tpw\ts\t{hash}"), UserLine::parse, "the login is empty");
        check("1\tann\tpw\ts\tABC", UserLine::parse, "is not 64 lower-case");
        check(&format!("{good}{good}\n"), LogLine::parse, "line 3: 1 fields");
        check(&good.replace("10.0.0.1", "10.0.0"), LogLine::parse, "is no address");
        check(&good.replace("\t1\n", "\tyes\n"), LogLine::parse, "neither 1");
        check(&good.replace("\t1\tann", "\t\tann"), LogLine::parse, "a success without a user id");
        check(&good.replace("09-27", "09-31"), LogLine::parse, "is no time");
        check(
            &format!("{good}{}", "x".repeat(LINE_BYTES_MAX + 1)),
            LogLine::parse,
            "line 2: it is longer than 4096 bytes",
        );
    }
}
