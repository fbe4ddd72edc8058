//! The configurations that a database alternates between.

use docs::config::Config;
use rand::RngExt;
use rand::rngs::SmallRng;

use crate::declared_views::with_views;

const OWNERS: &str = "[collections.owners]\nkey = { field = \"id\", type = \"u32\" }\n";
const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
const COUNTS: (&str, &str) = ("v", "SELECT kind, COUNT(*) AS n, SUM(amount) AS s FROM items GROUP BY kind");
const CHANGED: (&str, &str) =
    ("v", "SELECT kind, COUNT(*) AS n, SUM(amount) AS s FROM items WHERE amount > 0 GROUP BY kind");
const ENDS: (&str, &str) =
    ("m", "SELECT kind, MIN(at) AS lo, MAX(amount) AS hi, COUNT(DISTINCT tag) AS d FROM items GROUP BY kind");
const OVER: (&str, &str) = ("w", "SELECT n, COUNT(*) AS kinds, SUM(s) AS s, MAX(kind) AS last FROM v GROUP BY n");
const ABOVE: (&str, &str) = ("x", "SELECT kinds, COUNT(DISTINCT n) AS d, MIN(s) AS lo FROM w GROUP BY kinds");
const ALL: (&str, &str) = ("o", "SELECT COUNT(*) AS n, AVG(amount) AS a, MIN(tag) AS t FROM items");

/// So few bytes that building a view takes several transactions.
const BUILD_BYTES: usize = 8 << 10;

/// One of the configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    First,
    /// With another index, another unique field, a reference and a rule; a changed view, a removed one and a new one.
    Second,
    /// With fewer parts of both.
    Third,
}

impl Declared {
    pub(super) fn any(rng: &mut SmallRng) -> Declared {
        [Declared::First, Declared::Second, Declared::Third][rng.random_range(0..3)]
    }

    pub(super) fn views(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Declared::First => &[COUNTS, ENDS, OVER, ALL],
            Declared::Second => &[CHANGED, OVER, ABOVE, ALL],
            Declared::Third => &[COUNTS, ENDS, OVER, ABOVE],
        }
    }

    pub(super) fn config(self, builds_indexes_later: bool) -> Config {
        let lines = match self {
            Declared::First => "indexes = [[\"at\"]]\nunique = [\"code\"]\n",
            Declared::Second => {
                "indexes = [[\"at\"], [\"kind\", \"amount\"], [\"owner\"]]\nunique = [\"code\", \"mark\"]\nreferences = { owner = \"owners\" }\n\
                 schema = { type = \"object\", properties = { at = { type = \"integer\", maximum = 1000 } } }\n"
            }
            Declared::Third => {
                "indexes = [[\"kind\", \"amount\"], [\"owner\"]]\nunique = [\"mark\"]\nreferences = { owner = \"owners\" }\n"
            }
        };
        let mut config = with_views(&format!("{OWNERS}{ITEMS}{lines}"), self.views());
        config.builds_indexes_later = builds_indexes_later;
        config.build_bytes = BUILD_BYTES;
        config
    }
}
