//! Counters in Prometheus's text format, and the server that exposes them at `/metrics`, beside `/healthz` and `/readyz`.

use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{HttpRequest, HttpServer, HttpSettings, Reply, Service, Status};
use reactor::Reactor;

use crate::commands::CommandTable;
use crate::metrics::{LATENCY_BUCKETS, LatencyHistogram, LoopCounters, Requests};

/// Commands that only nodes know are counted under one name: their numbers differ between loops.
const OTHER_COMMANDS: &str = "other";

/// A metric family of Prometheus.
struct Family<'t> {
    text: &'t mut String,
    name: &'static str,
}

impl<'t> Family<'t> {
    fn begin(text: &'t mut String, name: &'static str, kind: &str, help: &str) -> Family<'t> {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text, name }
    }

    fn line(&mut self, suffix: &str, labels: &str, value: impl std::fmt::Display) {
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(self.text, "{}{suffix}{braces} {value}", self.name);
    }

    fn histogram(&mut self, labels: &str, latencies: &[&LatencyHistogram]) {
        let (mut count, mut sum_ns) = (0, 0);
        for bucket in 0..LATENCY_BUCKETS {
            count += latencies.iter().map(|latency| latency.buckets[bucket].get()).sum::<u64>();
            let bound =
                LatencyHistogram::bound(bucket).map_or("+Inf".to_owned(), |bound| bound.as_secs_f64().to_string());
            self.line("_bucket", &format!("{labels},le=\"{bound}\""), count);
        }
        latencies.iter().for_each(|latency| sum_ns += latency.sum_ns.get());
        self.line("_sum", labels, Duration::from_nanos(sum_ns).as_secs_f64());
        self.line("_count", labels, count);
    }
}

/// The counts of all loops under one label.
struct Labelled<'c> {
    label: String,
    counted: Vec<&'c Requests>,
}

/// The text for Prometheus. `pools`: the counters of each proxy of the process, with a name if there are several.
pub fn exposition(pools: &[(Option<String>, Vec<Arc<LoopCounters>>)]) -> String {
    let mut text = String::new();
    let all: Vec<(String, &LoopCounters)> = pools
        .iter()
        .flat_map(|(name, loops)| {
            let label = name.as_ref().map_or(String::new(), |name| format!("pool=\"{}\",", escaped(name)));
            loops.iter().map(move |counters| (label.clone(), &**counters))
        })
        .collect();
    let sum = |of: fn(&LoopCounters) -> u64| all.iter().map(|(_, counters)| of(counters)).sum::<u64>();
    for (name, kind, help, value) in [
        ("sapsan_proxy_clients", "gauge", "Connected clients.", sum(|of| of.clients.get())),
        (
            "sapsan_proxy_refused_total",
            "counter",
            "Requests that the proxy answered with an error.",
            sum(|of| of.refused.get()),
        ),
        (
            "sapsan_proxy_stalled_clients_total",
            "counter",
            "Clients disconnected because they did not read.",
            sum(|of| of.stalled.get()),
        ),
        (
            "sapsan_proxy_own_connections",
            "gauge",
            "Node connections reserved for one client.",
            sum(|of| of.own_connections.get()),
        ),
        (
            "sapsan_proxy_kept_bytes",
            "gauge",
            "Bytes of replies that wait for earlier replies.",
            sum(|of| of.kept_bytes.get()),
        ),
    ] {
        Family::begin(&mut text, name, kind, help).line("", "", value);
    }
    requests(&mut text, "command", &by_command(&all));
    requests(&mut text, "node", &by_node(&all));
    node_states(&mut text, &all);
    text
}

/// The three metric families of requests, by command or by node.
fn requests(text: &mut String, by: &str, all: &[Labelled<'_>]) {
    let (total, errors, seconds) = match by {
        "command" => {
            ("sapsan_proxy_command_requests_total", "sapsan_proxy_command_errors_total", "sapsan_proxy_command_seconds")
        }
        _ => ("sapsan_proxy_node_requests_total", "sapsan_proxy_node_errors_total", "sapsan_proxy_node_seconds"),
    };
    let sum =
        |one: &Labelled<'_>, of: fn(&Requests) -> u64| one.counted.iter().map(|requests| of(requests)).sum::<u64>();
    let mut family = Family::begin(text, total, "counter", "Requests that nodes answered, or lost.");
    all.iter().for_each(|one| family.line("", &one.label, sum(one, |of| of.answered.get())));
    let mut family =
        Family::begin(text, errors, "counter", "Requests that nodes answered with an error or did not answer.");
    all.iter().for_each(|one| family.line("", &one.label, sum(one, |of| of.errors.get())));
    let mut family = Family::begin(text, seconds, "histogram", "Time from a request to the end of its reply.");
    for one in all {
        let latencies: Vec<&LatencyHistogram> = one.counted.iter().map(|requests| &requests.latency).collect();
        family.histogram(&one.label, &latencies);
    }
}

/// Adds a loop's counts to those of other loops under the same label.
fn add<'c>(all: &mut Vec<Labelled<'c>>, label: String, counted: &'c Requests) {
    match all.iter_mut().find(|one| one.label == label) {
        Some(one) => one.counted.push(counted),
        None => all.push(Labelled { label, counted: vec![counted] }),
    }
}

