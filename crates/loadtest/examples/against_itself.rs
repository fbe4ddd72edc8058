//! How often does `--vs` call a server different from itself?
//!
//! `against_itself URL COMPARISONS ROUNDS PROFILE` compares the server with itself so many times, each comparison with so many
//! rounds of the load, and prints how many figures and how many comparisons reported a difference. At most one comparison of
//! twenty should, in the long run; 20 comparisons with one false difference say little, 100 with fifteen say that something is
//! wrong. The load must be one that both turns can have at the same speed: a server that fills a cache during the first turn
//! is not the same server in the second.

mod open_load;

use loadtest::engine::{LoadSettings, Stop, Watchers, run};
use loadtest::request::{Constant, RequestParts};
use loadtest::target::TargetUrl;
use loadtest::versus::{self, Turn};
use loadtest::{Recording, Validity};

fn main() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, comparisons, rounds, profile] = arguments.as_slice() else {
        return Err(
            "against_itself URL COMPARISONS ROUNDS PROFILE, such as http://127.0.0.1:8080/ 50 10 'const(1000,500ms)'"
                .to_owned(),
        );
    };
    let target = TargetUrl::parse(url).map_err(|error| error.to_string())?;
    let settings = open_load::settings(&target, profile)?;
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{text}: a number is expected"));
    let (comparisons, rounds) = (number(comparisons)?, number(rounds)?);
    let (mut differing, mut verdicts, mut figures, mut invalid) = (0, 0, 0, 0);
    for index in 0..comparisons {
        let schedule = versus::schedule(rounds, versus::new_seed());
        let comparison = versus::run(&schedule, |_: Turn| {
            let recording = measure(&settings, &target)?;
            invalid += usize::from(recording.validity != Validity::Valid);
            Ok::<_, String>(recording)
        })?;
        let found: Vec<_> = comparison.rows.iter().filter(|row| row.differs()).collect();
        differing += usize::from(!found.is_empty());
        verdicts += found.len();
        figures += comparison.rows.len();
        let names: Vec<String> = found
            .iter()
            .map(|row| format!("{} {} p {}", row.figure.name, row.effect_text(), row.probability_text()))
            .collect();
        println!(
            "comparison {}: {}",
            index + 1,
            if names.is_empty() { "no difference seen".to_owned() } else { names.join("; ") }
        );
    }
    println!(
        "{differing} of {comparisons} comparisons and {verdicts} of {figures} verdicts report a difference; {invalid} turns were invalid"
    );
    Ok(())
}

fn measure(settings: &LoadSettings, target: &TargetUrl) -> Result<Recording, String> {
    let parts =
        RequestParts { method: "GET", path: &target.path, authority: &target.authority, headers: &[], body: None };
    let source = Box::new(Constant::new(&parts).map_err(|error| error.to_string())?);
    let finished = run(settings, source, Watchers::default(), &Stop::default()).map_err(|error| error.to_string())?;
    Ok(finished.recording)
}
