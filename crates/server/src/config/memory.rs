//! Division of the memory setting: every queue, buffer and cache of the process has its part, and the parts' sum stays below the
//! setting. Mapped pages of the data file belong to the kernel and count separately.
//!
//! Fixed needs come first: the process with its threads, the memtables, the work on one document for each writing thread. Bodies
//! and writes follow, at least as large as a single one may be. The rest is divided among queries, replies, connections and their
//! buffers. If the rest is too small to serve, the setting is refused with one that is enough.
//!
//! A buffer that grows by doubling holds up to three times its bytes at the moment of growing: the old buffer, and one twice as
//! large. So a part for `n` bytes of result is counted `3 n`, here and nowhere else.

use super::ServerConfig;
use super::size::written;

/// Limit of one connection's unparsed input; also the bound above which a write queue stops its connection's input.
pub(crate) const INPUT_BYTES_MAX: usize = 32 * 1024;
/// A write queue above this stops its connection's input.
pub(crate) const OUTPUT_HIGH_WATER: usize = 32 * 1024;
/// Threads for queries of the general API.
pub(crate) const POOL_THREADS: usize = 2;
/// Memory of such a thread: the stack that the deepest statements touch, which stays resident.
const POOL_THREAD_BYTES: usize = docs::sql::STACK_BYTES_MAX;
/// Part of the memory for plans of prepared queries: a plan has some kilobytes, and a query has one for each set of optional
/// parameters in requests. The least recently used ones are evicted, and made again in about a tenth of a millisecond.
const PARTS_FOR_PLANS: usize = 256;
const PLAN_BYTES_MOST: usize = 4 << 20;
/// Memory from which on prepared statements of the general API, some kilobytes each, are cached by their text: they get a part of
/// the memory beyond this.
const STATEMENTS_FROM: usize = 32 << 20;
const PARTS_FOR_STATEMENTS: usize = 1024;
const STATEMENT_BYTES_MOST: usize = 4 << 20;
/// Memory of a thread that helps with a scan, or builds a view or an index: its stack, without a statement's tree.
const HELPER_BYTES: usize = 72 << 10;
/// Views are built by as many threads as there are loops, and indexes by one.
const INDEX_BUILDERS: usize = 1;
/// Part of the memory for views that are being built. The verification of a view uses its pool thread's part for a query.
const PARTS_FOR_BUILDING: usize = 256;
const BUILDING_BYTES_MOST: usize = 16 << 20;
/// Factor for a map that has grown, plus its rows in sorted order while they are read out.
const PER_BUILDING_BYTE: usize = 2;
/// Static files that a loop caches in memory: a minimum, which a loop's part includes, and a part of the memory beyond the
/// smallest settings. Files that do not fit are sent from open files.
const FILE_CACHE_BYTES_LEAST: usize = 32 << 10;
const FILE_CACHES_GROW_FROM: usize = 32 << 20;
const PARTS_FOR_FILE_CACHES: usize = 256;
const FILE_CACHES_BYTES_MOST: usize = 64 << 20;
/// Limit of a result on a thread that waits for the disk: larger reads go on to the pool.
pub(crate) const COLD_RESULT_BYTES: usize = 64 << 10;
/// Queue of reads for each of those threads.
pub(crate) const COLD_WAITING_PER_THREAD: usize = 64;

/// Memory for each thread that waits for the disk: small settings have few threads.
const MEMORY_PER_COLD_THREAD: usize = 16 << 20;
const COLD_THREADS_LEAST: usize = 2;
/// Limit of concurrent reads of the disk. Twice as many were no faster.
const COLD_THREADS_MOST: usize = 16;
/// Memory of such a thread: the touched part of its stack, the allocator's cache for it, and its queue.
const COLD_THREAD_BYTES: usize = (128 << 10) + COLD_WAITING_PER_THREAD * (1 << 10);

/// An entry for a read past the page cache: the largest document that is read so, with its pages' headers.
pub(crate) const DIRECT_PLACE_BYTES: usize = 16 << 10;
/// Limit of such entries of each loop: more concurrent reads are no faster, and small settings have few.
const DIRECT_PLACES_MOST: usize = 64;
const DIRECT_PLACES_LEAST: usize = 4;
/// Part of the memory for all of them.
const PARTS_FOR_DIRECT_PLACES: usize = 128;

