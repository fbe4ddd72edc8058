//! `sapsan proxy`: several Redis nodes served as one, until SIGTERM or Ctrl-C. SIGHUP has the list of nodes read again.

use crate::cli::{LimitArguments, Proxy};
use crate::console::{Outcome, logging, output, process};
use proxy::config::{Ejection, NodeConfig, Password, ProxyConfig, ProxyLimits, Spread};
use proxy::{Address, CertificateError, RunningProxy, TlsClient, TlsServer, nutcracker};
use reactor::Descriptors;
use server::{Signal, Termination};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// How long clients may take for what they were answered, after the first signal.
const DRAIN: Duration = Duration::from_secs(10);

/// Descriptors for files other than connections and those of loops: standard streams, sockets that listen, files that are read again.
const OWN_DESCRIPTORS: u64 = 24;
/// With fewer clients a proxy does not start: a few idle ones would take all of it.
const CLIENTS_LEAST: u64 = 16;

/// A proxy to start: its name where the file has several.
struct Pool {
    name: Option<String>,
    listen: Vec<Address>,
    config: ProxyConfig,
}

pub(crate) fn run(arguments: &Proxy) -> Outcome {
    crate::allocator::give_back_at_once();
    // First of all: threads started before it would not have the signals blocked.
    let termination = process::claim_signals_with_hangup()?;
    let log = logging::start(arguments.log);
    let mut running = Vec::new();
    let mut pools = pools(arguments)?;
    keep_within_descriptors(&mut pools)?;
    for pool in pools {
        let started = proxy::start(pool.config, &pool.listen).map_err(|error| error.to_string())?;
        started.on_broken(log.exit(process::BROKEN_STATUS));
        for address in started.addresses() {
            output::announce(format_args!("listening on {address}"));
        }
        running.push((pool.name, started));
    }
    let _metrics = arguments.metrics.map(|address| serve_metrics(address, &running)).transpose()?;
    while termination.wait() == Signal::Hangup {
        reload(arguments, &running);
    }
    end(termination, running)
}

/// Raises the limit of descriptors as far as permitted, and lowers each pool's number of clients to its share of what the limit
/// leaves beside a connection from each loop to each node.
fn keep_within_descriptors(pools: &mut [Pool]) -> Outcome {
    let descriptors = Descriptors::raised();
    let count = pools.len().max(1);
    let loops = pools.iter().map(|pool| pool.config.threads.max(1)).sum();
    let to_nodes: usize = pools.iter().map(|pool| pool.config.threads.max(1) * pool.config.nodes.len()).sum();
    let left = descriptors.connections(loops, OWN_DESCRIPTORS + to_nodes as u64, CLIENTS_LEAST * count as u64);
    let most = left.map_err(|shortage| format!("cannot start: {shortage}"))? / count;
    for Pool { config, .. } in pools {
        let wanted = config.limits.clients_max;
        if most < wanted {
            let (descriptors, why) =
                (descriptors.limit, "the limit of descriptors leaves fewer clients than --clients-max");
            tracing::warn!(descriptors, clients_max = most, wanted, "{why}: raise it with `ulimit -n`");
        }
        config.limits.clients_max = wanted.min(most);
    }
    Ok(())
}

fn serve_metrics(
    address: SocketAddr,
    running: &[(Option<String>, RunningProxy)],
) -> Result<proxy::MetricsServer, String> {
    let pools = running.iter().map(|(name, running)| (name.clone(), running.counters().to_vec())).collect();
    let served = proxy::serve_metrics(address, pools);
    let (bound, server) = served.map_err(|error| format!("cannot serve metrics on {address}: {error}"))?;
    output::announce(format_args!("metrics are at http://{bound}/metrics"));
    Ok(server)
}

