//! The contest's load: three phases, each with a profile, and the pause between them.

use std::str::FromStr;

/// Pause between two phases, in seconds. The contest's own pause was not published; this one lets connections end and the server
/// become idle.
pub const PAUSE_SECONDS: f64 = 10.0;
/// The smallest fraction of a phase's time that still contains requests.
const SCALE_MIN: f64 = 0.001;

/// A run of the contest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contest {
    /// The rating run of 2017.
    Rating2017,
    /// The final of 2017: five times the rate, on ten times the data.
    Final2017,
    /// The rating run in a tenth of its time, at its rates, for a quick try.
    Tenth,
}

/// A phase: its requests and their schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseLoad {
    /// Number and kind, as shown on the board.
    pub name: &'static str,
    /// The profile, in the syntax of `profile`.
    pub profile: String,
}

impl Contest {
    /// All of them.
    pub const ALL: [Contest; 3] = [Contest::Rating2017, Contest::Final2017, Contest::Tenth];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Contest::Rating2017 => "2017",
            Contest::Final2017 => "final",
            Contest::Tenth => "tenth",
        }
    }

    /// Factor that scales the rating of this run to a contest's run.
    pub fn share(self) -> u32 {
        match self {
            Contest::Tenth => 10,
            _ => 1,
        }
    }

    /// Kind of each phase, and its rates and seconds: `from`, `to`, `seconds`.
    fn rates(self) -> [(&'static str, f64, f64, f64); 3] {
        let rates = match self {
            Contest::Rating2017 => [(1.0, 200.0, 180.0), (100.0, 100.0, 120.0), (200.0, 2000.0, 120.0)],
            Contest::Final2017 => [(1.0, 1000.0, 300.0), (50.0, 270.0, 250.0), (500.0, 10_000.0, 120.0)],
            Contest::Tenth => [(1.0, 200.0, 18.0), (100.0, 100.0, 12.0), (200.0, 2000.0, 12.0)],
        };
        let [first, second, third] = rates;
        let named = |name, (from, to, seconds)| (name, from, to, seconds);
        [named("1 GET", first), named("2 POST", second), named("3 GET", third)]
    }

    /// The three phases, with their time multiplied by `scale` (0.001 to 1).
    pub fn phases(self, scale: f64) -> [PhaseLoad; 3] {
        let scale = scale.clamp(SCALE_MIN, 1.0);
        self.rates().map(|(name, from, to, seconds)| {
            let milliseconds = (seconds * scale * 1000.0).round();
            let profile = match from == to {
                true => format!("const({from},{milliseconds}ms)"),
                false => format!("line({from},{to},{milliseconds}ms)"),
            };
            PhaseLoad { name, profile: profile.replace("000ms)", "s)") }
        })
    }
}

impl FromStr for Contest {
    type Err = String;

    fn from_str(text: &str) -> Result<Contest, String> {
        let found = Contest::ALL.into_iter().find(|contest| contest.name() == text);
        found.ok_or_else(|| {
            format!("{text:?} is no profile of the contest: {}", Contest::ALL.map(Contest::name).join(", "))
        })
    }
}

#[cfg(test)]
mod phases {
    use super::Contest;
    use crate::profile::Profile;

    #[track_caller]
    fn check(contest: Contest, scale: f64, profiles: [&str; 3], requests: [u64; 3]) {
        let phases = contest.phases(scale);
        assert_eq!(phases.each_ref().map(|phase| phase.profile.as_str()), profiles);
        let total = |profile: &str| Profile::parse(profile).expect("a profile").total();
        assert_eq!(phases.each_ref().map(|phase| total(&phase.profile)), requests);
    }

    /// The numbers of requests published by the contest.
    #[test]
    fn phases_have_the_contests_requests() {
        let rating = ["line(1,200,180s)", "const(100,120s)", "line(200,2000,120s)"];
        check(Contest::Rating2017, 1.0, rating, [18_090, 12_000, 132_000]);
        let last = ["line(1,1000,300s)", "line(50,270,250s)", "line(500,10000,120s)"];
        check(Contest::Final2017, 1.0, last, [150_150, 40_000, 630_000]);
        check(Contest::Tenth, 1.0, ["line(1,200,18s)", "const(100,12s)", "line(200,2000,12s)"], [1809, 1200, 13_200]);
    }

    #[test]
    fn a_scale_shortens_the_time_and_keeps_the_rates() {
        let short = ["line(1,200,180ms)", "const(100,120ms)", "line(200,2000,120ms)"];
        check(Contest::Rating2017, 0.001, short, [19, 12, 132]);
    }

    #[test]
    fn a_profile_is_parsed_by_its_name() {
        for contest in Contest::ALL {
            assert_eq!(contest.name().parse(), Ok(contest));
        }
        assert!("2018".parse::<Contest>().is_err());
    }
}
