//! A loop's view of a node: whether it is reachable, and when it is tried again.
//!
//! A node is tried when a request needs it. After a failed attempt it is not tried for a time that doubles up to
//! [`BACK_OFF_MAX`], with jitter so that loops and proxies do not retry at the same moment. Meanwhile requests for its keys are
//! answered with an error at once. A node that becomes reachable is therefore used again within that time.

use std::time::Duration;

use crate::config::NodeConfig;

const BACK_OFF_MIN: Duration = Duration::from_millis(20);
const BACK_OFF_MAX: Duration = Duration::from_millis(640);

/// See the module.
pub(crate) struct Node {
    pub(crate) config: NodeConfig,
    /// Whether it is in the current list of nodes.
    pub(crate) is_listed: bool,
    failures: u32,
    /// Failed connections since its last reply.
    misses: u32,
    retry_at_ns: u64,
    /// Error of the last attempt.
    failure: String,
}

impl Node {
    pub(crate) fn new(config: NodeConfig) -> Node {
        Node { config, is_listed: true, failures: 0, misses: 0, retry_at_ns: 0, failure: String::new() }
    }

    /// Whether it is the node that a list names so.
    pub(crate) fn is_at(&self, config: &NodeConfig) -> bool {
        self.config.name == config.name && self.config.address == config.address
    }

    /// Whether it is one of these.
    pub(crate) fn is_at_one_of(&self, list: &[NodeConfig]) -> bool {
        list.iter().any(|config| self.is_at(config))
    }

    /// Whether it may be tried now.
    pub(crate) fn may_try(&self, now_ns: u64) -> bool {
        now_ns >= self.retry_at_ns
    }

    /// A connection to it was made.
    pub(crate) fn succeeded(&mut self) {
        (self.failures, self.retry_at_ns) = (0, 0);
    }

    /// It has answered a request.
    #[inline]
    pub(crate) fn answered(&mut self) {
        self.misses = 0;
    }

    /// Counts a failed connection. `true`: the permitted number in a row is reached; counting starts anew.
    pub(crate) fn misses_too_often(&mut self, failures_max: u32) -> bool {
        self.misses += 1;
        let is_too_often = self.misses >= failures_max;
        if is_too_often {
            self.misses = 0;
        }
        is_too_often
    }

    /// Records a failed attempt. `random` is any number.
    pub(crate) fn failed(&mut self, now_ns: u64, failure: String, random: u64) {
        let back_off = BACK_OFF_MIN.saturating_mul(1 << self.failures.min(16)).min(BACK_OFF_MAX);
        let half = back_off.as_nanos() as u64 / 2;
        self.failures = self.failures.saturating_add(1);
        self.retry_at_ns = now_ns + half + random % half;
        self.failure = failure;
    }

    /// The reply to a request for a node that cannot be reached.
    pub(crate) fn down(&self) -> Vec<u8> {
        format!("-ERR node {} is down: {}\r\n", self.config.name, one_line(&self.failure)).into_bytes()
    }

    /// The reply to a request that was lost with its connection.
    pub(crate) fn lost(&self, reason: &str) -> Vec<u8> {
        format!("-ERR node {} did not answer: {}\r\n", self.config.name, one_line(reason)).into_bytes()
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        Node::new(NodeConfig {
            name: "n".into(),
            address: std::path::PathBuf::from("/n").into(),
            weight: 1,
            ring_name: "n".into(),
        })
    }

    #[test]
    fn back_off_doubles_to_its_bound_and_ends_with_a_success() {
        let mut node = node();
        let mut longest = 0;
        for attempt in 0..10 {
            node.failed(1000, "refused\r\n".into(), attempt * 7_777_777);
            assert!(!node.may_try(1000));
            longest = node.retry_at_ns - 1000;
            let most = BACK_OFF_MAX.as_nanos() as u64;
            assert!((BACK_OFF_MIN.as_nanos() as u64 / 2..most).contains(&longest), "{longest}");
        }
        assert!(longest >= BACK_OFF_MAX.as_nanos() as u64 / 2);
        assert_eq!(node.down(), b"-ERR node n is down: refused  \r\n");
        node.succeeded();
        assert!(node.may_try(0));
    }

    #[test]
    fn a_reply_between_two_failures_has_them_counted_anew() {
        let mut node = node();
        assert!(!node.misses_too_often(2));
        node.answered();
        assert!(!node.misses_too_often(2));
        assert!(node.misses_too_often(2));
        assert!(!node.misses_too_often(2));
        assert!(node.misses_too_often(1));
    }
}
