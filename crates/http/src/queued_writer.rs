//! A writer that never blocks: lines go through a bounded queue to a thread of their own.
//!
//! A loop that waited for a full pipe or a slow disk would hold up all its connections. So if the queue is full, a line is
//! dropped and counted, and the thread reports the number of lost lines before the next line it writes. The end of the program
//! does not wait for a blocked sink either: after [`END_WAIT`] the remaining lines are given up.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Limit of queued lines.
const LINES_MAX: usize = 4096;
/// Limit of the bytes of queued lines.
const QUEUED_BYTES_MAX: usize = 1 << 20;
/// Limit of one line; the rest is cut off.
const LINE_BYTES_MAX: usize = 8 << 10;
/// How long a line may wait for others before the thread writes it to the sink.
const FLUSH_AFTER: Duration = Duration::from_millis(200);
/// Bytes gathered before they are written to the sink.
const BATCH_BYTES: usize = 64 << 10;
/// How long the end of the program waits for the sink.
const END_WAIT: Duration = Duration::from_secs(1);
/// Interval between two attempts at a full queue, or checks for the thread's end.
const LOOK: Duration = Duration::from_millis(2);

enum Item {
    Line(Vec<u8>),
    /// Write everything to the sink, then report.
    Flush(SyncSender<()>),
    Stop,
}

/// A handle for writing from any thread. Each `write` is one line. `move || writer.clone()` is a `MakeWriter` of
/// tracing-subscriber.
#[derive(Clone, Debug)]
pub struct QueuedWriter {
    queue: SyncSender<Item>,
    queued_bytes: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
}

/// The thread behind a [`QueuedWriter`]. When it is dropped, it writes the queue and ends; if the sink blocks for a second, the
/// thread is abandoned.
#[derive(Debug)]
pub struct QueuedWriterThread {
    queue: SyncSender<Item>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl QueuedWriter {
    /// Starts the thread that writes to `sink`.
    pub fn start(sink: impl Write + Send + 'static) -> io::Result<(QueuedWriter, QueuedWriterThread)> {
        let (queue, lines) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let queued_bytes = Arc::<AtomicUsize>::default();
        let (counter, queued) = (Arc::clone(&dropped), Arc::clone(&queued_bytes));
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_lines(sink, &lines, &queued, &counter))?;
        let writer = QueuedWriter { queue: queue.clone(), queued_bytes, dropped };
        Ok((writer, QueuedWriterThread { queue, thread: Mutex::new(Some(thread)) }))
    }

    /// Lines dropped so far because the queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until the lines queued so far have been written to the sink, at most for `most`. For a thread that is about to end
    /// the process.
    pub fn flush_within(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        let (written, is_written) = sync_channel(1);
        send_until(&self.queue, Item::Flush(written), until)
            && is_written.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok()
    }

