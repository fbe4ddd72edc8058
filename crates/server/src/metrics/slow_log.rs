//! The log of slow requests: one line for each that took at least `[server] slow_log_seconds`, up to a number of lines a second.

use super::route_series::{CHANGES, RouteSeries};
use http::{Method, SlowLog, SlowRequest};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Limit of lines within one second. If there are more slow requests, the next line has the number of omitted ones.
const LINES_MAX: u32 = 20;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct SlowRequests {
    count: AtomicU64,
    lines: Mutex<Lines>,
}

/// The lines of the last second.
#[derive(Debug, Default)]
struct Lines {
    began: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl SlowRequests {
    /// Logs requests that take this long, except those of the feed of changes, which last as long as their clients.
    pub(crate) fn log(self: &Arc<Self>, after: Duration, names: &Arc<RouteSeries>) -> SlowLog {
        let (slow, names) = (Arc::clone(self), Arc::clone(names));
        SlowLog::new(after, move |request| {
            if request.series != CHANGES {
                slow.report(request, &names);
            }
        })
    }

    fn report(&self, request: &SlowRequest<'_>, names: &RouteSeries) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let Some(left_out) = self.lines.lock().unwrap_or_else(PoisonError::into_inner).admit(Instant::now()) else {
            return;
        };
        let (method, status) = (request.method.map_or("", Method::name), request.status.0);
        let (route, micros) = (names.name(request.series), request.took.as_micros());
        let left_out = (left_out > 0).then_some(left_out);
        tracing::warn!(method, route, status, micros, work = request.work, left_out, "a slow request");
    }

    /// Number of slow requests.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Lines {
    /// Whether a line may be written now, and how many before it were omitted.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.saturating_duration_since(began) >= Duration::from_secs(1)) {
            (self.began, self.written) = (Some(now), 0);
        }
        if self.written == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_lines_and_the_next_one_tells_those_left_out() {
        let (mut lines, now) = (Lines::default(), Instant::now());
        for _ in 0..LINES_MAX {
            assert_eq!(lines.admit(now), Some(0));
        }
        let soon = now + Duration::from_millis(999);
        assert_eq!((lines.admit(soon), lines.admit(soon)), (None, None));
        let later = now + Duration::from_secs(1);
        assert_eq!((lines.admit(later), lines.admit(later)), (Some(2), Some(0)));
    }
}
