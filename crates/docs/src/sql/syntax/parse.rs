//! From text to sqlparser's tree: SQLite's dialect with its precedences, `[0]` as a subscript, and limits.

use std::any::TypeId;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use sqlparser::ast::{BinaryOperator, Expr, Ident, Query, Statement, UnaryOperator};
use sqlparser::dialect::{Dialect, Precedence, SQLiteDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Word};

use super::nesting::{self, Nesting};
use super::precedence;
use crate::sql::limits::{SqlError, SqlErrorKind};

/// Longest text of a query, in bytes.
pub const SQL_BYTES_MAX: usize = 64 << 10;
/// Most tokens of a query. It also bounds the depth of the tree where an operator is repeated.
pub const TOKENS_MAX: usize = 4096;
/// Levels of the parser's recursion besides the counted nesting levels: the statement, its query, its clause.
const RECURSION_BESIDE: usize = 16;
/// How many operands the parser may try to read: so many for each token, and [`OPERANDS_BESIDE`] more. It reads some operands
/// twice, to see which of two rules applies. It remembers most of the failed attempts, so a few attempts for each token suffice
/// for any statement.
const OPERANDS_PER_TOKEN_MAX: usize = 16;
const OPERANDS_BESIDE: usize = 64;
/// Most operators of a query that this dialect parses itself. sqlparser only lends the left operand, so each of them copies it.
/// Without this limit, a chain of them over a long operand would take half a second.
const COPYING_MAX: usize = 128;

/// SQLite's dialect, with the deviations of this server.
#[derive(Debug, Default)]
struct SapsanDialect {
    sqlite: SQLiteDialect,
    /// How many more operands may be tried.
    operands_left: Cell<usize>,
    /// Operands that were read before their surrounding expression, by the places of their first tokens ([`nesting`]).
    finished: RefCell<HashMap<usize, Finished>>,
}

/// An operand that was read, or the error of reading it.
#[derive(Clone, Debug)]
struct Finished {
    operand: Result<Expr, ParserError>,
    /// The place of the token after it.
    end: usize,
}

