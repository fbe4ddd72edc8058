//! Errors of a query. [`SqlError`]: the text is wrong, found when it is prepared, with a position. [`QueryError`]: an execution
//! failed.

use std::fmt;

use sqlparser::tokenizer::Location;

use crate::engine::{self, Classified, ErrorKind};

/// Longest text that an expression may compute, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Longest pattern of LIKE and GLOB in bytes, as in SQLite.
pub(crate) const PATTERN_BYTES_MAX: usize = 50_000;
/// Bytes of a pattern that may be compared in vain for each byte of a text. Words of natural languages need at most three.
pub(crate) const COMPARED_PER_BYTE_MAX: usize = 16;

/// A query that cannot be prepared: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// The kind of mistake.
    pub kind: SqlErrorKind,
    /// The message, without the position.
    pub message: String,
    /// Line, from 1; 0 where no position is known.
    pub line: u64,
    /// Column in characters, from 1; 0 where no position is known.
    pub column: u64,
}

/// Kinds of mistakes in a query's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SqlErrorKind {
    /// The text is not SQL.
    Syntax,
    /// SQL that this version does not run.
    NotYet,
    /// A collection, field or function that does not exist.
    UnknownName,
    /// SQL that is contradictory: two columns of one name, an aggregate in WHERE.
    Invalid,
    /// The text exceeds a limit.
    Limit,
}

impl SqlError {
    /// The error at a place of the text, if it is known.
    pub(in crate::sql) fn at(kind: SqlErrorKind, message: &str, at: Option<Location>) -> SqlError {
        let (line, column) = at.map_or((0, 0), |at| (at.line, at.column));
        SqlError { kind, message: message.to_owned(), line, column }
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for SqlError {}

/// Why an execution ended without its whole result.
#[derive(Debug)]
#[non_exhaustive]
pub enum QueryError {
    /// The engine failed.
    Store(engine::StoreError),
    /// A requested view cannot be read: it is being built, or building it failed.
    Unbuilt(String),
    /// The execution would exceed a limit: its name and its value.
    Limit {
        /** The bound's name. */
        what: &'static str,
        /** Its value. */
        limit: u64,
    },
    /// The caller's deadline passed.
    Deadline,
    /// A value cannot be computed or shown: integer overflow, an infinite number.
    Value(&'static str),
    /// Writing or reading the spill file failed, or the disk is full ([`crate::sql::SpillSpace`]).
    Spill(std::io::Error),
    /// The sink wants no more rows ([`crate::sql::RowSink::is_wanted`]).
    Unwanted,
    /// Stored bytes violate their layout.
    Damaged(&'static str),
    /// The execution does not find what its plan promises: a mistake of this program.
    Plan,
    /// A computed JSON path is malformed.
    JsonPath {
        /** The first character that does not fit, from 1. */
        at: u32,
    },
    /// The number of given values differs from the number of the query's parameters.
    Parameters {
        /** The number of the query's parameters. */
        expected: usize,
        /** The number of given values. */
        given: usize,
    },
}

/// Limit of rows that are scanned, by its name in [`QueryError::Limit`].
pub const ROWS_READ: &str = "rows read";
/// Limit of rows that are kept for a join or a subquery, by its name in [`QueryError::Limit`].
pub const ROWS_KEPT: &str = "bytes of rows kept for a join or a subquery";
/// Limit of groups, by its name in [`QueryError::Limit`].
pub const GROUPS: &str = "bytes of groups";
/// Limit of the bytes to sort, by its name in [`QueryError::Limit`].
pub const SORTED: &str = "bytes to sort";
/// Limit of a result, by its name in [`QueryError::Limit`].
pub const RESULT: &str = "bytes of result";
/// Limit of the values that are looked up in an index, by its name in [`QueryError::Limit`].
pub const LOOKED_UP: &str = "bytes of values that are looked up";
/// Limit of the rows that `json_each` returns for one text, by its name in [`QueryError::Limit`].
pub const OF_JSON_EACH: &str = "bytes of rows of json_each";
/// Limit of the values that expressions compute for a row, by its name in [`QueryError::Limit`].
pub const COMPUTED: &str = "bytes that expressions compute for a row";
/// Limit of a row that is kept for a sort, a group or DISTINCT, by its name in [`QueryError::Limit`].
pub const ROW: &str = "bytes of one row that is kept";
/// Limit of the bytes that all queries together have spilled to disk, by its name in [`QueryError::Limit`].
pub const SPILLED: &str = "bytes on disk, shared by all queries that sort or group";

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryError::Store(error) => write!(f, "the store failed: {error:?}"),
            QueryError::Unbuilt(why) => f.write_str(why),
            QueryError::Limit { what, limit } => write!(f, "the query exceeds its limit of {limit} {what}"),
            QueryError::Deadline => f.write_str("the query's time is over"),
            QueryError::Value(what) => f.write_str(what),
            QueryError::Spill(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                write!(f, "no disk space for the rows that the query sorts and groups: {error}")
            }
            QueryError::Spill(error) => {
                write!(f, "the rows that the query sorts and groups cannot be kept on disk: {error}")
            }
            QueryError::Unwanted => f.write_str("the query's rows are no longer wanted"),
            QueryError::Damaged(what) => write!(f, "damaged data: {what}"),
            QueryError::Plan => f.write_str("the query's plan does not fit its execution: please report this query"),
            QueryError::JsonPath { at } => {
                write!(f, "a JSON path cannot be read at its character {at}: it is like $.name[0]")
            }
            QueryError::Parameters { expected, given } => {
                write!(f, "{given} parameters given, the query has {expected}")
            }
        }
    }
}

impl std::error::Error for QueryError {}

impl QueryError {
    /// What the engine's error means, if the engine reported one.
    pub fn engine(&self) -> Option<ErrorKind> {
        match self {
            QueryError::Store(error) => Some(error.kind()),
            _ => None,
        }
    }
}

impl From<engine::StoreError> for QueryError {
    fn from(error: engine::StoreError) -> Self {
        match &error {
            engine::StoreError::Io { source, .. } if IntegerOverflow::is_in(source) => Fault::IntegerOverflow.into(),
            engine::StoreError::Io { source, .. } if Unbuilt::is_in(source) => QueryError::Unbuilt(source.to_string()),
            _ => QueryError::Store(error),
        }
    }
}

impl From<std::io::Error> for QueryError {
    fn from(error: std::io::Error) -> Self {
        QueryError::Spill(error)
    }
}

/// A value that is computed on reading, such as the sum of a view, does not fit 64 bits.
#[derive(Debug)]
pub(crate) struct IntegerOverflow;

impl IntegerOverflow {
    /// Whether an error of the engine wraps this one.
    pub(crate) fn is_in(source: &std::io::Error) -> bool {
        source.get_ref().is_some_and(|inner| inner.is::<IntegerOverflow>())
    }
}

impl fmt::Display for IntegerOverflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("integer overflow")
    }
}

