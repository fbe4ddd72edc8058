//! Documents in the form of Stack Overflow's public table of users: one line of JSON each, in the order of registration.
//!
//! What is like the real table: registrations grow over the years and are fewer on weekends; most users have a reputation
//! of one, and a few have hundreds of thousands; places, pages and about texts are mostly missing, and a field that is
//! missing is not there at all; about texts are mostly short and sometimes very long. Names and texts are made up.
//!
//! Each block of documents has a random generator of its own, seeded from the run's seed and the block's number.

use super::calendar::{Calendar, Moment};
use super::forum_words as words;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io::Write;

/// Documents that are written at once.
const BLOCK_DOCUMENTS: u64 = 2_048;
/// Registrations are not shared out by the block: the days' numbers come from a stream that no block has.
const CALENDAR_STREAM: u64 = u64::MAX;
/// The least length of an about text; its lengths fall off from there.
const ABOUT_BYTES_MIN: f64 = 553.0;
const ABOUT_BYTES_MAX: f64 = 30_000.0;
const REPUTATION_MAX: f64 = 1_200_000.0;

/// One run's users.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForumUsers {
    pub(crate) documents: u64,
    pub(crate) seed: u64,
}

impl ForumUsers {
    /// Writes all users, telling after each block how many are done.
    pub(crate) fn write<W: Write>(&self, mut to: W, mut done: impl FnMut(u64)) -> std::io::Result<()> {
        let calendar = Calendar::new(self.documents, &mut self.random(CALENDAR_STREAM));
        let mut text = String::new();
        for block in 0..self.documents.div_ceil(BLOCK_DOCUMENTS) {
            let end = self.documents.min((block + 1) * BLOCK_DOCUMENTS);
            let random = &mut self.random(block);
            text.clear();
            for index in block * BLOCK_DOCUMENTS..end {
                let registered = calendar.registration(index, self.documents, random);
                user(index, registered, &calendar, random, &mut text);
            }
            to.write_all(text.as_bytes())?;
            done(end);
        }
        to.flush()
    }

    fn random(&self, stream: u64) -> ChaCha8Rng {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(stream);
        random
    }
}

fn user(index: u64, registered: Moment, calendar: &Calendar, random: &mut ChaCha8Rng, out: &mut String) {
    // Users who left have left gaps.
    let id = index + index / 11 + 1;
    let reputation = reputation(random, calendar.last() - registered.day);
    out.push_str("{\"Id\":");
    push_number(out, id, 1);
    out.push_str(",\"Reputation\":");
    push_number(out, reputation, 1);
    push_moment(out, ",\"CreationDate\":\"", registered, calendar);
    push_name(out, id, random);
    push_moment(out, "\",\"LastAccessDate\":\"", last_access(registered, calendar, random), calendar);
    out.push('"');
    if one_in(random, 8) {
        page(out, id, random);
    }
    if one_in(random, 4) {
        out.push_str(",\"Location\":\"");
        out.push_str(pick(random, words::CITY));
        out.push('"');
    }
    if random.random_range(0..100) < 29 {
        about(out, random);
    }
    push_counts(out, reputation, random);
    push_picture(out, random);
    out.push_str(",\"AccountId\":");
    push_number(out, id + id / 4 + random.random_range(0..1000), 1);
    out.push_str("}\n");
}

/// One for more than half; of the others the longer they are there the more.
fn reputation(random: &mut ChaCha8Rng, age_days: usize) -> u64 {
    if random.random_range(0..100) < 54 {
        return 1;
    }
    let share = tail_share(random);
    let scale = 4.0 + age_days as f64 / 150.0;
    // A Pareto distribution of exponent 4/5.
    (1.0 + scale * (1.0 / (share * share.sqrt().sqrt()) - 1.0)).min(REPUTATION_MAX) as u64
}

/// An even share of (0, 1], in whole parts so that roots of it are the same everywhere.
fn tail_share(random: &mut ChaCha8Rng) -> f64 {
    f64::from(random.random_range(1..=1_000_000u32)) / 1_000_000.0
}

