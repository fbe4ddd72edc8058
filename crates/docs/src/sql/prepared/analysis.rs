//! EXPLAIN: its options, and for ANALYZE the execution that counts.
//!
//! The query runs on one thread, its rows are counted and dropped, and each level of its plan counts the entries that it scans.
//! The plan is the query's own, but always runs as interpreted nested loops: a compiled plan scans the same entries.

use std::time::{Duration, Instant};

use sqlparser::tokenizer::Location;

use crate::engine::ReadView;
use crate::sql::execution::{Scratch, inner};
use crate::sql::limits::{Budget, ExecutionCounts, QueryError, SqlError, SqlErrorKind};
use crate::sql::planning::Plan;
use crate::sql::rows::RowSink;
use crate::sql::values::{FieldValue, Value};

/// The prefix of a query whose plan is requested: `EXPLAIN`, `EXPLAIN QUERY PLAN`, `EXPLAIN ANALYZE`, or `EXPLAIN (ANALYZE,
/// FORMAT JSON)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explain {
    /// Run the query and report its counts.
    pub analyze: bool,
    /// Return one JSON object, not lines of text.
    pub json: bool,
}

/// The counts of a plan's level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelCounts {
    /// Entries that it scanned.
    pub(crate) read: u64,
    /// Rows that passed its predicates.
    pub(crate) rows: u64,
}

/// The counts of an execution.
#[derive(Clone, Debug, Default)]
pub struct Analysis {
    /// Rows of the result, and all entries scanned.
    pub outcome: ExecutionCounts,
    /// Its duration.
    pub elapsed: Duration,
    pub(crate) levels: Vec<LevelCounts>,
    /// Rows kept of each subquery; `None` if they were never requested.
    pub(crate) kept: Vec<Option<u64>>,
    /// For each correlated query: how often its rows were requested, and how often it ran.
    pub(crate) asked: Vec<Option<(u64, u64)>>,
}

impl RowSink for Analysis {
    fn field(&mut self, _column: usize, _field: FieldValue<'_>) {}
    fn end_row(&mut self) {}
    fn bytes(&self) -> usize {
        0
    }
    fn counts_levels(&self) -> bool {
        true
    }
    fn note_read(&mut self, level: usize) {
        self.levels[level].read += 1;
    }
    fn note_row(&mut self, level: usize) {
        self.levels[level].rows += 1;
    }
    fn note_kept(&mut self, inner: usize, rows: usize) {
        self.kept[inner] = Some(rows as u64);
    }
    fn note_asked(&mut self, inner: usize, asked: u64, runs: u64) {
        self.asked[inner] = Some((asked, runs));
    }
}

/// Runs a plan and returns its counts.
pub(crate) fn analyze(
    plan: &Plan,
    view: &dyn ReadView,
    parameters: &[Value<'_>],
    budget: &Budget<'_>,
) -> Result<Analysis, QueryError> {
    let plan = Plan { compiled: None, ..plan.clone() };
    let (levels, kept) = (vec![LevelCounts::default(); plan.levels.len()], vec![None; plan.inner.len()]);
    let mut analysis = Analysis { levels, kept, asked: vec![None; plan.inner.len()], ..Analysis::default() };
    let (began, scratch) = (Instant::now(), &mut Scratch::new());
    let outcome =
        inner::execute(&plan, plan.number, view, parameters, scratch, budget, &mut analysis as &mut dyn RowSink)?;
    Ok(Analysis { outcome, elapsed: began.elapsed(), ..analysis })
}

impl Explain {
    /// Parses the prefix; returns it and where the query begins. `None`: there is no EXPLAIN, the query is to be run.
    pub fn of(sql: &str) -> Result<Option<(Explain, usize)>, SqlError> {
        let mut words = Words { sql, at: 0 };
        if !words.take("EXPLAIN") {
            return Ok(None);
        }
        let mut explain = Explain::default();
        if words.take("QUERY") && !words.take("PLAN") {
            return Err(words.wrong("EXPLAIN QUERY must be followed by PLAN"));
        }
        if words.take("ANALYZE") {
            explain.analyze = true;
        }
        if words.opens_options() {
            explain.options(&mut words)?;
        }
        Ok(Some((explain, words.at)))
    }

    fn options(&mut self, words: &mut Words<'_>) -> Result<(), SqlError> {
        words.sign('(');
        loop {
            if words.take("ANALYZE") {
                self.analyze = true;
            } else if words.take("FORMAT") {
                self.json = words.take("JSON");
                if !self.json && !words.take("TEXT") {
                    return Err(words.wrong("a FORMAT of EXPLAIN is TEXT or JSON"));
                }
            } else {
                return Err(words.wrong("an option of EXPLAIN is ANALYZE, FORMAT TEXT or FORMAT JSON"));
            }
            if words.sign(')') {
                return Ok(());
            }
            if !words.sign(',') {
                return Err(words.wrong("an option of EXPLAIN must be followed by a comma or a parenthesis"));
            }
        }
    }
}

/// The words at the beginning of a text.
struct Words<'s> {
    sql: &'s str,
    at: usize,
}

impl Words<'_> {
    fn rest(&self) -> &str {
        self.sql.get(self.at..).unwrap_or_default()
    }

