//! Stores a failure as files, so that it can be examined and run again. The seed alone does not reproduce it, because
//! the scheduling of the engine's threads differs.
//!
//! `files/` holds the disk before the recovery that failed; `expected` holds the expected content:
//!
//! ```text
//! direct 1 | free 1099511627776          properties of the simulated disk
//! durability commit
//! writer LOW HIGH                        for each writer, followed by its changes
//! change TREE KEY_IN_HEX NUMBER OPERATION LENGTH    or `-` for the last two where it was deleted
//! ```

use std::fmt::Write;
use std::io;
use std::path::Path;
use std::time::Duration;

use store::Durability;

use super::content::{Content, Files};
use super::crash::{Failure, recover};
use super::damage::{Damage, check};
use super::history::{Bounds, History, Operation, Stamp, Writer};
use super::life::Plan;
use super::platter::Platter;
use super::specimen::{Kind, Specimen};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|index| u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).unwrap()).collect()
}

fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Commit => "commit",
        Durability::Interval(_) => "interval",
        Durability::None => "none",
    }
}

/// Writes a failure to a folder.
pub(crate) fn keep(folder: &Path, failure: &Failure) -> io::Result<()> {
    write_files(folder, &failure.files)?;
    let mut text = String::new();
    let manner = failure.plan.manner;
    let free = manner.free_bytes.map_or("unknown".to_string(), |bytes| bytes.to_string());
    let _ = writeln!(text, "direct {}", u8::from(manner.has_direct));
    let _ = writeln!(text, "free {free}");
    let _ = writeln!(text, "durability {}", durability_name(failure.plan.options.durability));
    for (index, writer) in failure.history.iter().enumerate() {
        let _ = writeln!(text, "writer {} {}", failure.bounds.low[index], failure.bounds.high[index]);
        for (tree, key, number, stamp) in writer.changes() {
            let stamp = stamp.map_or("- -".to_string(), |stamp| format!("{} {}", stamp.operation, stamp.len));
            let _ = writeln!(text, "change {tree} {} {number} {stamp}", hex(key));
        }
    }
    std::fs::write(folder.join("expected"), text)?;
    std::fs::write(folder.join("what"), format!("seed {}\n{}\n", failure.seed, failure.what))
}

/// Runs a stored failure again; returns an error if it still fails.
pub(crate) fn check_again(folder: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(folder.join("expected")).map_err(|error| error.to_string())?;
    let mut plan = Plan::any(0, Durability::Commit);
    let (mut history, mut bounds) = (History::new(), Bounds { low: Vec::new(), high: Vec::new() });
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["direct", direct] => plan.manner.has_direct = direct == "1",
            ["free", free] => plan.manner.free_bytes = free.parse().ok(),
            ["durability", "interval"] => {
                plan.options.durability = Durability::Interval(Duration::from_micros(200));
            }
            ["durability", "none"] => plan.options.durability = Durability::None,
            ["durability", _] => {}
            ["writer", low, high] => {
                history.push(Writer::default());
                bounds.low.push(low.parse().unwrap());
                bounds.high.push(high.parse().unwrap());
            }
            ["change", tree, key, number, operation, len] => {
                let (tree, key, number) = (tree.to_string(), bytes_of(key), number.parse().unwrap());
                let change = match operation.parse() {
                    Err(_) => Operation::Delete { tree, key },
                    Ok(operation) => {
                        let stamp = Stamp { number, operation, len: len.parse().unwrap() };
                        Operation::Put { tree, key, stamp }
                    }
                };
                history.last_mut().unwrap().add(number, &change);
            }
            _ => return Err(format!("`{line}` is no line of such a file")),
        }
    }
    let (found, _) = recover(&Platter::of(files_in(folder)?), &plan, &history, &bounds)?;
    println!("right: {found:?}");
    Ok(())
}

fn write_files(folder: &Path, files: &Files) -> io::Result<()> {
    let folder = folder.join("files");
    std::fs::create_dir_all(&folder)?;
    files.iter().try_for_each(|(name, bytes)| std::fs::write(folder.join(name), bytes.to_vec()))
}

fn files_in(folder: &Path) -> Result<Files, String> {
    let mut files = Files::new();
    for entry in std::fs::read_dir(folder.join("files")).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        files.insert(name, Content::of(&std::fs::read(&path).map_err(|error| error.to_string())?));
    }
    Ok(files)
}

/// Writes the files of a damaged store. Its original content follows from the seed; `expected` holds the version that
/// must be there.
pub(crate) fn keep_damage(folder: &Path, seed: u64, specimen: &Specimen, damage: Damage) -> io::Result<()> {
    let files = specimen.damaged(damage);
    write_files(folder, &files)?;
    let kind = specimen.kind as u8;
    std::fs::write(folder.join("expected"), format!("{seed} {kind} {}\n", specimen.least(damage, &files)))
}

/// Runs a stored damage again; returns an error if it still fails.
pub(crate) fn damage_again(folder: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(folder.join("expected")).map_err(|error| error.to_string())?;
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [seed, kind, last] = numbers[..] else { return Err(format!("`{text}` is no expectation")) };
    let kind = [Kind::Closed, Kind::Killed, Kind::Backup][kind as usize];
    let outcome = check(&Specimen::new(seed, kind), &files_in(folder)?, last, true)?;
    println!("right: {outcome:?}");
    Ok(())
}