fn by_command<'c>(all: &[(String, &'c LoopCounters)]) -> Vec<Labelled<'c>> {
    let table = CommandTable::new();
    let mut labelled = Vec::new();
    for (pool, counters) in all {
        for (at, counted) in counters.commands.iter().enumerate().filter(|(_, counted)| counted.answered.get() > 0) {
            let name = table.commands().get(at).map_or(OTHER_COMMANDS, |command| &command.name);
            add(&mut labelled, format!("{pool}command=\"{}\"", escaped(name)), counted);
        }
    }
    labelled
}

fn by_node<'c>(all: &[(String, &'c LoopCounters)]) -> Vec<Labelled<'c>> {
    let mut labelled = Vec::new();
    for (pool, counters) in all {
        for (at, name) in counters.node_names().iter().enumerate() {
            add(&mut labelled, format!("{pool}node=\"{}\"", escaped(name)), &counters.nodes[at].requests);
        }
    }
    labelled
}

fn node_states(text: &mut String, all: &[(String, &LoopCounters)]) {
    type Of = fn(&crate::metrics::NodeCounters) -> u64;
    let families: [(&'static str, &str, &str, Of); 5] = [
        ("sapsan_proxy_node_in_flight", "gauge", "Requests that a node has not answered.", |of| of.in_flight.get()),
        ("sapsan_proxy_node_connects_total", "counter", "Connections made.", |of| of.connected.get()),
        ("sapsan_proxy_node_failures_total", "counter", "Connections that broke or could not be made.", |of| {
            of.failed.get()
        }),
        ("sapsan_proxy_node_ejections_total", "counter", "Ejections of a node.", |of| of.ejections.get()),
        ("sapsan_proxy_node_down", "gauge", "Threads whose last attempt to reach the node failed.", |of| {
            of.is_down.get()
        }),
    ];
    for (name, kind, help, of) in families {
        let mut sums: Vec<(String, u64)> = Vec::new();
        for (pool, counters) in all {
            for (at, node) in counters.node_names().iter().enumerate() {
                let (label, value) = (format!("{pool}node=\"{}\"", escaped(node)), of(&counters.nodes[at]));
                match sums.iter_mut().find(|(known, _)| *known == label) {
                    Some((_, sum)) => *sum += value,
                    None => sums.push((label, value)),
                }
            }
        }
        let mut family = Family::begin(text, name, kind, help);
        sums.iter().for_each(|(label, sum)| family.line("", label, sum));
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The proxies of which no node can be reached, one on each line.
fn unready(pools: &[(Option<String>, Vec<Arc<LoopCounters>>)]) -> String {
    let mut text = String::new();
    for (pool, loops) in pools {
        let names = loops.first().map_or(Vec::new(), |counters| counters.node_names());
        let is_down = |at: usize| loops.iter().any(|counters: &Arc<LoopCounters>| counters.nodes[at].is_down.get() > 0);
        if !names.is_empty() && (0..names.len()).all(is_down) {
            let pool = pool.as_deref().map_or(String::new(), |pool| format!("pool {pool}: "));
            let _ = writeln!(text, "{pool}no node can be reached: {}", names.join(", "));
        }
    }
    text
}

/// Answers `/metrics`, `/healthz` (the process lives) and `/readyz` (a node of each proxy can be reached, as far as is known).
struct MetricsPage {
    pools: Vec<(Option<String>, Vec<Arc<LoopCounters>>)>,
}

impl Service for MetricsPage {
    type Local = ();

    fn local(&self, _: &reactor::Loop) {}

    fn call(&self, _: &mut (), request: &HttpRequest<'_>, reply: Reply<'_>) {
        match request.path() {
            "/metrics" => reply.send(Status(200), "text/plain; version=0.0.4", exposition(&self.pools).as_bytes()),
            "/healthz" => reply.send(Status(200), "text/plain", b"ok\n"),
            "/readyz" => match unready(&self.pools) {
                text if text.is_empty() => reply.send(Status(200), "text/plain", b"ok\n"),
                text => reply.send(Status(503), "text/plain", text.as_bytes()),
            },
            _ => reply.send(Status(404), "text/plain", b"metrics are at /metrics, health at /healthz and /readyz\n"),
        }
    }
}

/// Serves the counters of these proxies at `http://ADDRESS/metrics`, on a separate thread, until the handle is dropped. Returns
/// the bound address.
///
/// # Errors
/// The address cannot be listened on.
pub fn serve_metrics(
    address: SocketAddr,
    pools: Vec<(Option<String>, Vec<Arc<LoopCounters>>)>,
) -> io::Result<(SocketAddr, MetricsServer)> {
    let mut reactor = Reactor::new(reactor::ReactorSettings { loops: 1, ..Default::default() })?;
    let bound = reactor.listen(address, Arc::new(HttpServer::new(MetricsPage { pools }, HttpSettings::default())))?;
    Ok((bound, MetricsServer(Some(reactor.start()?))))
}

/// The metrics server; dropping it stops the server.
pub struct MetricsServer(Option<reactor::RunningReactor>);

impl Drop for MetricsServer {
    fn drop(&mut self) {
        if let Some(running) = self.0.take() {
            running.drain(Duration::ZERO);
            let _ = running.join();
        }
    }
}
