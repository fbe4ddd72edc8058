//! Measures durable commits a second: one thread compared with plain overwrites of the disk, threads that each wait for
//! their commit, and 64 and 1,024 in flight by `submit`.
//!
//! `cargo run --release -p store --example commit_rate -- [--dir=DIR] [--fixed=MICROSECONDS] [lone] [waiting] [flight] [folding] [sustained]`.
//! Each commit puts one document of 400 bytes under an 8-byte key in random order. All rows are measured three times in
//! turn in short slices, because a disk's speed may change within seconds.
//!
//! In the row `folding` each commit also adds one to one of twelve counters.
//!
//! With `--fixed` each write of the log goes to the page cache and takes this much longer. The remaining differences
//! between two runs come from the program and not from the disk. The numbers do not cover reads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use store::disk::{Access, DirectoryLock, Disk, DiskFile, Map, SystemDisk};
use store::{
    Abort, Commit, Fold, Folded, Further, RetriableTransaction, Store, StoreError, StoreOptions, Submit, TreeId, Tx,
};

const ROUNDS: usize = 3;
const RUN: Duration = Duration::from_millis(700);
/// The lone thread and the overwrites alternate this often within a row's time.
const LONE_SLICES: u32 = 7;
const THREADS: [u64; 3] = [4, 16, 64];
const IN_FLIGHT: [u64; 2] = [64, 1024];
const COUNTERS: u8 = 12;
const DOCUMENT: [u8; 400] = [b'x'; 400];
/// The number of bytes that the log writes for a commit alone.
const FLOOR_BYTES: u64 = 4096;
const FLOOR_FILE_BYTES: u64 = 16 << 20;

fn main() -> Result<(), StoreError> {
    let mut directory = PathBuf::from("/tmp/sapsan-commit-rate");
    let mut delay = None;
    let mut rows = Vec::new();
    for argument in std::env::args().skip(1) {
        if let Some(path) = argument.strip_prefix("--dir=") {
            directory = PathBuf::from(path);
        } else if let Some(micros) = argument.strip_prefix("--fixed=") {
            delay = Some(Duration::from_micros(micros.parse().expect("microseconds")));
        } else {
            rows.push(argument);
        }
    }
    // With the default timer slack a sleep takes 50 µs longer than requested. Threads inherit the setting.
    std::fs::write("/proc/self/timerslack_ns", "1").expect("timer slack");
    let has = |row: &str| rows.is_empty() || rows.iter().any(|wanted| wanted == row);
    // With a memtable that holds the whole run only the commit pipeline is measured; with the default one checkpoints are included.
    for (what, memtable_bytes) in [("burst", 2 << 30), ("sustained", StoreOptions::default().memtable_bytes)] {
        if what == "sustained" && !has(what) {
            continue;
        }
        println!("{what}: memtable of {} MB", memtable_bytes >> 20);
        let _ = std::fs::remove_dir_all(&directory);
        let mut options = StoreOptions::default();
        options.memtable_bytes = memtable_bytes;
        let disk = SystemDisk::new(&directory).expect("the directory");
        let disk: Arc<dyn Disk> = match delay {
            Some(delay) => Arc::new(FixedDisk { disk, delay }),
            None => Arc::new(disk),
        };
        for _ in 0..ROUNDS {
            round(&directory, &disk, &options, &has)?;
        }
    }
    let _ = std::fs::remove_dir_all(&directory);
    Ok(())
}

fn round(
    directory: &Path,
    disk: &Arc<dyn Disk>,
    options: &StoreOptions,
    has: &dyn Fn(&str) -> bool,
) -> Result<(), StoreError> {
    let (store, _) = Store::open_on(Arc::clone(disk), options.clone())?;
    let tree = store.tree("documents")?;
    if has("lone") {
        lone(directory, &store, tree);
    }
    for threads in THREADS.into_iter().filter(|_| has("waiting")) {
        report(&format!("{threads} threads waiting"), &store, || waiting(&store, tree, threads));
    }
    for in_flight in IN_FLIGHT.into_iter().filter(|_| has("flight")) {
        report(&format!("{in_flight} in flight"), &store, || submitting(&store, tree, in_flight, None));
    }
    if has("folding") {
        let counters = store.tree("counters")?;
        store.set_fold(Arc::new(Adding));
        for counters in [None, Some(counters)] {
            let what = counters.map_or("1024 without", |_| "1024 folding");
            report(what, &store, || submitting(&store, tree, 1024, counters));
        }
    }
    store.checkpoint()
}

/// One thread, alternating with overwrites of as many bytes with fdatasync.
fn lone(directory: &Path, store: &Store, tree: TreeId) {
    let slice = RUN / LONE_SLICES;
    let [mut ours, mut floor] = [0.0; 2];
    for _ in 0..LONE_SLICES {
        floor += overwrites(directory, slice) as f64;
        let began = Instant::now();
        while began.elapsed() < slice {
            store.commit(&mut |tx| put(tx, tree)).expect("commit");
            ours += 1.0;
        }
    }
    let time = RUN.as_secs_f64();
    println!(
        "{:>20}: {:>8.0} commits/s, overwrites {:.0}/s: {:.2} ×",
        "alone",
        ours / time,
        floor / time,
        ours / floor
    );
}

