//! twemproxy's configuration file (nutcracker.yml): each pool becomes a proxy.
//!
//! Every key is either supported, or reported by a notice that says what the proxy does instead. A pool that a Redis proxy cannot
//! serve (memcached) is an error.

use std::time::Duration;

use reactor::Address;
use saphyr::{LoadableYamlNode, Yaml};

use crate::address::{parse_address, parse_node};
use crate::config::{DistributionKind, Ejection, NodeConfig, Password, ProxyConfig, Spread};
use crate::placement::Hash;

/// twemproxy's own defaults of `server_failure_limit` and `server_retry_timeout`.
const FAILURES: u32 = 2;
const RETRY: Duration = Duration::from_millis(30_000);
/// Largest weight: placements hold points for each unit of it.
const WEIGHT_MAX: u32 = 10_000;

/// A pool of the file.
#[derive(Clone, Debug)]
pub struct NutcrackerPool {
    /// Its name in the file.
    pub name: String,
    /// Its listening address.
    pub listen: Address,
    /// The proxy's configuration.
    pub config: ProxyConfig,
    /// Unsupported keys, each with what the proxy does instead.
    pub notices: Vec<String>,
}

/// Parses a file.
///
/// # Errors
/// The problem, with the name of the pool.
pub fn parse(text: &str) -> Result<Vec<NutcrackerPool>, String> {
    let documents = Yaml::load_from_str(text).map_err(|error| format!("it is no YAML: {error}"))?;
    let pools = documents.first().and_then(|document| document.as_mapping()).ok_or("it holds no pools")?;
    pools
        .iter()
        .map(|(name, keys)| {
            let name = scalar(name).ok_or("the name of a pool is no text")?;
            pool(&name, keys).map_err(|problem| format!("pool {name}: {problem}"))
        })
        .collect()
}

/// A text, number or boolean as text, approximately as it was written.
fn scalar(value: &Yaml<'_>) -> Option<String> {
    let number = || value.as_integer().map(|number| number.to_string());
    let boolean = || value.as_bool().map(|boolean| boolean.to_string());
    value.as_str().map(str::to_owned).or_else(number).or_else(boolean)
}

/// A pool while its keys are read, which may come in any order.
struct Reading {
    hash: Hash,
    distribution: DistributionKind,
    hash_tag: Option<[u8; 2]>,
    is_redis: bool,
    /// `auto_eject_hosts`, and its parameters.
    ejects: bool,
    ejection: Ejection,
    listen: Option<Address>,
    config: ProxyConfig,
    notices: Vec<String>,
}

fn pool(name: &str, keys: &Yaml<'_>) -> Result<NutcrackerPool, String> {
    let mut reading = Reading {
        hash: Hash::Fnv1a64,
        distribution: DistributionKind::Ketama,
        hash_tag: None,
        is_redis: false,
        ejects: false,
        ejection: Ejection { failures: FAILURES, time: RETRY },
        listen: None,
        config: ProxyConfig::new(Vec::new()),
        notices: Vec::new(),
    };
    for (key, value) in keys.as_mapping().ok_or("it is no list of keys")? {
        let key = scalar(key).ok_or("a key is no text")?;
        if key == "servers" {
            let servers = value.as_sequence().ok_or("servers: is no list")?;
            reading.config.nodes = servers
                .iter()
                .map(|one| server(&scalar(one).unwrap_or_default()).map_err(|problem| format!("servers: {problem}")))
                .collect::<Result<_, _>>()?;
        } else {
            let value = scalar(value).ok_or_else(|| format!("{key}: is no text, number or boolean"))?;
            reading.key(&key, &value).map_err(|problem| format!("{key}: {problem}"))?;
        }
    }
    reading.pool(name)
}

