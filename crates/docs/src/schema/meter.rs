//! The bounds of one check: steps, bytes and stack.
//!
//! The library that checks knows no bounds, and what it calls has no way to give it an error. So the adapter of stored values
//! counts here whatever it is asked, and past a bound the check is unwound up to [`bounded`]. The counts are the thread's: nodes
//! that the library makes of property names have no other way to them.
//!
//! A check of a document that is long asks in between whether anybody still wants it ([`asking`]).

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::writing::Question;

/// Bytes that are read, compared or skipped for one step.
const BYTES_PER_STEP: usize = 64;
/// A backtracking pattern may look at each byte of its text once for each place that it tries. So many are one step.
const PATTERN_BYTES_PER_STEP: usize = 1024;

/// Bytes that an error takes apart from its value and its place: the way to its keyword through a schema that recurs.
const ERROR_BYTES: usize = 8192;

/// Steps of a millisecond or so: between two questions whether the check is still wanted, and of a check where others wait.
pub(crate) const QUESTION_STEPS: u64 = 8192;

/// What one check may take.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) steps: u64,
    pub(super) bytes: u64,
    pub(super) stack_bytes: usize,
    /// Steps for entering a value.
    pub(super) visit_steps: u64,
    /// The most backtracks of a pattern, where the schema has patterns that backtrack; else 0.
    pub(super) backtracks: usize,
    /// Bytes for each name of a field that is read, where the library keeps names.
    pub(super) name_bytes: usize,
    /// Results of recursive schemas that the library may remember.
    pub(super) memories: usize,
    /// Where the document's text is, and how long.
    pub(super) document: (usize, usize),
}

/// Which bound a check met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Steps,
    Bytes,
    Depth,
    /// Nobody wants it any more.
    Over,
    /// The library panicked.
    Panic,
}

const NOTHING: Limits = Limits {
    steps: 0,
    bytes: 0,
    stack_bytes: 0,
    visit_steps: 1,
    backtracks: 0,
    name_bytes: 0,
    memories: 0,
    document: (0, 0),
};

thread_local! {
    /// What is left of the check under way.
    static LEFT: Cell<Limits> = const { Cell::new(NOTHING) };
    /// How far down its stack may grow.
    static STACK_END: Cell<usize> = const { Cell::new(0) };
    /// The number of steps left at which the next question is asked.
    static ASKED_AT: Cell<u64> = const { Cell::new(0) };
    /// Steps that are left of those that [`within`] allows.
    static ALLOWED: Cell<u64> = const { Cell::new(u64::MAX) };
    /// The question.
    static OVER: RefCell<Option<Question>> = const { RefCell::new(None) };
}

/// Does work on this thread whose checks by a JSON Schema ask a question about every millisecond. If the answer is yes, a check ends
/// as if the document did not fit: who does the work asks the question too, to know.
pub fn asking<R>(over: Option<&Question>, work: impl FnOnce() -> R) -> R {
    /// However the work ends, the next is not asked for.
    struct Asked(Option<Question>);
    impl Drop for Asked {
        fn drop(&mut self) {
            OVER.replace(self.0.take());
        }
    }
    let Some(over) = over else { return work() };
    let _asked = Asked(OVER.replace(Some(Question::clone(over))));
    work()
}