impl Dialect for SapsanDialect {
    fn dialect(&self) -> TypeId {
        self.sqlite.dialect()
    }
    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '"' || ch == '`'
    }
    fn is_identifier_start(&self, ch: char) -> bool {
        self.sqlite.is_identifier_start(ch)
    }
    fn is_identifier_part(&self, ch: char) -> bool {
        self.sqlite.is_identifier_part(ch)
    }
    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }
    fn supports_partiql(&self) -> bool {
        true // `tags[0]`.
    }
    fn supports_in_empty_list(&self) -> bool {
        true
    }
    fn supports_limit_comma(&self) -> bool {
        true
    }
    fn supports_notnull_operator(&self) -> bool {
        true
    }
    fn supports_comma_separated_trim(&self) -> bool {
        true
    }
    fn supports_cross_join_constraint(&self) -> bool {
        true
    }
    fn supports_parens_around_table_factor(&self) -> bool {
        true
    }
    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }
    /// NOT before EXISTS has the precedence of any NOT, and `~` that of a sign: it binds tighter than any binary operator.
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        match self.operands_left.get().checked_sub(1) {
            Some(left) => self.operands_left.set(left),
            // This is the only error after which the parser tries no alternative.
            None => return Some(Err(ParserError::RecursionLimitExceeded)),
        }
        // Where the parser tries two rules, it calls this function once for each.
        let finished = self.finished.borrow().get(&parser.index()).cloned();
        if let Some(Finished { operand, end }) = finished {
            move_to(parser, end);
            return Some(operand);
        }
        let times = match parser.peek_token_ref().token {
            Token::Tilde => 1,
            Token::DoubleTilde => 2,
            _ => 0,
        };
        if times > 0 {
            parser.advance_token();
            let not = |inner| Expr::UnaryOp { op: UnaryOperator::BitwiseNot, expr: Box::new(inner) };
            return Some(
                parser.parse_subexpr(precedence::SIGN).map(|inner| (0..times).fold(inner, |inner, _| not(inner))),
            );
        }
        if keyword_at(parser, 0) != Keyword::NOT || keyword_at(parser, 1) != Keyword::EXISTS {
            return None;
        }
        parser.advance_token();
        let inner = parser.parse_subexpr(precedence::NOT);
        Some(inner.map(|inner| Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(inner) }))
    }
    fn parse_infix(&self, parser: &mut Parser<'_>, expr: &Expr, precedence: u8) -> Option<Result<Expr, ParserError>> {
        if matches!(&parser.peek_token_ref().token, Token::Word(word) if is_isnull(word)) {
            parser.advance_token();
            return Some(Ok(Expr::IsNull(Box::new(expr.clone()))));
        }
        if is_not_glob(parser) {
            parser.advance_token();
            parser.advance_token();
            let pattern = parser.parse_subexpr(precedence::EQUALITY);
            return Some(pattern.map(|pattern| {
                let (left, right) = (Box::new(expr.clone()), Box::new(pattern));
                let found = Box::new(Expr::BinaryOp { left, op: BinaryOperator::Glob, right });
                Expr::UnaryOp { op: UnaryOperator::Not, expr: found }
            }));
        }
        if let Some(negated) = table_operator(parser) {
            return Some(parser.parse_identifier().and_then(|table| {
                let (expr, subquery) = (Box::new(expr.clone()), self.rows_of(table)?);
                Ok(Expr::InSubquery { expr, subquery, negated })
            }));
        }
        if let Some(negated) = list_operator(parser) {
            let list = parser.parse_comma_separated(Parser::parse_expr);
            return Some(list.and_then(|list| {
                parser.expect_token(&Token::RParen)?;
                Ok(Expr::InList { expr: Box::new(expr.clone()), list, negated })
            }));
        }
        match is_operator(parser) {
            Some(same) => Some(parser.parse_subexpr(precedence::EQUALITY).map(|other| {
                let (a, b) = (Box::new(expr.clone()), Box::new(other));
                if same { Expr::IsNotDistinctFrom(a, b) } else { Expr::IsDistinctFrom(a, b) }
            })),
            None => self.sqlite.parse_infix(parser, expr, precedence),
        }
    }

    fn prec_value(&self, precedence: Precedence) -> u8 {
        use precedence::{AND, BITS, EQUALITY, NOT, OR, SIGN, SUM};
        match precedence {
            Precedence::Period => 100,
            Precedence::DoubleColon => 50,
            Precedence::AtTz => 49,
            // Requested for signs only: the binary operators get theirs below.
            Precedence::MulDivModOp => SIGN,
            Precedence::PlusMinus => SUM,
            Precedence::Xor | Precedence::Ampersand | Precedence::Caret | Precedence::Pipe => BITS,
            Precedence::Colon | Precedence::PgOther => BITS,
            Precedence::Between | Precedence::Eq | Precedence::Like | Precedence::Is => EQUALITY,
            Precedence::UnaryNot => NOT,
            Precedence::And => AND,
            Precedence::Or => OR,
        }
    }

    fn get_next_precedence(&self, parser: &Parser<'_>) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            Token::Lt | Token::LtEq | Token::Gt | Token::GtEq => Some(Ok(precedence::ORDER)),
            Token::Mul | Token::Div | Token::Mod => Some(Ok(precedence::PRODUCT)),
            Token::StringConcat | Token::Arrow | Token::LongArrow => Some(Ok(precedence::CONCAT)),
            Token::ShiftLeft | Token::ShiftRight | Token::Ampersand | Token::Pipe => Some(Ok(precedence::BITS)),
            Token::Word(word) if word.keyword == Keyword::GLOB || is_isnull(word) => Some(Ok(precedence::EQUALITY)),
            _ if is_not_glob(parser) => Some(Ok(precedence::EQUALITY)),
            _ => None,
        }
    }
}

impl SapsanDialect {
    /// `SELECT * FROM table`. All its tokens have the position of the table's name.
    fn rows_of(&self, table: Ident) -> Result<Box<Query>, ParserError> {
        let span = table.span;
        let word = Token::make_word(&table.value, table.quote_style);
        let tokens = [Token::make_keyword("SELECT"), Token::Mul, Token::make_keyword("FROM"), word];
        let tokens = tokens.into_iter().map(|token| TokenWithSpan { token, span }).collect();
        Parser::new(&self.sqlite).with_tokens_with_locations(tokens).parse_query()
    }

