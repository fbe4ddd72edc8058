//! `cargo xtask bench web`: applications on the façade. The bank's pages compared with the floor and with axum; its login
//! compared with a durable POST of the travels service; a reply of three parts as a list and joined; a static file compared with
//! nginx.
//!
//! Every server has one core, the load the other one; both sides of a row run in turns. The floor answers with a body of the same
//! size as the page.

use super::setup::process::{Server, exchange, free_address};
use super::setup::results::{Row, record};
use super::setup::stage::{Stage, TRAIN};
use super::setup::wrk;
use super::setup::wrk::{Load, Outcome};
use super::{Effort, median, spread, writes};
use crate::{dist, nginx, tools};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Largest permitted CPU of a page, relative to the floor's and to axum's.
const FLOOR_CPU_MOST: f64 = 1.3;
const AXUM_CPU_MOST: f64 = 0.8;
/// Smallest permitted rate of logins, relative to durable POSTs.
const LOGIN_RATE_LEAST: f64 = 1.0;
/// Largest permitted CPU of a list of parts, relative to the joined one's.
const PARTS_CPU_MOST: f64 = 1.02;
/// Largest permitted CPU of a file, relative to nginx's.
const FILE_CPU_MOST: f64 = 1.0;
const CONNECTIONS: u32 = 64;
/// Users of the bank, as many as the contest's.
const USERS: &str = "200000";
/// The static file, and its size: that of the contest's largest style sheet.
const FILE: &str = "/stylesheets/bootstrap.min.css";
const FILE_BYTES: usize = 110_000;

/// The compared figure of two sides.
#[derive(Clone, Copy)]
enum Figure {
    Cpu,
    Rate,
}

/// One side of a row: a server and its load.
struct Side<'s> {
    server: &'s Server,
    load: Load,
}

pub(super) fn run(effort: Effort) -> Result<(), String> {
    let nginx = nginx::program()?;
    let stage = Stage::set(effort)?;
    let (bank, parts, axum) = programs()?;
    let data = stage.folder.path().join("bank");
    let users = bank_data(&bank, stage.folder.path(), &data)?;
    let assets = assets(stage.folder.path())?;
    let bank = serve_bank(&stage, &bank, &data, &assets)?;
    let axum = serve(&stage, &axum, &[users.display().to_string()])?;
    let mut rows = pages(&stage, &bank, &axum, &users)?;
    rows.push(login(&stage, &bank, &users)?);
    rows.push(parts_row(&stage, &parts)?);
    rows.push(file_row(&stage, &bank, &nginx, &assets)?);
    rows.iter().for_each(Row::print);
    if effort.record { record("cargo xtask bench web", &rows) } else { Ok(()) }
}

/// Builds the bank, the example of parts, and axum's pages.
fn programs() -> Result<(PathBuf, PathBuf, PathBuf), String> {
    // Together, so that the crates below are built once.
    let ours = dist::build(&[
        "--package",
        "sapsan",
        "--package",
        "bank",
        "--bin",
        "sapsan",
        "--bin",
        "bank",
        "--example",
        "parts",
    ])?;
    let axum =
        ["build", "--release", "--locked", "--quiet", "--manifest-path", "bench/peers/Cargo.toml", "--package", "web"];
    tools::run("cargo", &axum)?;
    let axum = tools::root().join("bench/peers/target/release/web");
    Ok((ours.join("bank"), ours.join("examples/parts"), axum))
}

/// Generates the bank's users and attempts and imports them; returns the file of users.
fn bank_data(bank: &Path, folder: &Path, data: &Path) -> Result<PathBuf, String> {
    let source = folder.join("bank-source");
    tools::run_with(Command::new(bank).args(["generate", "--users", USERS, "--seed", "1"]).arg(&source))?;
    let (users, log) = (source.join("users.tsv"), source.join("log.tsv"));
    let mut import = Command::new(bank);
    import.args(["import", "--data"]).arg(data).arg("--users").arg(&users).arg("--log").arg(log);
    tools::run_with(&mut import)?;
    Ok(users)
}

/// A folder of assets: only the size of the style sheet matters, not its content.
fn assets(folder: &Path) -> Result<PathBuf, String> {
    let assets = folder.join("assets");
    let file = assets.join(&FILE[1..]);
    let folders = ["stylesheets", "images"].iter().try_for_each(|name| std::fs::create_dir_all(assets.join(name)));
    let written = folders.and_then(|()| std::fs::write(&file, "/*bank*/".repeat(FILE_BYTES / 8)));
    written.map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(assets)
}

