//! Generates files: customers, and a log after which some are locked. The same seed gives the same files in the same
//! time zone.
//!
//! At the contest's scale of 200,000 users, there are 30,000 attempts, a hundred locked users and ten banned addresses. Other
//! sizes have the same proportions.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::Ipv4Addr;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::attempt::Rules;
use crate::clock;
use crate::user::hash;

/// Number of users per locked user.
const USERS_PER_LOCKED: u32 = 2_000;
/// Number of users per banned address.
const USERS_PER_BANNED: u32 = 20_000;
/// Number of users per three attempts.
const USERS_PER_ATTEMPTS: u32 = 20;
/// Time of the first attempt in the log, in Unix seconds: 2014-09-27 00:00:00 UTC.
const FIRST_AT: i64 = 1_411_776_000;
const SALT_CHARACTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const SALT_LENGTH: usize = 6;
const PASSWORD_LENGTH: usize = 8;

/// Numbers of generated items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Lines of `users.tsv`.
    pub users: u32,
    /// Lines of `log.tsv`.
    pub attempts: u64,
    /// Users that the generated attempts lock.
    pub locked: u32,
    /// Addresses that the generated attempts ban.
    pub banned: u32,
}

/// Writes `users.tsv` and `log.tsv` into a folder, which is created if it is missing.
///
/// # Errors
/// A file cannot be written.
pub fn write(folder: &Path, users: u32, seed: u64) -> io::Result<Generated> {
    std::fs::create_dir_all(folder)?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    write_users(&mut BufWriter::new(File::create(folder.join("users.tsv"))?), users, &mut random)?;
    let mut log = Log { out: BufWriter::new(File::create(folder.join("log.tsv"))?), at: FIRST_AT, attempts: 0 };
    let (locked, banned) = (users / USERS_PER_LOCKED, users / USERS_PER_BANNED);
    write_log(&mut log, users, (locked, banned), &mut random)?;
    log.out.flush()?;
    Ok(Generated { users, attempts: log.attempts, locked, banned })
}

fn write_users(out: &mut impl Write, users: u32, random: &mut ChaCha8Rng) -> io::Result<()> {
    for id in 1..=users {
        let (password, salt) = (word(random, PASSWORD_LENGTH), word(random, SALT_LENGTH));
        writeln!(out, "{id}\t{}\t{password}\t{salt}\t{}", login(id), hash(&password, &salt))?;
    }
    out.flush()
}

fn login(id: u32) -> String {
    format!("customer{id}")
}

fn word(random: &mut ChaCha8Rng, length: usize) -> String {
    (0..length).map(|_| char::from(SALT_CHARACTERS[random.random_range(0..SALT_CHARACTERS.len())])).collect()
}

/// Ordinary attempts come first, then those that lock and ban, so that no other user is locked by chance.
fn write_log(
    log: &mut Log<impl Write>,
    users: u32,
    (locked, banned): (u32, u32),
    random: &mut ChaCha8Rng,
) -> io::Result<()> {
    let rules = Rules::default();
    let refused = u64::from(locked * rules.lock_after + banned * rules.ban_after);
    let ordinary = (u64::from(users) * 3 / u64::from(USERS_PER_ATTEMPTS)).saturating_sub(refused);
    // The first users, which are to be locked, are excluded.
    for _ in 0..if users > locked { ordinary / 2 } else { 0 } {
        let (id, address) = (random.random_range(locked + 1..=users), ordinary_address(random));
        log.attempt(Some(id), &login(id), address, random.random_bool(0.1))?;
        log.attempt(Some(id), &login(id), address, true)?;
    }
    for id in 1..=locked {
        for _ in 0..rules.lock_after {
            // A separate address for each attempt.
            log.attempt(Some(id), &login(id), Ipv4Addr::from_bits(0x0a00_0000 + log.attempts as u32), false)?;
        }
    }
    for number in 0..banned {
        for _ in 0..rules.ban_after {
            let guess = format!("guess{}", random.random_range(0..1_000_000));
            log.attempt(None, &guess, Ipv4Addr::from_bits(0xc612_0000 + number), false)?;
        }
    }
    Ok(())
}

/// One of 65,536 addresses that are reserved for benchmarks.
fn ordinary_address(random: &mut ChaCha8Rng) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xc613_0000 + random.random_range(0..1 << 16))
}

struct Log<W> {
    out: W,
    at: i64,
    attempts: u64,
}

impl<W: Write> Log<W> {
    fn attempt(&mut self, user: Option<u32>, login: &str, address: Ipv4Addr, succeeded: bool) -> io::Result<()> {
        let user = user.map(|user| user.to_string()).unwrap_or_default();
        let at = clock::local(self.at);
        self.at += 1;
        self.attempts += 1;
        writeln!(self.out, "{at}\t{user}\t{login}\t{address}\t{}", u8::from(succeeded))
    }
}
