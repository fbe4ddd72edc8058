//! Assignment of requests to series of the metrics: one for each declared route, up to a limit.

use http::{SERIES_MAX, Series};
use std::sync::{Mutex, PoisonError};

/// Requests of the general API.
pub(crate) const GENERAL: Series = Series(1);
/// Requests for the feed of changes, which stay open as long as their clients follow it.
pub(crate) const CHANGES: Series = Series(2);

/// The names of the fixed series, by their numbers. `other` counts requests without a route, requests refused before routing,
/// and routes beyond the limit.
const FIXED: [&str; 3] = ["other", "/_/", "/_/changes"];

/// Names of series. A route keeps its series when the configuration is read again, and a series stays when its route is removed:
/// counters never decrease.
#[derive(Debug, Default)]
pub(crate) struct RouteSeries(Mutex<Vec<Box<str>>>);

impl RouteSeries {
    /// The series of a declared route.
    pub(crate) fn of(&self, route: &str) -> Series {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = names.iter().position(|name| **name == *route);
        if known.is_none() && FIXED.len() + names.len() >= SERIES_MAX {
            return Series::OTHER;
        }
        let place = known.unwrap_or_else(|| {
            names.push(route.into());
            names.len() - 1
        });
        Series(u16::try_from(FIXED.len() + place).unwrap_or_default())
    }

    /// The name of a series.
    pub(crate) fn name(&self, series: Series) -> String {
        let number = usize::from(series.0);
        if let Some(name) = FIXED.get(number) {
            return (*name).to_owned();
        }
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(number - FIXED.len()).map_or_else(|| FIXED[0].to_owned(), |name| name.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_has_one_series_and_those_beyond_the_bound_are_the_others() {
        let series = RouteSeries::default();
        let first = series.of("GET /a");
        assert_eq!((first, series.of("GET /b"), series.of("GET /a")), (Series(3), Series(4), first));
        let names = [first, GENERAL, CHANGES].map(|number| series.name(number));
        assert_eq!(names, ["GET /a", "/_/", "/_/changes"]);
        for n in 2..SERIES_MAX - FIXED.len() {
            assert_ne!(series.of(&format!("GET /{n}")), Series::OTHER);
        }
        assert_eq!(series.of("GET /beyond"), Series::OTHER);
        assert_eq!((series.of("GET /a"), &*series.name(Series::OTHER)), (first, "other"));
    }
}
