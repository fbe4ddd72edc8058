//! The rows, in groups that can be run alone.

pub(crate) mod commits;
pub(crate) mod crash;
pub(crate) mod loads;
pub(crate) mod long;
pub(crate) mod reads;
pub(crate) mod space;
pub(crate) mod steady;
pub(crate) mod syncs;

use crate::engine::Outcome;
use crate::stage::Stage;

/// Rows that are measured together.
pub(crate) struct Group {
    /// As `--rows` takes it.
    pub(crate) name: &'static str,
    /// Takes so long that only who names it has it measured.
    pub(crate) is_asked_for: bool,
    /// Measures and prints.
    pub(crate) measure: fn(&mut Stage) -> Outcome<()>,
}

/// All, in the order in which a whole run does them: those that share the loaded databases follow one another, and those
/// that change them come last.
pub(crate) const GROUPS: &[Group] = &[
    Group { name: "loads", is_asked_for: false, measure: loads::measure },
    Group { name: "reads", is_asked_for: false, measure: reads::measure },
    Group { name: "beside", is_asked_for: false, measure: reads::measure_beside_writes },
    Group { name: "commits", is_asked_for: false, measure: commits::measure },
    Group { name: "syncs", is_asked_for: false, measure: syncs::measure },
    Group { name: "updates", is_asked_for: false, measure: space::measure_updates },
    Group { name: "flight", is_asked_for: false, measure: commits::measure_in_flight },
    Group { name: "inserts", is_asked_for: false, measure: space::measure_inserts },
    Group { name: "crash", is_asked_for: false, measure: crash::measure },
    Group { name: "long", is_asked_for: false, measure: long::measure },
    Group { name: "steady", is_asked_for: true, measure: steady::measure },
];
