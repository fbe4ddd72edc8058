//! `cargo xtask bench http`: the server compared with the floor (`bench/floor.c`), a minimal program that sends the same
//! bytes.
//!
//! Floor and server alternate; a row gives the median of the ratios of a server's run to the floor's before and after it,
//! and as noise the spread of the middle half of the ratios. wrk reaches its own limit on fast servers, so the server's
//! CPU per request decides. The kernel distributes the floor's connections over its threads arbitrarily, differently in
//! each run, and an uneven distribution changes their cost: therefore a ratio of CPU is taken from many short runs.

use super::setup::process::{Server, exchange};
use super::setup::results::{Row, record};
use super::setup::stage::{Counts, Stage, TRAIN};
use super::setup::wrk;
use super::setup::wrk::{Load, Outcome};
use super::{Effort, median};
use std::net::SocketAddr;

/// The criterion of a row.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// Server CPU per request, as a multiple of the floor's.
    Cpu(f64),
    /// CPU above the floor at this depth, relative to the floor's at depth 1; and requests/s as a multiple.
    Extra { share: f64, rate: f64 },
    /// Requests/s as a multiple of the floor's.
    Rate(f64),
}

impl Bound {
    /// Ratios of CPU are taken from more and shorter runs, in about the same total time.
    fn effort(self, usual: Effort) -> Effort {
        match self {
            Bound::Cpu(_) => Effort { rounds: 2 * usual.rounds + 1, seconds: 1, ..usual },
            _ => usual,
        }
    }
}

/// One kind of request on one data set.
struct Shape {
    name: &'static str,
    data: Data,
    make: &'static str,
    /// Targets by which a typical body size for this shape is determined.
    sample: &'static [&'static str],
    connections: u32,
    pipeline: u32,
    close: bool,
    bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    Train,
    Million,
}

impl Data {
    fn counts(self) -> Counts {
        match self {
            Data::Train => TRAIN,
            Data::Million => [1_000_000, 1, 0],
        }
    }
}

const USER_TRAIN: &str = "function make() return wrk.format('GET', '/users/' .. math.random(1, 10057)) end";
const USER_MILLION: &str = "function make() return wrk.format('GET', '/users/' .. math.random(1, 1000000)) end";
const USER_CLOSE: &str =
    "function make() return wrk.format('GET', '/users/' .. math.random(1, 10057), {Connection = 'close'}) end";
