//! Counters of one loop, written only by its thread and read by any: requests, errors, latencies, by command and by node.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::commands::{COMMANDS_MAX, CommandId};
use crate::config::NODE_NUMBERS_MAX;

/// Buckets of a latency histogram: bucket `n` counts latencies below 2^`n` × 16 µs, the last one all others.
pub const LATENCY_BUCKETS: usize = 20;
const FIRST_BUCKET_NS_LOG2: u32 = 14;

/// A counter with a single writer thread.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds, without an atomic read-modify-write: there is only one writer.
    #[inline]
    pub(crate) fn add(&self, number: u64) {
        self.0.store(self.get().wrapping_add(number), Ordering::Relaxed);
    }

    /// Subtracts.
    #[inline]
    pub(crate) fn subtract(&self, number: u64) {
        self.0.store(self.get().wrapping_sub(number), Ordering::Relaxed);
    }

    pub(crate) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Its value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct LatencyHistogram {
    /// See [`LATENCY_BUCKETS`].
    pub buckets: [Counter; LATENCY_BUCKETS],
    /// Sum, in nanoseconds.
    pub sum_ns: Counter,
}

impl LatencyHistogram {
    #[inline]
    fn record(&self, nanoseconds: u64) {
        let bits = u64::BITS - (nanoseconds >> FIRST_BUCKET_NS_LOG2).leading_zeros();
        self.buckets[(bits as usize).min(LATENCY_BUCKETS - 1)].add(1);
        self.sum_ns.add(nanoseconds);
    }

    /// The upper bound of this bucket; none for the last one.
    pub fn bound(bucket: usize) -> Option<Duration> {
        (bucket + 1 < LATENCY_BUCKETS).then(|| Duration::from_nanos(1 << (FIRST_BUCKET_NS_LOG2 as usize + bucket)))
    }
}

/// Requests of one command or node.
#[derive(Debug, Default)]
pub struct Requests {
    /// Those that ended: answered by a node, or lost.
    pub answered: Counter,
    /// Those answered with an error, and those that no node answered.
    pub errors: Counter,
    /// From the client's request to the end of the node's reply; the loop's clock advances once per tick.
    pub latency: LatencyHistogram,
}

/// Counters of one node.
#[derive(Debug, Default)]
pub struct NodeCounters {
    /// Its requests.
    pub requests: Requests,
    /// Requests that it has not answered.
    pub in_flight: Counter,
    /// Connections that were made to it.
    pub connected: Counter,
    /// Connections to it that broke, or could not be made.
    pub failed: Counter,
    /// Number of times that this loop ejected it: see [`crate::config::Ejection`].
    pub ejections: Counter,
    /// 1 while the last attempt to reach it failed.
    pub is_down: Counter,
}

/// Counters of one loop.
#[derive(Debug)]
pub struct LoopCounters {
    /// Indexed by [`CommandId`].
    pub commands: Box<[Requests]>,
    /// Indexed by the node's number.
    pub nodes: Box<[NodeCounters]>,
    /// The nodes' names, indexed by their numbers.
    node_names: Mutex<Vec<String>>,
    /// Clients that are connected.
    pub clients: Counter,
    /// Requests that the proxy itself answered with an error.
    pub refused: Counter,
    /// Clients that were disconnected because they did not read.
    pub stalled: Counter,
    /// Node connections that are reserved for one client.
    pub own_connections: Counter,
    /// Bytes of replies that wait for earlier ones.
    pub kept_bytes: Counter,
}

impl Default for LoopCounters {
    fn default() -> LoopCounters {
        LoopCounters {
            commands: (0..COMMANDS_MAX).map(|_| Requests::default()).collect(),
            nodes: (0..NODE_NUMBERS_MAX).map(|_| NodeCounters::default()).collect(),
            node_names: Mutex::default(),
            clients: Counter::default(),
            refused: Counter::default(),
            stalled: Counter::default(),
            own_connections: Counter::default(),
            kept_bytes: Counter::default(),
        }
    }
}

impl LoopCounters {
    /// The nodes' names, indexed by their numbers. The name of a removed node stays until another node takes its number.
    pub fn node_names(&self) -> Vec<String> {
        self.node_names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_node_names(&self, names: Vec<String>) {
        *self.node_names.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    #[inline]
    pub(crate) fn sent(&self, node: u16) {
        self.nodes[usize::from(node)].in_flight.add(1);
    }

    /// A node has answered, or its reply is lost.
    #[inline]
    pub(crate) fn answered(&self, node: u16, command: CommandId, nanoseconds: u64, is_error: bool) {
        let node = &self.nodes[usize::from(node)];
        node.in_flight.subtract(1);
        for requests in [&node.requests, &self.commands[usize::from(command.0)]] {
            requests.answered.add(1);
            requests.errors.add(u64::from(is_error));
            requests.latency.record(nanoseconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_counts_below_its_bucket_s_bound() {
        for (microseconds, bucket) in [(0, 0), (16, 0), (17, 1), (32, 1), (33, 2), (1000, 6), (u64::MAX / 2000, 19)] {
            let latency = LatencyHistogram::default();
            latency.record(microseconds * 1000);
            let at = latency.buckets.iter().position(|count| count.get() == 1).unwrap();
            assert_eq!(at, bucket, "{microseconds} µs");
            assert!(LatencyHistogram::bound(at).is_none_or(|bound| Duration::from_micros(microseconds) < bound));
        }
    }
}
