//! The clock for expiry.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The system's time, or a time that is set from outside. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct WallClock {
    given_ms: Option<Arc<AtomicI64>>,
}

impl WallClock {
    /// A clock that shows the given time: milliseconds since 1970.
    pub fn given(ms: Arc<AtomicI64>) -> WallClock {
        WallClock { given_ms: Some(ms) }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        match &self.given_ms {
            Some(ms) => ms.load(Ordering::Relaxed),
            None => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
            }
        }
    }
}