    /// Reads the operand that begins at a place. The operands inside it were read already.
    fn finish(&self, parser: &mut Parser<'_>, start: usize) {
        move_to(parser, start);
        let operand = parser.parse_prefix();
        self.finished.borrow_mut().insert(start, Finished { operand, end: parser.index() });
    }
}

/// Makes the token at `place` the next one.
fn move_to(parser: &mut Parser<'_>, place: usize) {
    while parser.index() > place {
        parser.prev_token();
    }
    while parser.index() < place {
        parser.advance_token();
    }
}

/// `ISNULL`, which sqlparser has no keyword for.
fn is_isnull(word: &Word) -> bool {
    word.quote_style.is_none() && word.value.eq_ignore_ascii_case("ISNULL")
}

/// `NOT GLOB`, of which sqlparser knows only the second word.
fn is_not_glob(parser: &Parser<'_>) -> bool {
    keyword_at(parser, 0) == Keyword::NOT && keyword_at(parser, 1) == Keyword::GLOB
}

fn keyword_at(parser: &Parser<'_>, place: usize) -> Keyword {
    match &parser.peek_nth_token_ref(place).token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

/// Consumes `[NOT] IN` if the name of a table follows. Returns whether it is negated.
fn table_operator(parser: &mut Parser<'_>) -> Option<bool> {
    let negated = keyword_at(parser, 0) == Keyword::NOT;
    let first = usize::from(negated);
    let is_named = keyword_at(parser, first) == Keyword::IN
        && matches!(parser.peek_nth_token_ref(first + 1).token, Token::Word(_))
        && parser.peek_nth_token_ref(first + 2).token != Token::LParen;
    if !is_named {
        return None;
    }
    (0..=first).for_each(|_| parser.advance_token());
    Some(negated)
}

/// Consumes `[NOT] IN (` if a list follows that begins with a query in parentheses. sqlparser would read that query as the
/// subquery of IN, and read it again if it is not. Returns whether it is negated.
fn list_operator(parser: &mut Parser<'_>) -> Option<bool> {
    let negated = keyword_at(parser, 0) == Keyword::NOT;
    let first = usize::from(negated);
    if keyword_at(parser, first) != Keyword::IN {
        return None;
    }
    let opened = (first + 1..).take_while(|place| parser.peek_nth_token_ref(*place).token == Token::LParen).count();
    if opened < 2 || !begins_query(keyword_at(parser, first + 1 + opened)) {
        return None;
    }
    (0..first + 2).for_each(|_| parser.advance_token());
    Some(negated)
}

fn begins_query(keyword: Keyword) -> bool {
    matches!(keyword, Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::VALUE | Keyword::TABLE)
}

/// Consumes `IS` or `IS NOT` if any operand may follow, as in SQLite. Forms that sqlparser itself knows are left to it. Returns
/// whether the operator is equality.
fn is_operator(parser: &mut Parser<'_>) -> Option<bool> {
    if keyword_at(parser, 0) != Keyword::IS {
        return None;
    }
    let negated = keyword_at(parser, 1) == Keyword::NOT;
    let next = keyword_at(parser, 1 + usize::from(negated));
    let behind = &parser.peek_nth_token_ref(2 + usize::from(negated)).token;
    if is_complete(next, behind) {
        return None;
    }
    parser.advance_token();
    if negated {
        parser.advance_token();
    }
    Some(!negated)
}

/// Whether IS and this word form the whole operator: `a IS NULL + 1` compares `a` with `NULL + 1`.
fn is_complete(next: Keyword, behind: &Token) -> bool {
    let is_operand = matches!(next, Keyword::NULL | Keyword::TRUE | Keyword::FALSE);
    next == Keyword::DISTINCT || (is_operand && !binds_tighter_than_is(behind))
}

/// Binary operators that bind tighter than IS.
fn binds_tighter_than_is(token: &Token) -> bool {
    matches!(
        token,
        Token::Lt
            | Token::LtEq
            | Token::Gt
            | Token::GtEq
            | Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat
            | Token::Arrow
            | Token::LongArrow
            | Token::ShiftLeft
            | Token::ShiftRight
            | Token::Ampersand
            | Token::Pipe
    )
}

/// A query's tree, and its tokens, from which result columns get their names.
pub(crate) struct Parsed {
    pub(crate) query: Box<Query>,
    pub(crate) tokens: Vec<TokenWithSpan>,
}

/// Parses one SELECT.
pub(crate) fn parse(sql: &str) -> Result<Parsed, SqlError> {
    let (statement, tokens) = statement(sql)?;
    let message = match statement {
        Statement::Query(query) => return Ok(Parsed { query, tokens }),
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => "only a SELECT is allowed here",
        _ => return Err(no_such_statement(&tokens)),
    };
    let at = tokens.first().map(|token| token.span.start);
    Err(SqlError::at(SqlErrorKind::NotYet, message, at))
}

/// Parses one statement of any kind.
pub(crate) fn statement(sql: &str) -> Result<(Statement, Vec<TokenWithSpan>), SqlError> {
    let limit = |what: &str, max: usize| SqlError {
        kind: SqlErrorKind::Limit,
        message: format!("the query is longer than {max} {what}"),
        line: 0,
        column: 0,
    };
    if sql.len() > SQL_BYTES_MAX {
        return Err(limit("bytes", SQL_BYTES_MAX));
    }
    let dialect = SapsanDialect::default();
    let mut tokens = Vec::new();
    Tokenizer::new(&dialect, sql)
        .tokenize_with_location_into_buf(&mut tokens)
        .map_err(|error| syntax(error.message, Some(error.location)))?;
    if tokens.len() > TOKENS_MAX {
        return Err(limit("tokens", TOKENS_MAX));
    }
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    numbers(&mut tokens)?;
    drop_not_indexed(&mut tokens);
    replace_into(&mut tokens);
    let nesting = nesting::measure(&tokens)?;
    check_copying(&tokens)?;
    let statement = whole(&dialect, &tokens, &nesting)?;
    Ok((statement, tokens))
}

/// Parses the tokens as one statement.
fn whole(dialect: &SapsanDialect, tokens: &[TokenWithSpan], nesting: &Nesting) -> Result<Statement, SqlError> {
    dialect.operands_left.set(OPERANDS_PER_TOKEN_MAX * tokens.len() + OPERANDS_BESIDE);
    let is_known = tokens.first().is_none_or(|first| begins_statement(&first.token));
    let recursion_max = RECURSION_BESIDE + if is_known { nesting.levels_max } else { 0 };
    let mut parser =
        Parser::new(dialect).with_recursion_limit(recursion_max).with_tokens_with_locations(tokens.to_vec());
    if is_known {
        nesting.starts.iter().rev().for_each(|start| dialect.finish(&mut parser, *start));
        move_to(&mut parser, 0);
    }
    let statement = match parser.parse_statement() {
        Ok(statement) => statement,
        Err(ParserError::RecursionLimitExceeded) if !is_known => return Err(no_such_statement(tokens)),
        Err(_) if dialect.operands_left.get() == 0 => {
            let message = "the query can be read in too many ways: write it with fewer parentheses";
            return Err(SqlError::at(SqlErrorKind::Limit, message, Some(parser.peek_token_ref().span.start)));
        }
        Err(error) => return Err(at_end(of_parser(error, parser.peek_token_ref().span.start), tokens)),
    };
    while parser.consume_token(&Token::SemiColon) {}
    let next = parser.peek_token();
    if next.token != Token::EOF {
        return Err(syntax(format!("expected the end, found: {next}"), Some(next.span.start)));
    }
    Ok(statement)
}

/// Whether a statement that begins with this token is supported.
fn begins_statement(token: &Token) -> bool {
    use Keyword::{DELETE, INSERT, REPLACE, SELECT, UPDATE, VALUES, WITH};
    match token {
        Token::Word(word) if word.quote_style.is_none() => {
            matches!(word.keyword, SELECT | WITH | VALUES | INSERT | REPLACE | UPDATE | DELETE)
        }
        other => *other == Token::LParen,
    }
}

fn no_such_statement(tokens: &[TokenWithSpan]) -> SqlError {
    let at = tokens.first().map(|token| token.span.start);
    SqlError::at(SqlErrorKind::NotYet, "only SELECT, INSERT, UPDATE and DELETE are supported", at)
}

/// Turns `0x1F` and `0X1F` into the integers that they are in SQLite. sqlparser reads the first as `X'1F'`, which has one
/// character more, and the second as 0 with an alias. No other number may end in a letter.
fn numbers(tokens: &mut Vec<TokenWithSpan>) -> Result<(), SqlError> {
    let mut place = 0;
    while place < tokens.len() {
        let TokenWithSpan { token, span } = &tokens[place];
        let mut end = span.end;
        let number_end = |digits: &str| span.start.column + digits.len() as u64 + 2;
        let mut number = match token {
            Token::HexStringLiteral(digits) if end.line == span.start.line && end.column == number_end(digits) => {
                format!("0x{digits}")
            }
            Token::Number(text, false) => text.clone(),
            _ => {
                place += 1;
                continue;
            }
        };
        let next = tokens.get(place + 1).filter(|next| next.span.start == end);
        if let Some(TokenWithSpan { token: Token::Word(word), span: next }) = next
            && word.quote_style.is_none()
        {
            let digits = word.value.strip_prefix('X').filter(|digits| number == "0" && !digits.is_empty());
            match digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit())) {
                Some(digits) => number = format!("0x{digits}"),
                None => return Err(syntax(format!("a letter in the number {number}{word}"), Some(span.start))),
            }
            end = next.end;
            tokens.remove(place + 1);
        }
        tokens[place].token = Token::Number(number, false);
        tokens[place].span.end = end;
        place += 1;
    }
    Ok(())
}