/// The process before its first request: relocated code, the allocator's tables, the catalog, statements, the log's queue, and
/// three bits for each page of the data file (96 KB for each GB): two bitmaps of its space, and one of checked pages.
const PROCESS_BYTES: usize = 6 << 20;
/// The part of that for endpoints with their statements. Further endpoints have a part of their own.
const PROCESS_ENDPOINT_BYTES: usize = 512 << 10;
/// A reload makes the new endpoints beside the served ones.
const GENERATIONS: usize = 2;
/// Part of the memory for endpoints that a reload adds.
const PARTS_FOR_MORE_ENDPOINTS: usize = 128;
/// A loop: its stack (the touched part), its tables, its first buffers.
const THREAD_BYTES: usize = 640 << 10;
/// Part of the memory for each memtable. Memory beyond a limit gives a larger part, because a checkpoint of more changes writes
/// fewer bytes for each: with 70 MB it writes under 3 KB for a change of 400 bytes among a million documents.
const PARTS_PER_MEMTABLE: usize = 48;
const MEMTABLES_GROW_FROM: usize = 256 << 20;
const PARTS_BEYOND_PER_MEMTABLE: usize = 20;
/// Limit of one memtable: its content is replayed after a crash, which should take well under a second.
const MEMTABLE_BYTES_MOST: usize = 96 << 20;
/// Number of memtables: one that is written, one that is merged, and two more for each of two old states that a long query or a
/// backup still reads. With more such states writes wait (`docs::engine::StoreOptions::memtables_max`).
pub(crate) const MEMTABLES: usize = 6;
/// Part of the memory for a transaction, and its limit in bytes. The part is three eighths of the smallest memtable; the store
/// requires at most a half.
const PARTS_PER_TRANSACTION: usize = PARTS_PER_MEMTABLE * 8 / 3;
const TRANSACTION_BYTES_MOST: usize = 8 << 20;
/// Copies of a document while a write of it is prepared: old, new, and the patched text.
const COPIES_PER_WRITE: usize = 3;
/// Threads of the store that may prepare a write again, or hold a batch.
const COMMITTERS: usize = 2;
/// Bytes of a batch of the log beside one transaction (`docs::engine::StoreOptions`).
const BATCH_BYTES: usize = 1 << 20;
/// Minimum memory of a reader of changes (`store`'s feed).
pub(crate) const CHANGE_READER_BYTES: usize = 256 << 10;
/// Size at which a piece of the feed of changes is closed; its last event may be as large as a transaction.
pub(crate) const CHANGES_CHUNK_BYTES: usize = 64 << 10;
/// Part of the memory of large replies for the feed's window, and its limit: seconds of many changes.
const CHANGES_WINDOW_PARTS: usize = 4;
const CHANGES_WINDOW_BYTES_MOST: usize = 16 << 20;
/// Factor of growing by doubling: see the module's documentation.
const GROWING: usize = 3;
/// A query holds its result and its data for sorting or grouping, which are two buffers of their own. The expressions of a row
/// may need as much (`docs::sql::Budget`); there is room for them, because these buffers are not at their largest at the same
/// time: groups and parts of a range are gathered before there is a result, and sorted rows are returned without computing
/// anything.
const PER_QUERY_BYTE: usize = GROWING + 2;
/// Memory of a prepared write for each byte of its body and its queue entry: values, index entries, reads.
const PREPARED_PER_MILLE: usize = 2_200;
/// An idle connection (`reactor`'s test of ten thousand).
const CONNECTION_BYTES: usize = 2 * 1024;
/// Additional memory of an idle TLS connection (`reactor`'s test of idle TLS connections).
const TLS_BYTES: usize = 8 * 1024;
/// Limit of replies of one connection that wait behind an unanswered request.
pub(crate) const BEHIND_BYTES_MAX: usize = 128 * 1024;
/// Memory that one turn of a connection may take beyond the bound of its loop's buffers, before the largest holders are closed:
/// replies behind an unanswered request, and one more reply in a buffer that has doubled.
const TURN_BYTES: usize = BEHIND_BYTES_MAX + 192 * 1024;
/// Spare buffers that each loop's HTTP keeps.
const SPARE_BYTES: usize = 384 * 1024;
/// Part of a loop's buffers for spare buffers of the reactor, for input and for output each.
const POOL_PARTS_PER_BUFFERS: usize = 8;

