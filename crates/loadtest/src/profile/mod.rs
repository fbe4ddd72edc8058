//! Load profiles: the planned moment of each request of a run, in closed form.
//!
//! A profile is a chain of parts; a part has one or more segments in which the rate changes evenly. In a segment that begins with
//! `a` requests per second, of which the rate grows by `s` each second, `a·t + s·t²/2` requests are planned in the first `t`
//! seconds. Request `n` of the segment is planned at the moment at which this equals `n`:
//!
//! ```text
//!            -a + sqrt(a² + 2·s·n)             2·n
//!     t_n =  ---------------------  =  ---------------------
//!                      s                a + sqrt(a² + 2·s·n)
//! ```
//!
//! The form on the right is used: it loses no digits for a small `s`, and is valid for `s = 0` too. Requests are numbered through
//! all segments, and a segment may begin between two of them: the total number is the integral of the rate, rounded up.
//!
//! A [`Profile`] stores no moments. [`Moments`] computes them one after another, all of them or every n-th, so that each loop of
//! the engine plans its own share and a profile of any length takes no memory.

mod parse;

pub use parse::ProfileError;

use std::sync::Arc;

/// The largest rate, in requests per second.
pub const RATE_MAX: f64 = 10_000_000.0;
/// Largest number of parts of a profile.
pub const PARTS_MAX: usize = 100;
/// Largest number of segments in all parts: a `step` has one for each of its stairs.
pub const SEGMENTS_MAX: usize = 10_000;

/// One part, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfilePart {
    /// Its text, such as `line(1,200,180s)`.
    pub name: String,
    /// Seconds from the start of the run to its beginning.
    pub from: f64,
    /// Seconds from the start of the run to its end.
    pub to: f64,
}

/// An interval in which the rate changes evenly.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Segment {
    part: u32,
    /// Its beginning, in seconds from the start of the run.
    start: f64,
    seconds: f64,
    /// Rate at its beginning and at its end, in requests per second.
    from: f64,
    to: f64,
    /// Requests planned before it, as a real number.
    before: f64,
}

impl Segment {
    fn requests(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.seconds
    }

    /// Seconds from the start of the run to the moment at which `number` requests have been planned.
    fn moment(&self, number: u64) -> f64 {
        let n = (number as f64 - self.before).max(0.0);
        if n == 0.0 {
            return self.start;
        }
        let slope = (self.to - self.from) / self.seconds;
        // Below zero only by rounding, at the end of a line that falls to 0.
        let root = (self.from * self.from + 2.0 * slope * n).max(0.0).sqrt();
        self.start + (2.0 * n / (self.from + root)).min(self.seconds)
    }
}

/// A stair: the rate at its beginning and at its end, and its seconds.
type Stair = (f64, f64, f64);

/// A chain of parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    parts: Vec<ProfilePart>,
    segments: Vec<Segment>,
    total: u64,
}

impl Profile {
    /// Parses a profile such as `line(1,200,180s) const(200,1m) step(200,1000,200,30s)`.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        parse::profile(text)
    }

    /// A constant rate of `rate` requests per second.
    pub fn constant(rate: f64, duration: std::time::Duration) -> Result<Self, ProfileError> {
        Self::parse(&format!("const({rate},{}ms)", duration.as_millis()))
    }

    /// A profile of parts, each with its text and its stairs.
    fn of(written: Vec<(String, Vec<Stair>)>) -> Self {
        let (mut parts, mut segments) = (Vec::new(), Vec::new());
        let (mut start, mut before) = (0.0, 0.0);
        for (part, (name, stairs)) in written.into_iter().enumerate() {
            let from_seconds = start;
            for (from, to, seconds) in stairs {
                let segment = Segment { part: part as u32, start, seconds, from, to, before };
                start += seconds;
                before += segment.requests();
                segments.push(segment);
            }
            parts.push(ProfilePart { name, from: from_seconds, to: start });
        }
        // Rounding must not turn a sum that is mathematically whole into one request more.
        let total = (before - before.max(1.0) * 1e-9).ceil().max(0.0) as u64;
        Self { parts, segments, total }
    }

    /// Total number of planned requests.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Length in seconds.
    pub fn seconds(&self) -> f64 {
        self.parts.last().map_or(0.0, |part| part.to)
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[ProfilePart] {
        &self.parts
    }

    /// The planned rate at a moment, in requests per second; 0 outside the profile.
    pub fn rate(&self, seconds: f64) -> f64 {
        let inside = |segment: &&Segment| seconds >= segment.start && seconds < segment.start + segment.seconds;
        let at = |segment: &Segment| {
            segment.from + (segment.to - segment.from) * (seconds - segment.start) / segment.seconds
        };
        self.segments.iter().find(inside).map_or(0.0, at)
    }

    /// The largest rate, in requests per second.
    pub fn rate_max(&self) -> f64 {
        self.segments.iter().map(|segment| segment.from.max(segment.to)).fold(0.0, f64::max)
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        f.write_str(&names.join(" "))
    }
}