fn serve(stage: &Stage, program: &Path, more: &[String]) -> Result<Server, String> {
    let address = free_address()?;
    let arguments = [&[address.to_string()], more].concat();
    Server::start(&stage.cores.server, program, &arguments, address)
}

fn serve_bank(stage: &Stage, bank: &Path, data: &Path, assets: &Path) -> Result<Server, String> {
    let address = free_address()?;
    let [data, assets] = [data, assets].map(|path| path.display().to_string());
    let address_text = address.to_string();
    // The load says which address each login comes from.
    let proxy = ["--trusted-proxy", "127.0.0.1"];
    let arguments = ["serve", "--data", &data, "--http", &address_text, "--assets", &assets];
    let arguments: Vec<String> = arguments.iter().chain(&proxy).map(|word| (*word).to_owned()).collect();
    Server::start(&stage.cores.server, bank, &arguments, address)
}

/// A load of GET requests for one path, with these header fields in Lua's form.
fn get(path: &str, fields: &str) -> Load {
    let make = format!("function make() return wrk.format('GET', '{path}', {{{fields}}}) end");
    Load { connections: CONNECTIONS, pipeline: 1, make, fresh: false }
}

/// The two pages, each compared with the floor and with axum.
fn pages(stage: &Stage, bank: &Server, axum: &Server, users: &Path) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (name, path) in [("index page", "/"), ("my page, session checked", "/mypage")] {
        let cookie_for = |server| if path == "/" { Ok(String::new()) } else { session(server, users) };
        let cookies = [cookie_for(bank)?, cookie_for(axum)?];
        let loads = cookies.each_ref().map(|cookie| get(path, &format!("['Cookie'] = '{cookie}'")));
        let bytes = body_bytes(bank, path, &cookies[0])?;
        let floor = stage.floor(bytes, false)?;
        let [ours, theirs] = [(bank, 0), (axum, 1)].map(|(server, place)| Side { server, load: loads[place].clone() });
        let other = Side { server: &floor, load: get("/", "") };
        let work = format!("{name}, {CONNECTIONS} connections");
        rows.push(compare(
            stage,
            &format!("{work}, beside the floor of {bytes} bytes"),
            &other,
            &ours,
            (Figure::Cpu, FLOOR_CPU_MOST),
        )?);
        rows.push(compare(stage, &format!("{work}, beside axum"), &theirs, &ours, (Figure::Cpu, AXUM_CPU_MOST))?);
    }
    Ok(rows)
}

/// Size of the page at a path, in bytes.
fn body_bytes(server: &Server, path: &str, cookie: &str) -> Result<usize, String> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: bank\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n");
    let reply = String::from_utf8_lossy(&exchange(server.address, request.as_bytes())?).into_owned();
    match reply.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.len()),
        _ => Err(format!("{path} is answered with {reply}")),
    }
}

/// Logs one user in and returns the cookie. The last users are tried first: the generated attempts have locked the first ones.
fn session(server: &Server, users: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(users).map_err(|error| format!("{}: {error}", users.display()))?;
    for line in text.lines().rev().take(100) {
        let fields: Vec<&str> = line.split('\t').collect();
        let body = format!("login={}&password={}", fields[1], fields[2]);
        let request = format!(
            "POST /login HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            server.address,
            body.len()
        );
        let reply = String::from_utf8_lossy(&exchange(server.address, request.as_bytes())?).into_owned();
        let field = |name: &str| {
            reply.lines().find_map(|line| {
                let (found, value) = line.split_once(": ")?;
                found.eq_ignore_ascii_case(name).then(|| value.to_owned())
            })
        };
        if field("Location").is_some_and(|location| location.ends_with("/mypage")) {
            let cookie = field("Set-Cookie").ok_or("a login set no cookie")?;
            return Ok(cookie.split(';').next().unwrap_or_default().to_owned());
        }
    }
    Err("none of a hundred users could log in".to_owned())
}