    fn skip_blanks(&mut self) {
        self.at = self.sql.len() - self.rest().trim_start().len();
    }

    /// Consumes a word, in any case, if it is the next.
    fn take(&mut self, word: &str) -> bool {
        self.skip_blanks();
        let rest = self.rest();
        let found = rest.split_at_checked(word.len()).is_some_and(|(head, behind)| {
            let ends = !behind.starts_with(|c: char| c.is_alphanumeric() || c == '_');
            head.eq_ignore_ascii_case(word) && ends && !behind.is_empty()
        });
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn sign(&mut self, sign: char) -> bool {
        self.skip_blanks();
        let found = self.rest().starts_with(sign);
        self.at += if found { sign.len_utf8() } else { 0 };
        found
    }

    /// Whether a parenthesis follows that does not begin the query itself.
    fn opens_options(&mut self) -> bool {
        let start = self.at;
        let opens = self.sign('(') && !["SELECT", "WITH", "VALUES", "("].iter().any(|word| self.begins(word));
        self.at = start;
        opens
    }

    fn begins(&mut self, word: &str) -> bool {
        self.skip_blanks();
        self.rest().get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
    }

    fn wrong(&mut self, message: &str) -> SqlError {
        self.skip_blanks();
        let before = &self.sql[..self.at];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.matches('\n').count() as u64 + 1;
        let column = before[line_start..].chars().count() as u64 + 1;
        SqlError::at(SqlErrorKind::Syntax, message, Some(Location { line, column }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sql: &str, analyze: bool, json: bool, rest: &str) {
        let found = Explain::of(sql).expect("it is understood").map(|(explain, at)| (explain, sql[at..].trim_start()));
        assert_eq!(found, Some((Explain { analyze, json }, rest)), "{sql}");
    }

    #[test]
    fn explain_is_a_word_before_a_query_with_options() {
        check(" explain\nquery PLAN SELECT 1", false, false, "SELECT 1");
        check("EXPLAIN SELECT query FROM t", false, false, "SELECT query FROM t");
        check("EXPLAIN Analyze SELECT 1", true, false, "SELECT 1");
        check("EXPLAIN (format JSON) SELECT 1", false, true, "SELECT 1");
        check("EXPLAIN( ANALYZE , FORMAT JSON )SELECT 1", true, true, "SELECT 1");
        check("EXPLAIN ANALYZE (FORMAT text) SELECT 1", true, false, "SELECT 1");
        check("EXPLAIN (SELECT 1)", false, false, "(SELECT 1)");
        for sql in ["EXPLAINED SELECT 1", "SELECT 1", "EXPLAIN", "", "é"] {
            assert_eq!(Explain::of(sql), Ok(None), "{sql}");
        }
    }

    #[test]
    fn options_that_are_not_there_are_refused_with_their_place() {
        let refused = |sql: &str| Explain::of(sql).expect_err("it is refused").to_string();
        assert!(refused("EXPLAIN (FORMAT XML) SELECT 1").starts_with("line 1, column 17: a FORMAT of EXPLAIN is"));
        assert!(refused("EXPLAIN\n(BUFFERS) SELECT 1").starts_with("line 2, column 2: an option of EXPLAIN is"));
        assert!(refused("EXPLAIN (ANALYZE SELECT 1").starts_with("line 1, column 18: an option of EXPLAIN must be"));
        assert!(refused("EXPLAIN QUERY SELECT 1").starts_with("line 1, column 15: EXPLAIN QUERY must be"));
    }
}
