//! The open model's plan for one loop: which requests are due, and which is the next to be taken.
//!
//! Two cursors run over the same moments. The first is at the next request that becomes due, the second at the next to be taken.
//! The requests between them wait: they are a number, not a queue, so waiting takes no memory however long the server stalls.

use crate::profile::{Moments, PlannedRequest};

/// The plan of one loop, on the loop's clock.
#[derive(Debug)]
pub(super) struct Plan {
    start_ns: u64,
    due: Moments,
    next_due: Option<PlannedRequest>,
    untaken: Moments,
    next_untaken: Option<PlannedRequest>,
    waiting: u64,
}

impl Plan {
    /// A run that starts at `start_ns`.
    pub(super) fn new(mut due: Moments, start_ns: u64) -> Self {
        let next_due = due.next();
        Self { start_ns, untaken: due.clone(), next_untaken: next_due, due, next_due, waiting: 0 }
    }

    /// The moment at which the next request becomes due. `None`: all are due.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.next_due.map(|moment| self.start_ns + moment.at_ns)
    }

    /// Counts one more request as due, if its moment has come, and returns that moment.
    pub(super) fn come_due(&mut self, now_ns: u64) -> Option<u64> {
        let due_ns = self.next_due_ns().filter(|due_ns| *due_ns <= now_ns)?;
        self.next_due = self.due.next();
        self.waiting += 1;
        Some(due_ns)
    }

    /// Requests that are due and not taken.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// The planned moment of the first waiting request.
    pub(super) fn first_waiting_ns(&self) -> Option<u64> {
        let first = self.next_untaken.filter(|_| self.waiting > 0);
        first.map(|moment| self.start_ns + moment.at_ns)
    }

    /// Takes the first waiting request: its planned moment and its part of the profile.
    pub(super) fn take(&mut self) -> Option<(u64, u32)> {
        self.waiting = self.waiting.checked_sub(1)?;
        let taken = std::mem::replace(&mut self.next_untaken, self.untaken.next());
        taken.map(|moment| (self.start_ns + moment.at_ns, moment.part))
    }

    /// Makes no further request due, and drops the waiting ones: the run was stopped, or its source has ended.
    pub(super) fn end(&mut self) {
        (self.next_due, self.waiting) = (None, 0);
    }

    /// Whether no request waits and none will become due.
    pub(super) fn is_over(&self) -> bool {
        self.next_due.is_none() && self.waiting == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use std::sync::Arc;

    fn plan(text: &str) -> Plan {
        Plan::new(Moments::new(Arc::new(Profile::parse(text).unwrap()), 0, 1), 1_000)
    }

    #[test]
    fn requests_become_due_at_their_moments_and_are_taken_in_order() {
        let mut plan = plan("const(2,2s)");
        assert_eq!((plan.next_due_ns(), plan.come_due(999)), (Some(1_000), None));
        assert_eq!((plan.come_due(1_000_000_000), plan.come_due(1_000_000_000)), (Some(1_000), Some(500_001_000)));
        assert_eq!((plan.come_due(1_000_000_000), plan.waiting()), (None, 2));
        assert_eq!((plan.first_waiting_ns(), plan.take()), (Some(1_000), Some((1_000, 0))));
        assert_eq!(
            (plan.first_waiting_ns(), plan.take(), plan.take()),
            (Some(500_001_000), Some((500_001_000, 0)), None)
        );
        assert!(!plan.is_over() && plan.first_waiting_ns().is_none());
        while plan.come_due(u64::MAX).is_some() {}
        assert_eq!((plan.waiting(), plan.next_due_ns()), (2, None));
    }

    #[test]
    fn an_ended_plan_is_over() {
        let mut plan = plan("const(2,2s)");
        plan.come_due(1_000);
        plan.end();
        assert!(plan.is_over() && plan.take().is_none() && plan.come_due(u64::MAX).is_none());
    }
}
