//! `sapsan demo`: generated travels data in a temporary folder, served; what to try next; gone at exit.

use super::serve;
use crate::cli::Demo;
use crate::commands::documents::import;
use crate::console::{Outcome, output, process, progress};
use crate::generate::{Counts, Travels};
use server::config::ServiceConfig;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

/// The travels service, as the application's own file says it.
const TRAVELS: &str = include_str!("../../../../../apps/travels/travels.toml");
/// The moment at which the generated data's ages are counted.
const NOW: &str = "now=1503966608";

pub(crate) fn run(arguments: &Demo) -> Outcome {
    crate::allocator::give_back_at_once();
    let termination = process::claim_signals()?;
    // The port is tried before the data is made, so that a port in use is told at once.
    drop(std::net::TcpListener::bind(arguments.http).map_err(|error| listen_error(arguments, &error))?);
    let folder = tempfile::Builder::new().prefix("sapsan-demo-").tempdir();
    let folder = folder.map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let path = folder.path().join("travels.toml");
    std::fs::write(&path, TRAVELS).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    let mut config = ServiceConfig::load(&path, &[NOW.to_owned()]).map_err(|error| error.to_string())?;
    config.server.http = arguments.http;
    let data = folder.path().join("data");
    let counts = Counts::TRAIN;
    let total = u64::from(counts.users) + u64::from(counts.locations) + u64::from(counts.visits);
    let place = folder.path().display();
    output::announce(format_args!("making {total} documents (seed {}) in {place}", arguments.seed));
    let zip = folder.path().join("travels.zip");
    generate(&zip, Travels { counts, only_visits: false, seed: arguments.seed }, total)?;
    import::into(&config, &data, &[zip])?;
    let running = server::start(&config, &data).map_err(|error| error.to_string())?;
    output::announce(welcome(&running.address().to_string()));
    let path = folder.path().to_owned();
    let also = path.clone();
    running.on_broken(move || {
        drop(std::fs::remove_dir_all(also));
        std::process::exit(process::BROKEN_STATUS)
    });
    // After a second signal the process ends without waiting for the drain: the folder is removed then too, without a report of errors.
    let outcome = serve::end_on_signal(termination, running, move || drop(std::fs::remove_dir_all(path)));
    // Dropping the folder would ignore a failure.
    folder.close().map_err(|error| format!("cannot remove the temporary folder: {error}"))?;
    outcome
}

fn listen_error(arguments: &Demo, error: &std::io::Error) -> String {
    let address = arguments.http;
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("cannot listen on {address}: another program has this port; choose one with --http ADDRESS:PORT")
        }
        _ => format!("cannot listen on {address}: {error}"),
    }
}

fn generate(zip: &Path, data: Travels, total: u64) -> Outcome {
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", zip.display());
    let bar = progress::documents(total);
    let file = BufWriter::new(File::create(zip).map_err(failed)?);
    let file = data.write_zip(file, |done| bar.set_position(done)).map_err(failed)?;
    file.into_inner().map_err(|error| failed(error.into_error()))?;
    bar.finish_and_clear();
    Ok(())
}

fn welcome(address: &str) -> String {
    format!(
        r#"listening on http://{address}

Try, in another terminal:

  curl 'http://{address}/users/1'
  curl 'http://{address}/users/1/visits?toDistance=50'
  curl 'http://{address}/locations/1/avg?gender=f&fromAge=30'
  curl -X POST 'http://{address}/visits/1' -d '{{"mark": 5}}'
  curl 'http://{address}/_/query' -d '{{"sql": "SELECT country, COUNT(*) AS n FROM locations GROUP BY country"}}'
  curl 'http://{address}/_/metrics'

Ctrl-C ends it; the data goes with it."#
    )
}