fn overwrites(directory: &Path, time: Duration) -> u64 {
    use std::os::unix::fs::FileExt;
    let path = directory.join("overwrite");
    let file = std::fs::File::options().write(true).create(true).truncate(false).open(&path).expect("a file");
    if file.metadata().expect("its length").len() < FLOOR_FILE_BYTES {
        file.write_all_at(&vec![0; FLOOR_FILE_BYTES as usize], 0).expect("write");
        file.sync_all().expect("sync");
    }
    let content = [b'x'; FLOOR_BYTES as usize];
    let (mut count, began) = (0, Instant::now());
    while began.elapsed() < time {
        file.write_all_at(&content, count * FLOOR_BYTES % FLOOR_FILE_BYTES).expect("write");
        file.sync_data().expect("sync");
        count += 1;
    }
    count
}

fn report(what: &str, store: &Store, run: impl FnOnce() -> u64) {
    let before = store.stats();
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let commits = run() as f64;
    let (elapsed, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let after = store.stats();
    let groups = (after.groups - before.groups).max(1) as f64;
    println!(
        "{what:>20}: {:>8.0} commits/s, {:.1} per group, {:.0} µs per group, CPU {:.1} µs a commit, {:.1} cores, {} inline, {} checkpoints",
        commits / elapsed,
        commits / groups,
        elapsed * 1e6 / groups,
        cpu * 1e6 / commits,
        cpu / elapsed,
        after.inline_commits - before.inline_commits,
        after.checkpoints - before.checkpoints,
    );
}

/// CPU time of all threads so far, from the clock ticks in proc_pid_stat(5).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc/self/stat");
    let fields = stat.rsplit(") ").next().expect("fields").split(' ').skip(11).take(2);
    fields.map(|ticks| ticks.parse::<f64>().expect("ticks") / 100.0).sum()
}

/// Puts a key that no other call has put.
fn put(tx: &mut Tx<'_>, tree: TreeId) -> Result<(), Abort> {
    thread_local!(static NEXT: std::cell::Cell<u64> = {
        static THREADS: AtomicU64 = AtomicU64::new(0);
        (THREADS.fetch_add(1, Ordering::Relaxed) << 32).into()
    });
    let number = NEXT.replace(NEXT.get() + 1);
    tx.put(tree, &number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), &DOCUMENT);
    Ok(())
}

fn waiting(store: &Store, tree: TreeId, threads: u64) -> u64 {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let life = || {
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) {
                store.commit(&mut |tx| put(tx, tree)).expect("commit");
                count += 1;
            }
            count
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(life)).collect();
        std::thread::sleep(RUN);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
    })
}

/// The finished transactions, counted for the thread that submits.
#[derive(Default)]
struct Returned {
    count: Mutex<u64>,
    more: Condvar,
}

struct Put {
    tree: TreeId,
    counters: Option<TreeId>,
    returned: Arc<Returned>,
}

impl RetriableTransaction for Put {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        if let Some(counters) = self.counters {
            thread_local!(static NEXT: std::cell::Cell<u8> = const { std::cell::Cell::new(0) });
            let counter = NEXT.replace((NEXT.get() + 1) % COUNTERS);
            tx.fold(counters, &[counter], &1u64.to_le_bytes());
        }
        put(tx, self.tree)
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        outcome.expect("commit");
        let mut count = self.returned.count.lock().expect("count");
        *count += 1;
        if (*count).is_multiple_of(32) {
            self.returned.more.notify_one();
        }
    }
}

/// A fold that adds numbers.
struct Adding;

impl Fold for Adding {
    fn fold(
        &self,
        _: TreeId,
        _: &[u8],
        old: Option<&[u8]>,
        operand: &[u8],
        new: &mut Vec<u8>,
        _: &mut Further<'_>,
    ) -> Folded {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        new.extend_from_slice(&(old.map_or(0, number) + number(operand)).to_le_bytes());
        Folded::Put
    }
}

fn submitting(store: &Store, tree: TreeId, in_flight: u64, counters: Option<TreeId>) -> u64 {
    let reader = store.reader().expect("reader");
    let returned = Arc::new(Returned::default());
    let mut sent = 0;
    let began = Instant::now();
    while began.elapsed() < RUN {
        let mut count = returned.count.lock().expect("count");
        while sent - *count > in_flight - 32 {
            count = returned.more.wait(count).expect("count");
        }
        drop(count);
        for _ in 0..32 {
            sent += 1;
            let put = Put { tree, counters, returned: Arc::clone(&returned) };
            assert!(matches!(store.submit(&reader, Box::new(put)), Submit::Queued));
        }
    }
    sent
}

/// A disk whose direct writes all take about as long.
struct FixedDisk {
    disk: SystemDisk,
    delay: Duration,
}

struct FixedFile {
    file: Arc<dyn DiskFile>,
    delay: Option<Duration>,
}

impl Disk for FixedDisk {
    fn open(&self, name: &str, create: bool, access: Access) -> std::io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(name, create, Access::Buffered)?;
        let delay = (access == Access::Direct).then_some(self.delay);
        Ok(Arc::new(FixedFile { file, delay }))
    }

    fn list(&self) -> std::io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> std::io::Result<()> {
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_dir(&self) -> std::io::Result<()> {
        self.disk.sync_dir()
    }

    fn lock(&self, name: &str) -> std::io::Result<DirectoryLock> {
        self.disk.lock(name)
    }
}

impl DiskFile for FixedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        let written = self.file.write_at(bytes, offset);
        if let Some(delay) = self.delay {
            std::thread::sleep(delay);
        }
        written
    }

    fn len(&self) -> std::io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.file.sync_data()
    }

    fn sync_range(&self, start: u64, len: u64) -> std::io::Result<()> {
        self.file.sync_range(start, len)
    }

    fn map(&self, reserve: u64) -> std::io::Result<Map> {
        self.file.map(reserve)
    }
}