const VISITS: &str = r#"
function make()
  local q = {}
  if math.random() < 0.4 then q[#q + 1] = 'fromDate=' .. math.random(946684800, 1420070400) end
  if math.random() < 0.4 then q[#q + 1] = 'toDate=' .. math.random(946684800, 1420070400) end
  if math.random() < 0.4 then q[#q + 1] = 'toDistance=' .. math.random(1, 100) end
  if math.random() < 0.2 then q[#q + 1] = 'country=%D0%A0%D0%BE%D1%81%D1%81%D0%B8%D1%8F' end
  return wrk.format('GET', '/users/' .. math.random(1, 10057) .. '/visits' .. (#q > 0 and '?' .. table.concat(q, '&') or ''))
end"#;
const AVERAGE: &str = r#"
function make()
  local q = {}
  if math.random() < 0.4 then q[#q + 1] = 'fromDate=' .. math.random(946684800, 1420070400) end
  if math.random() < 0.4 then q[#q + 1] = 'toDate=' .. math.random(946684800, 1420070400) end
  if math.random() < 0.4 then q[#q + 1] = 'fromAge=' .. math.random(18, 50) end
  if math.random() < 0.4 then q[#q + 1] = 'toAge=' .. math.random(50, 90) end
  if math.random() < 0.4 then q[#q + 1] = 'gender=' .. (math.random() < 0.5 and 'm' or 'f') end
  return wrk.format('GET', '/locations/' .. math.random(1, 7628) .. '/avg' .. (#q > 0 and '?' .. table.concat(q, '&') or ''))
end"#;

const USERS: &[&str] = &["/users/17", "/users/444", "/users/1234", "/users/5000", "/users/9999"];
const LISTS: &[&str] = &[
    "/users/17/visits",
    "/users/444/visits?toDistance=50",
    "/users/1234/visits?fromDate=1180000000",
    "/users/5000/visits?toDate=1180000000",
    "/users/9999/visits?fromDate=1100000000&toDistance=70",
    "/users/77/visits",
];
const AVERAGES: &[&str] = &["/locations/17/avg", "/locations/444/avg?gender=m", "/locations/99/avg?fromAge=30"];

const fn user(name: &'static str, data: Data, connections: u32, pipeline: u32, bound: Bound) -> Shape {
    let make = match data {
        Data::Train => USER_TRAIN,
        Data::Million => USER_MILLION,
    };
    Shape { name, data, make, sample: USERS, connections, pipeline, close: false, bound }
}

const SHAPES: &[Shape] = &[
    user("GET /users/ID, train, 64 connections", Data::Train, 64, 1, Bound::Cpu(1.10)),
    user("GET /users/ID, train, 256 connections", Data::Train, 256, 1, Bound::Cpu(1.20)),
    user(
        "GET /users/ID, train, 64 connections, 16 pipelined",
        Data::Train,
        64,
        16,
        Bound::Extra { share: 0.10, rate: 0.5 },
    ),
    user(
        "GET /users/ID, train, 256 connections, 16 pipelined",
        Data::Train,
        256,
        16,
        Bound::Extra { share: 0.20, rate: 0.5 },
    ),
    Shape {
        name: "GET /users/ID/visits, random filters, 64 connections",
        data: Data::Train,
        make: VISITS,
        sample: LISTS,
        connections: 64,
        pipeline: 1,
        close: false,
        bound: Bound::Cpu(1.30),
    },
    Shape {
        name: "GET /locations/ID/avg, random filters, 64 connections",
        data: Data::Train,
        make: AVERAGE,
        sample: AVERAGES,
        connections: 64,
        pipeline: 1,
        close: false,
        bound: Bound::Cpu(1.30),
    },
    Shape {
        name: "GET /users/ID, a new connection each, 64 at once",
        data: Data::Train,
        make: USER_CLOSE,
        sample: USERS,
        connections: 64,
        pipeline: 1,
        close: true,
        bound: Bound::Rate(0.95),
    },
    user("GET /users/ID, one million, 64 connections", Data::Million, 64, 1, Bound::Cpu(1.10)),
    user("GET /users/ID, one million, 256 connections", Data::Million, 256, 1, Bound::Cpu(1.20)),
    user(
        "GET /users/ID, one million, 64 connections, 16 pipelined",
        Data::Million,
        64,
        16,
        Bound::Extra { share: 0.10, rate: 0.5 },
    ),
    user(
        "GET /users/ID, one million, 256 connections, 16 pipelined",
        Data::Million,
        256,
        16,
        Bound::Extra { share: 0.20, rate: 0.5 },
    ),
];

pub(super) fn run(effort: Effort, only: Option<&str>) -> Result<(), String> {
    if let Some(only) = only.filter(|only| SHAPES.iter().all(|shape| !shape.name.contains(only))) {
        return Err(format!("`{only}` is part of the name of no row"));
    }
    let stage = Stage::set(effort)?;
    let mut rows = Vec::new();
    for data in [Data::Train, Data::Million] {
        let shapes: Vec<&Shape> = SHAPES
            .iter()
            .filter(|shape| shape.data == data && only.is_none_or(|only| shape.name.contains(only)))
            .collect();
        if shapes.is_empty() {
            continue;
        }
        let server = stage.serve(data.counts())?;
        for shape in shapes {
            let row = stage.measure(&server, shape)?;
            row.print();
            rows.push(row);
        }
        println!("anonymous memory afterwards: {:.1} MB", server.anonymous_bytes() as f64 / 1e6);
        server.kill();
    }
    let command = only.map_or("cargo xtask bench http".to_owned(), |only| format!("cargo xtask bench http {only:?}"));
    if effort.record { record(&command, &rows) } else { Ok(()) }
}

/// The loads on the train data, with their names.
pub(super) fn loads() -> impl Iterator<Item = (&'static str, Load)> {
    SHAPES.iter().filter(|shape| shape.data == Data::Train).map(|shape| (shape.name, shape.load()))
}

impl Shape {
    fn load(&self) -> Load {
        Load { connections: self.connections, pipeline: self.pipeline, make: self.make.to_owned(), fresh: false }
    }
}

/// One shape of requests to a server compared with the floor, on 64 connections: `what` is its name and the code that
/// makes a request.
pub(super) fn beside_floor(
    stage: &Stage,
    server: &Server,
    what: (&'static str, &'static str),
    sample: &'static [&'static str],
    cpu_most: f64,
) -> Result<Row, String> {
    let ((name, make), data, bound) = (what, Data::Million, Bound::Cpu(cpu_most));
    stage.measure(server, &Shape { name, data, make, sample, connections: 64, pipeline: 1, close: false, bound })
}

impl Stage {
    fn measure(&self, server: &Server, shape: &Shape) -> Result<Row, String> {
        let sizes: Result<Vec<usize>, String> =
            shape.sample.iter().map(|target| body_bytes(server.address, target)).collect();
        let sizes = sizes?;
        let floor = self.floor(sizes.iter().sum::<usize>() / sizes.len().max(1), shape.close)?;
        let load = shape.load();
        let single = Load { pipeline: 1, ..load.clone() };
        let folder = self.folder.path();
        let effort = shape.bound.effort(self.effort);
        let go = |server: &Server, load: &Load, seed: u64| wrk::run(server, load, &self.cores, effort, folder, seed);
        let mut rounds: Vec<Round> = Vec::new();
        for round in 0..effort.rounds as u64 {
            let before = match rounds.last() {
                Some(last) => last.after,
                None => go(&floor, &load, round)?,
            };
            let ours = go(server, &load, round)?;
            let after = go(&floor, &load, round)?;
            let base = if shape.pipeline == 1 {
                (before.cpu_microseconds + after.cpu_microseconds) / 2.0
            } else {
                go(&floor, &single, round)?.cpu_microseconds
            };
            rounds.push(Round { before, ours, after, base });
        }
        Ok(judge(shape, &rounds))
    }
}

/// One round's figures.
struct Round {
    before: Outcome,
    ours: Outcome,
    after: Outcome,
    /// The floor's CPU per request at depth 1.
    base: f64,
}

impl Round {
    fn floor_cpu(&self) -> f64 {
        (self.before.cpu_microseconds + self.after.cpu_microseconds) / 2.0
    }
    fn floor_rate(&self) -> f64 {
        (self.before.requests_per_second + self.after.requests_per_second) / 2.0
    }
}

fn judge(shape: &Shape, rounds: &[Round]) -> Row {
    let of = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let cpu = of(&|round| round.ours.cpu_microseconds / round.floor_cpu());
    let rate = of(&|round| round.ours.requests_per_second / round.floor_rate());
    let extra = of(&|round| (round.ours.cpu_microseconds - round.floor_cpu()) / round.base);
    let noise = spread(rounds.iter().map(|round| round.ours.cpu_microseconds / round.floor_cpu()).collect());
    let failures: u64 = rounds.iter().map(|round| round.ours.failures).sum();
    let (figure, bound, reached) = match shape.bound {
        Bound::Cpu(most) => (format!("CPU {cpu:.2} ×"), format!("≤ {most:.2} ×"), cpu <= most),
        Bound::Rate(least) => {
            (format!("rate {rate:.2} ×, CPU {cpu:.2} ×"), format!("rate ≥ {least:.2} ×"), rate >= least)
        }
        Bound::Extra { share, rate: least } => (
            format!("extra {extra:.3}, rate {rate:.2} ×"),
            format!("extra ≤ {share:.2}, rate ≥ {least:.1} ×"),
            extra <= share && rate >= least,
        ),
    };
    let side = |outcome: &dyn Fn(&Round) -> Outcome| {
        let cpu = of(&|round| outcome(round).cpu_microseconds);
        let rate = of(&|round| outcome(round).requests_per_second);
        format!("{:.0}k/s, {cpu:.2} µs CPU", rate / 1e3)
    };
    Row {
        work: if failures == 0 { shape.name.to_owned() } else { format!("{} ({failures} failed)", shape.name) },
        other: side(&|round| round.before),
        ours: side(&|round| round.ours),
        figure,
        bound,
        reached: reached && failures == 0,
        noise: format!("{:.0} %", noise * 100.0),
    }
}

/// Half the width of the middle half of the values, relative to their median.
pub(super) fn spread(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values.get((values.len().saturating_sub(1) as f64 * share).round() as usize).copied();
    match (at(0.25), at(0.5), at(0.75)) {
        (Some(low), Some(middle), Some(high)) => (high - low) / 2.0 / middle,
        _ => 0.0,
    }
}

/// The size of a target's body.
pub(super) fn body_bytes(address: SocketAddr, target: &str) -> Result<usize, String> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let reply = exchange(address, request.as_bytes())?;
    let head_end =
        reply.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(|| format!("GET {target}: no reply"))?;
    if !reply.starts_with(b"HTTP/1.1 200") {
        return Err(format!("GET {target}: {}", String::from_utf8_lossy(&reply[..head_end])));
    }
    Ok(reply.len() - head_end - 4)
}
