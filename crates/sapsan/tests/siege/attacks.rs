//! The attackers: a process of their own, that runs every kind of attack at once until its input ends.

use crate::bodies::{bomb, expression, get, half_body, half_head, large, optional, post, schemed, search, update};
use crate::held::{Attacker, Told};
use crate::service::{self, MORE};
use std::fmt::Write as _;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ADDRESS: &str = "SAPSAN_SIEGE_SERVER";
const SERVER_ID: &str = "SAPSAN_SIEGE_PROCESS";
const FOLDER: &str = "SAPSAN_SIEGE_FOLDER";
const MEMORY: &str = "SAPSAN_SIEGE_MEMORY";
/// Parts of the names of attacks, separated by commas: only those are made. To find out which it is.
const ONLY: &str = "SAPSAN_SIEGE_ONLY";
/// The lowest: in earnest attackers do not run on the server's processors. They are many, and get more than a trifle all the same.
pub(crate) const NICE: &str = "19";
/// What the line of an attack begins with.
const LINE: &str = "  attack ";
/// How long clients that read wait for a reply.
const PATIENCE: Duration = Duration::from_secs(20);

/// The process with the attackers.
pub(crate) struct Attackers(Child);

impl Attackers {
    pub(crate) fn start(server: SocketAddr, id: u32, memory: Option<u64>, folder: &Path) -> Attackers {
        let program = std::env::current_exe().expect("this program");
        // They need more open files than a process usually has.
        let more_files = "ulimit -n $(ulimit -Hn); exec nice -n \"$0\" \"$@\"";
        let child = Command::new("sh")
            .args(["-c", more_files, NICE])
            .arg(program)
            .args(["attackers", "--exact", "--ignored", "--nocapture"])
            .env(ADDRESS, server.to_string())
            .env(SERVER_ID, id.to_string())
            .env(FOLDER, folder)
            .env(MEMORY, memory.map_or(String::new(), |bytes| bytes.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        Attackers(child)
    }

    /// Ends the attackers. Returns a line for each attack, and what shows that one of them never took place: without attackers
    /// any server passes.
    pub(crate) fn end(mut self) -> (String, Vec<String>) {
        drop(self.0.stdin.take());
        let mut output = String::new();
        let _ = self.0.stdout.take().expect("their output").read_to_string(&mut output);
        let status = self.0.wait().expect("the attackers' process ends");
        let mut faults: Vec<String> =
            planned().filter(|attack| !attack.took_place(&output)).map(Attack::absence).collect();
        if !status.success() {
            faults.push(format!("the attackers ended with {status}"));
        }
        let lines: Vec<&str> = output.lines().filter(|line| line.starts_with(LINE)).collect();
        (lines.join("\n"), faults)
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        // Ends the process that this test started.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An attack: its name, how many threads of it there are, and what each does.
struct Attack {
    name: &'static str,
    threads: usize,
    run: fn(&Attacker<'_>, &Scene),
}

impl Attack {
    /// Whether the attackers' output has a line of it, with at least one connection that the server accepted.
    fn took_place(&self, output: &str) -> bool {
        let line = output.lines().find_map(|line| line.strip_prefix(LINE)?.strip_prefix(self.name)?.strip_prefix(": "));
        line.is_some_and(|counts| !counts.starts_with("0 connections"))
    }

    fn absence(&self) -> String {
        format!("the attack `{}` never reached the server", self.name)
    }
}

/// The attacks of this run: all, or those that [`ONLY`] names.
fn planned() -> impl Iterator<Item = &'static Attack> {
    let only = std::env::var(ONLY).unwrap_or_default();
    ATTACKS.iter().filter(move |attack| only.split(',').any(|part| attack.name.contains(part)))
}

/// What attackers know of the server.
struct Scene {
    /// Connections that hold replies: more where there is more memory.
    hoarders: usize,
    memory: Option<u64>,
    folder: PathBuf,
    process: String,
}

/// Ten large documents, asked for at once.
fn ten_large(first: usize) -> Vec<u8> {
    (0..10).flat_map(|step| large((first + step) as u64)).collect()
}

static ATTACKS: [Attack; 16] = [
    Attack { name: "hoarders", threads: 1, run: |who, scene| who.hold(scene.hoarders, ten_large, None) },
    Attack {
        name: "a byte now and then",
        threads: 1,
        run: |who, scene| who.hold(scene.hoarders / 2, ten_large, Some((Duration::from_secs(1), 1))),
    },
    Attack { name: "half bodies", threads: 1, run: |who, _| who.hold(54, |_| half_body(), None) },
    Attack { name: "half heads", threads: 1, run: |who, _| who.hold(200, |_| half_head(), None) },
    Attack {
        name: "feed, unread",
        threads: 1,
        run: |who, scene| {
            who.hold(scene.hoarders, |number| get(["/_/changes?since=0", "/_/changes"][number % 2]), None)
        },
    },
    Attack {
        name: "results, unread",
        threads: 1,
        run: |who, _| who.hold(8, |number| expression(number as u64 * 5 + 11), None),
    },
    Attack { name: "expressions", threads: 3, run: |who, _| who.ask(PATIENCE, expression) },
    Attack { name: "expressions, left", threads: 2, run: |who, _| who.ask(Duration::from_millis(150), expression) },
    Attack { name: "declared bombs", threads: 4, run: |who, _| who.ask(PATIENCE, bomb) },
    Attack { name: "searches", threads: 60, run: |who, _| who.ask(PATIENCE, search) },
    Attack { name: "updates", threads: 3, run: |who, _| who.ask(PATIENCE, update) },
    Attack { name: "schemas", threads: 4, run: |who, _| who.ask(PATIENCE, schemed) },
    Attack { name: "optional parameters", threads: 2, run: |who, _| who.ask(PATIENCE, optional) },
    Attack {
        name: "heavy, then reset",
        threads: 2,
        run: |who, _| {
            who.ask_and_reset(Duration::from_millis(40), |number| {
                (0..12).flat_map(|n| search(number * 12 + n)).collect()
            })
        },
    },
    Attack {
        name: "large, then reset",
        threads: 1,
        run: |who, _| who.ask_and_reset(Duration::from_millis(20), |number| ten_large(number as usize)),
    },
    Attack { name: "reloads", threads: 1, run: reload },
];

/// Another file again and again, by request and by signal.
fn reload(who: &Attacker<'_>, scene: &Scene) {
    let file = service::file_path(&scene.folder);
    who.ask(PATIENCE, |number| {
        std::thread::sleep(Duration::from_millis(400));
        let more = if number.is_multiple_of(2) { MORE } else { "" };
        let _ = std::fs::write(&file, format!("{}{more}", service::file(scene.memory)));
        if number.is_multiple_of(5) {
            let _ = Command::new("kill").args(["-HUP", &scene.process]).status();
        }
        post("/_/config/reload?allow-drop=true", "")
    });
}

/// The attackers' process.
pub(crate) fn main() {
    let (Ok(server), Ok(folder)) = (std::env::var(ADDRESS), std::env::var(FOLDER)) else { return };
    let server: SocketAddr = server.parse().expect("an address");
    let memory: Option<u64> = std::env::var(MEMORY).ok().and_then(|bytes| bytes.parse().ok());
    let hoarders = if memory.is_some() { 150 } else { 1_000 };
    let process = std::env::var(SERVER_ID).expect("a process");
    let scene = Scene { hoarders, memory, folder: folder.into(), process };
    let attacks: Vec<(&Attack, Told)> = planned().map(|attack| (attack, Told::default())).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (number, (attack, told)) in attacks.iter().enumerate() {
            for _ in 0..attack.threads {
                let from = Ipv4Addr::new(127, 0, 1, 1 + number as u8);
                let (over, scene) = (&over, &scene);
                scope.spawn(move || (attack.run)(&Attacker { server, from, over, told }, scene));
            }
        }
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::Relaxed);
    });
    let mut text = String::new();
    for (attack, told) in &attacks {
        let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        let [done, refused, failed] = [0, 1, 2].map(|place| of(&told.replies[place]));
        let _ = writeln!(
            text,
            "{LINE}{}: {} connections ({} refused, {} closed), replies 2xx {done}, 4xx {refused}, 5xx {failed}, {} KB",
            attack.name,
            of(&told.connections),
            of(&told.refused),
            of(&told.closed),
            of(&told.bytes) / 1024
        );
    }
    println!("\n{text}");
}
