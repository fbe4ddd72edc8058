//! Opening after a crash, from a cold cache: a process of its own loads, commits, and aborts when its log is full.

use crate::commits::{self, Picks, Way, Which};
use crate::data::{Records, Shape};
use crate::disk;
use crate::engine::{Engine, Kind, Outcome, Purpose};
use crate::engines::open;
use crate::stage::Stage;
use crate::table::{Figures, Row, Unit};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// First argument of the process that is to die.
pub(crate) const CHILD: &str = "--live-and-die";
const IN_FLIGHT: u64 = 1024;
/// Peers commit so long before they die.
const LIFE: Duration = Duration::from_secs(2);
/// Ours dies when both memtables are as full as this, or after so long.
const FULL: f64 = 0.9;
const LIFE_MOST: Duration = Duration::from_secs(10);
const OPEN_MOST: f64 = 2.0;

/// See [`super::GROUPS`].
pub(crate) fn measure(stage: &mut Stage) -> Outcome<()> {
    stage.clear();
    let mut times = Figures::EMPTY;
    let mut log = 0;
    for &kind in &stage.kinds {
        let folder = stage.fresh(kind, "crash")?;
        for _ in 0..stage.effort.rounds {
            let status = Command::new(std::env::current_exe()?)
                .args([CHILD, kind.name(), &stage.effort.records.to_string()])
                .arg(&folder)
                .status()?;
            if std::os::unix::process::ExitStatusExt::signal(&status) != Some(libc::SIGABRT) {
                return Err(format!("the process that should die by abort ended with {status}").into());
            }
            if kind == Kind::Store {
                log = log.max(disk::size(&folder)?.log);
            }
            disk::cool(&folder)?;
            let started = Instant::now();
            let engine = open(kind, &folder, Purpose::usual(Shape::Short));
            let opened = engine.and_then(|engine| {
                engine.reader()?.read(&[0])?;
                Ok(started.elapsed().as_secs_f64())
            });
            times.measure(kind, opened)?;
        }
        std::fs::remove_dir_all(folder)?;
    }
    stage.tell(&[Row {
        work: format!(
            "open after a crash with full memtables, cold cache, first read done (log files {} MB)",
            log / 1_000_000
        ),
        other: times.peers(Unit::Seconds),
        ours: Unit::Seconds.text(times.ours()),
        figure: Unit::Seconds.text(times.ours()),
        bound: "< 2 s".to_owned(),
        reached: times.ours() < OPEN_MOST,
        noise: times.noise(),
    }]);
    Ok(())
}

/// The process that dies.
pub(crate) fn live_and_die(arguments: &[String]) -> Outcome<()> {
    let [kind, records, folder] = arguments else { return Err("wants KIND RECORDS FOLDER".into()) };
    let kind = crate::kind(kind)?;
    let records = records.parse()?;
    let folder = Path::new(folder);
    let engine = open(kind, folder, Purpose::usual(Shape::Short))?;
    if engine.reader()?.read(&[0]).is_err() {
        engine.load(&mut Records::make(Shape::Short, records).sorted().into_iter())?;
    }
    let engine = engine.as_ref();
    let picks = Picks::for_time(Which::Update(records), LIFE_MOST);
    std::thread::scope(|scope| -> Outcome<()> {
        let load = scope.spawn(|| commits::run(engine, Way::InFlight(IN_FLIGHT), &picks));
        let started = Instant::now();
        while !is_time(engine, started) && !load.is_finished() {
            std::thread::sleep(Duration::from_micros(200));
        }
        if load.is_finished() {
            return Err("the load ended before the crash".into());
        }
        std::process::abort();
    })
}

fn is_time(engine: &dyn Engine, started: Instant) -> bool {
    match engine.as_store() {
        Some(store) => {
            let stats = store.stats();
            let full = (FULL * store.memtable_bytes() as f64) as u64;
            (stats.memtable_bytes > full && stats.frozen_bytes > full / 2) || started.elapsed() > LIFE_MOST - LIFE
        }
        None => started.elapsed() > LIFE,
    }
}