impl std::error::Error for IntegerOverflow {}

/// A view that cannot be read, with the reason.
#[derive(Debug)]
pub(crate) struct Unbuilt(pub(crate) String);

impl Unbuilt {
    /// Whether an error of the engine wraps this one.
    fn is_in(source: &std::io::Error) -> bool {
        source.get_ref().is_some_and(|inner| inner.is::<Unbuilt>())
    }
}

impl fmt::Display for Unbuilt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unbuilt {}

/// Placeholder for a subquery's error until its runner replaces it.
const INNER_FAILED: &str = "a subquery failed";

impl QueryError {
    /// Whether it is the placeholder for a subquery's error.
    pub(crate) fn is_of_inner(&self) -> bool {
        matches!(self, QueryError::Value(INNER_FAILED))
    }
}

/// Why an expression has no value. It is small, so that the result of an evaluation stays in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An integer result does not fit 64 bits where SQL makes that an error.
    IntegerOverflow,
    /// Bytes read from disk violate their layout.
    Damaged(&'static str),
    /// A part of the execution that the plan promises is missing: a mistake of this program.
    Plan,
    /// A computed text exceeds its limit.
    TextTooLong,
    /// A pattern of LIKE or GLOB exceeds its limit.
    PatternTooLong,
    /// Matching a pattern takes too many comparisons, because there are too many partial matches.
    PatternTooCostly,
    /// Text that should be JSON is not.
    Json,
    /// A string in a JSON text has an escape that is no character.
    LoneSurrogate,
    /// A JSON path is malformed at this character, counted from 1.
    JsonPath(u32),
    /// A computed text that is compared with keys or index entries is not UTF-8.
    NotUtf8,
    /// The name of a field of `json_object` is not text.
    JsonLabel,
    /// A format of PRINTF requests a conversion that this version lacks.
    Conversion,
    /// The values computed for a row exceed their memory.
    Computed(usize),
    /// A kept row exceeds its memory.
    Row(usize),
    /// A result exceeds its limit.
    Result(usize),
    /// The caller's deadline passed.
    Deadline,
    /// A subquery failed. The code that ran it holds the error.
    Inner,
}

impl From<Fault> for QueryError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::IntegerOverflow => QueryError::Value("integer overflow"),
            Fault::Damaged(what) => QueryError::Damaged(what),
            Fault::TextTooLong => {
                QueryError::Limit { what: "bytes of one computed text", limit: TEXT_BYTES_MAX as u64 }
            }
            Fault::PatternTooLong => {
                QueryError::Limit { what: "bytes of a pattern of LIKE or GLOB", limit: PATTERN_BYTES_MAX as u64 }
            }
            Fault::PatternTooCostly => QueryError::Limit {
                what: "comparisons of bytes of a LIKE or GLOB pattern for each byte of a text",
                limit: COMPARED_PER_BYTE_MAX as u64,
            },
            Fault::Computed(limit) => QueryError::Limit { what: COMPUTED, limit: limit as u64 },
            Fault::Row(limit) => QueryError::Limit { what: ROW, limit: limit as u64 },
            Fault::Result(limit) => QueryError::Limit { what: RESULT, limit: limit as u64 },
            Fault::Deadline => QueryError::Deadline,
            Fault::Json => QueryError::Value("malformed JSON"),
            Fault::LoneSurrogate => QueryError::Value(
                "a string in a JSON text has an escape \\ud800 to \\udfff that is not a pair, and so is no character",
            ),
            Fault::JsonPath(at) => QueryError::JsonPath { at },
            Fault::NotUtf8 => QueryError::Value("a computed text that is compared with stored ones is not UTF-8"),
            Fault::Plan => QueryError::Plan,
            Fault::Inner => QueryError::Value(INNER_FAILED),
            Fault::JsonLabel => QueryError::Value("json_object takes texts as names"),
            Fault::Conversion => {
                QueryError::Value("printf with %j, %J, %!f, %!e, %!g, %#q or %#Q is not supported yet")
            }
        }
    }
}
