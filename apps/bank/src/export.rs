//! Exports the counters as SQL for tools that read a relational database: two tables, filled by INSERT statements.
//!
//! The SQL is valid in SQLite, PostgreSQL and MySQL. Texts are standard SQL (`'` is doubled); if MySQL treats backslashes as
//! escapes, set `NO_BACKSLASH_ESCAPES` first.

use std::fmt::Write as _;
use std::io::{self, Write};

use crate::clock;
use crate::ledger::{FailureCounter, Ledger, LedgerError};

/// Largest number of rows in one INSERT.
const ROWS_MAX: usize = 500;

const TABLES: &str = "\
CREATE TABLE IF NOT EXISTS login_failures (
  login VARCHAR(255) NOT NULL PRIMARY KEY, failed INTEGER NOT NULL, last_login_at VARCHAR(19), last_login_ip VARCHAR(45));
CREATE TABLE IF NOT EXISTS ip_failures (ip VARCHAR(45) NOT NULL PRIMARY KEY, failed INTEGER NOT NULL);
";

/// Why an export failed.
#[derive(Debug)]
pub enum ExportError {
    /// The ledger cannot be read.
    Ledger(LedgerError),
    /// The text cannot be written.
    Write(io::Error),
}

impl std::fmt::Display for ExportError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExportError::Ledger(error) => error.fmt(out),
            ExportError::Write(error) => write!(out, "the export cannot be written: {error}"),
        }
    }
}

impl std::error::Error for ExportError {}

/// Writes the counters of a ledger; returns their number.
///
/// # Errors
/// See [`ExportError`]; the text is then incomplete.
pub fn write(ledger: &dyn Ledger, out: &mut dyn Write) -> Result<u64, ExportError> {
    let mut inserts = Inserts { out, table: "", rows: 0, text: String::new(), count: 0, failure: None };
    inserts.out.write_all(TABLES.as_bytes()).map_err(ExportError::Write)?;
    let visited = ledger.counters(&mut |counter| {
        inserts.add(&counter).map_err(|error| {
            let told = LedgerError::Failed(error.to_string());
            inserts.failure = Some(error);
            told
        })
    });
    if let Some(error) = inserts.failure.take() {
        return Err(ExportError::Write(error));
    }
    visited.map_err(ExportError::Ledger)?;
    inserts.send().map_err(ExportError::Write)?;
    Ok(inserts.count)
}

/// Rows of one table, collected into statements.
struct Inserts<'o> {
    out: &'o mut dyn Write,
    table: &'static str,
    rows: usize,
    text: String,
    count: u64,
    failure: Option<io::Error>,
}

impl Inserts<'_> {
    fn add(&mut self, counter: &FailureCounter) -> io::Result<()> {
        match counter {
            FailureCounter::User { login, failed, last } => {
                self.begin("login_failures (login, failed, last_login_at, last_login_ip)")?;
                let (at, address) = match last {
                    Some(last) => (quoted(&clock::local(last.at)), quoted(&last.address)),
                    None => ("NULL".to_owned(), "NULL".to_owned()),
                };
                let _ = write!(self.text, "({}, {failed}, {at}, {address})", quoted(login));
            }
            FailureCounter::Address { address, failed } => {
                self.begin("ip_failures (ip, failed)")?;
                let _ = write!(self.text, "({}, {failed})", quoted(address));
            }
        }
        self.rows += 1;
        self.count += 1;
        Ok(())
    }

    /// Begins a row of a table.
    fn begin(&mut self, table: &'static str) -> io::Result<()> {
        if self.table != table || self.rows == ROWS_MAX {
            self.send()?;
            self.table = table;
        }
        match self.rows {
            0 => write!(self.text, "INSERT INTO {table} VALUES\n  "),
            _ => write!(self.text, ",\n  "),
        }
        .map_err(io::Error::other)
    }

    /// Ends the statement.
    fn send(&mut self) -> io::Result<()> {
        if self.rows > 0 {
            self.text.push_str(";\n");
            self.out.write_all(self.text.as_bytes())?;
            self.text.clear();
            self.rows = 0;
        }
        Ok(())
    }
}

/// A text literal of SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::{Attempt, Decision, LockReport, Login, Rules};
    use crate::ledger::CounterVisitor;

    struct Fixed(Vec<FailureCounter>);

    impl Ledger for Fixed {
        fn attempt_now(&self, _: Attempt, _: Rules) -> Result<Decision, LedgerError> {
            Err(LedgerError::Busy)
        }
        fn report(&self, _: Rules) -> Result<LockReport, LedgerError> {
            Ok(LockReport::default())
        }
        fn counters(&self, visit: &mut CounterVisitor<'_>) -> Result<(), LedgerError> {
            self.0.iter().cloned().try_for_each(visit)
        }
    }

    #[test]
    fn counters_become_statements_and_quotes_are_doubled() {
        let last = Some(Login { at: 0, address: "::1".to_owned() });
        let user = |login: &str, last| FailureCounter::User { login: login.to_owned(), failed: 3, last };
        let address = |number: u64| FailureCounter::Address { address: format!("10.0.0.{number}"), failed: number };
        let mut counters = vec![user("o'neil", None), user("ann", last)];
        counters.extend((0..ROWS_MAX as u64 + 1).map(address));
        let mut out = Vec::new();
        assert_eq!(write(&Fixed(counters), &mut out).unwrap(), 503);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("VALUES\n  ('o''neil', 3, NULL, NULL),\n  ('ann', 3, '"), "{text}");
        assert_eq!(text.matches("INSERT INTO ip_failures").count(), 2);
        assert!(text.ends_with("VALUES\n  ('10.0.0.500', 500);\n"));
    }
}