/// Logins of random users from random addresses, one durable write each, beside durable POSTs of the travels service. Each login reads
/// the failures of its address, so logins from one address alone are committed one after the other.
fn login(stage: &Stage, bank: &Server, users: &Path) -> Result<Row, String> {
    let travels = stage.serve(TRAIN)?;
    let make = format!(
        "local users = {{}}\n\
         for line in io.lines('{}') do\n\
           local login, password = line:match('^%d+\\t([^\\t]*)\\t([^\\t]*)')\n\
           users[#users + 1] = 'login=' .. login .. '&password=' .. password\n\
         end\n\
         wrk.headers['Content-Type'] = 'application/x-www-form-urlencoded'\n\
         function make()\n\
           wrk.headers['X-Forwarded-For'] = '10.' .. math.random(0, 255) .. '.' .. math.random(0, 255) .. '.7'\n\
           return wrk.format('POST', '/login', nil, users[math.random(#users)])\n\
         end",
        users.display()
    );
    let ours = Side { server: bank, load: Load { connections: CONNECTIONS, pipeline: 1, make, fresh: false } };
    let (_, load) = writes::loads().next().ok_or("bench writes has no load")?;
    let other = Side { server: &travels, load };
    let work = format!("login, {CONNECTIONS} connections, beside a durable POST of the travels service");
    compare(stage, &work, &other, &ours, (Figure::Rate, LOGIN_RATE_LEAST))
}

fn parts_row(stage: &Stage, parts: &Path) -> Result<Row, String> {
    let server = serve(stage, parts, &[])?;
    let [list, joined] = ["/list", "/joined"].map(|path| Side { server: &server, load: get(path, "") });
    let work = format!("a page of three parts as a list, {CONNECTIONS} connections, beside the joined one");
    compare(stage, &work, &joined, &list, (Figure::Cpu, PARTS_CPU_MOST))
}

fn file_row(stage: &Stage, bank: &Server, program: &Path, assets: &Path) -> Result<Row, String> {
    let address = free_address()?;
    let server = format!("listen {address} backlog=4096;\n    root {};", assets.display());
    let arguments =
        nginx::configure(stage.folder.path(), "types { text/css css; }\n  sendfile on;\n  tcp_nopush on;", &server)?;
    let theirs = Server::start(&stage.cores.server, program, &arguments, address)?;
    let [ours, theirs] = [bank, &theirs].map(|server| Side { server, load: get(FILE, "") });
    let work = format!("static file of {} KB, {CONNECTIONS} connections, beside nginx", FILE_BYTES / 1000);
    compare(stage, &work, &theirs, &ours, (Figure::Cpu, FILE_CPU_MOST))
}

/// Both sides in turns.
fn compare(
    stage: &Stage,
    work: &str,
    other: &Side<'_>,
    ours: &Side<'_>,
    (figure, bound): (Figure, f64),
) -> Result<Row, String> {
    let go = |side: &Side<'_>, seed| {
        wrk::run(side.server, &side.load, &stage.cores, stage.effort, stage.folder.path(), seed)
    };
    let (mut theirs, mut mine) = (Vec::new(), Vec::new());
    for round in 0..2 * stage.effort.rounds as u64 + 1 {
        theirs.push(go(other, 2 * round)?);
        mine.push(go(ours, 2 * round + 1)?);
    }
    let row = row(work, &theirs, &mine, (figure, bound));
    row.print();
    Ok(row)
}

fn row(work: &str, theirs: &[Outcome], ours: &[Outcome], (figure, bound): (Figure, f64)) -> Row {
    let cpu = |run: &Outcome| run.cpu_microseconds;
    let rate = |run: &Outcome| run.requests_per_second;
    let middle = |runs: &[Outcome], of: fn(&Outcome) -> f64| median(runs.iter().map(of).collect());
    let figures = |runs| format!("{:.1}k/s, {:.2} µs CPU", middle(runs, rate) / 1e3, middle(runs, cpu));
    let of = match figure {
        Figure::Cpu => cpu,
        Figure::Rate => rate,
    };
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| of(a) / of(b)).collect();
    let failures: u64 = ours.iter().chain(theirs).map(|run| run.failures).sum();
    let (ratio, noise) = (median(ratios.clone()), spread(&ratios));
    let (name, sign, is_reached) = match figure {
        Figure::Cpu => ("CPU", '≤', ratio <= bound),
        Figure::Rate => ("rate", '≥', ratio >= bound),
    };
    Row {
        work: if failures == 0 { work.to_owned() } else { format!("{work} ({failures} failed)") },
        other: figures(theirs),
        ours: figures(ours),
        figure: format!("{name} {ratio:.2} ×"),
        bound: format!("{sign} {bound:.2} ×"),
        reached: is_reached && failures == 0,
        noise: format!("{:.0} %", noise * 100.0),
    }
}