impl Reading {
    fn key(&mut self, key: &str, value: &str) -> Result<(), String> {
        let is_true = matches!(value, "true" | "yes" | "on");
        let number = || value.parse::<u64>().map_err(|_| format!("{value:?} is no number"));
        match key {
            "listen" => self.listen = Some(listen(value)?),
            "hash" => {
                let known = Hash::ALL.iter().find(|(name, _)| *name == value);
                self.hash = known.map(|(_, hash)| *hash).ok_or_else(|| format!("{value:?} is no hash function"))?;
            }
            "hash_tag" => {
                let marks: Result<[u8; 2], _> = value.as_bytes().try_into();
                self.hash_tag = Some(marks.map_err(|_| format!("{value:?} is not two characters"))?);
            }
            "distribution" => {
                self.distribution = match value {
                    "ketama" => DistributionKind::Ketama,
                    "modula" => DistributionKind::Modula,
                    "random" => DistributionKind::Random,
                    _ => return Err(format!("{value:?} is none of ketama, modula, random")),
                }
            }
            "timeout" => {
                let timeout = Duration::from_millis(number()?);
                (self.config.node_timeout, self.config.connect_max) = (Some(timeout), timeout);
            }
            "redis" => self.is_redis = is_true,
            "redis_auth" => {
                let password = Some(Password(value.to_owned()));
                (self.config.password, self.config.node_password) = (password.clone(), password);
            }
            "redis_db" => self.config.database = u32::try_from(number()?).map_err(|_| "is too large".to_owned())?,
            "client_connections" if number()? > 0 => self.config.limits.clients_max = number()? as usize,
            "client_connections" => {}
            "backlog" => self.config.backlog = u32::try_from(number()?).map_err(|_| "is too large".to_owned())?,
            "auto_eject_hosts" => self.ejects = is_true,
            // In twemproxy too they have no effect without ejection.
            "server_failure_limit" => {
                self.ejection.failures = u32::try_from(number()?).map_err(|_| "is too large".to_owned())?;
            }
            "server_retry_timeout" => self.ejection.time = Duration::from_millis(number()?),
            "preconnect" => self.config.preconnect = is_true,
            "server_connections" if number()? == 1 => {}
            "tcpkeepalive" if !is_true => {}
            _ => self.notices.push(self.not_obeyed(key)?),
        }
        Ok(())
    }

    /// What the proxy does instead of an unsupported key.
    fn not_obeyed(&self, key: &str) -> Result<String, String> {
        let instead = match key {
            "server_connections" => "each thread has one shared connection to each node",
            "tcpkeepalive" => "clients are ended by --idle-timeout alone",
            "reuseport" => "each thread has a listening socket of its own in any case",
            _ => return Err("is no key of a pool".to_owned()),
        };
        Ok(format!("{key} is not supported: {instead}"))
    }

    fn pool(mut self, name: &str) -> Result<NutcrackerPool, String> {
        if !self.is_redis {
            return Err("it is a pool of memcached: only those with redis: true are served".to_owned());
        }
        if self.config.nodes.is_empty() {
            return Err("servers: there are none".to_owned());
        }
        let (hash, distribution, hash_tag) = (self.hash, self.distribution, self.hash_tag);
        self.config.spread = Spread::Twemproxy { hash, distribution, hash_tag };
        self.config.ejection = self.ejects.then_some(self.ejection);
        let listen = self.listen.ok_or("listen: is missing")?;
        Ok(NutcrackerPool { name: name.to_owned(), listen, config: self.config, notices: self.notices })
    }
}

/// `HOST:PORT`, or `/PATH`, optionally followed by permissions.
fn listen(text: &str) -> Result<Address, String> {
    if !text.starts_with('/') {
        return parse_address(text);
    }
    match text.split_once(' ') {
        None => Ok(Address::Unix(text.into())),
        Some((path, "0600" | "600")) => Ok(Address::Unix(path.into())),
        Some((_, mode)) => {
            Err(format!("the permissions {mode:?} are not supported: a socket's file is for its owner alone"))
        }
    }
}

