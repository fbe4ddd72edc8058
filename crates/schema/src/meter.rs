//! The limits of one check: steps, memory and stack.
//!
//! The library has no limits, and its callbacks cannot return an error. So the adapter of stored values counts every access
//! here, and beyond a limit the check is unwound up to [`bounded`]. The counters are thread-local, because nodes that the
//! library makes from property names could not reach them otherwise.
//!
//! The check of a long document tests repeatedly whether it is cancelled ([`with_cancel_check`]).

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use super::estimate::Estimate;

/// Called repeatedly, from any thread, during long work; returns true if the work is cancelled, and true from then on.
pub type CancelCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// Bytes that are read, compared or skipped per step.
const BYTES_PER_STEP: usize = 64;

/// Size of an error without its value and its path: the keyword's path through a recursive schema.
const ERROR_BYTES: usize = 8192;

/// Steps that take about a millisecond. The interval of cancellation checks, and the limit of a check while others wait.
pub const CANCEL_CHECK_STEPS: u64 = 8192;

/// The limits of one check.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) steps: u64,
    pub(super) bytes: u64,
    pub(super) stack_bytes: usize,
    /// Steps for entering a value.
    pub(super) visit_steps: u64,
    /// What the library's matching of a field name against all `patternProperties` costs.
    pub(super) names: Estimate,
    /// Memory for each field name that is read, if the library keeps names.
    pub(super) name_bytes: usize,
    /// Results of recursive schemas that the library may cache.
    pub(super) memories: usize,
    /// Address and length of the document's text.
    pub(super) document: (usize, usize),
}

/// Why a check was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The steps ended.
    Steps,
    /// The steps ended while a `pattern` was matched.
    PatternSteps,
    Bytes,
    Depth,
    /// It was cancelled.
    Over,
    /// The library panicked.
    Panic,
}

const NOTHING: Limits = Limits {
    steps: 0,
    bytes: 0,
    stack_bytes: 0,
    visit_steps: 1,
    names: Estimate::NOTHING,
    name_bytes: 0,
    memories: 0,
    document: (0, 0),
};

thread_local! {
    /// The remaining budget of the current check.
    static LEFT: Cell<Limits> = const { Cell::new(NOTHING) };
    /// The lowest permitted stack address.
    static STACK_END: Cell<usize> = const { Cell::new(0) };
    /// The number of remaining steps at which the next cancellation check is due.
    static ASKED_AT: Cell<u64> = const { Cell::new(0) };
    /// The remaining steps of those that [`within`] allows.
    static ALLOWED: Cell<u64> = const { Cell::new(u64::MAX) };
    /// The cancellation check.
    static OVER: RefCell<Option<CancelCheck>> = const { RefCell::new(None) };
}

/// Runs work on this thread, whose JSON Schema checks call `over` about every millisecond. If `over` returns true, the check
/// ends as if the document did not fit; the caller must call `over` to distinguish the two.
pub fn with_cancel_check<R>(over: Option<&CancelCheck>, work: impl FnOnce() -> R) -> R {
    /// Restores the previous cancellation check, even after a panic.
    struct Asked(Option<CancelCheck>);
    impl Drop for Asked {
        fn drop(&mut self) {
            OVER.replace(self.0.take());
        }
    }
    let Some(over) = over else { return work() };
    let _asked = Asked(OVER.replace(Some(Arc::clone(over))));
    work()
}

/// Runs work on this thread, whose JSON Schema checks may take `steps` steps in total. `None` if they reached the limit.
pub fn within<R>(steps: u64, work: impl FnOnce() -> R) -> Option<R> {
    /// Restores the previous limit, even after a panic.
    struct Before(u64);
    impl Drop for Before {
        fn drop(&mut self) {
            ALLOWED.set(self.0);
        }
    }
    let _before = Before(ALLOWED.replace(steps));
    let done = work();
    if ALLOWED.get() == 0 { None } else { Some(done) }
}

