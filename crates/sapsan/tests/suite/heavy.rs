//! A bound on heavy tests that run at once: those with dozens of clients, or with a server that may take much memory.
//!
//! The test runner starts as many tests as the machine has cores. Tests that wait for a disk or a process may all run beside each
//! other; several heavy ones would only take each other's cores, and the clients' patience is bounded.

use std::sync::{Condvar, Mutex, PoisonError};

/// Heavy tests that run at once.
const AT_ONCE: usize = 2;

static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// One of the places for heavy tests, free again when it is dropped.
pub(crate) struct Place(());

impl Place {
    /// Waits until one is free.
    pub(crate) fn take() -> Place {
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running =
            ENDED.wait_while(running, |running| *running >= AT_ONCE).unwrap_or_else(PoisonError::into_inner);
        *running += 1;
        Place(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_one();
    }
}

#[test]
fn heavy_tests_never_run_more_at_once_than_there_are_places() {
    let (inside, most) = (Mutex::new(0), Mutex::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 * AT_ONCE {
            scope.spawn(|| {
                for _ in 0..100 {
                    let _place = Place::take();
                    let now = {
                        let mut inside = inside.lock().expect("no panic");
                        *inside += 1;
                        *inside
                    };
                    let mut most = most.lock().expect("no panic");
                    *most = now.max(*most);
                    drop(most);
                    std::thread::yield_now();
                    *inside.lock().expect("no panic") -= 1;
                }
            });
        }
    });
    let most = *most.lock().expect("no panic");
    assert!((1..=AT_ONCE).contains(&most), "{most}");
}
