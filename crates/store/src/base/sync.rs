//! All synchronisation of the engine: locks, conditions, atomics, channels, threads, and the clock by which they wait.
//!
//! In the product it is the standard library. With the feature `schedules` it is the scheduler of the crate `schedules`: of all
//! threads one runs at a time, and a seed decides which, and whether a timed wait ends before it is woken. So a whole engine can
//! be run through many interleavings, and each can be repeated.
//!
//! No other module takes these from `std`: only `Arc` and `Weak`, which no thread waits for. The exceptions, with their reasons,
//! are a list in `xtask/src/layers.rs`.

#[cfg(feature = "schedules")]
pub(crate) use schedules::{
    Condvar, DefaultHashBuilder, Instant, Mutex, MutexGuard, OnceLock, RwLock, atomic, mpsc, spin_loop, thread,
    thread_local,
};

#[cfg(not(feature = "schedules"))]
pub(crate) use {
    hashbrown::DefaultHashBuilder,
    std::{
        hint::spin_loop,
        sync::{Condvar, Mutex, MutexGuard, OnceLock, RwLock, atomic, mpsc},
        thread, thread_local,
        time::Instant,
    },
};

pub(crate) use std::sync::{PoisonError, TryLockError};

/// For modules small enough that a model runs through every interleaving, and through what weak memory allows beside them. The
/// feature `loom` is for these models alone.
pub(crate) mod modelled {
    #[cfg(feature = "loom")]
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard, atomic};

    #[cfg(not(feature = "loom"))]
    pub(crate) use {
        super::{Condvar, Mutex, MutexGuard, atomic},
        std::sync::Arc,
    };
}
