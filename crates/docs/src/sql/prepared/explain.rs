//! EXPLAIN: the steps of a plan in the order of their nesting, as text and as JSON.

use std::fmt::Write;

use serde_json::{Value as Json, json};

use super::analysis::{Analysis, LevelCounts};
use super::means::Means;
use crate::catalog::{Catalog, CollectionInfo};
use crate::engine::Direction;
use crate::sql::expressions::Expr;
use crate::sql::planning::extremes::is_least;
use crate::sql::planning::{Access, Estimate, InnerPlan, Level, Limit, Plan, Points, PointsOf, Sought};
use crate::sql::resolve::Logical;
use crate::sql::rows::Combine;

/// One line for each step of a plan. After an execution, each level has its estimates and its counts, and a last line has the
/// totals.
pub(crate) fn text(
    plan: &Plan,
    logical: &Logical,
    catalog: &Catalog,
    means: &Means<'_>,
    analysis: Option<&Analysis>,
) -> String {
    let mut out = String::new();
    for (number, level) in plan.levels.iter().enumerate() {
        let _ = write!(out, "{}", level_text(level, logical, catalog));
        if let Some(threads) = means.threads(plan).filter(|_| number == 0) {
            let _ = write!(out, " BY UP TO {threads} THREADS");
        }
        if let Some(LevelCounts { read, rows }) = analysis.and_then(|analysis| analysis.levels.get(number)) {
            let about = |estimate: Estimate| format!("; about {:.0} and {:.0} expected", estimate.read, estimate.rows);
            let _ = write!(out, " ({read} read, {rows} rows{})", level.estimate.map(about).unwrap_or_default());
        }
        out.push('\n');
    }
    for &table in &plan.implied {
        let _ = writeln!(out, "IMPLIED {} BY REFERENCE", logical.tables[table].alias);
    }
    for step in steps(plan, means) {
        let _ = writeln!(out, "{step}");
    }
    for (number, inner) in plan.inner.iter().enumerate() {
        let _ = write!(out, "QUERY {number}: {}", inner_text((number, inner), logical, catalog));
        if let Some((asked, runs)) = analysis.and_then(|analysis| analysis.asked.get(number).copied().flatten()) {
            let _ = writeln!(out, " (asked {asked} times, run {runs} times)");
            continue;
        }
        if let Some(kept) = analysis.and_then(|analysis| analysis.kept.get(number)) {
            let _ = write!(out, " ({})", kept.map_or("never asked".to_owned(), |rows| format!("{rows} rows kept")));
        }
        out.push('\n');
    }
    if let Some(Analysis { outcome, elapsed, .. }) = analysis {
        let milliseconds = elapsed.as_secs_f64() * 1e3;
        let _ = writeln!(out, "{} ROWS, {} READ, {milliseconds:.3} MS", outcome.rows, outcome.rows_read);
    }
    out
}

/// Most characters of [`line()`].
const LINE_BYTES_MAX: usize = 512;

/// The same in one line that fits a header field of HTTP, and whether a whole collection is scanned.
pub(crate) fn line(plan: &Plan, logical: &Logical, catalog: &Catalog) -> (String, bool) {
    let text = text(plan, logical, catalog, &Means::default(), None);
    let shown = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    let line: String = text.trim_end().replace('\n', "; ").chars().map(shown).take(LINE_BYTES_MAX).collect();
    (line, !scans(plan, catalog).is_empty())
}

/// A query inside a plan: its purpose, and the collections that it scans whole; for a correlated one, its access paths.
fn inner_text((number, inner): (usize, &InnerPlan), logical: &Logical, catalog: &Catalog) -> String {
    if inner.is_correlated {
        let members = inner.members.iter().zip(logical.inner.get(number).into_iter().flat_map(|inner| &inner.members));
        let levels =
            members.flat_map(|(plan, member)| plan.levels.iter().map(|level| level_text(level, member, catalog)));
        let levels: Vec<String> = levels.collect();
        let rows = if levels.is_empty() { String::new() } else { format!(": {}", levels.join(", ")) };
        return format!("CORRELATED {} SELECT{}{rows}", inner.members.len(), operators(inner));
    }
    let scanned: Vec<&str> = inner.members.iter().flat_map(|member| scans(member, catalog)).collect();
    let what = match inner.joined {
        Some(number) => format!("READ {}", catalog.collections[number].name),
        None => format!("{} SELECT{}", inner.members.len(), operators(inner)),
    };
    if scanned.is_empty() { what } else { format!("{what} SCAN {}", scanned.join(", ")) }
}