/// One planned request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedRequest {
    /// Its number in the run, from 0.
    pub number: u64,
    /// Nanoseconds from the start of the run.
    pub at_ns: u64,
    /// Index of its part in [`Profile::parts`].
    pub part: u32,
}

/// Planned moments in order: those of each `every`-th request.
#[derive(Clone, Debug)]
pub struct Moments {
    profile: Arc<Profile>,
    segment: usize,
    next: u64,
    every: u64,
}

impl Moments {
    /// Moments of the requests `first`, `first + every`, and so on.
    pub fn new(profile: Arc<Profile>, first: u64, every: u64) -> Self {
        Self { profile, segment: 0, next: first, every: every.max(1) }
    }
}

impl Iterator for Moments {
    type Item = PlannedRequest;

    fn next(&mut self) -> Option<PlannedRequest> {
        let number = self.next;
        if number >= self.profile.total {
            return None;
        }
        let segments = &self.profile.segments;
        // The last segment takes the remainder of rounding.
        while self.segment + 1 < segments.len() && number as f64 >= segments[self.segment + 1].before {
            self.segment += 1;
        }
        let segment = &segments[self.segment];
        self.next += self.every;
        Some(PlannedRequest { number, at_ns: (segment.moment(number) * 1e9) as u64, part: segment.part })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn moments(text: &str) -> Vec<u64> {
        let profile = Arc::new(Profile::parse(text).unwrap());
        Moments::new(profile, 0, 1).map(|moment| moment.at_ns).collect()
    }

    #[test]
    fn a_constant_rate_has_even_gaps() {
        assert_eq!(moments("const(4,1s)"), [0, 250_000_000, 500_000_000, 750_000_000]);
    }

    #[test]
    fn a_line_from_nothing_follows_the_root() {
        // t = sqrt(2·n / s), with s = 2: sqrt(n).
        let at = moments("line(0,4,2s)");
        assert_eq!(at.len(), 4);
        for (n, at_ns) in at.iter().enumerate() {
            assert!((*at_ns as f64 / 1e9 - (n as f64).sqrt()).abs() < 1e-6, "request {n} at {at_ns}");
        }
    }

    #[test]
    fn a_falling_line_ends_in_time() {
        let at = moments("line(100,0,2s)");
        assert_eq!(at.len(), 100);
        assert!(at[99] < 2_000_000_000);
    }

    #[test]
    fn the_contests_profiles_have_the_published_numbers_of_requests() {
        for (text, total) in [
            ("line(1,200,180s)", 18_090),
            ("const(100,120s)", 12_000),
            ("line(200,2000,120s)", 132_000),
            ("line(1,1000,300s)", 150_150),
            ("line(50,270,250s)", 40_000),
            ("line(500,10000,120s)", 630_000),
        ] {
            assert_eq!(Profile::parse(text).unwrap().total(), total, "{text}");
        }
    }

    #[test]
    fn a_pause_plans_nothing_and_the_parts_behind_it_go_on() {
        let profile = Arc::new(Profile::parse("const(2,1s) const(0,10s) const(2,1s)").unwrap());
        let all: Vec<PlannedRequest> = Moments::new(Arc::clone(&profile), 0, 1).collect();
        let at: Vec<(u64, u32)> = all.iter().map(|moment| (moment.at_ns / 1_000_000, moment.part)).collect();
        assert_eq!(at, [(0, 0), (500, 0), (11_000, 2), (11_500, 2)]);
        assert_eq!((profile.rate(0.5), profile.rate(5.0), profile.rate(13.0)), (2.0, 0.0, 0.0));
    }

    #[test]
    fn stairs_are_steps_of_one_part() {
        let profile = Profile::parse("step(10,30,10,1s)").unwrap();
        assert_eq!((profile.total(), profile.seconds(), profile.parts().len()), (60, 3.0, 1));
        assert_eq!((profile.rate(0.5), profile.rate(1.5), profile.rate(2.5)), (10.0, 20.0, 30.0));
    }

    fn part() -> impl Strategy<Value = String> {
        let rate = || prop_oneof![Just(0.0), 0.1..50.0_f64, 1.0..3000.0_f64];
        let milliseconds = 1..5000_u32;
        prop_oneof![
            (rate(), rate(), milliseconds.clone()).prop_map(|(from, to, ms)| format!("line({from},{to},{ms}ms)")),
            (rate(), milliseconds.clone()).prop_map(|(rate, ms)| format!("const({rate},{ms}ms)")),
            (1.0..100.0_f64, 1.0..100.0_f64, 1.0..50.0_f64, 1..500_u32)
                .prop_map(|(from, to, step, ms)| format!("step({from},{to},{step},{ms}ms)")),
        ]
    }

    /// The integral of the rate, as the sum of the segments' trapezoids.
    fn integral(profile: &Profile) -> f64 {
        profile.segments.iter().map(|s| (s.from + s.to) / 2.0 * s.seconds).sum()
    }

    proptest! {
        #[test]
        fn moments_rise_inside_the_profile_and_their_number_is_the_integral(
            parts in proptest::collection::vec(part(), 1..6),
        ) {
            let Ok(profile) = Profile::parse(&parts.join(" ")) else { return Ok(()) };
            let profile = Arc::new(profile);
            let all: Vec<PlannedRequest> = Moments::new(Arc::clone(&profile), 0, 1).collect();
            prop_assert!((all.len() as f64 - integral(&profile)).abs() <= 1.0);
            prop_assert!(all.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns && pair[0].part <= pair[1].part));
            let end_ns = (profile.seconds() * 1e9) as u64;
            prop_assert!(all.iter().all(|moment| moment.at_ns <= end_ns));
        }

        #[test]
        fn loops_share_out_every_moment_once(text in part(), loops in 1..5_u64) {
            let Ok(profile) = Profile::parse(&text) else { return Ok(()) };
            let profile = Arc::new(profile);
            let mut shared: Vec<PlannedRequest> =
                (0..loops).flat_map(|first| Moments::new(Arc::clone(&profile), first, loops)).collect();
            shared.sort_by_key(|moment| moment.number);
            let all: Vec<PlannedRequest> = Moments::new(profile, 0, 1).collect();
            prop_assert_eq!(shared, all);
        }

        /// By definition, the number of requests planned up to a moment equals the rate's integral up to it.
        #[test]
        fn as_many_moments_lie_before_any_time_as_the_integral_says(
            from in 0.0..500.0_f64, to in 0.0..500.0_f64, share in 0.01..0.99_f64,
        ) {
            let Ok(profile) = Profile::parse(&format!("line({from},{to},4s)")) else { return Ok(()) };
            let time = 4.0 * share;
            let expected = from * time + (to - from) / 4.0 * time * time / 2.0;
            let before = Moments::new(Arc::new(profile), 0, 1).filter(|moment| (moment.at_ns as f64) < time * 1e9).count();
            prop_assert!((before as f64 - expected).abs() <= 1.0 + 1e-6, "{before} beside {expected}");
        }
    }
}