/// Room for 190,000 cached document places of one reader; larger tables were not measured.
const PLACES_BYTES_MOST: usize = 4 << 20;

/// Connections beyond the limit: they wait for a place, or ask for health and metrics, which are answered at once.
pub(crate) const RESERVED_CONNECTIONS: usize = 16;
/// All connections beyond the limit: as many again are for the listener of the general API.
pub(crate) const FURTHER_CONNECTIONS: usize = 2 * RESERVED_CONNECTIONS;
/// Default limit of connections.
const CONNECTIONS_DEFAULT: usize = 10_000;
/// Default limit of a request's body.
pub(super) const BODY_BYTES_DEFAULT: usize = 1 << 20;
/// Limit of a query on a loop: a query that needs more goes to the pool.
const LOOP_QUERY_BYTES_MOST: usize = 1 << 20;
/// Limit of memory for sorting while the store is opened.
const SORT_BYTES_MOST: usize = 64 << 20;

/// Memory of a declared query that waits for a thread, besides its values: its place in the queue, its reply, its context.
pub(crate) const WAITING_QUERY_BYTES: usize = 1 << 10;
/// Memory for declared queries that wait for a thread: a minimum, which the process' part includes, and a part of the memory
/// beyond the smallest settings.
const WAITING_QUERIES_BYTES_LEAST: usize = 64 << 10;
const WAITING_QUERIES_GROW_FROM: usize = 32 << 20;
const PARTS_FOR_WAITING_QUERIES: usize = 256;
const WAITING_QUERIES_BYTES_MOST: usize = 16 << 20;

/// The least parts with which a server works: a smaller part makes the setting too small.
const POOL_QUERY_BYTES_LEAST: usize = 128 << 10;
const LOOP_QUERY_BYTES_LEAST: usize = 32 << 10;
/// What a turn leaves on one connection at most: so a connection that is alone on its loop is never the one that holds too much.
const HELD_BYTES_LEAST: usize = TURN_BYTES;
const REPLIES_BYTES_LEAST: usize = 1 << 20;

/// A setting for which the memory is too small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    /// The key of `[server]` that requires too much, or [`Shortage::ENDPOINTS`].
    pub(crate) key: &'static str,
    /// The fault.
    pub(crate) what: String,
    /// Values that would fit.
    pub(crate) allowed: String,
}

impl Shortage {
    /// The file's endpoints require too much.
    pub(crate) const ENDPOINTS: &str = "endpoints";
}

/// The parts, in bytes, and values derived from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Each memtable.
    pub(crate) memtable_bytes: usize,
    /// One transaction of the store: about the largest document.
    pub(crate) transaction_bytes: usize,
    /// Result of one query on a loop, and as much for sorting and grouping.
    pub(crate) loop_query_bytes: usize,
    /// The same for a query on the pool.
    pub(crate) query_bytes: usize,
    /// Bodies being gathered, for each loop.
    pub(crate) gathered_bytes: usize,
    /// Bodies of writes that wait for the store.
    pub(crate) writes_bytes: usize,
    /// The same writes as the store has prepared them.
    pub(crate) prepared_bytes: usize,
    /// Large replies that wait for their clients.
    pub(crate) replies_bytes: usize,
    /// One reader's cache of document places.
    pub(crate) places_bytes: usize,
    /// Threads that wait for the disk.
    pub(crate) cold_threads: usize,
    /// Reads past the page cache that each loop may have in flight.
    pub(crate) direct_places: usize,
    /// Buffers of each loop's connections, spare ones included.
    pub(crate) buffers_bytes: usize,
    /// Connections, including idle ones.
    pub(crate) connections: usize,
    /// Memory of an idle connection.
    connection_bytes: usize,
    /// Data of views that are being built, or of a view that is verified.
    pub(crate) building_bytes: usize,
    /// Plans of prepared queries.
    pub(crate) plan_bytes: usize,
    /// Statements of the general API, prepared.
    pub(crate) statement_bytes: usize,
    /// Declared queries that wait for a thread.
    pub(crate) waiting_query_bytes: usize,
    /// Static files in the memory of all loops, beyond each loop's minimum.
    file_caches_bytes: usize,
    /// Endpoints and their statements of two configurations, beyond the part of the process.
    endpoint_bytes: usize,
    threads: usize,
    /// Threads that help with scans, and that build.
    helpers: usize,
    /// Helper threads of scans: each computes a row of its own.
    query_helpers: usize,
}