/// The proxies that the arguments describe.
fn pools(arguments: &Proxy) -> Result<Vec<Pool>, String> {
    let mut pools = match &arguments.nutcracker {
        Some(file) => nutcracker_pools(file)?,
        None => {
            let mut config = ProxyConfig::new(nodes(arguments)?);
            config.spread = arguments.spread.spread();
            settle_spread(&mut config, arguments)?;
            vec![Pool { name: None, listen: arguments.listen.clone(), config }]
        }
    };
    let tls = tls_files(arguments)?.map(|files| files.server()).transpose()?;
    let node_tls = node_tls(arguments)?;
    for Pool { config, .. } in &mut pools {
        settle(config, arguments);
        (config.tls, config.node_tls) = (tls.clone(), node_tls.clone());
    }
    Ok(pools)
}

/// Applies options that only some placements of keys permit.
fn settle_spread(config: &mut ProxyConfig, arguments: &Proxy) -> Result<(), String> {
    if arguments.eject_after.is_some() && !config.spread.may_eject() {
        return Err("--eject-after needs --hash ketama, modula or random: only these define which nodes take over the keys of an ejected one".to_owned());
    }
    if arguments.read_replicas && config.spread != Spread::Slots {
        return Err("--read-replicas: only a cluster has known replicas (--hash slots)".to_owned());
    }
    config.ejection = arguments.eject_after.map(|failures| Ejection { failures, time: arguments.eject_for });
    config.reads_replicas = arguments.read_replicas;
    Ok(())
}

/// Texts of the files with which clients are spoken to in TLS.
struct TlsFiles {
    cert: String,
    key: String,
    client_roots: Option<String>,
}

/// Those of `--tls-cert`, `--tls-key` and `--tls-client-ca`.
fn tls_files(arguments: &Proxy) -> Result<Option<TlsFiles>, String> {
    let Some((cert, key)) = arguments.tls_cert.as_deref().zip(arguments.tls_key.as_deref()) else { return Ok(None) };
    let client_roots = arguments.tls_client_ca.as_deref().map(read).transpose()?;
    Ok(Some(TlsFiles { cert: read(cert)?, key: read(key)?, client_roots }))
}

impl TlsFiles {
    fn server(&self) -> Result<TlsServer, String> {
        let (cert, key) = (self.cert.as_bytes(), self.key.as_bytes());
        let server = match &self.client_roots {
            None => TlsServer::from_pem(cert, key, &[]),
            Some(roots) => TlsServer::from_pem_with_client_roots(cert, key, roots.as_bytes(), &[]),
        };
        server.map_err(tls_error)
    }

    fn replace(&self, server: &TlsServer) -> Result<(), String> {
        let (cert, key) = (self.cert.as_bytes(), self.key.as_bytes());
        let replaced = match &self.client_roots {
            None => server.replace(cert, key),
            Some(roots) => server.replace_with_client_roots(cert, key, roots.as_bytes()),
        };
        replaced.map_err(tls_error)
    }
}

/// The error with the option whose file it is of.
fn tls_error(error: CertificateError) -> String {
    match error {
        CertificateError::Roots(_) => format!("--tls-client-ca: {error}"),
        _ => format!("--tls-cert, --tls-key: {error}"),
    }
}

fn node_tls(arguments: &Proxy) -> Result<Option<TlsClient>, String> {
    let Some(file) = &arguments.node_tls_ca else { return Ok(None) };
    // The name is that of each node, put in where it is connected to.
    let client = TlsClient::from_pem(read(file)?.as_bytes(), "localhost", &[]);
    let client = client.map_err(|error| format!("{}: {error}", file.display()))?;
    let Some((cert, key)) = arguments.node_tls_cert.as_deref().zip(arguments.node_tls_key.as_deref()) else {
        return Ok(Some(client));
    };
    let client = client.with_certificate(read(cert)?.as_bytes(), read(key)?.as_bytes());
    client.map(Some).map_err(|error| format!("--node-tls-cert, --node-tls-key: {error}"))
}