/// Most never come back after the first days, some are there until the end.
fn last_access(registered: Moment, calendar: &Calendar, random: &mut ChaCha8Rng) -> Moment {
    let left = calendar.last() - registered.day;
    let stayed = match random.random_range(0..10) {
        0..=3 => 0,
        4..=6 => random.random_range(0..=left.min(30)),
        7 | 8 => random.random_range(0..=left),
        _ => left - random.random_range(0..=left.min(30)),
    };
    let from = if stayed == 0 { registered.milliseconds } else { 0 };
    Moment { day: registered.day + stayed, milliseconds: random.random_range(from..86_400_000) }
}

fn push_name(out: &mut String, id: u64, random: &mut ChaCha8Rng) {
    out.push_str("\",\"DisplayName\":\"");
    match random.random_range(0..10) {
        0..=4 => {
            out.push_str(pick(random, words::GIVEN));
            out.push(' ');
            out.push_str(pick(random, words::FAMILY));
        }
        5 | 6 => out.push_str(pick(random, words::GIVEN)),
        7 | 8 => {
            out.push_str("user");
            push_number(out, id, 1);
        }
        _ => {
            out.push_str(pick(random, words::NICK));
            out.push_str(pick(random, words::NICK));
            push_number(out, random.random_range(0..2000), 1);
        }
    }
}

fn page(out: &mut String, id: u64, random: &mut ChaCha8Rng) {
    out.push_str(",\"WebsiteUrl\":\"http://");
    out.push_str(pick(random, words::NICK));
    push_number(out, id % 9973, 1);
    out.push('.');
    out.push_str(pick(random, words::HOST));
    out.push('"');
}

fn about(out: &mut String, random: &mut ChaCha8Rng) {
    out.push_str(",\"AboutMe\":\"<p>I am a ");
    out.push_str(pick(random, words::TRADE));
    out.push('.');
    let share = tail_share(random);
    // A Pareto distribution of exponent 4/3: a few texts are as long as all the others around them.
    let long = ABOUT_BYTES_MIN / (share.sqrt() * share.sqrt().sqrt());
    let end = out.len() + long.min(ABOUT_BYTES_MAX) as usize;
    while out.len() < end {
        match random.random_range(0..8) {
            0..=3 => {
                let (before, behind) = words::ABOUT_TOPIC.choose(random).copied().unwrap_or_default();
                out.push(' ');
                out.push_str(before);
                out.push_str(pick(random, words::TOPIC));
                out.push_str(behind);
            }
            4..=6 => {
                out.push(' ');
                out.push_str(pick(random, words::ABOUT_PLAIN));
            }
            _ => {
                out.push_str("</p>\\n\\n<p>See <a href=\\\"http://");
                out.push_str(pick(random, words::HOST));
                out.push_str("\\\" rel=\\\"nofollow\\\">my page</a>.");
            }
        }
    }
    out.push_str("</p>\\n\"");
}

fn push_counts(out: &mut String, reputation: u64, random: &mut ChaCha8Rng) {
    let seen = (1.0 / tail_share(random)).min(500.0) as u64 - 1;
    let up = if reputation == 1 { 0 } else { reputation * random.random_range(0..12) / 100 };
    out.push_str(",\"Views\":");
    push_number(out, seen + reputation / random.random_range(8..24), 1);
    out.push_str(",\"UpVotes\":");
    push_number(out, up, 1);
    out.push_str(",\"DownVotes\":");
    push_number(out, up / random.random_range(10..60), 1);
}

/// A picture under a number of 128 bits.
fn push_picture(out: &mut String, random: &mut ChaCha8Rng) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push_str(",\"ProfileImageUrl\":\"https://pictures.example/avatar/");
    for _ in 0..4 {
        let mut bits: u32 = random.random();
        for _ in 0..8 {
            out.push(char::from(DIGITS[bits as usize % 16]));
            bits >>= 4;
        }
    }
    out.push_str("?s=128&d=identicon&r=PG\"");
}

fn push_moment(out: &mut String, before: &str, moment: Moment, calendar: &Calendar) {
    out.push_str(before);
    out.push_str(calendar.date(moment.day));
    let seconds = moment.milliseconds / 1000;
    for (mark, number) in [('T', seconds / 3600), (':', seconds / 60 % 60), (':', seconds % 60)] {
        out.push(mark);
        push_number(out, number, 2);
    }
    out.push('.');
    push_number(out, moment.milliseconds % 1000, 3);
}

