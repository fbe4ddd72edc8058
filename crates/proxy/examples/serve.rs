//! The smallest proxy: `cargo run -p proxy --example serve -- LISTEN NODE…`, until it is ended.

use proxy::config::ProxyConfig;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().ok_or("an address to listen on is missing")?;
    let listen = proxy::parse_address(&listen)?;
    let nodes = arguments.map(|node| proxy::parse_node(&node)).collect::<Result<_, _>>()?;
    let config = ProxyConfig { threads: 1, ..ProxyConfig::new(nodes) };
    let running = proxy::start(config, &[listen])?;
    println!("listening on {}", running.addresses()[0]);
    Ok(running.join()?)
}