impl Division {
    /// Divides the setting. The parts' sum is below it only if [`Division::check`] finds no shortage.
    pub(crate) fn of(config: &ServerConfig) -> Division {
        let memory = usize::try_from(config.memory_bytes).unwrap_or(usize::MAX);
        let threads = config.threads;
        let beyond = memory.saturating_sub(MEMTABLES_GROW_FROM);
        let memtable_bytes = memory / PARTS_PER_MEMTABLE + beyond / PARTS_BEYOND_PER_MEMTABLE;
        let memtable_bytes = memtable_bytes.min(MEMTABLE_BYTES_MOST) / 4096 * 4096;
        let transaction_bytes = (memory / PARTS_PER_TRANSACTION)
            .min(TRANSACTION_BYTES_MOST)
            .min(memory / 6 / COPIES_PER_WRITE / (threads + COMMITTERS));
        let first = Division {
            memtable_bytes,
            transaction_bytes,
            connection_bytes: CONNECTION_BYTES + if config.tls.is_some() { TLS_BYTES } else { 0 },
            threads,
            query_helpers: config.query_threads.saturating_sub(1),
            helpers: config.query_threads.saturating_sub(1) + threads + INDEX_BUILDERS,
            endpoint_bytes: endpoint_bytes(config).saturating_sub(PROCESS_ENDPOINT_BYTES),
            plan_bytes: (memory / PARTS_FOR_PLANS).min(PLAN_BYTES_MOST),
            statement_bytes: (memory.saturating_sub(STATEMENTS_FROM) / PARTS_FOR_STATEMENTS).min(STATEMENT_BYTES_MOST),
            waiting_query_bytes: (WAITING_QUERIES_BYTES_LEAST
                + memory.saturating_sub(WAITING_QUERIES_GROW_FROM) / PARTS_FOR_WAITING_QUERIES)
                .min(WAITING_QUERIES_BYTES_MOST),
            file_caches_bytes: 0,
            building_bytes: (memory / PARTS_FOR_BUILDING).min(BUILDING_BYTES_MOST),
            places_bytes: (memory / 32 / (threads + POOL_THREADS)).min(PLACES_BYTES_MOST),
            cold_threads: (memory / MEMORY_PER_COLD_THREAD).clamp(COLD_THREADS_LEAST, COLD_THREADS_MOST),
            direct_places: (memory / PARTS_FOR_DIRECT_PLACES / DIRECT_PLACE_BYTES / threads)
                .clamp(DIRECT_PLACES_LEAST, DIRECT_PLACES_MOST),
            loop_query_bytes: 0,
            query_bytes: 0,
            gathered_bytes: 0,
            writes_bytes: 0,
            prepared_bytes: 0,
            replies_bytes: 0,
            buffers_bytes: 0,
            connections: 0,
        };
        let rest = memory.saturating_sub(first.sum());
        let gathered_bytes = (rest / 8 / threads).max(gathering_bytes(config));
        let writes_bytes = (rest / 16).max(config.body_bytes_max + config.body_bytes_max / 8);
        let prepared_bytes = writes_bytes / 1_000 * PREPARED_PER_MILLE;
        let second = Division { gathered_bytes, writes_bytes, prepared_bytes, ..first };
        // Thirteen parts: three for queries on the pool, two for those on loops, two for large replies, four for buffers, one for
        // connections, and one in reserve, for the allocator's losses between sizes.
        let rest = memory.saturating_sub(second.sum());
        // The feed with one consumer that is behind must fit: otherwise such a consumer would wait for ever.
        let replies_bytes = (rest / 13 * 2).max(second.changes_bytes_least());
        let part = rest.saturating_sub(replies_bytes) / 11;
        // Each helper computes a row. If that leaves too little, helpers use the reserve.
        let alone = part * 3 / POOL_THREADS / PER_QUERY_BYTE;
        let helped = part * 3 / (POOL_THREADS * PER_QUERY_BYTE + first.query_helpers);
        // A file in memory is sent from there and not from a buffer, so the memory is taken from the part of the buffers.
        let file_caches_bytes = (memory.saturating_sub(FILE_CACHES_GROW_FROM) / PARTS_FOR_FILE_CACHES)
            .min(FILE_CACHES_BYTES_MOST)
            .min(part);
        Division {
            file_caches_bytes,
            loop_query_bytes: (part * 2 / threads / PER_QUERY_BYTE).min(LOOP_QUERY_BYTES_MOST),
            query_bytes: helped.max(alone.min(POOL_QUERY_BYTES_LEAST)),
            replies_bytes,
            buffers_bytes: (part * 4 - file_caches_bytes) / threads,
            connections: (part / first.connection_bytes).min(config.connections_max.unwrap_or(CONNECTIONS_DEFAULT)),
            ..second
        }
    }