/// Appends a number, with zeros in front up to so many digits. Formatting through `fmt` took a third of the time.
fn push_number(out: &mut String, mut number: u64, digits_min: usize) {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    while number > 0 {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    first = first.min(digits.len() - digits_min);
    out.extend(digits[first..].iter().map(|&digit| char::from(digit)));
}

fn one_in(random: &mut ChaCha8Rng, many: u32) -> bool {
    random.random_range(0..many) == 0
}

fn pick(random: &mut ChaCha8Rng, words: &'static [&'static str]) -> &'static str {
    words.choose(random).copied().unwrap_or_default()
}

#[cfg(test)]
mod shape {
    use super::ForumUsers;
    use serde_json::Value;

    fn text(documents: u64, seed: u64) -> Vec<u8> {
        let mut text = Vec::new();
        ForumUsers { documents, seed }.write(&mut text, |_| {}).expect("written to memory");
        text
    }

    fn users(documents: u64, seed: u64) -> Vec<Value> {
        let text = String::from_utf8(text(documents, seed)).expect("UTF-8");
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }

    fn numbers(users: &[Value], field: &str) -> Vec<u64> {
        users.iter().map(|user| user[field].as_u64().expect("a number")).collect()
    }

    /// How many users have a creation date that `wanted` takes.
    fn created(users: &[Value], wanted: impl Fn(&str) -> bool) -> usize {
        users.iter().filter(|user| wanted(user["CreationDate"].as_str().expect("a date"))).count()
    }

    #[test]
    fn a_seed_gives_the_same_bytes_again_and_another_seed_others() {
        assert!(text(5_000, 1) == text(5_000, 1));
        assert!(text(5_000, 1) != text(5_000, 2));
    }

    #[test]
    fn documents_are_850_bytes_on_average() {
        let mean = text(60_000, 3).len() as f64 / 60_000.0;
        assert!((830.0..870.0).contains(&mean), "{mean}");
    }

    #[test]
    fn ids_ascend_with_gaps_and_dates_ascend_with_them() {
        for documents in [0, 1, 4_100] {
            let users = users(documents, 1);
            assert_eq!(users.len() as u64, documents);
            assert!(numbers(&users, "Id").is_sorted_by(|a, b| a < b));
            assert!(users.is_sorted_by_key(|user| user["CreationDate"].as_str().map(|date| date[..13].to_owned())));
            assert!(users.iter().all(|user| user["LastAccessDate"].as_str() >= user["CreationDate"].as_str()));
        }
    }

    #[test]
    fn registrations_grow_over_the_years_and_rest_on_weekends() {
        let users = users(40_000, 1);
        let years = ["2008", "2009", "2010", "2011", "2012", "2013"];
        let of_years: Vec<usize> = years.iter().map(|year| created(&users, |date| date.starts_with(year))).collect();
        assert!(of_years.is_sorted_by(|a, b| a * 5 < b * 4), "{of_years:?}");
        // The week from Monday, 7 April 2014.
        let of_days: Vec<usize> = (7..=13)
            .map(|day| {
                let weeks = (0..3).map(|week| format!("2014-04-{:02}", day + 7 * week));
                weeks.map(|date| created(&users, |created| created.starts_with(&date))).sum()
            })
            .collect();
        let (workdays, weekend) = of_days.split_at(5);
        assert!(workdays.iter().all(|day| weekend.iter().all(|rest| rest * 5 < day * 4)), "{of_days:?}");
    }

    #[test]
    fn reputation_and_about_texts_have_long_tails() {
        let users = users(40_000, 1);
        let mut reputation = numbers(&users, "Reputation");
        reputation.sort_unstable();
        assert_eq!(reputation[20_000], 1, "half of them have no more");
        assert!(reputation[36_000] > 20 && reputation[39_996] > 10_000, "{:?}", &reputation[39_990..]);
        let abouts: Vec<usize> = users.iter().filter_map(|user| user["AboutMe"].as_str()).map(str::len).collect();
        assert!((10_000..14_000).contains(&abouts.len()), "{}", abouts.len());
        assert!(abouts.iter().any(|&bytes| bytes > 20_000));
        assert!(users.iter().filter(|user| user.get("Location").is_none()).count() > 28_000);
    }
}
