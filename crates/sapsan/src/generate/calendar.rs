//! When people registered: the days from the site's first to the data's last, and how many came on each.
//!
//! Whole numbers throughout, since the same seed must give the same bytes on every machine: powers and logarithms of
//! floating point differ between mathematics libraries.

use jiff::ToSpan;
use jiff::civil::{Date, date};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// The first day, a Thursday, and the day after the last one.
const FIRST: Date = date(2008, 7, 31);
const END: Date = date(2016, 9, 1);
const FIRST_YEAR: u16 = 2008;
const FIRST_WEEKDAY: usize = 3;

/// Registrations of a usual day at the beginning of each year from 2008 on; between them they grow evenly.
const DAILY: [u64; 10] = [20, 150, 350, 750, 1_400, 2_500, 3_200, 3_300, 3_800, 4_200];
/// Percent of a usual day's registrations, from Monday on: people ask where they work.
const WEEKDAYS: [u64; 7] = [112, 119, 120, 117, 103, 62, 66];
/// Percent, at random, by which days differ otherwise.
const SPREAD: std::ops::RangeInclusive<u64> = 92..=108;
/// The same for the hours of a day (UTC), as parts of their sum.
const HOURS: [u64; 24] =
    [30, 28, 27, 28, 32, 40, 50, 58, 64, 68, 68, 66, 68, 72, 74, 74, 70, 64, 58, 54, 50, 46, 40, 34];

/// Days with their dates, and which documents belong to each.
pub(super) struct Calendar {
    days: Vec<Day>,
}

struct Day {
    /// `2008-07-31`.
    date: String,
    /// The first document that registered on this day.
    first: u64,
}

/// A moment within the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment {
    pub(super) day: usize,
    pub(super) milliseconds: u64,
}

impl Calendar {
    /// Spreads so many documents over the days.
    pub(super) fn new(documents: u64, random: &mut ChaCha8Rng) -> Calendar {
        let dates = dates();
        let mut before = Vec::with_capacity(dates.len() + 1);
        let mut sum = 0u64;
        for (number, &(year, day_of_year, _)) in dates.iter().enumerate() {
            before.push(sum);
            let (low, high) = (DAILY[usize::from(year - FIRST_YEAR)], DAILY[usize::from(year - FIRST_YEAR) + 1]);
            let usual = low * 365 + (high - low) * day_of_year;
            sum += usual * WEEKDAYS[(FIRST_WEEKDAY + number) % 7] * random.random_range(SPREAD);
        }
        let first = |before: u64| (u128::from(documents) * u128::from(before) / u128::from(sum)) as u64;
        let days = dates.into_iter().zip(before).map(|((.., date), before)| Day { date, first: first(before) });
        Calendar { days: days.collect() }
    }

    /// When the document at `index` of so many registered: within a day in their order.
    pub(super) fn registration(&self, index: u64, documents: u64, random: &mut ChaCha8Rng) -> Moment {
        let day = self.days.partition_point(|day| day.first <= index).saturating_sub(1);
        let first = self.days[day].first;
        let end = self.days.get(day + 1).map_or(documents, |next| next.first);
        let hours: u64 = HOURS.iter().sum();
        // A thousandth of the documents' distance is fine enough for milliseconds to look random.
        let place =
            ((index - first) * 1000 + random.random_range(0..1000)) * hours * 3600 / ((end - first).max(1) * 1000);
        let (mut hour, mut before) = (0, 0);
        while hour < 23 && place >= (before + HOURS[hour]) * 3600 {
            before += HOURS[hour];
            hour += 1;
        }
        let within = ((place - before * 3600) * 1000 + random.random_range(0..1000)) / HOURS[hour];
        Moment { day, milliseconds: hour as u64 * 3_600_000 + within.min(3_599_999) }
    }

    /// The last day's number.
    pub(super) fn last(&self) -> usize {
        self.days.len() - 1
    }

    /// The date of a day.
    pub(super) fn date(&self, day: usize) -> &str {
        &self.days[day].date
    }
}

/// Year, day of the year and date of every day.
fn dates() -> Vec<(u16, u64, String)> {
    let days = FIRST.series(1.day()).take_while(|day| *day < END);
    let parts =
        |day: Date| (day.year().unsigned_abs(), u64::from(day.day_of_year().unsigned_abs()) - 1, day.to_string());
    days.map(parts).collect()
}

#[cfg(test)]
mod days {
    use super::{Calendar, dates};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let dates = dates();
        assert_eq!((dates[0].2.as_str(), dates[0].1), ("2008-07-31", 212)); // a leap year
        assert_eq!(dates.last().map(|last| last.2.as_str()), Some("2016-08-31"));
        assert_eq!(dates.len(), 2_954);
        assert!(dates.iter().any(|date| date.2 == "2012-02-29") && !dates.iter().any(|date| date.2 == "2013-02-29"));
    }

    #[test]
    fn registrations_never_go_back_in_time() {
        let random = &mut ChaCha8Rng::seed_from_u64(5);
        for documents in [1, 7, 50_000] {
            let calendar = Calendar::new(documents, random);
            let moments: Vec<_> = (0..documents).map(|index| calendar.registration(index, documents, random)).collect();
            assert!(moments.is_sorted_by_key(|moment| (moment.day, moment.milliseconds / 3_600_000)));
            assert!(moments.iter().all(|moment| moment.milliseconds < 86_400_000 && moment.day <= calendar.last()));
        }
    }
}