    /// As many threads as fit the file's memory, if the file does not set their number.
    pub(super) fn threads_that_fit(config: &ServerConfig) -> usize {
        let fits = |threads: &usize| Division::check(&ServerConfig { threads: *threads, ..config.clone() }).is_ok();
        (1..=config.threads).rev().find(fits).unwrap_or(1)
    }

    /// Whether the parts hold what the file requires: its threads, the connections that it sets, and on each loop one body of the
    /// permitted size.
    pub(crate) fn check(config: &ServerConfig) -> Result<(), Shortage> {
        let memory = written(config.memory_bytes);
        if !Division::of(config).serves() {
            let (threads, enough) = (config.threads, enough(config, |config| Division::of(config).serves()));
            let fewer = ServerConfig { statement_bytes: 0, series_bytes: 0, ..config.clone() };
            if Division::of(&fewer).serves() {
                let bytes = written(config.declared_bytes() as u64);
                return Err(Shortage {
                    key: Shortage::ENDPOINTS,
                    what: format!(
                        "the endpoints take {bytes}, and while a reload makes them anew twice as much: too much for memory = \"{memory}\""
                    ),
                    allowed: format!("fewer endpoints or shorter statements, or memory = \"{enough}\""),
                });
            }
            let default = ServerConfig { body_bytes_max: BODY_BYTES_DEFAULT, ..config.clone() };
            if config.body_bytes_max > BODY_BYTES_DEFAULT && Division::of(&default).serves() {
                let body = written(config.body_bytes_max as u64);
                return Err(Shortage {
                    key: "body_bytes_max",
                    what: format!(
                        "bodies of {body} do not fit into memory = \"{memory}\" with {}",
                        written_threads(threads)
                    ),
                    allowed: format!("smaller bodies, memory = \"{enough}\", or fewer threads"),
                });
            }
            return Err(Shortage {
                key: "memory",
                what: format!("memory = \"{memory}\" is not enough for {}", written_threads(threads)),
                allowed: format!("memory = \"{enough}\" or more, or fewer threads"),
            });
        }
        let most = Division::of(&ServerConfig { connections_max: Some(usize::MAX), ..config.clone() }).connections;
        if let Some(asked) = config.connections_max.filter(|asked| *asked > most) {
            let enough = enough(config, |config| Division::of(config).connections >= asked);
            return Err(Shortage {
                key: "connections_max",
                what: format!("{asked} connections do not fit into memory = \"{memory}\""),
                allowed: format!("up to {most}, or memory = \"{enough}\""),
            });
        }
        Ok(())
    }

    /// Bytes of endpoints that a reload may add to those with which a server has started.
    pub(crate) fn endpoint_bytes_of_reload(config: &ServerConfig) -> usize {
        endpoint_bytes(config) / GENERATIONS
    }

    /// Whether each part is large enough to serve.
    fn serves(&self) -> bool {
        self.query_bytes >= POOL_QUERY_BYTES_LEAST
            && self.loop_query_bytes >= LOOP_QUERY_BYTES_LEAST
            && self.held_bytes_max() >= HELD_BYTES_LEAST
            && self.replies_bytes >= REPLIES_BYTES_LEAST
    }

