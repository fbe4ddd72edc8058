//! The rows, in groups that can be run alone.

pub(crate) mod commits;
pub(crate) mod crash;
pub(crate) mod loads;
pub(crate) mod long;
pub(crate) mod reads;
pub(crate) mod space;
pub(crate) mod syncs;

use crate::engine::Outcome;
use crate::stage::Stage;

/// Rows that are measured together.
pub(crate) struct Group {
    /// As `--rows` takes it.
    pub(crate) name: &'static str,
    /// Measures and prints.
    pub(crate) measure: fn(&mut Stage) -> Outcome<()>,
}

/// All, in the order in which a whole run does them: those that share the loaded databases follow one another, and those
/// that change them come last.
pub(crate) const GROUPS: &[Group] = &[
    Group { name: "loads", measure: loads::measure },
    Group { name: "reads", measure: reads::measure },
    Group { name: "beside", measure: reads::measure_beside_writes },
    Group { name: "commits", measure: commits::measure },
    Group { name: "syncs", measure: syncs::measure },
    Group { name: "updates", measure: space::measure_updates },
    Group { name: "flight", measure: commits::measure_in_flight },
    Group { name: "inserts", measure: space::measure_inserts },
    Group { name: "crash", measure: crash::measure },
    Group { name: "long", measure: long::measure },
];
