//! Messages and closures from other threads: none lost, none for the wrong connection, few wake-ups.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Barrier};

use crate::harness::{Making, PATIENCE, eventually, loops, serve};
use reactor::{ConnectionId, Io, Message, Protocol};

/// Writes each message's number, and reports its id when it opens.
struct Printer(Sender<ConnectionId>);

impl Protocol for Printer {
    fn opened(&mut self, io: &mut Io<'_>) {
        self.0.send(io.id()).unwrap();
    }
    fn input(&mut self, io: &mut Io<'_>) {
        if io.input_ended() {
            io.finish();
        }
    }
    fn message(&mut self, message: Message, io: &mut Io<'_>) {
        io.output().extend_from_slice(&message.tag.to_le_bytes());
    }
}

fn numbered(tag: u64) -> Message {
    Message { tag, payload: Box::new(()) }
}

#[test]
fn messages_of_many_threads_all_arrive_each_threads_in_order() {
    const THREADS: u64 = 8;
    const EACH: u64 = 5000;
    let (tell, ids) = mpsc::channel();
    let server = serve(loops(2), Making::each(move |_, _| Box::new(Printer(tell.clone()))));
    let mut stream = server.connect();
    let id = ids.recv_timeout(PATIENCE).unwrap();
    let senders: Vec<_> = (0..THREADS)
        .map(|thread| {
            // The handle of any loop reaches the connection.
            let lp = server.running.loops()[thread as usize % 2].clone();
            std::thread::spawn(move || (0..EACH).for_each(|nth| lp.send(id, numbered(thread << 32 | nth))))
        })
        .collect();
    let mut next = [0; THREADS as usize];
    let mut number = [0; 8];
    for _ in 0..THREADS * EACH {
        stream.read_exact(&mut number).unwrap();
        let tag = u64::from_le_bytes(number);
        let thread = (tag >> 32) as usize;
        assert_eq!(tag & 0xffff_ffff, next[thread], "of thread {thread}");
        next[thread] += 1;
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert_eq!(server.metrics().sum(|l| l.stale_messages), 0);
    server.stop();
}

#[test]
fn a_running_loop_is_not_woken_for_each_message() {
    let (tell, ids) = mpsc::channel();
    let server = serve(loops(1), Making::each(move |_, _| Box::new(Printer(tell.clone()))));
    let mut stream = server.connect();
    let id = ids.recv_timeout(PATIENCE).unwrap();
    let (begun, running) = mpsc::channel();
    let (release, held) = mpsc::channel::<()>();
    let lp = &server.running.loops()[0];
    lp.run(Box::new(move |_| {
        begun.send(()).unwrap();
        let _ = held.recv();
    }));
    running.recv_timeout(PATIENCE).unwrap();
    let before = server.metrics().sum(|l| l.wakes);
    (0..10_000).for_each(|nth| lp.send(id, numbered(nth)));
    assert_eq!(server.metrics().sum(|l| l.wakes), before);
    drop(release);
    let mut all = vec![0; 80_000];
    stream.read_exact(&mut all).unwrap();
    server.stop();
}

#[test]
fn no_wake_up_is_lost() {
    // In each round the loop sleeps or is about to: a lost wake-up would leave a thread waiting for ever.
    let server = serve(loops(2), Making::each(|_, _| Box::new(crate::harness::Echo)));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let lp = server.running.loops()[thread % 2].clone();
            std::thread::spawn(move || {
                let (answer, answers) = mpsc::sync_channel(1);
                for round in 0..5000_u32 {
                    let answer = answer.clone();
                    lp.run(Box::new(move |_| answer.send(round).unwrap()));
                    assert_eq!(answers.recv_timeout(PATIENCE).unwrap(), round);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(server.metrics().sum(|l| l.mailbox_messages), 20_000);
    server.stop();
}

/// Counts itself when dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_stale_id_reaches_nobody_though_its_slot_is_used_again() {
    let (tell, ids) = mpsc::channel();
    let server = serve(loops(1), Making::each(move |_, _| Box::new(Printer(tell.clone()))));
    let first = server.connect();
    let old = ids.recv_timeout(PATIENCE).unwrap();
    drop(first);
    eventually("the first is gone", || server.metrics().sum(|l| l.open) == 0);
    let mut second = server.connect();
    let new = ids.recv_timeout(PATIENCE).unwrap();
    assert_eq!((old.slot, old.loop_index), (new.slot, new.loop_index), "the test is about a slot used again");
    assert_ne!(old, new);

    let dropped = Arc::new(AtomicUsize::new(0));
    let lp = &server.running.loops()[0];
    lp.send(old, Message { tag: 1, payload: Box::new(Counted(Arc::clone(&dropped))) });
    lp.send(ConnectionId { loop_index: 77, ..new }, numbered(2));
    lp.send(ConnectionId { slot: 1_000_000, ..new }, numbered(3));
    lp.send(new, numbered(4));
    let mut number = [0; 8];
    second.read_exact(&mut number).unwrap();
    assert_eq!(u64::from_le_bytes(number), 4);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert_eq!(server.metrics().sum(|l| l.stale_messages), 2);
    server.stop();
}

#[test]
fn mail_to_a_loop_that_has_ended_is_dropped() {
    let server = serve(loops(1), Making::each(|_, _| Box::new(crate::harness::Echo)));
    let lp = server.running.loops()[0].clone();
    server.stop();
    let dropped = Arc::new(AtomicUsize::new(0));
    let counted = Counted(Arc::clone(&dropped));
    lp.run(Box::new(move |_| drop(counted)));
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[test]
fn a_task_that_panics_is_counted_and_the_loop_goes_on() {
    let server = serve(loops(1), Making::each(|_, _| Box::new(crate::harness::Echo)));
    server.running.loops()[0].run(Box::new(|_| panic!("of a task")));
    eventually("it is counted", || server.metrics().sum(|l| l.panics) == 1);
    crate::harness::exchange(&mut server.connect(), b"still here", b"still here");
    server.stop();
}

#[test]
fn messages_of_one_batch_leave_in_one_write() {
    let (tell, ids) = mpsc::channel();
    let server = serve(loops(1), Making::each(move |_, _| Box::new(Printer(tell.clone()))));
    let mut stream = server.connect();
    let id = ids.recv_timeout(PATIENCE).unwrap();
    let together = Arc::new(Barrier::new(2));
    let (of_task, lp) = (Arc::clone(&together), &server.running.loops()[0]);
    lp.run(Box::new(move |_| {
        of_task.wait();
        of_task.wait();
    }));
    together.wait();
    (0..100).for_each(|nth| lp.send(id, numbered(nth)));
    together.wait();
    let mut got = [0; 4096];
    assert_eq!(stream.read(&mut got).unwrap(), 800, "one write, one segment, one read");
    stream.write_all(b"").unwrap();
    server.stop();
}