    /// Bytes of static files that a loop caches in memory.
    pub(crate) fn file_cache_bytes(&self) -> usize {
        FILE_CACHE_BYTES_LEAST + self.file_caches_bytes / self.threads.max(1)
    }

    /// Bytes that the connections of one loop may hold between their turns.
    pub(crate) fn held_bytes_max(&self) -> usize {
        self.buffers_bytes.saturating_sub(2 * self.spare_bytes_max() + TURN_BYTES + SPARE_BYTES)
    }

    /// Bytes of a loop's spare buffers, for input and for output each.
    pub(crate) fn spare_bytes_max(&self) -> usize {
        self.buffers_bytes / POOL_PARTS_PER_BUFFERS
    }

    /// Memory for sorting while the store is opened, when nothing is served yet: a third of the parts of queries, replies and
    /// buffers would be enough, but indexes of large collections benefit from more.
    pub(crate) fn sort_bytes(config: &ServerConfig) -> usize {
        usize::try_from(config.memory_bytes / 8).unwrap_or(usize::MAX).min(SORT_BYTES_MOST)
    }

    /// Bytes of a batch of the log, including the largest transaction, in a buffer that has doubled, and a copy while it grows.
    fn batch_bytes(&self) -> usize {
        GROWING * (BATCH_BYTES.min(self.memtable_bytes / 8) + self.transaction_bytes)
    }

    /// Memory of a reader of changes: a batch of the log, and its read-ahead (`docs::engine::ChangeReader`).
    fn change_reader_bytes(&self) -> usize {
        CHANGE_READER_BYTES + BATCH_BYTES.min(self.memtable_bytes / 8) + self.transaction_bytes
    }

    /// A piece of older changes, for a consumer that is behind.
    fn changes_piece_bytes(&self) -> usize {
        CHANGES_CHUNK_BYTES + self.transaction_bytes
    }

    /// What the feed's thread takes while it reads and encodes one transaction, before it knows how much that is: a reader and a
    /// piece. The rest of the part for large replies is counted as it is held.
    fn changes_work_bytes(&self) -> usize {
        self.change_reader_bytes() + self.changes_piece_bytes()
    }

    /// Bound of counted large replies.
    pub(crate) fn replies_held_max(&self) -> usize {
        self.replies_bytes.saturating_sub(self.changes_work_bytes())
    }

    /// The window of the feed: beside it there is room for the reader at work, and for a reader and a piece of a consumer that is
    /// behind.
    pub(crate) fn changes_window_bytes(&self) -> usize {
        let beside = self.replies_bytes.saturating_sub(2 * self.change_reader_bytes() + self.changes_piece_bytes());
        (self.replies_bytes / CHANGES_WINDOW_PARTS).min(CHANGES_WINDOW_BYTES_MOST).min(beside)
    }

    /// The minimum for the feed: a window of one piece, and the memory beside it.
    fn changes_bytes_least(&self) -> usize {
        2 * (self.change_reader_bytes() + self.changes_piece_bytes())
    }

    /// Threads for cold reads, and direct reads of loops: pages, and the copies that are answered.
    fn cold_bytes(&self) -> usize {
        let direct = docs::engine::DirectReads::memory_bytes(self.direct_places, 2 * DIRECT_PLACE_BYTES);
        self.cold_threads * (COLD_THREAD_BYTES + PER_QUERY_BYTE * COLD_RESULT_BYTES) + self.threads * direct
    }

    fn sum(&self) -> usize {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }

