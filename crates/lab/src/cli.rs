//! Arguments of `sapsan lab`, and their execution. Output goes to the writers that the caller passes.

use crate::experiment::{Experiment, numbered};
use crate::mix::Mix;
use crate::optimum::Optimum;
use crate::overhead;
use crate::report::{ExperimentReport, SeriesReport, page, table};
use crate::run::{RunPlan, run};
use crate::serve::{ServeSettings, Served, serve};
use crate::workload::{Costs, Workload};
use clap::{Args, Subcommand};
use executor::Model;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Tasks of one size that measure a model's overhead: enough for about a second.
const OVERHEAD_TASKS: u32 = 100_000;

/// Run the same requests through many execution models, beside the optimum that theory allows
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Lab {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    series: Series,
}

impl Lab {
    /// Whether the arguments start a server, which runs until it is stopped.
    pub fn serves(&self) -> bool {
        matches!(self.action, Some(Action::Serve(_)))
    }
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show the numbered experiments
    List(Cores),
    /// Measure the overhead of a task in each model
    Overhead(OverheadArguments),
    /// Serve the same requests over HTTP by one model, to be loaded from outside: GET /ID, or any path for the next id
    Serve(Serve),
}

/// What is run, in every action.
#[derive(Debug, Args)]
struct Work {
    /// Multiply waits by this: 0.1 makes them ten times shorter
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    scale: f64,
    /// Repeat the computing this many times: the classic experiment was measured with a debug build, whose requests cost about 30 times as much
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    work: u32,
    /// A mix of your own, in TOML, instead of the classic requests
    #[arg(long, value_name = "FILE")]
    mix: Option<PathBuf>,
    /// Tasks that may wait in a model's queue; in event loops all that have not ended
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queue: u32,
}

#[derive(Debug, Args)]
struct Cores {
    /// P, the number of cores for which the models are sized (default: all that the process may use)
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..=256))]
    cores: Option<u16>,
}

impl Cores {
    fn count(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        self.cores.map_or_else(available, usize::from)
    }
}

#[derive(Debug, Args)]
struct Series {
    /// Only these numbers, separated by commas; `sapsan lab list` shows them
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    only: Vec<u32>,
    /// These models instead of the numbered ones, separated by commas: pool:8, io-aware:64/2, event-loop, …
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', conflicts_with = "only")]
    model: Vec<String>,
    /// Requests of each run, ids from 0
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    requests: u32,
    /// Runs of each experiment; the one with the median time counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    cores: Cores,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Write a page with the timelines of every run
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct OverheadArguments {
    /// Models, separated by commas
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "pool,io-aware,work-stealing,event-loop,hybrid,semaphore"
    )]
    model: Vec<String>,
    /// Size of a task, in microseconds of processor time
    #[arg(long, value_name = "US", default_value_t = 5.0, value_parser = microseconds)]
    task: f64,
    /// Tasks of each round
    #[arg(long, value_name = "N", default_value_t = OVERHEAD_TASKS, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    tasks: u32,
    #[command(flatten)]
    cores: Cores,
    /// Print JSON instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Serve {
    /// The model that runs the requests: inline, pool:8, io-aware:64/2, event-loop, hybrid, …
    #[arg(long, value_name = "NAME")]
    model: String,
    /// Where to listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Event loops of the server
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    #[command(flatten)]
    work: Work,
    #[command(flatten)]
    cores: Cores,
}

/// A factor above 0 and up to 10.
fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| *factor > 0.0 && *factor <= 10.0);
    factor.ok_or_else(|| "a number over 0 and up to 10".to_owned())
}

fn microseconds(text: &str) -> Result<f64, String> {
    let time = text.parse::<f64>().ok().filter(|time| *time > 0.0 && *time <= 1e6);
    time.ok_or_else(|| "a number over 0 and up to 1000000".to_owned())
}

/// What remains after the arguments have been executed.
pub enum CommandOutcome {
    /// Nothing.
    Finished,
    /// A server runs until the caller ends it.
    Serving(Served),
}

/// Executes the arguments. Results go to `out`, progress to `notice`.
pub fn execute(lab: &Lab, out: &mut impl Write, notice: &mut dyn FnMut(&str)) -> Result<CommandOutcome, String> {
    match &lab.action {
        None => series(&lab.series, out, notice)?,
        Some(Action::List(cores)) => list(cores.count(), out)?,
        Some(Action::Overhead(arguments)) => measure_overhead(arguments, out)?,
        Some(Action::Serve(arguments)) => return start_server(arguments).map(CommandOutcome::Serving),
    }
    Ok(CommandOutcome::Finished)
}

