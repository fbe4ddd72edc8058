//! How the memory setting is divided: every queue, buffer and cache of the process has its part, and the parts' sum
//! stays under the setting. Mapped pages of the data file are the kernel's and count apart.

use crate::config::ServerConfig;

/// What one connection can hold at most: unparsed input and unsent output.
pub(crate) const INPUT_BYTES_MAX: usize = 32 * 1024;
/// A write queue above this stops its connection's input.
pub(crate) const OUTPUT_HIGH_WATER: usize = 32 * 1024;
const CONNECTION_BYTES_MAX: usize = INPUT_BYTES_MAX + OUTPUT_HIGH_WATER + 2 * 1024;
/// Threads for queries of the general API.
pub(crate) const POOL_THREADS: usize = 2;
/// One memtable is never larger: what it holds is replayed after a crash, which should take well under a second.
const MEMTABLE_BYTES_MOST: usize = 32 << 20;

/// The parts, in bytes, and what follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Each of the two memtables.
    pub(crate) memtable_bytes: usize,
    /// Rows and work memory of one query; every loop and every pool thread may run one.
    pub(crate) query_bytes: usize,
    /// Bodies being gathered, of each loop.
    pub(crate) gathered_bytes: usize,
    /// Bodies of writes that wait for the store.
    pub(crate) writes_bytes: usize,
    /// Connections, by what each can hold.
    pub(crate) connections: usize,
}

impl Division {
    /// Divides the setting: a sixteenth for the memtables, a quarter for queries, an eighth each for bodies that come in
    /// and for writes that wait, three eighths for connections. The last sixteenth is for what has a small fixed size:
    /// stacks, the log's buffers, code.
    pub(crate) fn of(config: &ServerConfig) -> Division {
        let memory = usize::try_from(config.memory_bytes).unwrap_or(usize::MAX);
        let runners = config.threads + POOL_THREADS;
        let connections = memory / 8 * 3 / CONNECTION_BYTES_MAX;
        Division {
            memtable_bytes: (memory / 32).min(MEMTABLE_BYTES_MOST) / 4096 * 4096,
            // A query has a result and, as much again, what it sorts and groups.
            query_bytes: memory / 4 / runners / 2,
            gathered_bytes: (memory / 8 / config.threads).max(config.body_bytes_max),
            writes_bytes: memory / 8,
            connections: connections.min(config.connections_max).max(1),
        }
    }

    /// The parts by name, for metrics and the log.
    pub(crate) fn parts(&self, threads: usize) -> [(&'static str, usize); 5] {
        [
            ("memtables", 2 * self.memtable_bytes),
            ("queries", 2 * self.query_bytes * (threads + POOL_THREADS)),
            ("bodies", self.gathered_bytes * threads),
            ("waiting_writes", self.writes_bytes),
            ("connections", self.connections * CONNECTION_BYTES_MAX),
        ]
    }
}

#[cfg(test)]
mod sum {
    use super::Division;
    use crate::config::ServerConfig;

    #[test]
    fn the_parts_stay_under_the_setting() {
        for memory_bytes in [64 << 20, 256 << 20, 1_000_000_000, 64 << 30] {
            for threads in [1, 2, 8] {
                let config = ServerConfig { memory_bytes, threads, ..ServerConfig::default() };
                let sum: usize = Division::of(&config).parts(threads).iter().map(|(_, bytes)| bytes).sum();
                assert!(sum as u64 <= memory_bytes, "{sum} of {memory_bytes} with {threads} threads");
            }
        }
    }
}
