//! Mutated real queries: refused with a position, or run within their budget, with the same rows through every access path.

use crate::fuzz_check::{check_sql, little, without_indexes};
use crate::mutation::{apply, edits};
use crate::sql_memory::{AVERAGE, VISITS};
use proptest::prelude::*;

const QUERIES: [&str; 10] = [
    VISITS,
    AVERAGE,
    "SELECT id, mark FROM visits WHERE user = 1 AND visited_at BETWEEN -5 AND 1500000000 ORDER BY visited_at DESC, id",
    "SELECT u.id, COUNT(*) AS n, SUM(v.mark) AS s FROM users u LEFT JOIN visits v ON v.user = u.id GROUP BY u.id HAVING n >= 0 ORDER BY n",
    "SELECT DISTINCT location FROM visits WHERE location IN (0, 1, 2, NULL, 'x') ORDER BY 1",
    "SELECT CASE WHEN mark > 2 THEN 'good' WHEN mark IS NULL THEN NULL ELSE mark END AS c, mark || '-' || id AS t FROM visits",
    "SELECT strftime('%Y-%m-%d %H:%M:%f', visited_at, 'unixepoch', '+1 month', 'start of year') AS d FROM visits WHERE id < 9",
    "SELECT substr(place, -2, 3) AS a, upper(country) AS b, printf('%+05d|%.3f|%s', distance, distance, city) AS c FROM locations",
    "SELECT CAST(birth_date AS TEXT) AS x, birth_date % 7 AS m, -birth_date / 2 AS h, ~birth_date & 255 AS b FROM users",
    "SELECT MIN(visited_at) AS a, MAX(mark) AS b, AVG(mark) AS c FROM visits WHERE NOT (mark = 3 OR user <> :u) LIMIT 5 OFFSET 0",
];

const WORDS: [&[u8]; 52] = [
    b" AND ",
    b" OR ",
    b" NOT ",
    b" IN (1,2) ",
    b" BETWEEN 0 AND 9 ",
    b" LIKE '%a_' ",
    b" IS NULL ",
    b" IS NOT ",
    b" NULL ",
    b" = ",
    b" < ",
    b" >= ",
    b" <> ",
    b" + ",
    b" - ",
    b" * ",
    b" / ",
    b" % ",
    b" || ",
    b" << 70 ",
    b" & ",
    b"(",
    b")",
    b",",
    b".",
    b"'",
    b"\"",
    b":p",
    b":id",
    b" -1 ",
    b" 9223372036854775807 ",
    b" 1e308 ",
    b" 'x' ",
    b"'9999-12-31'",
    b" v.id ",
    b" mark ",
    b" user ",
    b" visited_at ",
    b" DISTINCT ",
    b" DESC ",
    b" GROUP BY 1 ",
    b" ORDER BY 1 ",
    b" HAVING 1 ",
    b" LIMIT 2 ",
    b" OFFSET 1 ",
    b" COUNT(*) ",
    b" SUM(mark) ",
    b"abs(",
    b"round(",
    b"date(",
    b"--",
    "я".as_bytes(),
];

/// A combination of parts of two real queries.
fn spliced(first: usize, second: usize, cut: &[prop::sample::Index; 2]) -> String {
    let words = |number: usize| QUERIES[number].split_inclusive([' ', ',', '(']).collect::<Vec<_>>();
    let (first, second) = (words(first), words(second));
    first[..cut[0].index(first.len())].concat() + &second[cut[1].index(second.len())..].concat()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_query_is_refused_or_runs_within_its_budget(number in 0..QUERIES.len(), edits in edits(3)) {
        let memory = little();
        let sql = apply(QUERIES[number].as_bytes(), &edits, &WORDS);
        check_sql(&memory, &without_indexes(&memory.catalog), &String::from_utf8_lossy(&sql));
    }

    #[test]
    fn two_queries_joined_anew_are_refused_or_run_within_their_budget(
        first in 0..QUERIES.len(), second in 0..QUERIES.len(), cut in any::<[prop::sample::Index; 2]>(),
    ) {
        let memory = little();
        check_sql(&memory, &without_indexes(&memory.catalog), &spliced(first, second, &cut));
    }
}

#[test]
fn the_unmutated_queries_are_taken() {
    let memory = little();
    for sql in QUERIES {
        assert!(check_sql(&memory, &without_indexes(&memory.catalog), sql), "{sql}");
    }
}
