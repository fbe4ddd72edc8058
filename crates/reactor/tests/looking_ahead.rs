//! Connections whose bytes arrive together are read before the first of them is answered, so that their protocols can look ahead,
//! and are answered before the first is written. The input of each, and the order of its calls, do not change.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::{Making, eventually, hold, loops, serve};
use reactor::{Io, Protocol};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Foresee(Vec<u8>),
    Prepare,
    Input(Vec<u8>),
}

type Calls = Arc<Mutex<Vec<Call>>>;

/// Records its calls, and echoes its input.
struct Noting {
    calls: Calls,
    panics: bool,
}

impl Protocol for Noting {
    fn foresee(&mut self, input: &[u8]) {
        assert!(!self.panics || !input.starts_with(b"panic"), "asked for");
        self.calls.lock().unwrap().push(Call::Foresee(input.to_vec()));
    }

    fn prepare(&mut self) {
        self.calls.lock().unwrap().push(Call::Prepare);
    }

    fn input(&mut self, io: &mut Io<'_>) {
        let (input, output) = io.split();
        output.extend_from_slice(input);
        self.calls.lock().unwrap().push(Call::Input(input.to_vec()));
        let bytes = input.len();
        io.consume(bytes);
        if io.input_ended() {
            io.finish();
        }
    }
}

/// Sends the texts together, each on a connection of its own; returns the calls and the echoed bytes.
fn calls_of(texts: &[Vec<u8>], panics: bool) -> (Vec<Call>, Vec<Vec<u8>>) {
    let calls = Calls::default();
    let of_server = Arc::clone(&calls);
    let made = Making::each(move |_, _| Box::new(Noting { calls: Arc::clone(&of_server), panics }));
    let server = serve(loops(1), made);
    let mut streams: Vec<_> = texts.iter().map(|_| server.connect()).collect();
    eventually("all are accepted", || server.metrics().sum(|l| l.accepted) == texts.len() as u64);
    let release = hold(&server.running.loops()[0]);
    for (stream, text) in streams.iter_mut().zip(texts) {
        stream.write_all(text).unwrap();
    }
    drop(release);
    let mut answers = Vec::new();
    for (stream, text) in streams.iter_mut().zip(texts) {
        let mut answer = vec![0; text.len()];
        answers.push(if stream.read_exact(&mut answer).is_ok() { answer } else { Vec::new() });
    }
    let noted = calls.lock().unwrap().clone();
    drop(streams);
    server.stop();
    (noted, answers)
}

fn short(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("text {number}").into_bytes()).collect()
}

#[test]
fn connections_with_bytes_all_look_ahead_before_the_first_is_answered() {
    let texts = short(3);
    let (calls, answers) = calls_of(&texts, false);
    let foreseen = texts.iter().cloned().map(Call::Foresee);
    let answered = texts.iter().cloned().map(Call::Input);
    let expected: Vec<Call> = foreseen.chain([Call::Prepare, Call::Prepare, Call::Prepare]).chain(answered).collect();
    assert_eq!(calls, expected);
    assert_eq!(answers, texts);
}

#[test]
fn more_connections_than_a_batch_holds_are_answered_in_several() {
    let texts = short(50);
    let (calls, answers) = calls_of(&texts, false);
    assert_eq!(answers, texts);
    let inputs: Vec<_> = calls.iter().filter(|call| matches!(call, Call::Input(_))).collect();
    assert_eq!(inputs.len(), texts.len());
    let before_first = calls.iter().position(|call| matches!(call, Call::Input(_))).unwrap();
    assert!(before_first <= 16, "{before_first} calls before the first connection was answered");
}

#[test]
fn a_connection_that_is_alone_looks_ahead_over_many_bytes_only() {
    assert_eq!(calls_of(&short(1), false).0, [Call::Input(b"text 0".to_vec())]);
    let long = vec![b'x'; 1000];
    let expected = [Call::Foresee(long.clone()), Call::Prepare, Call::Input(long.clone())];
    assert_eq!(calls_of(&[long], false).0, expected);
}

#[test]
fn a_panic_while_looking_ahead_closes_that_connection_alone() {
    let texts = vec![b"one".to_vec(), b"panic".to_vec(), b"three".to_vec()];
    let (_, answers) = calls_of(&texts, true);
    assert_eq!(answers, [b"one".to_vec(), Vec::new(), b"three".to_vec()]);
}

/// Answers one line in a turn, with a reply of this size and after this time, and notes how many writes the loop had made by then.
struct LineInTurn(usize, Duration, Arc<Mutex<Vec<u64>>>);

impl Protocol for LineInTurn {
    fn input(&mut self, io: &mut Io<'_>) {
        let Some(end) = io.input().iter().position(|byte| *byte == b'\n') else { return };
        self.2.lock().unwrap().push(io.lp().metrics().writes);
        std::thread::sleep(self.1);
        io.output().resize(self.0, b'.');
        io.consume(end + 1);
        let _ = io.spend(u32::MAX);
    }
}

/// Sends two lines on each of three connections, together; returns the writes made before each answer.
fn writes_before_answers(reply_bytes: usize, takes: Duration) -> Vec<u64> {
    const CONNECTIONS: usize = 3;
    let writes = Arc::new(Mutex::new(Vec::new()));
    let of_server = Arc::clone(&writes);
    let making = Making::each(move |_, _| Box::new(LineInTurn(reply_bytes, takes, Arc::clone(&of_server))));
    let server = serve(loops(1), making);
    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    eventually("all are accepted", || server.metrics().sum(|l| l.accepted) == CONNECTIONS as u64);
    let release = hold(&server.running.loops()[0]);
    for stream in &mut streams {
        stream.write_all(b"one\ntwo\n").unwrap();
    }
    drop(release);
    for stream in &mut streams {
        stream.read_exact(&mut vec![0; 2 * reply_bytes]).unwrap();
    }
    server.stop();
    writes.lock().unwrap().clone()
}

#[test]
fn connections_that_are_read_together_or_listed_together_are_all_answered_before_the_first_is_written() {
    // The first lines in the turns of their events, the second in turns of the ready list.
    assert_eq!(writes_before_answers(100, Duration::ZERO), [0, 0, 0, 3, 3, 3]);
}

#[test]
fn a_long_reply_is_written_at_once() {
    assert_eq!(writes_before_answers(20_000, Duration::ZERO), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_reply_does_not_wait_for_the_next_if_it_took_long() {
    assert_eq!(writes_before_answers(100, Duration::from_micros(230)), [0, 1, 2, 3, 4, 5]);
}
