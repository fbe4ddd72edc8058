//! What can go wrong with a query: the text is wrong ([`SqlError`], at prepare time, with a position), or an execution
//! could not end ([`QueryError`]).

use super::pattern::{COMPARED_PER_BYTE_MAX, PATTERN_BYTES_MAX};
use std::fmt;

/// Longest text that an expression may make.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// A query that cannot be prepared: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// What kind of mistake.
    pub kind: SqlErrorKind,
    /// In words, without the position.
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
    /// SQL that says something impossible: two columns of one name, an aggregate in WHERE.
    Invalid,
    /// The text is beyond a named bound.
    Limit,
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
    Store(store::Error),
    /// A view that is asked for has nothing to answer with: it is being built, or could not be.
    Unbuilt(String),
    /// The execution would exceed a bound: which, and its value.
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
    /// The disk would not take, or give back, what exceeds the memory ([`super::SpillSpace`]).
    Spill(std::io::Error),
    /// Nobody takes the rows any more ([`super::RowSink::is_wanted`]).
    Unwanted,
    /// Stored bytes break their layout.
    Damaged(&'static str),
    /// The number of parameters given is not the query's.
    Parameters {
        /** What the query has. */
        expected: usize,
        /** What was given. */
        given: usize,
    },
}

/// The bound on rows that are looked at, by its name in [`QueryError::Limit`].
pub const ROWS_READ: &str = "rows read";
/// The bound on rows that are kept for a join or for an expression, by its name in [`QueryError::Limit`].
pub const ROWS_KEPT: &str = "bytes of rows kept for a join or an inner query";
/// The bound on groups, by its name in [`QueryError::Limit`].
pub const GROUPS: &str = "bytes of groups";
/// The bound on what is sorted, by its name in [`QueryError::Limit`].
pub const SORTED: &str = "bytes to sort";
/// The bound on a result, by its name in [`QueryError::Limit`].
pub const RESULT: &str = "bytes of result";
/// The bound on what a statement finds to write, by its name in [`QueryError::Limit`].
pub const TO_WRITE: &str = "bytes of what it finds to write";
/// The bound on values that an index is asked for, by its name in [`QueryError::Limit`].
pub const LOOKED_UP: &str = "bytes of values that are looked up";
/// The bound on what `json_each` gives of one text, by its name in [`QueryError::Limit`].
pub const OF_JSON_EACH: &str = "bytes of rows of json_each";
/// The bound on what expressions compute for a row, by its name in [`QueryError::Limit`].
pub const COMPUTED: &str = "bytes that expressions compute for a row";
/// The bound on a row that is kept for a sort, a group or DISTINCT, by its name in [`QueryError::Limit`].
pub const ROW: &str = "bytes of one row that is kept";
/// The bound on what all queries have on disk, by its name in [`QueryError::Limit`].
pub const SPILLED: &str = "bytes on disk for what queries sort and group";

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryError::Store(error) => write!(f, "the store failed: {error:?}"),
            QueryError::Unbuilt(why) => f.write_str(why),
            QueryError::Limit { what, limit } => write!(f, "the query exceeds its limit of {limit} {what}"),
            QueryError::Deadline => f.write_str("the query's time is over"),
            QueryError::Value(what) => f.write_str(what),
            QueryError::Spill(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                write!(f, "what the query sorts and groups has no room on disk: {error}")
            }
            QueryError::Spill(error) => write!(f, "what the query sorts and groups cannot be kept on disk: {error}"),
            QueryError::Unwanted => f.write_str("nobody takes the query's rows any more"),
            QueryError::Damaged(what) => write!(f, "damaged data: {what}"),
            QueryError::Parameters { expected, given } => {
                write!(f, "{given} parameters given, the query has {expected}")
            }
        }
    }
}

impl std::error::Error for QueryError {}

impl From<store::Error> for QueryError {
    fn from(error: store::Error) -> Self {
        match &error {
            store::Error::Io { source, .. } if IntegerOverflow::is_in(source) => Fault::IntegerOverflow.into(),
            store::Error::Io { source, .. } if Unbuilt::is_in(source) => QueryError::Unbuilt(source.to_string()),
            _ => QueryError::Store(error),
        }
    }
}

impl From<std::io::Error> for QueryError {
    fn from(error: std::io::Error) -> Self {
        QueryError::Spill(error)
    }
}

/// A value of a table that is computed as it is read lies outside 64 bits: the sum of a view.
#[derive(Debug)]
pub(crate) struct IntegerOverflow;

impl IntegerOverflow {
    /// Whether that is what an error of the engine stands for.
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

/// A view has nothing to answer with: which, and why.
#[derive(Debug)]
pub(crate) struct Unbuilt(pub(crate) String);

impl Unbuilt {
    /// Whether that is what an error of the engine stands for.
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

/// Stands for an inner query's error until its runner puts that in.
const INNER_FAILED: &str = "an inner query failed";

impl QueryError {
    /// Whether it only says that an inner query failed.
    pub(crate) fn is_of_inner(&self) -> bool {
        matches!(self, QueryError::Value(INNER_FAILED))
    }
}

/// Why one expression has no value. Small, so that a result of an evaluation stays in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An integer result lies outside 64 bits where SQL makes that an error.
    IntegerOverflow,
    /// A stored value breaks its layout.
    Damaged(&'static str),
    /// A text made by functions is longer than a bound.
    TextTooLong,
    /// A pattern of LIKE or GLOB is longer than a bound.
    PatternTooLong,
    /// A pattern comes so near to matching, so often, that the comparing has to end.
    PatternTooCostly,
    /// Text that should be JSON is not.
    Json,
    /// A path into JSON is none.
    JsonPath,
    /// The name of a field of `json_object` is no text.
    JsonLabel,
    /// A format of PRINTF asks for what this version lacks.
    Conversion,
    /// What is computed for a row takes more memory than there is.
    Computed(usize),
    /// A row that is kept takes more memory than there is.
    Row(usize),
    /// A result is longer than its bound.
    Result(usize),
    /// The caller's deadline passed.
    Deadline,
    /// An inner query failed: with what, its runner knows.
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
                what: "bytes of a pattern of LIKE or GLOB compared in vain for each byte of a text",
                limit: COMPARED_PER_BYTE_MAX as u64,
            },
            Fault::Computed(limit) => QueryError::Limit { what: COMPUTED, limit: limit as u64 },
            Fault::Row(limit) => QueryError::Limit { what: ROW, limit: limit as u64 },
            Fault::Result(limit) => QueryError::Limit { what: RESULT, limit: limit as u64 },
            Fault::Deadline => QueryError::Deadline,
            Fault::Json => QueryError::Value("malformed JSON"),
            Fault::JsonPath => QueryError::Value("a JSON path that cannot be read: it is like $.name[0]"),
            Fault::Inner => QueryError::Value(INNER_FAILED),
            Fault::JsonLabel => QueryError::Value("json_object takes texts as names"),
            Fault::Conversion => {
                QueryError::Value("printf with %j, %J, %!f, %!e, %!g, %#q or %#Q is not supported yet")
            }
        }
    }
}
