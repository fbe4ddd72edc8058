//! `/_/metrics` in Prometheus's text format, version 0.0.4. One table gives each metric its name, type and help.

use crate::metrics::routes::{self, Family};
use crate::metrics::sources::Sources;
use crate::metrics::views;
use crate::service::{Service, Shared};
use docs::DocumentDatabase;
use http::{BodySource, MetricsTotal, More, Reply, Series, Status};
use reactor::Loop;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The media type of the format.
const MEDIA: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Bytes after which a piece of the page ends: a shorter page is sent whole.
const PIECE_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
enum Type {
    Counter,
    Gauge,
}

/// Name, type, help, value.
type Metric = (&'static str, Type, &'static str, f64);

/// Answers with all metrics. A long page is made piece by piece while its client reads it: it needs no memory that other replies
/// may have used up, so it is never refused.
pub(crate) fn send(service: &Service, reply: Reply<'_>) {
    let mut first = single(service);
    let (shared, database) = (Arc::clone(&service.shared), service.database.clone());
    let mut rest = Rest { shared, database, next: Part::Routes(Family::Requests, Series::default()) };
    match rest.append(&mut first) {
        More::Yes => reply.stream(Status(200), MEDIA, None, Box::new(Page { first, rest })),
        _ => reply.send(Status(200), MEDIA, first.as_bytes()),
    }
}

/// A page that is made while its client reads it.
struct Page {
    /// The beginning, until the first pull.
    first: String,
    rest: Rest,
}

impl BodySource for Page {
    fn pull(&mut self, out: &mut Vec<u8>) -> More {
        let mut piece = std::mem::take(&mut self.first);
        let more = if piece.is_empty() { self.rest.append(&mut piece) } else { More::Yes };
        out.extend_from_slice(piece.as_bytes());
        more
    }
}

/// The metrics of routes and views, which may be many.
struct Rest {
    shared: Arc<Shared>,
    database: DocumentDatabase,
    next: Part,
}

/// Parts of a page, in their order.
enum Part {
    /// A metric of routes, from a series on.
    Routes(Family, Series),
    /// A metric of views, by its number.
    Views(usize),
}

impl Rest {
    /// Appends what comes next, until `out` has [`PIECE_BYTES`].
    fn append(&mut self, out: &mut String) -> More {
        let totals = self.shared.sources.get().and_then(|sources| (sources.http)()).map(|(_, series)| series);
        let (totals, views) = (totals.unwrap_or_default(), self.database.views());
        while out.len() < PIECE_BYTES {
            self.next = match self.next {
                Part::Routes(family, from) => {
                    let names = &self.shared.series;
                    match (routes::append((family, from), &totals, names, (out, PIECE_BYTES)), family) {
                        (Some(next), family) => Part::Routes(family, next),
                        (None, Family::Requests) => Part::Routes(Family::Durations, Series::default()),
                        (None, Family::Durations) => Part::Views(0),
                    }
                }
                Part::Views(views::METRICS_COUNT) => return More::No,
                Part::Views(number) => {
                    views::append(number, &views, out);
                    Part::Views(number + 1)
                }
            };
        }
        More::Yes
    }
}

/// The metrics with one number, or one for each part of the memory.
fn single(service: &Service) -> String {
    let mut out = String::new();
    crate::metrics::process::append(&mut out);
    let mut put = |metrics: &[Metric]| {
        for (name, kind, help, value) in metrics {
            let kind = match kind {
                Type::Counter => "counter",
                Type::Gauge => "gauge",
            };
            // Writing into a String does not fail.
            let _ = write!(out, "# HELP sapsan_{name} {help}\n# TYPE sapsan_{name} {kind}\nsapsan_{name} {value}\n");
        }
    };
    put(&store(service));
    put(&pool(service));
    put(&changes(service));
    put(&expiry(service));
    put(&schema(service));
    put(&access(service));
    if let Some(sources) = service.sources.get() {
        put(&loops(sources));
        if let Some((total, _)) = (sources.http)() {
            put(&http(&total, service.slow.count()));
        }
        put(&[("uptime_seconds", Type::Gauge, "Time since start.", sources.started.elapsed().as_secs_f64())]);
        let parts = sources.division.parts().map(|(part, bytes)| (part, bytes as u64));
        by_part("memory_bound_bytes", "Bound of each part of anonymous memory.", &parts, &mut out);
        by_part("memory_used_bytes", "Use of the parts whose use is counted.", &used(service, sources), &mut out);
    }
    out
}

/// One number for each part of the memory's division.
fn by_part(name: &str, help: &str, parts: &[(&str, u64)], out: &mut String) {
    // Writing into a String does not fail.
    let _ = write!(out, "# HELP sapsan_{name} {help}\n# TYPE sapsan_{name} gauge\n");
    for (part, bytes) in parts {
        let _ = writeln!(out, "sapsan_{name}{{part=\"{part}\"}} {bytes}");
    }
}

