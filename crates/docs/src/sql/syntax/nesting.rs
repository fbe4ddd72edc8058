//! The nesting depth of a statement, measured on its tokens before any recursion, and the places at which the parser must start
//! so that it never recurses deep.
//!
//! The parser calls itself for each parenthesis, each prefix, and each operator that waits for its right operand, and takes up
//! to 45 KiB of stack for a level. [`measure`] keeps a list that corresponds to the parser's calls. Where it has grown by
//! [`REGION_MOST`], the next operand that opens a level is recorded as a start. Such operands are parsed before their
//! surroundings, the last one first, and the surrounding expression takes the finished ones (`parse.rs`). So the stack holds
//! only one region between two starts, however deep the statement is.
//!
//! Constructs that do not begin with an operand (queries and parentheses in FROM, and lists after IN) have no start, and may
//! nest up to [`REGION_MAX`].

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::precedence;
use crate::sql::limits::{SqlError, SqlErrorKind};

/// Deepest nesting of parentheses, brackets, calls and CASE: the same as for the JSON of a document.
pub const NESTING_MAX: usize = 128;
/// A subquery counts as so many parentheses, and so does a parenthesis in FROM.
const QUERY_LEVELS: usize = 5;
/// Most parentheses and operators open at one place: after each parenthesis, one operator may wait for the next one.
pub(in crate::sql) const OPEN_MAX: usize = 2 * NESTING_MAX + 8;
/// Levels of a region after which an operand becomes a start.
const REGION_MOST: usize = 16;
/// Most levels between two starts: 23 queries in FROM.
const REGION_MAX: usize = 115;
/// Deepest nesting of lists after IN, without other levels: a parenthesis counts as two operators.
const LISTS_MAX: usize = REGION_MAX / 2;

/// The result of the measurement.
#[derive(Debug, Default)]
pub(super) struct Nesting {
    /// The places of the operands that are parsed first, in the order of the text.
    pub(super) starts: Vec<usize>,
    /// Most levels open at one place.
    pub(super) levels_max: usize,
}

/// Measures a statement's tokens, which include no white space.
pub(super) fn measure(tokens: &[TokenWithSpan]) -> Result<Nesting, SqlError> {
    let mut walk = Walk::default();
    for (place, token) in tokens.iter().enumerate() {
        walk.pass(place, &token.token, tokens.get(place + 1).map(|next| &next.token));
        let message = if walk.nesting > NESTING_MAX {
            format!("the query nests deeper than {NESTING_MAX}, where a query inside another counts as {QUERY_LEVELS}")
        } else if walk.open.len() > OPEN_MAX {
            format!("the query nests deeper than {OPEN_MAX} operators and parentheses that are open at once")
        } else if walk.levels - walk.region_start > REGION_MAX {
            let queries = REGION_MAX / QUERY_LEVELS;
            format!(
                "the query nests deeper than {queries} queries in FROM or behind IN, or {LISTS_MAX} lists behind IN"
            )
        } else {
            continue;
        };
        return Err(SqlError::at(SqlErrorKind::Limit, &message, Some(token.span.start)));
    }
    Ok(walk.found)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// An operator that waits for its right operand, by its precedence.
    Operator(u8),
    Parenthesis,
    /// A parenthesis in FROM.
    TableParenthesis,
    Case,
}

struct Open {
    kind: Kind,
    /// Its stack use, in operators.
    levels: usize,
    /// The part of a parenthesis or CASE that counts for [`NESTING_MAX`].
    nesting: usize,
    /// For a start: where the surrounding region began.
    region_before: Option<usize>,
}

/// The state at a token.
#[derive(Default)]
struct Walk {
    found: Nesting,
    open: Vec<Open>,
    /// The nesting of parentheses and CASE.
    nesting: usize,
    levels: usize,
    /// Levels open where the region began.
    region_start: usize,
    /// The next parenthesis is that of a call that is a start.
    is_start: bool,
    is_behind_operand: bool,
    /// After the previous token a table follows.
    is_before_table: bool,
    /// The previous token is IS: NOT belongs to it.
    is_behind_is: bool,
}

impl Walk {
    fn pass(&mut self, place: usize, token: &Token, next: Option<&Token>) {
        let is_before_table = std::mem::take(&mut self.is_before_table);
        let is_behind_is = std::mem::take(&mut self.is_behind_is);
        match token {
            Token::LParen => self.parenthesis(place, is_before_table, next.is_some_and(begins_query)),
            Token::LBracket | Token::LBrace => self.begin(Kind::Parenthesis, 1),
            Token::RParen | Token::RBracket | Token::RBrace => self.end_parenthesis(),
            Token::Comma | Token::SemiColon => self.end_operand(),
            Token::Tilde | Token::DoubleTilde => self.prefix(place, precedence::SIGN),
            Token::Plus | Token::Minus if !self.is_behind_operand => self.prefix(place, precedence::SIGN),
            // `*` for all fields is an operand.
            Token::Mul if !self.is_behind_operand => self.is_behind_operand = true,
            Token::Word(word) if word.keyword == Keyword::NOT && is_behind_is => {}
            Token::Word(word) if word.quote_style.is_none() => {
                self.word(place, word.keyword, next == Some(&Token::LParen) && !is_before_table);
            }
            other => match precedence_of(other) {
                Some(precedence) => self.operator(precedence),
                None => self.is_behind_operand = true,
            },
        }
        self.found.levels_max = self.found.levels_max.max(self.levels);
    }

