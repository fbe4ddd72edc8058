//! How the memory setting is divided: every queue, buffer and cache of the process has its part, and the parts' sum
//! stays under the setting. Mapped pages of the data file are the kernel's and count apart.

use crate::config::ServerConfig;
use crate::config::size::written;

/// What one connection can hold at most: unparsed input and unsent output.
pub(crate) const INPUT_BYTES_MAX: usize = 32 * 1024;
/// A write queue above this stops its connection's input.
pub(crate) const OUTPUT_HIGH_WATER: usize = 32 * 1024;
const CONNECTION_BYTES_MAX: usize = INPUT_BYTES_MAX + OUTPUT_HIGH_WATER + 2 * 1024;
/// Threads for queries of the general API.
pub(crate) const POOL_THREADS: usize = 2;
/// One memtable is never larger: what it holds is replayed after a crash, which should take well under a second.
const MEMTABLE_BYTES_MOST: usize = 32 << 20;

/// Connections where the file does not say how many.
const CONNECTIONS_DEFAULT: usize = 10_000;

/// Bytes of a request's body where the file does not say how many: any memory allows them.
pub(crate) const BODY_BYTES_DEFAULT: usize = 1 << 20;

/// A setting that the memory is too small for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// The key of `[server]` that asks too much.
    pub(crate) key: &'static str,
    /// What is wrong.
    pub(crate) what: String,
    /// What would do.
    pub(crate) allowed: String,
}

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
    /// Large replies that wait for their clients.
    pub(crate) replies_bytes: usize,
    /// Connections, by what each can hold.
    pub(crate) connections: usize,
}

impl Division {
    /// Divides the setting by sixteenths: one for the memtables, three for queries, two each for bodies that come in, for
    /// writes that wait and for large replies, five for connections. The last one is for what has a small fixed size:
    /// stacks, the log's buffers, code.
    pub(crate) fn of(config: &ServerConfig) -> Division {
        let memory = usize::try_from(config.memory_bytes).unwrap_or(usize::MAX);
        let runners = config.threads + POOL_THREADS;
        let allowed = memory / 16 * 5 / CONNECTION_BYTES_MAX;
        Division {
            memtable_bytes: (memory / 32).min(MEMTABLE_BYTES_MOST) / 4096 * 4096,
            // A query has a result and, as much again, what it sorts and groups.
            query_bytes: memory / 16 * 3 / runners / 2,
            gathered_bytes: (memory / 8 / config.threads).max(gathering_bytes(config)),
            writes_bytes: memory / 8,
            replies_bytes: memory / 8,
            connections: allowed.min(config.connections_max.unwrap_or(CONNECTIONS_DEFAULT)).max(1),
        }
    }

    /// Whether the parts hold what the file asks for: the connections that it names, and on each loop one body of the
    /// permitted size.
    pub(crate) fn check(config: &ServerConfig) -> Result<(), Shortage> {
        let division = Division::of(config);
        let memory = written(config.memory_bytes);
        if let Some(asked) = config.connections_max.filter(|asked| *asked > division.connections) {
            let needed = asked.saturating_mul(CONNECTION_BYTES_MAX).saturating_mul(16) / 5;
            let (most, enough) = (division.connections, enough(needed));
            return Err(Shortage {
                key: "connections_max",
                what: format!("{asked} connections do not fit into memory = \"{memory}\""),
                allowed: format!("up to {most}, or memory = \"{enough}\""),
            });
        }
        let body = gathering_bytes(config);
        let share = config.memory_bytes / 8 / config.threads as u64;
        if config.body_bytes_max > BODY_BYTES_DEFAULT && body as u64 > share {
            let threads = config.threads;
            let most = share.saturating_sub(2 * config.head_bytes_max as u64).max(BODY_BYTES_DEFAULT as u64);
            let most = written(most / 1_000 * 1_000);
            let enough = enough(body.saturating_mul(8).saturating_mul(threads));
            return Err(Shortage {
                key: "body_bytes_max",
                what: format!(
                    "bodies of {} do not fit into memory = \"{memory}\" with {threads} threads",
                    written(config.body_bytes_max as u64)
                ),
                allowed: format!("up to {most}, memory = \"{enough}\", or fewer threads"),
            });
        }
        Ok(())
    }

    /// The parts by name, for metrics and the log.
    pub(crate) fn parts(&self, threads: usize) -> [(&'static str, usize); 6] {
        [
            ("memtables", 2 * self.memtable_bytes),
            ("queries", 2 * self.query_bytes * (threads + POOL_THREADS)),
            ("bodies", self.gathered_bytes * threads),
            ("waiting_writes", self.writes_bytes),
            ("large_replies", self.replies_bytes),
            ("connections", self.connections * CONNECTION_BYTES_MAX),
        ]
    }
}

/// What one body of the permitted size takes while it is gathered: its buffer never grows past it; a head's may double.
fn gathering_bytes(config: &ServerConfig) -> usize {
    config.body_bytes_max + 2 * config.head_bytes_max
}

/// So many bytes, rounded up to what a person would write.
fn enough(bytes: usize) -> String {
    written((bytes as u64).div_ceil(1_000_000) * 1_000_000)
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