/// A reader that closes its end needs no more output.
fn write(out: &mut impl Write, text: &str) -> Result<(), String> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write the result: {error}"))
        }
        _ => Ok(()),
    }
}

fn list(cores: usize, out: &mut impl Write) -> Result<(), String> {
    let lines = numbered(cores).into_iter().map(|one| {
        let number = one.number.unwrap_or_default();
        format!("{number:>2}  {:<52} {}\n", one.title, one.model)
    });
    write(out, &lines.collect::<String>())
}

fn workload(work: &Work) -> Result<Workload, String> {
    match &work.mix {
        None => Ok(Workload::source(work.scale, work.work)),
        Some(file) => {
            let mix = Mix::read(file).map_err(|error| error.to_string())?;
            Ok(Workload::of_mix(mix, work.scale, work.work))
        }
    }
}

/// The experiments that the arguments select.
fn experiments(arguments: &Series, cores: usize) -> Result<Vec<Experiment>, String> {
    if !arguments.model.is_empty() {
        let models = arguments.model.iter().map(|name| Model::parse(name, cores).map(Experiment::of_model));
        return models.collect();
    }
    let all = numbered(cores);
    if arguments.only.is_empty() {
        return Ok(all);
    }
    let last = all.len();
    let one = |number: &u32| {
        let found = all.iter().find(|one| one.number == Some(*number)).cloned();
        found.ok_or_else(|| format!("there is no experiment {number}; there are 1 to {last}"))
    };
    arguments.only.iter().map(one).collect()
}

fn series(arguments: &Series, out: &mut impl Write, notice: &mut dyn FnMut(&str)) -> Result<(), String> {
    let (cores, requests) = (arguments.cores.count(), arguments.requests);
    let experiments = experiments(arguments, cores)?;
    let plan =
        RunPlan { workload: Arc::new(workload(&arguments.work)?), requests, queue_max: arguments.work.queue as usize };
    let costs = Costs::measure(&plan.workload, plan.requests);
    let optimum = Optimum::of(&plan, cores, &costs);
    let mut report = SeriesReport {
        workload: name_of(&arguments.work),
        requests,
        scale: arguments.work.scale,
        work: arguments.work.work,
        cores,
        queue_max: plan.queue_max,
        costs,
        optimum,
        experiments: Vec::new(),
    };
    for experiment in experiments {
        notice(&format!("running {}", experiment.title));
        let runs = (0..arguments.repeat).map(|_| run(experiment.model, &plan)).collect::<Result<Vec<_>, _>>();
        let runs = runs.map_err(|error| format!("{}: {error}", experiment.title))?;
        report.experiments.extend(ExperimentReport::of(experiment, runs, &optimum));
    }
    if let Some(file) = &arguments.report {
        std::fs::write(file, page(&report)).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    if arguments.json { write_json(out, &report) } else { write(out, &table(&report)) }
}

fn write_json(out: &mut impl Write, value: &impl serde::Serialize) -> Result<(), String> {
    let json = serde_json::to_string(value).map_err(|error| format!("cannot write the result as JSON: {error}"))?;
    write(out, &(json + "\n"))
}

fn name_of(work: &Work) -> String {
    work.mix.as_ref().map_or_else(|| "the classic experiment".to_owned(), |file| file.display().to_string())
}

fn measure_overhead(arguments: &OverheadArguments, out: &mut impl Write) -> Result<(), String> {
    let cores = arguments.cores.count();
    let mut all = Vec::new();
    for name in &arguments.model {
        let model = Model::parse(name, cores)?;
        let queue_max = 4096;
        let measured = overhead::measure(model, arguments.tasks, arguments.task, queue_max);
        all.push(measured.map_err(|error| format!("{name}: {error}"))?);
    }
    if arguments.json {
        return write_json(out, &all);
    }
    let lines = all.iter().map(|one| {
        let (cpu, task, wall) = (one.cpu_us, one.task_us, one.wall_us);
        format!(
            "{:<20} {cpu:>7.2} µs of processor time beside a task's {task:.2} µs; a task each {wall:.2} µs\n",
            one.model
        )
    });
    write(out, &lines.collect::<String>())
}

fn start_server(arguments: &Serve) -> Result<Served, String> {
    let settings = ServeSettings {
        listen: arguments.listen,
        loops: usize::from(arguments.threads),
        model: Model::parse(&arguments.model, arguments.cores.count())?,
        queue_max: arguments.work.queue as usize,
        workload: Arc::new(workload(&arguments.work)?),
    };
    serve(settings).map_err(|error| format!("cannot serve on {}: {error}", arguments.listen))
}
