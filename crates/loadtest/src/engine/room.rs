//! Resources of a run: file descriptors and local ports, checked before it starts, with the remedy if they do not suffice.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::IpAddr;

/// Descriptors other than connections: standard streams, files, and some for each loop.
const OTHER_DESCRIPTORS: u64 = 64;
const DESCRIPTORS_PER_LOOP: u64 = 4;
/// Seconds for which a local port waits after this side closed its connection (TIME_WAIT; fixed in Linux).
const TIME_WAIT_SECONDS: f64 = 60.0;

/// Requirements of a run.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Number of simultaneous connections.
    pub connections: u32,
    /// Number of loops.
    pub threads: usize,
    /// New connections per second, if each request has its own and the rate is planned.
    pub new_connections_per_second: Option<f64>,
    /// The server.
    pub to: IpAddr,
}

/// Refuses a run for which descriptors or ports do not suffice. Raises the limit of descriptors if permitted. `Some`: a
/// warning.
pub fn check(wanted: &Wanted) -> Result<Option<String>, String> {
    let needed = u64::from(wanted.connections) + OTHER_DESCRIPTORS + DESCRIPTORS_PER_LOOP * wanted.threads as u64;
    check_descriptors(needed)?;
    check_ports(wanted, local_ports())
}

fn check_descriptors(needed: u64) -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    // None: no limit.
    let (current, maximum) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    if needed <= current {
        return Ok(());
    }
    let lifted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if needed <= maximum && setrlimit(Resource::Nofile, lifted).is_ok() {
        return Ok(());
    }
    Err(format!(
        "{needed} file descriptors are needed, and this process may open {}: use fewer --connections, or lift the limit with \
         `ulimit -n {needed}`",
        current.max(maximum)
    ))
}

/// Number of ports for outgoing connections. `None`: unknown.
fn local_ports() -> Option<u32> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut bounds = text.split_whitespace().map(|bound| bound.parse::<u32>().ok());
    let (first, last) = (bounds.next()??, bounds.next()??);
    last.checked_sub(first).map(|ports| ports + 1)
}

fn check_ports(wanted: &Wanted, ports: Option<u32>) -> Result<Option<String>, String> {
    let Some(ports) = ports else { return Ok(None) };
    if wanted.connections > ports {
        return Err(format!(
            "{} connections to one address need as many local ports, and there are {ports}: use fewer --connections, or widen \
             the range with `sysctl net.ipv4.ip_local_port_range='1024 65535'`",
            wanted.connections
        ));
    }
    // On loopback the kernel reuses a waiting port after a second (tcp_tw_reuse = 2).
    let seconds = if wanted.to.is_loopback() { 1.0 } else { TIME_WAIT_SECONDS };
    let per_second = f64::from(ports) / seconds;
    Ok(wanted.new_connections_per_second.filter(|rate| *rate > per_second).map(|rate| {
        format!(
            "{rate:.0} new connections a second need more than the {ports} local ports if the server leaves it to us to close \
             them: a port then waits for {seconds:.0} s, which allows {per_second:.0} a second. Have the server close, or \
             set `sysctl net.ipv4.tcp_tw_reuse=1`"
        )
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(connections: u32, rate: Option<f64>, to: &str) -> Wanted {
        Wanted { connections, threads: 2, new_connections_per_second: rate, to: to.parse().unwrap() }
    }

    #[test]
    fn more_descriptors_than_the_kernel_gives_are_refused_with_the_remedy() {
        assert_eq!(check_descriptors(1), Ok(()));
        // The kernel's own bound (fs.nr_open) is far below this.
        let needed = 1 << 62;
        if getrlimit(Resource::Nofile).maximum.is_some() {
            let refused = check_descriptors(needed).unwrap_err();
            assert!(refused.contains(&format!("ulimit -n {needed}")), "{refused}");
        }
    }

    #[test]
    fn more_connections_than_ports_are_refused_and_too_frequent_ones_are_warned_of() {
        let near = "127.0.0.1";
        assert!(check_ports(&wanted(28_233, None, near), Some(28_232)).unwrap_err().contains("ip_local_port_range"));
        assert_eq!(check_ports(&wanted(100, Some(20_000.0), near), Some(28_232)), Ok(None));
        let warning = check_ports(&wanted(100, Some(1_000.0), "10.0.0.1"), Some(28_232)).unwrap().unwrap();
        assert!(warning.contains("471 a second"), "{warning}");
        assert_eq!(check_ports(&wanted(100, Some(400.0), "10.0.0.1"), Some(28_232)), Ok(None));
        assert_eq!(check_ports(&wanted(100, None, "10.0.0.1"), None), Ok(None));
    }

    #[test]
    fn the_kernel_tells_its_range() {
        assert!(local_ports().is_some_and(|ports| ports > 0));
    }
}