/// The operators between its SELECTs, if any of them is not UNION ALL.
fn operators(inner: &InnerPlan) -> String {
    let written: Vec<&str> = inner.combine.iter().skip(1).map(|combine| combine.name()).collect();
    if inner.combine.iter().all(|combine| *combine == Combine::Append) {
        return String::new();
    }
    format!(" ({})", written.join(", "))
}

/// The same as JSON: levels with their properties, then the steps. Estimates are present if counts are kept.
pub(crate) fn json(
    plan: &Plan,
    logical: &Logical,
    catalog: &Catalog,
    means: &Means<'_>,
    analysis: Option<&Analysis>,
) -> Json {
    let levels = plan.levels.iter().enumerate();
    let levels: Vec<Json> =
        levels.map(|(number, level)| level_json(number, level, (logical, catalog), analysis)).collect();
    let implied: Vec<&str> = plan.implied.iter().map(|&table| logical.tables[table].alias.as_str()).collect();
    let inner = plan.inner.iter().enumerate().map(|(number, inner)| {
        let mut shown = json!({ "step": inner_text((number, inner), logical, catalog) });
        if let Some((asked, runs)) = analysis.and_then(|analysis| analysis.asked.get(number).copied().flatten()) {
            (shown["asked"], shown["runs"]) = (json!(asked), json!(runs));
            return shown;
        }
        if let Some(kept) = analysis.and_then(|analysis| analysis.kept.get(number)) {
            shown["rows"] = json!(kept);
        }
        shown
    });
    let mut shown = json!({
        "levels": levels, "implied": implied, "steps": steps(plan, means), "queries": inner.collect::<Vec<_>>(),
        "may_spill": means.spills_groups(plan) || means.spills_distinct(plan) || means.spills_sort(plan),
        "threads": means.threads(plan).unwrap_or(1),
    });
    if plan.levels.iter().any(|level| level.estimate.is_some()) {
        shown["estimated_rows"] = about(plan.rows);
    }
    if let Some(Analysis { outcome, elapsed, .. }) = analysis {
        shown["actual"] =
            json!({ "rows": outcome.rows, "read": outcome.rows_read, "milliseconds": elapsed.as_secs_f64() * 1e3 });
    }
    shown
}

fn level_json(
    number: usize,
    level: &Level,
    (logical, catalog): (&Logical, &Catalog),
    analysis: Option<&Analysis>,
) -> Json {
    let mut shown = json!({
        "step": level_text(level, logical, catalog),
        "table": logical.tables[level.table].info(catalog).name,
        "alias": logical.tables[level.table].alias,
        "covering": level.access.index().is_some() && !level.fetch,
        "conditions": level.before.len() + level.after.len() + level.beyond.len(),
        "left": level.left,
        "whole": level.access.is_whole() || is_whole_index(&level.access),
    });
    if let Some(Estimate { loops, read, rows }) = level.estimate {
        shown["estimated"] = json!({ "loops": about(loops), "read": about(read), "rows": about(rows) });
    }
    if let Some(counts) = analysis.and_then(|analysis| analysis.levels.get(number)) {
        let outside = number.checked_sub(1).and_then(|outer| analysis?.levels.get(outer));
        let loops = outside.map_or(1, |outer| outer.rows);
        shown["actual"] = json!({ "loops": loops, "read": counts.read, "rows": counts.rows });
    }
    shown
}

/// A number of rows, rounded to tenths.
fn about(rows: f64) -> Json {
    json!((rows * 10.0).round() / 10.0)
}

/// The collections that are scanned without key or index, within a loop or not.
pub(crate) fn scans<'c>(plan: &Plan, catalog: &'c Catalog) -> Vec<&'c str> {
    // If only the first rows in the order of the keys or of an index are wanted, not all of it is scanned.
    let first = (plan.ordered || plan.sorted_by > 0) && plan.limit.is_some() || plan.first_only;
    let whole = plan.levels.iter().filter(|level| !first && (level.access.is_whole() || is_whole_index(&level.access)));
    let own = whole.filter_map(|level| level.collection.map(|number| catalog.collections[number].name.as_str()));
    let inner = plan.inner.iter().flat_map(|inner| &inner.members).flat_map(|member| scans(member, catalog));
    own.chain(inner).collect()
}