/// Rewrites `REPLACE INTO` at the beginning to its long form `INSERT OR REPLACE INTO`: sqlparser accepts the short one only for
/// MySQL.
fn replace_into(tokens: &mut Vec<TokenWithSpan>) {
    let keyword = |token: &TokenWithSpan| match &token.token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    if let Some(first) = tokens.first().filter(|first| keyword(first) == Keyword::REPLACE) {
        let span = first.span;
        let words = ["INSERT", "OR"].map(|word| TokenWithSpan { token: Token::make_keyword(word), span });
        tokens.splice(..0, words);
    }
}

/// Removes `NOT INDEXED` after a table's name: the planner chooses the access path, and the rows are the same. After a keyword
/// that an expression follows, INDEXED is a field's name.
fn drop_not_indexed(tokens: &mut Vec<TokenWithSpan>) {
    use Keyword::{
        ALL, AND, BETWEEN, BY, CASE, DISTINCT, ELSE, ESCAPE, GLOB, HAVING, IN, IS, LIKE, LIMIT, NOT, OFFSET, ON, OR,
        RETURNING, SELECT, THEN, WHEN, WHERE,
    };
    const BEFORE_EXPRESSIONS: [Keyword; 23] = [
        ALL, AND, BETWEEN, BY, CASE, DISTINCT, ELSE, ESCAPE, GLOB, HAVING, IN, IS, LIKE, LIMIT, NOT, OFFSET, ON, OR,
        RETURNING, SELECT, THEN, WHEN, WHERE,
    ];
    let is_plain = |word: &Word| word.quote_style.is_none();
    let (mut is_behind_name, mut place) = (false, 0);
    while place < tokens.len() {
        match &tokens[place].token {
            Token::Word(word) if is_behind_name && is_plain(word) && word.keyword == NOT => {
                is_behind_name = false;
                if matches!(tokens.get(place + 1).map(|next| &next.token), Some(Token::Word(word)) if is_plain(word) && word.value.eq_ignore_ascii_case("INDEXED"))
                {
                    tokens.drain(place..=place + 1);
                    continue;
                }
            }
            Token::Word(word) => is_behind_name = !is_plain(word) || !BEFORE_EXPRESSIONS.contains(&word.keyword),
            _ => is_behind_name = false,
        }
        place += 1;
    }
}