fn nutcracker_pools(file: &Path) -> Result<Vec<Pool>, String> {
    let pools = nutcracker::parse(&read(file)?).map_err(|problem| format!("{}: {problem}", file.display()))?;
    let pool = |pool: nutcracker::NutcrackerPool| {
        for notice in &pool.notices {
            output::notice(format_args!("sapsan: {}: pool {}: {notice}", file.display(), pool.name));
        }
        Pool { name: Some(pool.name), listen: vec![pool.listen], config: pool.config }
    };
    Ok(pools.into_iter().map(pool).collect())
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

fn nodes(arguments: &Proxy) -> Result<Vec<NodeConfig>, String> {
    match &arguments.nodes_file {
        Some(file) => proxy::parse_nodes(&read(file)?).map_err(|problem| format!("{}: {problem}", file.display())),
        None => arguments.nodes.iter().map(|node| proxy::parse_node(node)).collect::<Result<_, _>>(),
    }
}

/// Puts the arguments that were given in place of defaults, and of what twemproxy's file says.
fn settle(config: &mut ProxyConfig, arguments: &Proxy) {
    let password = |text: &Option<String>| text.clone().map(Password);
    config.password = password(&arguments.password).or(config.password.take());
    config.node_password = password(&arguments.node_password).or(config.node_password.take());
    config.node_user = arguments.node_user.clone();
    config.threads = arguments.threads.map_or(config.threads, usize::from);
    config.may_split_msetnx = arguments.split;
    config.preconnect |= arguments.preconnect;
    config.node_timeout = arguments.timeout.or(config.node_timeout);
    config.idle_timeout = arguments.idle_timeout.or(config.idle_timeout);
    config.slow = arguments.slow;
    settle_limits(&mut config.limits, &arguments.limits);
}

fn settle_limits(limits: &mut ProxyLimits, given: &LimitArguments) {
    fn take<T: Copy>(place: &mut T, given: Option<T>) {
        *place = given.unwrap_or(*place);
    }
    take(&mut limits.clients_max, given.clients_max);
    take(&mut limits.commands_max, given.commands_max);
    take(&mut limits.client_bytes_max, given.client_bytes_max);
    take(&mut limits.request_bytes_max, given.request_bytes_max);
    take(&mut limits.joined_bytes_max, given.joined_bytes_max);
    take(&mut limits.total_bytes_max, given.total_bytes_max);
    take(&mut limits.own_connections_max, given.own_connections_max);
    take(&mut limits.subscriptions_max, given.subscriptions_max);
    take(&mut limits.stall_max, given.stall_max);
}

/// SIGHUP: reads the nodes and the certificate again. All of them are checked before any is replaced; a mistake is reported, and
/// everything stays as it was.
fn reload(arguments: &Proxy, running: &[(Option<String>, RunningProxy)]) {
    let taken = pools(arguments).and_then(|pools| {
        let files = tls_files(arguments)?;
        if let Some(files) = &files {
            files.server()?;
        }
        let found = running.iter().map(|(name, running)| {
            let pool = pools.iter().find(|pool| pool.name == *name);
            let pool = pool.ok_or_else(|| format!("pool {} is gone", name.as_deref().unwrap_or_default()))?;
            Ok((running, pool))
        });
        for (running, pool) in found.collect::<Result<Vec<_>, String>>()? {
            running.set_nodes(pool.config.nodes.clone()).map_err(|error| error.to_string())?;
            if let (Some(tls), Some(files)) = (&running.config().tls, &files) {
                files.replace(tls)?;
            }
        }
        for new in pools.iter().filter(|pool| running.iter().all(|(name, _)| *name != pool.name)) {
            let name = new.name.as_deref().unwrap_or_default();
            output::notice(format_args!("sapsan: pool {name} is new: restart the proxy to serve it"));
        }
        Ok(())
    });
    if let Err(problem) = taken {
        output::notice(format_args!("sapsan: the nodes stay as they are: {problem}"));
    }
}

/// Has the clients answered, then ends. A second signal ends the process at once.
fn end(termination: Termination, running: Vec<(Option<String>, RunningProxy)>) -> Outcome {
    running.iter().for_each(|(_, running)| running.drain(DRAIN));
    std::thread::spawn(move || {
        while termination.wait() == Signal::Hangup {}
        std::process::exit(process::CUT_STATUS);
    });
    let ended = running.into_iter().map(|(_, running)| running.join());
    ended.collect::<Result<(), _>>().map_err(|error| format!("while ending: {error}"))
}