    fn parenthesis(&mut self, place: usize, is_before_table: bool, is_query: bool) {
        if is_before_table {
            self.begin(Kind::TableParenthesis, QUERY_LEVELS);
            self.is_before_table = true;
            return;
        }
        if !self.is_behind_operand {
            self.start(place);
        }
        self.begin(Kind::Parenthesis, if is_query { QUERY_LEVELS } else { 1 });
    }

    fn word(&mut self, place: usize, keyword: Keyword, is_call: bool) {
        use Keyword as K;
        match keyword {
            K::CASE => {
                self.start(place);
                self.begin(Kind::Case, 1);
            }
            K::END => self.end_case(),
            K::OR => self.operator(precedence::OR),
            K::AND => self.operator(precedence::AND),
            // After an operand it belongs to IN, LIKE and the like.
            K::NOT if !self.is_behind_operand => self.prefix(place, precedence::NOT),
            K::NOT => {}
            // Its operand may begin with another INTERVAL. A field named INTERVAL counts too, until its operand ends.
            K::INTERVAL if !self.is_behind_operand => self.prefix(place, precedence::SIGN),
            K::IS => {
                self.operator(precedence::EQUALITY);
                self.is_behind_is = true;
            }
            K::LIKE | K::GLOB | K::BETWEEN => self.operator(precedence::EQUALITY),
            // Its list is not an operand for the parser.
            K::IN => self.end_operators(precedence::EQUALITY),
            K::FROM | K::JOIN => {
                self.end_operand();
                self.is_before_table = true;
            }
            K::WHEN | K::THEN | K::ELSE | K::SELECT | K::DISTINCT | K::ON | K::WHERE | K::VALUES => {
                self.end_operand();
            }
            K::GROUP | K::BY | K::HAVING | K::ORDER | K::LIMIT | K::OFFSET | K::UNION | K::EXCEPT | K::INTERSECT => {
                self.end_operand();
            }
            K::SET | K::RETURNING => self.end_operand(),
            // The parentheses after them are not an operand.
            K::ALL | K::ANY | K::SOME => self.is_behind_operand = true,
            _ => {
                if is_call && !self.is_behind_operand {
                    self.start(place);
                }
                self.is_behind_operand = true;
            }
        }
    }

    /// An operand that opens a level begins.
    fn start(&mut self, place: usize) {
        if self.levels - self.region_start >= REGION_MOST {
            self.found.starts.push(place);
            self.is_start = true;
        }
    }

    fn begin(&mut self, kind: Kind, nesting: usize) {
        let (is_start, before) = (std::mem::take(&mut self.is_start), self.levels);
        let region_before = is_start.then(|| std::mem::replace(&mut self.region_start, before));
        let levels = match kind {
            Kind::Operator(_) => 1,
            _ => nesting.max(2),
        };
        self.nesting += nesting;
        self.levels += levels;
        self.open.push(Open { kind, levels, nesting, region_before });
        self.is_behind_operand = false;
    }

    fn end_last(&mut self) -> Option<Kind> {
        let open = self.open.pop()?;
        self.nesting -= open.nesting;
        self.levels -= open.levels;
        self.region_start = open.region_before.unwrap_or(self.region_start);
        Some(open.kind)
    }

    fn prefix(&mut self, place: usize, precedence: u8) {
        self.start(place);
        self.begin(Kind::Operator(precedence), 0);
    }

    /// Ends the previous operators that bind at least as tightly: they have their operands.
    fn operator(&mut self, precedence: u8) {
        self.end_operators(precedence);
        self.begin(Kind::Operator(precedence), 0);
    }

    fn end_operators(&mut self, precedence_min: u8) {
        let ends = |open: &Open| matches!(open.kind, Kind::Operator(precedence) if precedence >= precedence_min);
        while self.open.last().is_some_and(ends) {
            self.end_last();
        }
    }

    fn end_operand(&mut self) {
        self.end_operators(0);
        self.is_behind_operand = false;
    }

    fn end_parenthesis(&mut self) {
        while let Some(kind) = self.end_last() {
            if matches!(kind, Kind::Parenthesis | Kind::TableParenthesis) {
                break;
            }
        }
        self.is_behind_operand = true;
    }

    fn end_case(&mut self) {
        self.end_operators(0);
        if self.open.last().is_some_and(|open| open.kind == Kind::Case) {
            self.end_last();
        }
        self.is_behind_operand = true;
    }
}

fn begins_query(token: &Token) -> bool {
    let Token::Word(word) = token else { return false };
    word.quote_style.is_none() && matches!(word.keyword, Keyword::SELECT | Keyword::WITH | Keyword::VALUES)
}

/// The precedence of a binary operator that is not a word.
fn precedence_of(token: &Token) -> Option<u8> {
    Some(match token {
        Token::Eq | Token::DoubleEq | Token::Neq => precedence::EQUALITY,
        Token::Lt | Token::LtEq | Token::Gt | Token::GtEq => precedence::ORDER,
        Token::ShiftLeft | Token::ShiftRight | Token::Ampersand | Token::Pipe => precedence::BITS,
        Token::Plus | Token::Minus => precedence::SUM,
        Token::Mul | Token::Div | Token::Mod => precedence::PRODUCT,
        Token::StringConcat | Token::Arrow | Token::LongArrow => precedence::CONCAT,
        _ => return None,
    })
}