fn steps(plan: &Plan, means: &Means<'_>) -> Vec<String> {
    let step = |what: &str, spills: bool| if spills { format!("{what} (MAY SPILL)") } else { what.to_owned() };
    let mut steps = Vec::new();
    if plan.grouped {
        let spills = means.spills_groups(plan);
        steps.push(match plan.group.len() {
            0 if plan.first_only => "AGGREGATE OF THE FIRST".to_owned(),
            0 => step("AGGREGATE", spills),
            keys => step(&format!("GROUP BY {keys} KEYS"), spills),
        });
    }
    if plan.distinct {
        steps.push(step("DISTINCT", means.spills_distinct(plan)));
    }
    match (plan.order.is_empty(), plan.limit.is_some()) {
        (false, true) if plan.sorted_by > 0 => {
            let by = format!("TOP-N SORT BEHIND {} OF {} TERMS IN ORDER", plan.sorted_by, plan.order.len());
            steps.push(step(&by, means.spills_sort(plan)));
        }
        (false, true) => steps.push(step("TOP-N SORT", means.spills_sort(plan))),
        (false, false) => steps.push(step("SORT", means.spills_sort(plan))),
        (true, _) if plan.ordered => steps.push("ORDER BY INDEX".to_owned()),
        _ => {}
    }
    if plan.limit.is_some() || plan.offset.is_some() {
        steps.push("LIMIT".to_owned());
    }
    steps
}

fn level_text(level: &Level, logical: &Logical, catalog: &Catalog) -> String {
    let name = &logical.tables[level.table].info(catalog).name;
    let alias = &logical.tables[level.table].alias;
    let named = if alias == name { name.clone() } else { format!("{name} AS {alias}") };
    let access = access(level, logical, catalog);
    let left = if level.left { "LEFT " } else { "" };
    let whole = is_whole_index(&level.access);
    let mut line = match &level.access {
        Access::Points(_) if level.access.index().is_none() => format!("{left}LOOKUP {named} BY {access}"),
        Access::Key(_) | Access::Unique { .. } => format!("{left}LOOKUP {named} BY {access}"),
        Access::Index { .. } if whole && level.fetch => format!("{left}SCAN {named} USING INDEX {access}"),
        Access::Index { .. } if whole => format!("{left}SCAN {named} USING COVERING INDEX {access}"),
        Access::Index { .. } | Access::Points(_) if level.fetch => format!("{left}SEARCH {named} USING INDEX {access}"),
        Access::Index { .. } | Access::Points(_) => format!("{left}SEARCH {named} USING COVERING INDEX {access}"),
        Access::Scan { from: None, to: None, .. } => format!("{left}SCAN {named}{access}"),
        Access::Kept { hash: Some(_), .. } => format!("{left}HASH {named} BY {access}"),
        Access::Kept { .. } if level.collection.is_some() => format!("{left}ROWS {named} OF {access}"),
        Access::Kept { .. } => format!("{left}ROWS OF {access}"),
        Access::Each { .. } => format!("{left}ELEMENTS {named}"),
        Access::Scan { .. } => format!("{left}SEARCH {named} USING {access}"),
    };
    let conditions = level.before.len() + level.after.len() + level.beyond.len();
    if conditions > 0 {
        let _ = write!(line, " FILTER {conditions}");
    }
    line
}

fn is_whole_index(access: &Access) -> bool {
    matches!(access, Access::Index { equal, from: None, to: None, .. } if equal.is_empty())
}

/// A field's name, or a description of the write mark.
fn named(field: &str) -> &str {
    if field == binjson::MARK_NAME { "the last write" } else { field }
}

fn shown(expr: &Expr, logical: &Logical) -> String {
    match expr {
        Expr::Parameter(slot) => format!(":{}", logical.parameters[*slot]),
        Expr::Outer(place) => logical.outer[*place].name(),
        Expr::Column(column) => {
            let column = &logical.columns[*column];
            format!("{}.{}", logical.tables[column.table].alias, column.name)
        }
        _ => "?".to_owned(),
    }
}

fn backward(direction: &Direction) -> &'static str {
    if *direction == Direction::Backward { " BACKWARD" } else { "" }
}

/// Longer lists of values are abbreviated.
const VALUES_SHOWN_MAX: usize = 4;

