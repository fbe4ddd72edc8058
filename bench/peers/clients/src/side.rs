//! The sides: each does the same work on a connection of its own, in its fastest usual form.

use crate::Outcome;
use crate::work::{BATCH, KEY, OTHER, VALUE_BYTES, Work, value};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// One run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figure {
    /// Commands a second.
    pub(crate) rate: f64,
    /// CPU time of the client for a command, in microseconds.
    pub(crate) cpu_us: f64,
}

/// A side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This project's client.
    Resp,
    /// A loop of write and read of the same bytes, which looks at none.
    Bare,
    /// The C library.
    Hiredis,
    /// The Rust library.
    RedisRs,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Resp, Kind::Bare, Kind::Hiredis, Kind::RedisRs];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Resp => "resp",
            Kind::Bare => "bare loop",
            Kind::Hiredis => "hiredis",
            Kind::RedisRs => "redis-rs",
        }
    }

    /// Works for this time.
    pub(crate) fn run(self, work: Work, port: u16, hiredis: &str, time: Duration) -> Outcome<Figure> {
        match self {
            Kind::Resp => ours(work, port, time),
            Kind::Bare => bare(work, port, time),
            Kind::Hiredis => other_program(work, port, hiredis, time),
            Kind::RedisRs => redis_rs(work, port, time),
        }
    }
}

/// Repeats a batch until the time is over, then `finish`, which waits for commands that were not answered.
fn measure(
    time: Duration,
    mut batch: impl FnMut() -> Outcome<()>,
    finish: impl FnOnce() -> Outcome<()>,
) -> Outcome<Figure> {
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let mut commands = 0;
    while started.elapsed() < time {
        batch()?;
        commands += BATCH;
    }
    // The batch's connection is needed once more.
    drop(batch);
    finish()?;
    Ok(Figure::of(commands as f64, started.elapsed().as_secs_f64(), cpu_seconds() - cpu))
}

impl Figure {
    fn of(commands: f64, seconds: f64, cpu_seconds: f64) -> Figure {
        Figure { rate: commands / seconds, cpu_us: cpu_seconds / commands * 1e6 }
    }
}

/// User and system time of this process.
#[allow(unsafe_code, reason = "getrusage(2) has no safe form in the standard library")]
fn cpu_seconds() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a rusage, which the kernel fills; zeroed it is one already.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

fn check(is_right: bool) -> Outcome<()> {
    if is_right { Ok(()) } else { Err("a wrong reply".into()) }
}

fn ours(work: Work, port: u16, time: Duration) -> Outcome<Figure> {
    let client = std::cell::RefCell::new(resp::Client::connect(&format!("redis://127.0.0.1:{port}"))?);
    let value = value();
    let mut pipeline = resp::Pipeline::new();
    let get = || {
        let mut client = client.borrow_mut();
        for _ in 0..BATCH {
            check(client.view(("GET", KEY))?.text().is_some_and(|text| text.len() == VALUE_BYTES))?;
        }
        Ok(())
    };
    let many = || {
        pipeline.clear();
        for _ in 0..BATCH {
            pipeline.add(("GET", KEY));
        }
        let mut right = 0;
        client.borrow_mut().pipeline_with(&pipeline, |_, reply| {
            right += usize::from(reply.text().is_some_and(|text| text.len() == VALUE_BYTES));
        })?;
        check(right == BATCH)
    };
    let silent = || {
        let mut client = client.borrow_mut();
        for _ in 0..BATCH {
            client.noreply(("SET", OTHER, &value))?;
        }
        Ok(())
    };
    match work {
        Work::Get => measure(time, get, || Ok(())),
        Work::Pipeline => measure(time, many, || Ok(())),
        Work::NoReply => measure(time, silent, || Ok(client.borrow_mut().command("PING")?)),
    }
}

/// The bytes of a command, by the project's encoder, which is not measured here.
fn command(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    resp::codec::write_command(&mut bytes, arguments);
    bytes
}

fn bare(work: Work, port: u16, time: Duration) -> Outcome<Figure> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    let get = command(&[b"GET", KEY.as_bytes()]);
    let set = command(&[b"SET", OTHER.as_bytes(), &value()]);
    let gets = get.repeat(BATCH);
    let reply_bytes = format!("${VALUE_BYTES}\r\n\r\n").len() + VALUE_BYTES;
    let mut buffer = vec![0; 64 << 10];
    let mut read = |mut stream: &TcpStream, bytes: usize| -> Outcome<()> {
        let mut left = bytes;
        while left > 0 {
            match stream.read(&mut buffer)? {
                0 => return Err("the connection is closed".into()),
                received => left -= received,
            }
        }
        Ok(())
    };
    match work {
        Work::Get => {
            let batch = || {
                for _ in 0..BATCH {
                    (&stream).write_all(&get)?;
                    read(&stream, reply_bytes)?;
                }
                Ok(())
            };
            measure(time, batch, || Ok(()))
        }
        Work::Pipeline => {
            let batch = || {
                (&stream).write_all(&gets)?;
                read(&stream, reply_bytes * BATCH)
            };
            measure(time, batch, || Ok(()))
        }
        Work::NoReply => {
            stream.write_all(&command(&[b"CLIENT", b"REPLY", b"OFF"]))?;
            let batch = || {
                for _ in 0..BATCH {
                    (&stream).write_all(&set)?;
                }
                Ok(())
            };
            let finish = || {
                (&stream).write_all(&command(&[b"CLIENT", b"REPLY", b"ON"]))?;
                read(&stream, b"+OK\r\n".len())
            };
            measure(time, batch, finish)
        }
    }
}

fn other_program(work: Work, port: u16, program: &str, time: Duration) -> Outcome<Figure> {
    let arguments = [port.to_string(), work.name().to_owned(), time.as_secs_f64().to_string()];
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    match numbers[..] {
        [commands, seconds, cpu_seconds] => Ok(Figure::of(commands, seconds, cpu_seconds)),
        _ => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn redis_rs(work: Work, port: u16, time: Duration) -> Outcome<Figure> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
    let connection = std::cell::RefCell::new(client.get_connection()?);
    let value = value();
    let get = || {
        let mut connection = connection.borrow_mut();
        for _ in 0..BATCH {
            let text: Vec<u8> = redis::cmd("GET").arg(KEY).query(&mut *connection)?;
            check(text.len() == VALUE_BYTES)?;
        }
        Ok(())
    };
    let many = || {
        let mut pipeline = redis::Pipeline::with_capacity(BATCH);
        for _ in 0..BATCH {
            pipeline.cmd("GET").arg(KEY);
        }
        let texts: Vec<Vec<u8>> = pipeline.query(&mut *connection.borrow_mut())?;
        check(texts.len() == BATCH && texts.iter().all(|text| text.len() == VALUE_BYTES))
    };
    let send = |command: &redis::Cmd| -> Outcome<()> {
        Ok(connection.borrow_mut().send_packed_command(&command.get_packed_command())?)
    };
    let silent = || {
        for _ in 0..BATCH {
            send(redis::cmd("SET").arg(OTHER).arg(&value))?;
        }
        Ok(())
    };
    match work {
        Work::Get => measure(time, get, || Ok(())),
        Work::Pipeline => measure(time, many, || Ok(())),
        Work::NoReply => {
            send(redis::cmd("CLIENT").arg("REPLY").arg("OFF"))?;
            let finish = || Ok(redis::cmd("CLIENT").arg("REPLY").arg("ON").exec(&mut *connection.borrow_mut())?);
            measure(time, silent, finish)
        }
    }
}
