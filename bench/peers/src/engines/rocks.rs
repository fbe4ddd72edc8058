//! RocksDB. `WriteOptions::sync` makes a commit durable, and its write group lets concurrent ones share a sync; block
//! cache for all data, bloom filters, pipelined writes and recycled logs as its tuning guide advises; loads by sorted
//! files that are ingested.

use crate::data::{DOCUMENT_BYTES, Shape, document, touch};
use crate::engine::{CACHE_BYTES, Engine, Outcome, Reader, Writer, missing};
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, IngestExternalFileOptions, Options, SstFileWriter,
    WaitForCompactOptions, WriteBatch, WriteOptions,
};
use std::path::{Path, PathBuf};

const FILTER_BITS_PER_KEY: f64 = 10.0;
const MEMTABLES_BYTES: usize = 512 << 20;
const LOGS_RECYCLED: usize = 4;

/// An open database.
pub(crate) struct Rocks {
    database: DB,
    folder: PathBuf,
    shape: Shape,
}

fn options() -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));
    table.set_bloom_filter(FILTER_BITS_PER_KEY, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.increase_parallelism(std::thread::available_parallelism().map_or(2, |count| count.get() as i32));
    options.optimize_level_style_compaction(MEMTABLES_BYTES);
    // The call above also chooses compressions that are not built in.
    options.set_compression_per_level(&[]);
    options.set_enable_pipelined_write(true);
    options.set_recycle_log_file_num(LOGS_RECYCLED);
    options
}

impl Rocks {
    /// Opens or creates it.
    pub(crate) fn open(folder: &Path, shape: Shape) -> Outcome<Rocks> {
        Ok(Rocks { database: DB::open(&options(), folder)?, folder: folder.to_path_buf(), shape })
    }
}

impl Engine for Rocks {
    fn load(&self, records: &mut dyn Iterator<Item = (&[u8], &[u8])>) -> Outcome<()> {
        let path = self.folder.with_extension("sst");
        let options = options();
        let mut file = SstFileWriter::create(&options);
        file.open(&path)?;
        for (key, value) in records {
            file.put(key, value)?;
        }
        file.finish()?;
        let mut ingest = IngestExternalFileOptions::default();
        ingest.set_move_files(true);
        self.database.ingest_external_file_opts(&ingest, vec![path.clone()])?;
        // Moving leaves the old name where the file system links instead.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn writer(&self) -> Outcome<Box<dyn Writer + '_>> {
        let mut durable = WriteOptions::default();
        durable.set_sync(true);
        Ok(Box::new(Durable { rocks: self, durable }))
    }

    fn reader(&self) -> Outcome<Box<dyn Reader + '_>> {
        Ok(Box::new(Reads(self)))
    }

    fn settle(&self) -> Outcome<()> {
        self.database.flush()?;
        self.database.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(self.database.wait_for_compact(&WaitForCompactOptions::default())?)
    }
}

struct Durable<'e> {
    rocks: &'e Rocks,
    durable: WriteOptions,
}

impl Writer for Durable<'_> {
    fn commit(&mut self, numbers: &[u64], revision: u64) -> Outcome<()> {
        let mut text = [0; DOCUMENT_BYTES];
        let mut batch = WriteBatch::default();
        for &number in numbers {
            document(number, revision, &mut text);
            batch.put(self.rocks.shape.key(number).bytes(), text);
        }
        Ok(self.rocks.database.write_opt(batch, &self.durable)?)
    }
}

struct Reads<'e>(&'e Rocks);

impl Reader for Reads<'_> {
    fn read(&mut self, numbers: &[u64]) -> Outcome<u64> {
        let snapshot = self.0.database.snapshot();
        let mut sum = 0;
        for &number in numbers {
            let value = snapshot.get_pinned(self.0.shape.key(number).bytes())?;
            sum += touch(&value.ok_or_else(|| missing(number))?);
        }
        Ok(sum)
    }

    fn scan(&mut self) -> Outcome<u64> {
        let mut iterator = self.0.database.raw_iterator();
        iterator.seek_to_first();
        let (mut rows, mut sum) = (0, 0);
        while let (Some(key), Some(value)) = (iterator.key(), iterator.value()) {
            sum += u64::from(key[0]) + u64::from(value[0]);
            rows += 1;
            iterator.next();
        }
        iterator.status()?;
        std::hint::black_box(sum);
        Ok(rows)
    }
}