    /// Queues a line (with its line end), or counts it as dropped.
    pub fn write_line(&self, mut line: Vec<u8>) {
        if line.len() > LINE_BYTES_MAX {
            line.truncate(LINE_BYTES_MAX - 1);
            line.push(b'\n');
        }
        let bytes = line.capacity();
        let fits = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= QUEUED_BYTES_MAX;
        if !fits || self.queue.try_send(Item::Line(line)).is_err() {
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Write for QueuedWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_line(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for QueuedWriterThread {
    fn drop(&mut self) {
        let until = Instant::now() + END_WAIT;
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        if !send_until(&self.queue, Item::Stop, until) {
            return;
        }
        while !thread.is_finished() {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(LOOK);
        }
        let _ = thread.join();
    }
}

/// Queues an item, waiting for a place until the given time.
fn send_until(queue: &SyncSender<Item>, mut item: Item, until: Instant) -> bool {
    loop {
        match queue.try_send(item) {
            Ok(()) => return true,
            Err(TrySendError::Disconnected(_)) => return false,
            Err(TrySendError::Full(_)) if Instant::now() >= until => return false,
            Err(TrySendError::Full(back)) => item = back,
        }
        std::thread::sleep(LOOK);
    }
}

fn write_lines(mut sink: impl Write, lines: &Receiver<Item>, queued_bytes: &AtomicUsize, dropped: &AtomicU64) {
    let (mut batch, mut dropped_reported) = (Vec::with_capacity(BATCH_BYTES), 0);
    // When the first line came into the batch.
    let mut begun: Option<Instant> = None;
    loop {
        let item = lines.recv_timeout(begun.map_or(FLUSH_AFTER, |begun| FLUSH_AFTER.saturating_sub(begun.elapsed())));
        if let Ok(Item::Line(line)) = &item {
            queued_bytes.fetch_sub(line.capacity(), Ordering::Relaxed);
            let dropped_now = dropped.load(Ordering::Relaxed);
            if dropped_now > dropped_reported {
                let note =
                    format!("({} lines dropped: the log is slower than its writers)\n", dropped_now - dropped_reported);
                batch.extend_from_slice(note.as_bytes());
                dropped_reported = dropped_now;
            }
            batch.extend_from_slice(line);
            begun.get_or_insert_with(Instant::now);
        }
        if batch.len() >= BATCH_BYTES || !matches!(item, Ok(Item::Line(_))) {
            begun = None;
            // A log that cannot be written has no other place for its errors.
            let _ = sink.write_all(&batch).and_then(|()| sink.flush());
            batch.clear();
        }
        if let Ok(Item::Flush(written)) = &item {
            // The caller may have stopped waiting.
            let _ = written.try_send(());
        }
        if matches!(item, Ok(Item::Stop) | Err(RecvTimeoutError::Disconnected)) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    /// A sink that waits for a permission before each write.
    struct Gate(Receiver<()>, Sender<String>);

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.send(String::from_utf8_lossy(bytes).into_owned()).unwrap();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_come_out_in_order_and_the_last_ones_before_the_thread_ends() {
        let (permit, permits) = channel();
        let (written, out) = channel();
        drop(permit);
        let (mut writer, thread) = QueuedWriter::start(Gate(permits, written)).unwrap();
        for line in ["a\n", "b\n", "c\n"] {
            writer.write_all(line.as_bytes()).unwrap();
        }
        drop(thread);
        assert_eq!(out.iter().collect::<String>(), "a\nb\nc\n");
    }

    #[test]
    fn the_end_of_the_program_does_not_wait_for_a_sink_that_takes_nothing() {
        let (permit, permits) = channel();
        let (written, out) = channel();
        let (writer, thread) = QueuedWriter::start(Gate(permits, written)).unwrap();
        writer.write_line(b"a\n".to_vec());
        assert!(!writer.flush_within(Duration::from_millis(10)));
        let began = Instant::now();
        drop(thread);
        assert!(began.elapsed() >= END_WAIT, "the sink has its time");
        drop(permit);
        assert_eq!(out.recv().unwrap(), "a\n");
    }

    #[test]
    fn a_flush_waits_until_the_sink_has_the_lines() {
        let (permit, permits) = channel();
        let (written, out) = channel();
        drop(permit);
        let (writer, _thread) = QueuedWriter::start(Gate(permits, written)).unwrap();
        writer.write_line(b"a\n".to_vec());
        assert!(writer.flush_within(Duration::from_secs(60)));
        assert_eq!(out.try_recv().unwrap(), "a\n");
    }

    #[test]
    fn lines_that_keep_coming_do_not_delay_the_first_one() {
        let (permit, permits) = channel();
        let (written, out) = channel();
        drop(permit);
        let (writer, _thread) = QueuedWriter::start(Gate(permits, written)).unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        // A line each quarter of the time that one may wait, until the sink has some.
        while out.try_recv().is_err() {
            assert!(Instant::now() < until);
            writer.write_line(b"a\n".to_vec());
            std::thread::sleep(FLUSH_AFTER / 4);
        }
    }

    #[test]
    fn a_full_queue_drops_and_counts_and_tells() {
        let (permit, permits) = channel();
        let (written, out) = channel();
        let (writer, thread) = QueuedWriter::start(Gate(permits, written)).unwrap();
        let line = vec![b'x'; 1000];
        // The sink is blocked: a batch and a full queue fit, then lines are dropped. None of these calls may block.
        while writer.dropped() == 0 {
            writer.write_line(line.clone());
        }
        drop(permit);
        // Once the thread has made room, a line fits again.
        let _first = out.recv().unwrap();
        writer.write_line(b"last\n".to_vec());
        while writer.dropped() > 1 && !out.recv().unwrap().contains("dropped") {
            writer.write_line(b"last\n".to_vec());
        }
        drop(thread);
        assert!(writer.dropped() > 0);
    }
}
