//! The states of one loop, and the calls of their hooks.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::event_loop::core::Core;
use crate::event_loop::state::{LoopContext, LoopState};
use crate::kernel::{Poller, Token};
use crate::timers::TimerKey;

/// Tokens of the states' descriptors: generation 0, slots from this one on.
pub(crate) const COMPLETIONS_FROM: u32 = 1 << 16;

struct Hooked {
    state: Box<dyn LoopState>,
    index: u32,
    /// The descriptor of [`LoopState::completions`] became readable.
    has_completed: bool,
    /// The state's timer, while it is set.
    timer: Option<TimerKey>,
}

/// The hooks of one loop's states.
#[derive(Default)]
pub(crate) struct Hooks(Vec<Hooked>);

impl Hooks {
    /// Adds a state and registers its descriptor.
    pub(crate) fn add(&mut self, state: Box<dyn LoopState>, poller: &Poller) -> io::Result<()> {
        let index = self.0.len() as u32;
        if let Some(fd) = state.completions() {
            poller.register_fd(fd, Token { slot: COMPLETIONS_FROM + index, generation: 0 })?;
        }
        self.0.push(Hooked { state, index, has_completed: false, timer: None });
        Ok(())
    }

    /// Handles an event of a state's descriptor. `false`: the token belongs to none of them.
    pub(crate) fn event(&mut self, token: Token) -> bool {
        let index = token.slot.checked_sub(COMPLETIONS_FROM);
        let hooked = index.and_then(|index| self.0.get_mut(index as usize));
        hooked.is_some_and(|hooked| {
            hooked.has_completed = true;
            true
        })
    }

    /// Calls a hook of all states.
    #[inline]
    pub(crate) fn call(&mut self, core: &mut Core, hook: fn(&mut dyn LoopState, &mut LoopContext<'_>)) {
        for hooked in &mut self.0 {
            hooked.call(core, hook);
        }
    }

    /// Calls `completed` of the states whose descriptor became readable.
    #[inline]
    pub(crate) fn call_completed(&mut self, core: &mut Core) {
        for hooked in &mut self.0 {
            if std::mem::take(&mut hooked.has_completed) {
                hooked.call(core, |state, at| state.completed(at));
            }
        }
    }

    /// Calls a state's expired timer.
    pub(crate) fn call_timer(&mut self, index: u32, core: &mut Core) {
        if let Some(hooked) = self.0.get_mut(index as usize) {
            hooked.timer = None;
            hooked.call(core, |state, at| state.timer(at));
        }
    }
}

impl Hooked {
    fn call(&mut self, core: &mut Core, hook: fn(&mut dyn LoopState, &mut LoopContext<'_>)) {
        let Hooked { state, index, timer, .. } = self;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            hook(state.as_mut(), &mut LoopContext { core, index: *index, timer });
        }));
        core.lp.member().counters.panics.add(u64::from(panicked.is_err()));
    }
}