/// Does work on this thread whose checks by a JSON Schema take so many steps at most, all together; `None` where they would have
/// taken more.
pub(crate) fn within<R>(steps: u64, work: impl FnOnce() -> R) -> Option<R> {
    /// However the work ends, the next has what was left before.
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

/// Does work that counts here, and ends it where it meets a bound.
pub(super) fn bounded<R>(limits: &Limits, work: impl FnOnce() -> R) -> Result<R, Stop> {
    let allowed = ALLOWED.get();
    let limits = &Limits { steps: limits.steps.min(allowed), ..*limits };
    let left = LEFT.replace(*limits);
    let is_asked = OVER.with_borrow(Option::is_some);
    let asked_at = ASKED_AT.replace(if is_asked { limits.steps.saturating_sub(QUESTION_STEPS) } else { 0 });
    let stack_end = STACK_END.replace(stack_position().saturating_sub(limits.stack_bytes));
    // The library keeps nothing of a check: whatever is unwound is dropped.
    let done = catch_unwind(AssertUnwindSafe(work));
    let done = done.map_err(|payload| payload.downcast_ref::<Stop>().copied().unwrap_or(Stop::Panic));
    if allowed < u64::MAX {
        let was_enough = limits.steps < allowed || !matches!(done, Err(Stop::Steps));
        let taken = limits.steps - LEFT.get().steps;
        ALLOWED.set(if was_enough { allowed - taken } else { 0 });
    }
    LEFT.set(left);
    ASKED_AT.set(asked_at);
    STACK_END.set(stack_end);
    done
}

/// Counts the reading of a value, of which so many bytes are looked at.
#[inline]
pub(super) fn read(bytes: usize) {
    take_steps(1 + (bytes / BYTES_PER_STEP) as u64);
}

/// Counts the entering of a value, to which so many bytes are skipped.
#[inline]
pub(super) fn enter(bytes: usize) {
    take_steps(LEFT.get().visit_steps + (bytes / BYTES_PER_STEP) as u64);
    // Stacks grow downwards.
    if stack_position() < STACK_END.get() {
        stop(Stop::Depth);
    }
}

/// Counts a text that a pattern may be matched with.
#[inline]
pub(super) fn text(bytes: usize) {
    let tries = bytes.min(LEFT.get().backtracks);
    take_steps(1 + (bytes / BYTES_PER_STEP) as u64 + (bytes.saturating_mul(tries) / PATTERN_BYTES_PER_STEP) as u64);
}

/// Counts the reading of a field's name of so many bytes.
#[inline]
pub(super) fn name(bytes: usize) {
    text(bytes);
    let name_bytes = LEFT.get().name_bytes;
    if name_bytes > 0 {
        take_bytes(name_bytes + bytes);
    }
}

/// Whether one more result may be remembered.
pub(super) fn remembers() -> bool {
    let mut left = LEFT.get();
    let Some(memories) = left.memories.checked_sub(1) else { return false };
    left.memories = memories;
    LEFT.set(left);
    true
}

/// Counts an error about a value: its path is no longer than twice what is written before the value.
pub(super) fn error(value: &[u8]) {
    let (document, len) = LEFT.get().document;
    // A field's name is copied before it is looked at: it is anywhere.
    let before = (value.as_ptr() as usize).checked_sub(document).unwrap_or(len).min(len);
    take_bytes(ERROR_BYTES + 2 * before);
}

/// Counts memory.
pub(super) fn take_bytes(bytes: usize) {
    let mut left = LEFT.get();
    match left.bytes.checked_sub(bytes as u64) {
        Some(bytes) => left.bytes = bytes,
        None => stop(Stop::Bytes),
    }
    LEFT.set(left);
}

/// Counts memory that was given back.
pub(super) fn give_bytes(bytes: usize) {
    let mut left = LEFT.get();
    left.bytes += bytes as u64;
    LEFT.set(left);
}

#[inline]
fn take_steps(steps: u64) {
    let mut left = LEFT.get();
    match left.steps.checked_sub(steps) {
        Some(steps) => left.steps = steps,
        None => stop(Stop::Steps),
    }
    LEFT.set(left);
    if left.steps < ASKED_AT.get() {
        ask(left.steps);
    }
}

#[cold]
fn ask(left: u64) {
    ASKED_AT.set(left.saturating_sub(QUESTION_STEPS));
    if OVER.with_borrow(|over| over.as_ref().is_some_and(|over| over())) {
        stop(Stop::Over);
    }
}

#[cold]
fn stop(why: Stop) -> ! {
    // Without a message: no hook runs.
    resume_unwind(Box::new(why))
}

/// About where the stack is.
#[inline(never)]
fn stack_position() -> usize {
    let here = 0u8;
    std::ptr::from_ref(std::hint::black_box(&here)) as usize
}
