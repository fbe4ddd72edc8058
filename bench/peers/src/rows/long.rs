//! The same with keys of 64 bytes that share a prefix of 48: size, reads, scans.

use super::reads::ReadFigures;
use crate::data::Shape;
use crate::disk;
use crate::engine::Outcome;
use crate::stage::{Loaded, Stage};
use crate::table::{Better, Figures, Row, Unit};

/// See [`super::GROUPS`].
pub(crate) fn measure(stage: &mut Stage) -> Outcome<()> {
    stage.clear();
    let loaded = stage.load(Shape::Long, "long")?;
    let mut sizes = Figures::EMPTY;
    for Loaded { kind, folder, .. } in loaded.iter().filter(|loaded| loaded.kind.is_tree()) {
        sizes.add(*kind, disk::size(folder)?.data as f64);
    }
    let figures = ReadFigures::of(stage, &loaded.iter().collect::<Vec<_>>())?;
    stage.tell(&figures.rows("64-byte keys with a shared prefix, memtable empty", 1.2, 2.0));
    let work = "file after the load, 64-byte keys with a shared prefix";
    stage.tell(&[Row::against_peers(work, &sizes, Unit::Megabytes, Better::Less, 1.0)]);
    for Loaded { folder, engine, .. } in loaded {
        drop(engine);
        let _ = std::fs::remove_dir_all(folder);
    }
    Ok(())
}