/// Runs work that is counted here, and stops it at a limit.
pub(super) fn bounded<R>(limits: &Limits, work: impl FnOnce() -> R) -> Result<R, Stop> {
    let allowed = ALLOWED.get();
    let limits = &Limits { steps: limits.steps.min(allowed), ..*limits };
    let left = LEFT.replace(*limits);
    let is_asked = OVER.with_borrow(Option::is_some);
    let asked_at = ASKED_AT.replace(if is_asked { limits.steps.saturating_sub(CANCEL_CHECK_STEPS) } else { 0 });
    let stack_end = STACK_END.replace(stack_position().saturating_sub(limits.stack_bytes));
    // Sound, because the library keeps no state of a check.
    let done = catch_unwind(AssertUnwindSafe(work));
    let done = done.map_err(|payload| payload.downcast_ref::<Stop>().copied().unwrap_or(Stop::Panic));
    if allowed < u64::MAX {
        let was_enough = limits.steps < allowed || !matches!(done, Err(Stop::Steps | Stop::PatternSteps));
        let taken = limits.steps - LEFT.get().steps;
        ALLOWED.set(if was_enough { allowed - taken } else { 0 });
    }
    LEFT.set(left);
    ASKED_AT.set(asked_at);
    STACK_END.set(stack_end);
    done
}

/// Counts the reading of a value of so many bytes.
#[inline]
pub(super) fn read(bytes: usize) {
    take_steps(1 + (bytes / BYTES_PER_STEP) as u64);
}

/// Counts the entering of a value after skipping so many bytes.
#[inline]
pub(super) fn enter(bytes: usize) {
    take_steps(LEFT.get().visit_steps + (bytes / BYTES_PER_STEP) as u64);
    // Stacks grow downwards.
    if stack_position() < STACK_END.get() {
        stop(Stop::Depth);
    }
}

/// Counts steps of matching a pattern.
#[inline]
pub(super) fn pattern(steps: u64) {
    take(steps, Stop::PatternSteps);
}

/// Stops the check because of a pattern that backtracks too often.
pub(super) fn pattern_stopped() -> ! {
    stop(Stop::PatternSteps)
}

/// Counts the reading of a field's name of so many bytes.
#[inline]
pub(super) fn name(bytes: usize) {
    read(bytes);
    let Limits { names, name_bytes, .. } = LEFT.get();
    pattern(names.steps(bytes));
    if name_bytes > 0 {
        take_bytes(name_bytes + bytes);
    }
}

/// Whether one more result may be cached.
pub(super) fn remembers() -> bool {
    let mut left = LEFT.get();
    let Some(memories) = left.memories.checked_sub(1) else { return false };
    left.memories = memories;
    LEFT.set(left);
    true
}

/// Counts an error about a value: its path is at most twice as long as the text before the value.
pub(super) fn error(value: &[u8]) {
    let (document, len) = LEFT.get().document;
    // A field's name is a copy outside the document. For it the whole document counts as the text before the value.
    let before = (value.as_ptr() as usize).checked_sub(document).unwrap_or(len).min(len);
    take_bytes(ERROR_BYTES + 2 * before);
}

/// Counts allocated memory.
pub(super) fn take_bytes(bytes: usize) {
    let mut left = LEFT.get();
    match left.bytes.checked_sub(bytes as u64) {
        Some(bytes) => left.bytes = bytes,
        None => stop(Stop::Bytes),
    }
    LEFT.set(left);
}

/// Counts freed memory.
pub(super) fn give_bytes(bytes: usize) {
    let mut left = LEFT.get();
    left.bytes += bytes as u64;
    LEFT.set(left);
}

#[inline]
fn take_steps(steps: u64) {
    take(steps, Stop::Steps);
}

#[inline]
fn take(steps: u64, otherwise: Stop) {
    let mut left = LEFT.get();
    match left.steps.checked_sub(steps) {
        Some(steps) => left.steps = steps,
        None => stop(otherwise),
    }
    LEFT.set(left);
    if left.steps < ASKED_AT.get() {
        ask(left.steps);
    }
}

#[cold]
fn ask(left: u64) {
    ASKED_AT.set(left.saturating_sub(CANCEL_CHECK_STEPS));
    if OVER.with_borrow(|over| over.as_ref().is_some_and(|over| over())) {
        stop(Stop::Over);
    }
}

#[cold]
fn stop(why: Stop) -> ! {
    // `resume_unwind` runs no panic hook, so no message is printed.
    resume_unwind(Box::new(why))
}

/// The approximate stack address.
#[inline(never)]
fn stack_position() -> usize {
    let here = 0u8;
    std::ptr::from_ref(std::hint::black_box(&here)) as usize
}