/// The parts whose use is counted: those of waiting work. Other parts only have bounds.
fn used(service: &Service, sources: &Sources) -> [(&'static str, u64); 9] {
    let store = service.database.store().stats();
    let loops: Vec<_> = sources.loops.iter().map(Loop::metrics).collect();
    let sum = |counter: fn(&reactor::LoopMetrics) -> u64| loops.iter().map(counter).sum::<u64>();
    [
        ("plans", service.database.catalog().plans.bytes() as u64),
        ("statements", service.queries.statements.bytes() as u64),
        ("waiting_queries", service.pool.waiting_bytes() as u64),
        ("memtables", store.memtable_bytes + store.frozen_bytes),
        ("bodies", sum(|metrics| metrics.arriving_bytes)),
        ("waiting_writes", service.writes.bytes() as u64 + store.queue_bytes),
        ("large_replies", service.replies.bytes() as u64),
        ("buffers", sum(|metrics| metrics.held_bytes)),
        ("connections", sources.division.of_connections(sum(|metrics| metrics.open))),
    ]
}

fn store(service: &Service) -> [Metric; 25] {
    let stats = service.database.store().stats();
    let of = |number: u64| number as f64;
    [
        ("store_version", Type::Gauge, "Change number of the newest durable change.", of(stats.version)),
        ("store_commits_total", Type::Counter, "Transactions committed.", of(stats.commits)),
        ("store_groups_total", Type::Counter, "Batches written to the log, each synced once.", of(stats.groups)),
        ("store_redone_total", Type::Counter, "Transactions prepared again after a conflict.", of(stats.redone)),
        (
            "store_slowed_total",
            Type::Counter,
            "Batches that waited because a checkpoint could not keep up with the writers.",
            of(stats.slowed),
        ),
        ("store_queue_depth", Type::Gauge, "Transactions that wait for the writer.", of(stats.queue_depth)),
        ("store_log_written_bytes_total", Type::Counter, "Bytes written to the log.", of(stats.log_bytes_written)),
        ("store_log_bytes", Type::Gauge, "Bytes of log segments that a restart needs.", of(stats.log_bytes)),
        (
            "store_changes_kept_bytes",
            Type::Gauge,
            "Bytes of log segments that are only kept for readers of changes.",
            of(stats.changes_kept_bytes),
        ),
        (
            "store_changes_oldest",
            Type::Gauge,
            "Change number since which changes can be read.",
            of(stats.changes_oldest),
        ),
        ("store_change_readers", Type::Gauge, "Readers of changes.", of(stats.change_readers)),
        ("store_checkpoints_total", Type::Counter, "Checkpoints completed.", of(stats.checkpoints)),
        ("store_checkpoint_failures_total", Type::Counter, "Checkpoints failed.", of(stats.checkpoint_failures)),
        ("store_memtable_bytes", Type::Gauge, "Bytes in the active memtable.", of(stats.memtable_bytes)),
        ("store_frozen_bytes", Type::Gauge, "Bytes in the frozen memtable.", of(stats.frozen_bytes)),
        ("store_tree_pages", Type::Gauge, "Pages of 4 KB in the tree file.", of(stats.tree_pages)),
        ("store_tree_version", Type::Gauge, "Change number up to which the tree is complete.", of(stats.tree_version)),
        (
            "store_retired_generations",
            Type::Gauge,
            "Replaced states that readers still use.",
            of(stats.retired_generations),
        ),
        (
            "store_pinned_states",
            Type::Gauge,
            "Checkpointed states of the data file since the oldest that a reader or a backup still uses.",
            of(stats.pinned_states),
        ),
        (
            "store_pinned_pages",
            Type::Gauge,
            "Pages of 4 KB that cannot be reused only because readers of old states need them.",
            of(stats.pinned_pages),
        ),
        (
            "store_poisoned",
            Type::Gauge,
            "1 after a failed sync or a panic: no writes until restarted.",
            of(u64::from(stats.is_poisoned)),
        ),
        (
            "store_lost_pages",
            Type::Gauge,
            "Pages of the data file that the disk failed to read: reads that need them fail.",
            of(stats.lost_pages),
        ),
        (
            "store_damaged_pages",
            Type::Gauge,
            "Pages of the data file that were damaged when they were read: reads that need them fail.",
            of(stats.damaged_pages),
        ),
        (
            "store_stopped_by_damage",
            Type::Gauge,
            "1 while writes are refused because a damaged page stops checkpoints.",
            of(u64::from(stats.is_stopped_by_damage)),
        ),
        (
            "store_full",
            Type::Gauge,
            "1 while writes are refused because the disk is full.",
            of(u64::from(stats.is_full)),
        ),
    ]
}

fn pool(service: &Service) -> [Metric; 24] {
    let (pool, cold) = (service.pool.metrics(), service.cold.pool.metrics());
    let (scans, rows_read) = service.queries.counts();
    let (spilled, spilled_total) = service.queries.spilled();
    let (plans, statements) = (&service.database.catalog().plans, &service.queries.statements);
    let large_writes = (service.large_writes.begun(), service.large_writes.queued());
    [
        ("pool_queued", Type::Gauge, "Jobs that wait for a thread.", pool.queued as f64),
        ("pool_running", Type::Gauge, "Jobs that run.", pool.running as f64),
        ("pool_done_total", Type::Counter, "Jobs done.", pool.done as f64),
        (
            "cold_reads_total",
            Type::Counter,
            "Reads that left their loop because they would have waited for the disk.",
            service.cold_reads.load(std::sync::atomic::Ordering::Relaxed) as f64,
        ),
        (
            "cold_reads_direct_total",
            Type::Counter,
            "Cold reads that their loop made past the page cache.",
            service.direct_reads.load(std::sync::atomic::Ordering::Relaxed) as f64,
        ),
        ("cold_reads_queued", Type::Gauge, "Cold reads that wait for a thread.", cold.queued as f64),
        ("cold_reads_running", Type::Gauge, "Cold reads that run on a thread.", cold.running as f64),
        (
            "cold_reads_refused_total",
            Type::Counter,
            "Cold reads refused because the queue was full.",
            cold.refused as f64,
        ),
        ("large_writes_total", Type::Counter, "Large writes, prepared off their loop.", large_writes.0 as f64),
        ("large_writes_queued", Type::Gauge, "Large writes that wait for a thread.", large_writes.1 as f64),
        ("query_scans_total", Type::Counter, "Queries that read a whole collection.", scans as f64),
        ("query_plans_made_total", Type::Counter, "Plans made for queries.", plans.made() as f64),
        (
            "query_plans_evicted_total",
            Type::Counter,
            "Plans of queries evicted to keep the memory limit.",
            plans.evicted() as f64,
        ),
        (
            "query_statements_found_total",
            Type::Counter,
            "Statements of the general API that an earlier request had prepared.",
            statements.found() as f64,
        ),
        (
            "query_statements_prepared_total",
            Type::Counter,
            "Statements of the general API that were prepared.",
            statements.prepared() as f64,
        ),
        (
            "query_statements_evicted_total",
            Type::Counter,
            "Prepared statements of the general API evicted to keep the memory limit.",
            statements.evicted() as f64,
        ),
        (
            "query_rows_read_total",
            Type::Counter,
            "Index entries and documents scanned by queries on the pool and by queries that read a whole collection.",
            rows_read as f64,
        ),
        (
            "query_left_loop_total",
            Type::Counter,
            "Declared queries and steps that exceeded their limits on a loop and were started again on the pool.",
            service.queries.left_loop() as f64,
        ),
        ("query_spill_bytes", Type::Gauge, "Bytes on disk that sorts and groups of queries use now.", spilled as f64),
        (
            "query_spilled_bytes_total",
            Type::Counter,
            "Bytes that sorts and groups of queries have written to disk.",
            spilled_total as f64,
        ),
        ("query_helpers", Type::Gauge, "Threads that help with scans now.", service.queries.workers.busy() as f64),
        ("pool_refused_total", Type::Counter, "Jobs refused because the queue was full.", pool.refused as f64),
        (
            "writes_in_flight_bytes",
            Type::Gauge,
            "Bytes of waiting writes and statements.",
            service.writes.bytes() as f64,
        ),
        (
            "replies_in_flight_bytes",
            Type::Gauge,
            "Bytes of large replies that wait for their clients.",
            service.replies.bytes() as f64,
        ),
    ]
}

fn changes(service: &Service) -> [Metric; 4] {
    let numbers = service.feed.numbers();
    [
        ("changes_consumers", Type::Gauge, "Consumers of changes that are connected.", numbers.consumers as f64),
        (
            "changes_behind",
            Type::Gauge,
            "Consumers of changes that read older changes from the log.",
            numbers.behind as f64,
        ),
        (
            "changes_window_bytes",
            Type::Gauge,
            "Bytes of the newest changes, kept for all consumers.",
            numbers.window_bytes as f64,
        ),
        (
            "changes_cut_off_total",
            Type::Counter,
            "Consumers of changes disconnected because they were too slow.",
            numbers.cut_off as f64,
        ),
    ]
}

fn expiry(service: &Service) -> [Metric; 5] {
    let numbers = service.expiry.numbers();
    [
        ("expired_total", Type::Counter, "Expired documents removed.", numbers.removed as f64),
        (
            "expiry_lag_seconds",
            Type::Gauge,
            "Time since the first document found by the last sweep expired.",
            numbers.lag_ms as f64 / 1000.0,
        ),
        (
            "expiry_blocked",
            Type::Gauge,
            "Expired documents that stay, hidden, because others refer to them.",
            numbers.blocked as f64,
        ),
        (
            "expiry_unremovable",
            Type::Gauge,
            "Expired documents that stay, hidden, because their removal failed for another reason: see the log.",
            numbers.unremovable as f64,
        ),
        ("expiry_failures_total", Type::Counter, "Sweeps that failed.", numbers.failures as f64),
    ]
}

fn access(service: &Service) -> [Metric; 2] {
    let (failed, slowed) = service.tries.counts();
    [
        ("token_failures_total", Type::Counter, "Requests with an unknown token.", failed as f64),
        (
            "token_slowed_total",
            Type::Counter,
            "Requests with an unknown token that were answered 429: their address had sent too many.",
            slowed as f64,
        ),
    ]
}

fn schema(service: &Service) -> [Metric; 5] {
    let (building, refused) = crate::general::schema::counts(service);
    let (reloads, reloads_refused) = service.reloads.counts();
    [
        (
            "schema_building",
            Type::Gauge,
            "Indexes, unique fields and rules that are being built or checked.",
            building as f64,
        ),
        (
            "schema_refused",
            Type::Gauge,
            "Indexes, unique fields and rules refused because of a stored document: see /_/schema.",
            refused as f64,
        ),
        (
            "config_reloads_total",
            Type::Counter,
            "Reloads of the configuration file that were applied as a whole.",
            reloads as f64,
        ),
        (
            "config_reloads_refused_total",
            Type::Counter,
            "Reloads of the configuration file that were refused, or applied without parts that stored documents violate.",
            reloads_refused as f64,
        ),
        (
            "config_held",
            Type::Gauge,
            "Configurations in memory: the served one, and older ones that are still in use.",
            service.services.load(Ordering::Relaxed).max(service.database.generations_held() as u64) as f64,
        ),
    ]
}

fn loops(sources: &Sources) -> [Metric; 10] {
    let loops: Vec<_> = sources.loops.iter().map(Loop::metrics).collect();
    let sum = |counter: fn(&reactor::LoopMetrics) -> u64| loops.iter().map(counter).sum::<u64>() as f64;
    [
        ("connections_open", Type::Gauge, "Open connections.", sum(|metrics| metrics.open)),
        ("connections_accepted_total", Type::Counter, "Connections accepted.", sum(|metrics| metrics.accepted)),
        (
            "connections_handed_over_total",
            Type::Counter,
            "Connections moved to another loop.",
            sum(|metrics| metrics.handed_over),
        ),
        (
            "accept_pauses_total",
            Type::Counter,
            "Pauses of accepting because descriptors or connection slots ran out.",
            sum(|metrics| metrics.accept_pauses),
        ),
        ("loop_ticks_total", Type::Counter, "Ticks of the event loops.", sum(|metrics| metrics.ticks)),
        ("socket_reads_total", Type::Counter, "Read calls on connections.", sum(|metrics| metrics.reads)),
        ("socket_writes_total", Type::Counter, "Write calls on connections.", sum(|metrics| metrics.writes)),
        ("received_bytes_total", Type::Counter, "Bytes received.", sum(|metrics| metrics.bytes_in)),
        ("sent_bytes_total", Type::Counter, "Bytes sent.", sum(|metrics| metrics.bytes_out)),
        ("protocol_panics_total", Type::Counter, "Connections closed by a panic.", sum(|metrics| metrics.panics)),
    ]
}

fn http(total: &MetricsTotal, slow: u64) -> [Metric; 6] {
    [
        (
            "http_slow_requests_total",
            Type::Counter,
            "Requests that took at least [server] slow_log_seconds.",
            slow as f64,
        ),
        ("http_refusals_total", Type::Counter, "Requests refused before routing.", total.refusals as f64),
        ("http_timed_out_total", Type::Counter, "Connections closed by a deadline.", total.timed_out as f64),
        (
            "http_made_room_total",
            Type::Counter,
            "Connections without progress closed to make room for new ones.",
            total.made_room as f64,
        ),
        (
            "http_hoarders_total",
            Type::Counter,
            "Connections closed because they held most of a part of the memory that was short.",
            total.hoarders as f64,
        ),
        (
            "http_turned_away_total",
            Type::Counter,
            "Connections closed at once because of a limit.",
            total.turned_away as f64,
        ),
    ]
}
