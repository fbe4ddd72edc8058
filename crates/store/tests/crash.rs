//! Power fails, or the process is killed, at any operation of an open store. Acknowledged transactions exist whole, the others
//! whole or not at all, and `verify` is clean. This is repeated on the result of the last crash, also in the middle of recoveries.
//!
//! `cargo xtask campaign crash` does the same for long; STORE_CRASH_SEED sets the first seed here.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::simulation::crash::{Chain, Tally};

/// No further chain of lives is started after this.
const TIME: Duration = Duration::from_secs(10);

#[test]
fn crashes_lose_nothing_that_was_acknowledged() {
    let seed =
        std::env::var("STORE_CRASH_SEED").map_or_else(|_| rand::random::<u64>() >> 16, |seed| seed.parse().unwrap());
    let (began, tally) = (Instant::now(), Tally::default());
    for number in 0.. {
        if began.elapsed() > TIME {
            break;
        }
        let chain = Chain::new(number + seed, &tally);
        chain.run().unwrap_or_else(|failure| panic!("seed {}: {}", failure.seed, failure.what));
    }
    let crashes = tally.crashes.into_inner();
    println!("{crashes} crashes, {} in recoveries, {} lives", tally.nested.into_inner(), tally.lives.into_inner());
    assert!(crashes > 100 && tally.events.load(Ordering::Relaxed) > 100);
}
