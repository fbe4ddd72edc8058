//! `cargo xtask bench memory`: anonymous memory while the train data is served on 256 connections for ten minutes.

use super::Effort;
use super::setup::results::{Row, record};
use super::setup::stage::{Stage, TRAIN};
use super::setup::wrk;
use super::setup::wrk::Load;

const MINUTES: u32 = 10;
const ANONYMOUS_MOST: u64 = 100_000_000;
/// Growth from the second minute to the last that still counts as flat.
const GROWTH_MOST: f64 = 0.05;

const MIXED: &str = r#"
function make()
  local pick = math.random()
  if pick < 0.6 then return wrk.format('GET', '/users/' .. math.random(1, 10057)) end
  if pick < 0.75 then return wrk.format('GET', '/users/' .. math.random(1, 10057) .. '/visits?toDistance=50') end
  if pick < 0.9 then return wrk.format('GET', '/locations/' .. math.random(1, 7628) .. '/avg?gender=m') end
  return wrk.format('POST', '/visits/' .. math.random(1, 100570), nil, '{"mark":' .. math.random(0, 5) .. '}')
end"#;

pub(super) fn run(effort: Effort) -> Result<(), String> {
    let stage = Stage::set(effort)?;
    let server = stage.serve(TRAIN)?;
    let load = Load { connections: 256, pipeline: 1, make: MIXED.to_owned(), fresh: false };
    let minute = Effort { seconds: if effort.record { 60 } else { 6 }, ..effort };
    let mut samples = Vec::new();
    for number in 0..MINUTES {
        let outcome = wrk::run(&server, &load, &stage.cores, minute, stage.folder.path(), u64::from(number))?;
        samples.push(server.anonymous_bytes());
        println!(
            "minute {}: {:.1} MB anonymous, {:.0} requests/s, {} failed",
            number + 1,
            samples[samples.len() - 1] as f64 / 1e6,
            outcome.requests_per_second,
            outcome.failures
        );
    }
    let most = samples.iter().copied().max().unwrap_or(0);
    let growth = samples[samples.len() - 1] as f64 / samples[1] as f64 - 1.0;
    let row = Row {
        work: "anonymous memory, train data, 256 connections, 10 minutes, one request in ten a write".to_owned(),
        other: "—".to_owned(),
        ours: format!("most {:.1} MB, growth from minute 2 to 10 {:.1} %", most as f64 / 1e6, growth * 100.0),
        figure: format!("{:.1} MB", most as f64 / 1e6),
        bound: "< 100 MB, flat".to_owned(),
        reached: most < ANONYMOUS_MOST && growth <= GROWTH_MOST,
        noise: "—".to_owned(),
    };
    row.print();
    if effort.record { record("cargo xtask bench memory", &[row]) } else { Ok(()) }
}