/// Limits the operators that copy the operand before them: see [`COPYING_MAX`].
fn check_copying(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    let keyword = |place: usize| match tokens.get(place).map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    };
    let opens = |place: usize| tokens.get(place).is_some_and(|token| token.token == Token::LParen);
    let mut copying = 0;
    for (place, token) in tokens.iter().enumerate() {
        let copies = match keyword(place) {
            Keyword::IS => {
                let next = place + 1 + usize::from(keyword(place + 1) == Keyword::NOT);
                let behind = tokens.get(next + 1).map_or(&Token::EOF, |token| &token.token);
                !is_complete(keyword(next), behind)
            }
            Keyword::GLOB => place > 0 && keyword(place - 1) == Keyword::NOT,
            Keyword::IN => {
                let opened = (place + 1..).take_while(|place| opens(*place)).count();
                let is_list = opened > 1 && begins_query(keyword(place + 1 + opened));
                is_list || matches!(tokens.get(place + 1).map(|token| &token.token), Some(Token::Word(_)))
            }
            _ => matches!(&token.token, Token::Word(word) if is_isnull(word)),
        };
        copying += usize::from(copies);
        if copying > COPYING_MAX {
            let message = format!(
                "the query has more than {COPYING_MAX} of the operators IS before a value, ISNULL, NOT GLOB, and IN before a name or \
                 a list that begins with a query"
            );
            return Err(SqlError::at(SqlErrorKind::Limit, &message, Some(token.span.start)));
        }
    }
    Ok(())
}