/// `HOST:PORT:WEIGHT [NAME]`, or `/PATH:WEIGHT [NAME]`.
fn server(text: &str) -> Result<NodeConfig, String> {
    let (address, name) = text.split_once(' ').map_or((text, None), |(address, name)| (address, Some(name.trim())));
    let (address, weight) = address.rsplit_once(':').ok_or_else(|| format!("{text:?} has no weight"))?;
    let weight: u32 =
        weight.parse().ok().filter(|weight| *weight > 0).ok_or_else(|| format!("{text:?} has no weight"))?;
    if weight > WEIGHT_MAX {
        return Err(format!("{text:?}: a weight is 1 to {WEIGHT_MAX}"));
    }
    let plain = if address.starts_with('/') { format!("unix:{address}") } else { address.to_owned() };
    let node = parse_node(&plain)?;
    let ring_name = match name {
        Some(name) => name.to_owned(),
        // For a Unix socket twemproxy takes the path.
        None => node.ring_name.strip_prefix("unix:").unwrap_or(&node.ring_name).to_owned(),
    };
    Ok(NodeConfig { name: name.map_or(plain, str::to_owned), weight, ring_name, ..node })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "
alpha:
  listen: 127.0.0.1:22121
  hash: fnv1_32
  hash_tag: \"{}\"
  distribution: modula
  timeout: 400
  redis: true
  redis_auth: secret
  redis_db: 2
  auto_eject_hosts: true
  server_failure_limit: 3
  server_retry_timeout: 2000
  preconnect: true
  server_connections: 4
  servers:
   - 127.0.0.1:6381:1 server1
   - 127.0.0.1:11211:2
   - /run/redis.sock:1
beta: { listen: /run/proxy.sock 0600, redis: true, servers: [ 127.0.0.1:6381:1 ] }
";

    #[test]
    fn a_pool_becomes_a_proxy() {
        let pools = parse(FILE).unwrap();
        let [alpha, beta] = &pools[..] else { panic!("two pools") };
        assert_eq!((alpha.name.as_str(), alpha.listen.to_string().as_str()), ("alpha", "127.0.0.1:22121"));
        let spread =
            Spread::Twemproxy { hash: Hash::Fnv1_32, distribution: DistributionKind::Modula, hash_tag: Some(*b"{}") };
        assert_eq!(alpha.config.spread, spread);
        assert_eq!(alpha.config.node_timeout, Some(Duration::from_millis(400)));
        assert_eq!(alpha.config.password, Some(Password("secret".into())));
        assert_eq!(alpha.config.database, 2);
        let names: Vec<_> = alpha.config.nodes.iter().map(|node| (node.ring_name.as_str(), node.weight)).collect();
        assert_eq!(names, [("server1", 1), ("127.0.0.1", 2), ("/run/redis.sock", 1)]);
        assert_eq!(alpha.notices.len(), 1);
        assert!(alpha.notices[0].starts_with("server_connections is not supported"));
        assert_eq!(alpha.config.ejection, Some(Ejection { failures: 3, time: Duration::from_secs(2) }));
        assert!(alpha.config.preconnect && !beta.config.preconnect);
        assert!(beta.notices.is_empty() && beta.config.ejection.is_none());
        assert_eq!(beta.listen, Address::Unix("/run/proxy.sock".into()));
        let defaults =
            Spread::Twemproxy { hash: Hash::Fnv1a64, distribution: DistributionKind::Ketama, hash_tag: None };
        assert_eq!(beta.config.spread, defaults);
    }

    #[test]
    fn mistakes_say_where_they_are() {
        for (file, mistake) in [
            ("a: {listen: '127.0.0.1:1', servers: ['h:1:1']}", "pool a: servers: "),
            ("a: {listen: '127.0.0.1:1', servers: ['127.0.0.1:1:1']}", "pool a: it is a pool of memcached"),
            ("a: {listen: '127.0.0.1:1', redis: true}", "pool a: servers: there are none"),
            ("a: {redis: true, servers: ['127.0.0.1:1:1']}", "pool a: listen: is missing"),
            ("a: {listen: '/p 0777'}", "pool a: listen: the permissions \"0777\" are not supported"),
            ("a: {hash: nothing}", "pool a: hash: \"nothing\" is no hash function"),
            ("a: {nothing: 1}", "pool a: nothing: is no key of a pool"),
            ("a: {servers: ['127.0.0.1:1:0']}", "pool a: servers: \"127.0.0.1:1:0\" has no weight"),
            ("a: {servers: ['127.0.0.1:1:10001']}", "pool a: servers: \"127.0.0.1:1:10001\": a weight is 1 to 10000"),
            ("a: 5", "pool a: it is no list of keys"),
            ("[", "it is no YAML"),
            ("", "it holds no pools"),
        ] {
            let found = parse(file).unwrap_err();
            assert!(found.starts_with(mistake), "{file}: {found}");
        }
    }
}