fn sought_text(field: &str, sought: &Sought, logical: &Logical) -> String {
    match sought {
        Sought::One(value) => format!("{field}={}", shown(value, logical)),
        Sought::List(list) if list.len() > VALUES_SHOWN_MAX => format!("{field} IN {} VALUES", list.len()),
        Sought::List(list) => {
            let values: Vec<String> = list.iter().map(|value| shown(value, logical)).collect();
            format!("{field} IN ({})", values.join(", "))
        }
        Sought::Tuples(values, width) => format!("({field}) IN {} ROWS", values.len() / width),
        Sought::Rows(inner) => format!("{field} IN QUERY {inner}"),
    }
}

fn points_text(points: &Points, info: &CollectionInfo, logical: &Logical) -> String {
    let Points { of, sought, from, to, direction } = points;
    let (what, fields) = match of {
        PointsOf::Key => ("KEYS ", std::slice::from_ref(&info.key.field)),
        PointsOf::Unique { field, .. } => ("UNIQUE ", std::slice::from_ref(field)),
        PointsOf::Index { number, .. } => ("", &info.indexes[*number].fields[..]),
    };
    let (mut parts, mut rest) = (Vec::new(), fields);
    for sought in sought {
        let (own, behind) = rest.split_at_checked(sought.width()).unwrap_or((rest, &[]));
        parts.push(sought_text(&own.join(", "), sought, logical));
        rest = behind;
    }
    parts.extend(limits_text((rest, &info.key.field), (from.as_ref(), to.as_ref()), logical));
    format!("{what}({}){}", parts.join(", "), backward(direction))
}

/// Prints the bounds of a range that begins with the first of `fields`. A bound of a row value covers several fields; the last
/// may be the key.
fn limits_text(
    (fields, key): (&[String], &String),
    (from, to): (Option<&Limit>, Option<&Limit>),
    logical: &Logical,
) -> Vec<String> {
    let field = fields.first().map_or("", |field| named(field));
    let sides = [(from, '>'), (to, '<')].into_iter().filter_map(|(side, sign)| Some((side?, sign)));
    let text = |(limit, sign): (&Limit, char)| {
        let equal = if limit.inclusive { "=" } else { "" };
        if limit.more.is_empty() {
            return match is_least(&limit.value) && sign == '>' {
                true => format!("{field} NOT NULL"),
                false => format!("{field}{sign}{equal}{}", shown(&limit.value, logical)),
            };
        }
        let values: Vec<String> = limit.values().map(|value| shown(value, logical)).collect();
        let fields: Vec<&str> = fields.iter().chain([key]).take(values.len()).map(|field| named(field)).collect();
        format!("({}){sign}{equal}({})", fields.join(", "), values.join(", "))
    };
    sides.map(text).collect()
}

fn access(level: &Level, logical: &Logical, catalog: &Catalog) -> String {
    let info = logical.tables[level.table].info(catalog);
    match &level.access {
        Access::Key(value) => format!("KEY ({}={})", info.key.field, shown(value, logical)),
        Access::Unique { fields, values, .. } => {
            let parts = fields.iter().zip(values).map(|(field, value)| format!("{field}={}", shown(value, logical)));
            format!("UNIQUE ({})", parts.collect::<Vec<_>>().join(", "))
        }
        Access::Index { number, equal, from, to, direction, .. } => {
            let fields = &info.indexes[*number].fields;
            let mut parts: Vec<String> =
                equal.iter().zip(fields).map(|(value, field)| format!("{field}={}", shown(value, logical))).collect();
            let rest = (fields.get(equal.len()..).unwrap_or_default(), &info.key.field);
            parts.extend(limits_text(rest, (from.as_ref(), to.as_ref()), logical));
            if parts.is_empty() {
                parts = fields.iter().map(|field| named(field).to_owned()).collect();
            }
            format!("({}){}", parts.join(", "), backward(direction))
        }
        Access::Points(points) => points_text(points, info, logical),
        Access::Kept { inner, hash: None, .. } => format!("QUERY {inner}"),
        Access::Kept { inner, keys, .. } => {
            let keys: Vec<String> = keys.iter().map(|value| shown(value, logical)).collect();
            format!("({}) OF QUERY {inner}", keys.join(", "))
        }
        Access::Each { json, .. } => shown(json, logical),
        Access::Scan { from: None, to: None, direction } => backward(direction).to_owned(),
        Access::Scan { from, to, direction } => {
            let field = &info.key.field;
            let low = from.iter().map(|value| format!("{field}>{}", shown(value, logical)));
            let high = to.iter().map(|value| format!("{field}<{}", shown(value, logical)));
            format!("KEY ({}){}", low.chain(high).collect::<Vec<_>>().join(", "), backward(direction))
        }
    }
}