    /// The parts by name, for metrics and the log.
    pub(crate) fn parts(&self) -> [(&'static str, usize); 19] {
        let threads = self.threads;
        let queries = threads * self.loop_query_bytes + POOL_THREADS * self.query_bytes;
        let documents = (threads + COMMITTERS) * COPIES_PER_WRITE * self.transaction_bytes;
        [
            ("process", PROCESS_BYTES - WAITING_QUERIES_BYTES_LEAST + threads * THREAD_BYTES),
            ("query_threads", POOL_THREADS * POOL_THREAD_BYTES + self.helpers * HELPER_BYTES),
            ("building", PER_BUILDING_BYTE * self.building_bytes),
            ("plans", self.plan_bytes),
            ("statements", self.statement_bytes),
            ("waiting_queries", self.waiting_query_bytes),
            ("endpoints", self.endpoint_bytes),
            ("files", self.file_caches_bytes),
            ("memtables", MEMTABLES * self.memtable_bytes),
            ("documents", documents),
            ("log_batches", COMMITTERS * self.batch_bytes()),
            ("bodies", self.gathered_bytes * threads),
            ("waiting_writes", self.writes_bytes + self.prepared_bytes),
            ("cold_reads", self.cold_bytes()),
            ("queries", PER_QUERY_BYTE * queries + self.query_helpers * self.query_bytes),
            ("large_replies", self.replies_bytes),
            ("buffers", self.buffers_bytes * threads),
            ("places", self.places_bytes * (threads + POOL_THREADS)),
            ("connections", (self.connections + FURTHER_CONNECTIONS) * self.connection_bytes),
        ]
    }

    /// Bytes of idle connections.
    pub(crate) fn of_connections(&self, open: u64) -> u64 {
        open * self.connection_bytes as u64
    }
}

/// Memory of one body of the permitted size while it is gathered: its buffer never exceeds it; that of a head may double.
fn gathering_bytes(config: &ServerConfig) -> usize {
    config.body_bytes_max + 2 * config.head_bytes_max
}

/// Bytes of the endpoints of two configurations, with room for some more of each.
fn endpoint_bytes(config: &ServerConfig) -> usize {
    let memory = usize::try_from(config.memory_bytes).unwrap_or(usize::MAX);
    (config.declared_bytes() * GENERATIONS + memory / PARTS_FOR_MORE_ENDPOINTS).max(PROCESS_ENDPOINT_BYTES)
}

fn written_threads(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}

/// The least memory with which `does` holds, rounded up to a readable number.
fn enough(config: &ServerConfig, does: impl Fn(&ServerConfig) -> bool) -> String {
    const UNIT: u64 = 1_000_000;
    let holds = |units: u64| does(&ServerConfig { memory_bytes: units * UNIT, ..config.clone() });
    let (mut least, mut most) = (config.memory_bytes / UNIT, config.memory_bytes / UNIT + 1);
    while !holds(most) && most < u64::from(u32::MAX) {
        (least, most) = (most, most * 2);
    }
    while most - least > 1 {
        let middle = least + (most - least) / 2;
        if holds(middle) { most = middle } else { least = middle }
    }
    written(most * UNIT)
}

#[cfg(test)]
mod division {
    use super::{Division, HELPER_BYTES, PER_BUILDING_BYTE, PER_QUERY_BYTE, POOL_THREAD_BYTES};
    use crate::config::ServerConfig;

    fn config(memory_bytes: u64, threads: usize) -> ServerConfig {
        ServerConfig { memory_bytes, threads, ..ServerConfig::default() }
    }

    #[test]
    fn threads_of_queries_and_of_builds_have_their_part() {
        let of = |query_threads| {
            let division = Division::of(&ServerConfig { query_threads, ..config(64 << 20, 1) });
            division.parts().into_iter().find(|(name, _)| *name == "query_threads").expect("a part").1
        };
        // Two that run queries; one that builds views, one that builds indexes.
        assert_eq!(of(1), 2 * POOL_THREAD_BYTES + 2 * HELPER_BYTES);
        assert_eq!(of(5) - of(1), 4 * HELPER_BYTES);
        for memory in [32 << 20, 64 << 20, 1_000_000_000] {
            let division = Division::of(&ServerConfig { query_threads: 8, ..config(memory, 1) });
            let verified = PER_BUILDING_BYTE * division.building_bytes;
            assert!(verified <= PER_QUERY_BYTE * division.query_bytes, "what is verified runs as a query");
        }
        assert!(Division::check(&ServerConfig { query_threads: 8, ..config(32 << 20, 1) }).is_ok());
        let short = Division::check(&ServerConfig { query_threads: 256, ..config(32 << 20, 1) });
        assert!(short.is_err_and(|short| short.key == "memory"), "they do not fit");
    }