fn syntax(message: String, at: Option<Location>) -> SqlError {
    SqlError::at(SqlErrorKind::Syntax, &message, at)
}

/// sqlparser writes the position into its message. It is removed from there and becomes the error's position; if there is none,
/// the position is `place`.
fn of_parser(parser_error: ParserError, place: Location) -> SqlError {
    let message = match parser_error {
        ParserError::RecursionLimitExceeded => {
            return SqlError::at(SqlErrorKind::Limit, "the query nests too deep here", Some(place));
        }
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
    };
    let Some((text, position)) = message.rsplit_once(" at Line: ") else { return syntax(message, None) };
    let mut numbers = position.split(", Column: ").map(|number| number.trim().parse::<u64>().unwrap_or(0));
    let at = Location { line: numbers.next().unwrap_or(0), column: numbers.next().unwrap_or(0) };
    syntax(text.to_owned(), Some(at))
}

/// sqlparser gives the end of the text no position: the error gets the position after the last token.
fn at_end(mut error: SqlError, tokens: &[TokenWithSpan]) -> SqlError {
    if error.kind == SqlErrorKind::Syntax && error.line == 0 {
        let last = tokens.iter().rfind(|token| token.token != Token::EOF);
        let end = last.map_or(Location::new(1, 1), |token| token.span.end);
        (error.line, error.column) = (end.line, end.column);
    }
    error
}

/// The texts of the items of the SELECT list, in order.
pub(crate) fn item_texts<'s>(sql: &'s str, tokens: &[TokenWithSpan]) -> Vec<&'s str> {
    let lines: Vec<usize> = std::iter::once(0).chain(sql.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let byte = |at: Location| {
        let line = *lines.get((at.line as usize).saturating_sub(1)).unwrap_or(&sql.len());
        let columns = (at.column as usize).saturating_sub(1);
        sql[line..].char_indices().nth(columns).map_or(sql.len(), |(offset, _)| line + offset)
    };
    let mut texts = Vec::new();
    let (mut depth, mut item): (usize, Option<(Location, Location)>) = (0, None);
    for token in tokens.iter().skip(1) {
        let ends = match &token.token {
            Token::LParen | Token::LBracket => {
                depth += 1;
                false
            }
            Token::RParen | Token::RBracket => {
                depth = depth.saturating_sub(1);
                false
            }
            Token::Comma => depth == 0,
            Token::Word(word) if depth == 0 && item.is_none() => {
                matches!(word.keyword, Keyword::DISTINCT | Keyword::ALL) && word.quote_style.is_none()
            }
            Token::Word(word) if depth == 0 && word.quote_style.is_none() => matches!(
                word.keyword,
                Keyword::FROM | Keyword::WHERE | Keyword::GROUP | Keyword::HAVING | Keyword::ORDER | Keyword::LIMIT
            ),
            Token::EOF | Token::SemiColon => true,
            _ => false,
        };
        if !ends {
            item = Some((item.map_or(token.span.start, |(start, _)| start), token.span.end));
            continue;
        }
        if let Some((start, end)) = item.take() {
            texts.push(sql.get(byte(start)..byte(end)).unwrap_or_default());
        }
        if token.token != Token::Comma && !texts.is_empty() {
            break;
        }
    }
    texts.extend(item.map(|(start, end)| sql.get(byte(start)..byte(end)).unwrap_or_default()));
    texts
}
