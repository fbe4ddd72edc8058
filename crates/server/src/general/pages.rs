//! Pages of a query: `{"sql": …, "limit": N, "after": TOKEN}` gives `{"items":[…],"after":TOKEN}`, null at the end.
//!
//! A token is where its page ended (`docs::sql::Paged`), and of which statement and parameters: with others it is refused.
//!
//! ```text
//!  token, in hexadecimal: FNV-1a of all below (8 bytes) | the last row's values of ORDER BY and its keys
//! ```

use super::fail;
use crate::background;
use crate::endpoint::JSON;
use crate::failure::{ErrorRules, Failure, Kind};
use crate::in_flight::{InFlight, Taken};
use crate::large;
use crate::params;
use crate::queries::{PLAN_FIELD, Queries};
use crate::querying::{Whole, of_query};
use crate::service::Service;
use crate::statement::{Arguments, Shape};
use crate::writing;
use docs::Database;
use docs::sql::{OwnedValue, PAGE_ROWS_MAX, Paged, QueryError, Value, decode_place, encode_place};
use http::{LateReply, Reply, Status};
use serde_json::{Map, Value as Json};
use std::fmt::Write as _;
use std::sync::Arc;

/// Rows of a page where the request says nothing.
const ROWS_DEFAULT: u64 = 100;
const CHECK_BYTES: usize = 8;

/// Which page is wanted.
pub(super) struct PageWanted {
    rows_max: u64,
    after: Option<Vec<OwnedValue>>,
    /// Tells statements and parameters apart.
    of: u64,
}

impl PageWanted {
    /// What a request says of it; nothing, if it asks for all rows.
    pub(super) fn read(
        limit: Option<Json>,
        after: Option<Json>,
        sql: &str,
        parameters: &Map<String, Json>,
    ) -> Result<Option<PageWanted>, Failure> {
        if limit.is_none() && after.is_none() {
            return Ok(None);
        }
        let invalid = |detail: String| Failure::new(Kind::Invalid, detail);
        let rows_max = match limit {
            None => ROWS_DEFAULT,
            Some(limit) => limit
                .as_u64()
                .filter(|rows| (1..=PAGE_ROWS_MAX).contains(rows))
                .ok_or_else(|| invalid(format!("limit is {limit}; allowed: 1 to {PAGE_ROWS_MAX}")))?,
        };
        let parameters = serde_json::to_vec(parameters).unwrap_or_default();
        let of = fnv(fnv(FNV_START, sql.as_bytes()), &parameters);
        let after = match after {
            None | Some(Json::Null) => None,
            Some(Json::String(token)) => Some(
                place(&token, of)
                    .ok_or_else(|| invalid("`after` is no token of this statement with these parameters".to_owned()))?,
            ),
            Some(other) => return Err(invalid(format!("after is {other}; allowed: a token or null"))),
        };
        Ok(Some(PageWanted { rows_max, after, of }))
    }

    /// Answers with the page.
    pub(super) fn answer(
        self,
        service: &Service,
        (sql, arguments, taken): (String, Arguments, Taken),
        shape: Shape,
        reply: Reply<'_>,
    ) {
        if shape != Shape::Json {
            return fail(&Failure::new(Kind::Invalid, "a page is JSON: its end is told beside its rows"), reply);
        }
        let (database, replies) = (service.database.clone(), service.replies.clone());
        let (whole, queries) = (Whole::of(service), Arc::clone(&service.queries));
        let errors = Arc::new(ErrorRules::default());
        background::run(&service.pool, &Arc::clone(&errors), reply.later(), move |mut late| {
            let page = self.run(&database, (&sql, &arguments), whole, &queries, &mut late);
            drop((sql, arguments, taken));
            send(&replies, &errors, late, page);
        });
    }

    fn run(
        &self,
        database: &Database,
        (sql, arguments): (&str, &Arguments),
        whole: Whole,
        queries: &Queries,
        late: &mut LateReply,
    ) -> Result<Vec<u8>, Failure> {
        let invalid = |detail: String| Failure::new(Kind::Invalid, detail);
        let paged = Paged::prepare(sql, database.catalog(), self.rows_max, self.after.as_deref());
        let paged = paged.map_err(|error| invalid(error.to_string()))?;
        let names = paged.query().parameters().iter();
        let values = names.map(|name| arguments.value(name).ok_or(name));
        let values: Result<Vec<Value<'_>>, &String> = values.collect();
        let values = values.map_err(|name| invalid(format!("the parameter :{name} is not given")))?;
        let session = database.session().map_err(|_| Failure::new(Kind::Busy, "no reader is free"))?;
        let mut out = b"{\"items\":[".to_vec();
        let ran = whole.run(params::unix_ms(), |budget| {
            let now = session.now();
            let ran = paged.write(now.view(), &values, &mut queries.scratch(), budget, &mut out)?;
            now.check_indexes().map_err(QueryError::Store)?;
            Ok(ran)
        });
        let (outcome, end) = ran.map_err(|error| of_query(&error))?;
        let (plan, scans) = paged.query().plan_line(&values);
        queries.count(&outcome, plan, scans, sql);
        late.header(PLAN_FIELD, plan);
        let after = end.map_or_else(|| "null".to_owned(), |end| format!("\"{}\"", token(&end, self.of)));
        out.extend_from_slice(format!("],\"after\":{after}}}").as_bytes());
        Ok(out)
    }
}

fn send(replies: &InFlight, errors: &ErrorRules, late: LateReply, page: Result<Vec<u8>, Failure>) {
    match page {
        Ok(body) => large::send_late(replies, errors, late, Status(200), JSON, body),
        Err(failure) => writing::refuse(errors, late, &failure),
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, which tells mistakes and no attacks: whoever may ask may ask for any page.
fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

fn token(place: &[OwnedValue], of: u64) -> String {
    let mut bytes = vec![0; CHECK_BYTES];
    encode_place(place, &mut bytes);
    let check = fnv(of, &bytes[CHECK_BYTES..]);
    bytes[..CHECK_BYTES].copy_from_slice(&check.to_le_bytes());
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing into a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Where a page ended; `None`: that is none of our tokens, or of another statement.
fn place(token: &str, of: u64) -> Option<Vec<OwnedValue>> {
    let digit = |byte: u8| (byte as char).to_digit(16);
    let pairs = token.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    });
    let bytes: Vec<u8> = pairs.collect::<Option<_>>()?;
    let (check, values) = bytes.split_first_chunk::<CHECK_BYTES>()?;
    (u64::from_le_bytes(*check) == fnv(of, values)).then(|| decode_place(values)).flatten()
}

#[cfg(test)]
mod tokens {
    use super::{FNV_START, place, token};
    use docs::sql::OwnedValue;

    #[test]
    fn a_token_is_read_again_and_every_change_of_it_is_told() {
        let end =
            [OwnedValue::Integer(-5), OwnedValue::Text("é".as_bytes().into()), OwnedValue::Null, OwnedValue::Real(0.5)];
        let text = token(&end, FNV_START);
        let read = place(&text, FNV_START).expect("its own");
        assert_eq!(format!("{read:?}"), format!("{end:?}"));
        assert!(place(&text, FNV_START + 1).is_none() && place("", FNV_START).is_none() && place("0g", 1).is_none());
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            assert!(place(&String::from_utf8(other).expect("ASCII"), FNV_START).is_none(), "{at}");
            assert!(place(&text[..at], FNV_START).is_none(), "{at}");
        }
    }
}