    #[test]
    fn the_parts_stay_under_the_setting() {
        for memory_bytes in [64 << 20, 100_000_000, 256 << 20, 1_000_000_000, 64 << 30] {
            for threads in [1, 2, 8, 64] {
                for body_bytes_max in [1 << 10, 1 << 20, 32 << 20] {
                    let config = ServerConfig { body_bytes_max, ..config(memory_bytes, threads) };
                    let sum = Division::of(&config).sum() as u64;
                    let accepted = Division::check(&config).is_ok();
                    assert!(!accepted || sum <= memory_bytes, "{sum} of {memory_bytes}, {threads} threads");
                }
            }
        }
    }

    #[test]
    fn a_statement_that_writes_has_room_for_its_rows_and_its_transaction_beside_half_a_query() {
        for threads in [1, 2, 4, 8] {
            for memory in (32..2_000).map(|mebibytes| mebibytes << 20) {
                let config = config(memory, threads);
                let division = Division::of(&config);
                // A result and a sort of half the size each.
                let needed = division.query_bytes + 2 * division.transaction_bytes;
                let fits = needed <= PER_QUERY_BYTE * division.query_bytes;
                assert!(fits || Division::check(&config).is_err(), "{memory}, {threads} threads: {division:?}");
            }
        }
    }

    #[test]
    fn the_feed_of_changes_has_room_for_one_who_is_behind() {
        for threads in [1, 2, 4, 16] {
            for memory in (32..512).map(|mebibytes| mebibytes << 20) {
                let division = Division::of(&config(memory, threads));
                let (window, piece) = (division.changes_window_bytes(), division.changes_piece_bytes());
                let taken = window + 2 * division.change_reader_bytes() + piece;
                assert!(
                    window >= piece && taken <= division.replies_bytes,
                    "{memory}, {threads} threads: {division:?}"
                );
            }
        }
    }

    #[test]
    fn memtables_take_more_of_larger_settings_and_documents_and_results_keep_room() {
        let megabytes = |memory| Division::of(&config(memory, 2)).memtable_bytes >> 20;
        assert_eq!([32 << 20, 256 << 20, 1_000_000_000, 64 << 30].map(megabytes), [0, 5, 54, 96]);
        let default = Division::of(&config(1_000_000_000, 2));
        assert!(default.transaction_bytes > 7 << 20 && default.query_bytes > 6 << 20, "{default:?}");
    }

    #[test]
    fn what_fits_a_memory_fits_a_larger_one() {
        for (statement_bytes, series_bytes) in [(0, 0), (300_000, 100_000), (1_000_000, 500_000), (3_000_000, 0)] {
            for asked in [None, Some(1), Some(2), Some(3)] {
                let mut has_fitted = false;
                for memory_bytes in (32 << 20..160 << 20).step_by(250_000) {
                    let threads = asked.unwrap_or(4);
                    let all = ServerConfig { statement_bytes, series_bytes, ..config(memory_bytes, threads) };
                    let threads = asked.unwrap_or_else(|| Division::threads_that_fit(&all));
                    let fits = Division::check(&ServerConfig { threads, ..all }).is_ok();
                    assert!(fits || !has_fitted, "{memory_bytes} for {statement_bytes} with {threads} of {asked:?}");
                    has_fitted = fits;
                }
            }
        }
    }

    #[test]
    fn what_is_told_to_be_enough_is_and_a_little_less_is_not() {
        let short = Division::check(&config(64 << 20, 32)).expect_err("too many threads");
        let digits: String = short.allowed.chars().filter(char::is_ascii_digit).collect();
        let megabytes: u64 = digits.parse().expect("one number");
        assert!(Division::check(&config(megabytes * 1_000_000, 32)).is_ok(), "{short:?}");
        assert!(Division::check(&config((megabytes - 1) * 1_000_000, 32)).is_err(), "{short:?}");
    }

    #[test]
    fn the_smallest_setting_serves_and_leaves_open_threads_to_what_fits() {
        let most = Division::threads_that_fit(&config(64 << 20, 256));
        assert!((2..64).contains(&most), "{most} threads");
        assert!(Division::check(&config(64 << 20, most)).is_ok());
        let division = Division::of(&config(64 << 20, most));
        assert!(division.held_bytes_max() > 0 && division.connections >= 100, "{division:?}");
        assert!(PER_QUERY_BYTE * division.query_bytes < 64 << 20);
    }
}
