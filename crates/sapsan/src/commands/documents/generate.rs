//! `sapsan generate travels OUT` and `sapsan generate stackoverflow-users`: seeded test data.

use crate::cli::{Generate, GenerateForumUsers, GenerateTravels, GenerateWhat};
use crate::console::{Outcome, output, progress};
use crate::generate::{Counts, ForumUsers, Travels};
use std::fs::File;
use std::io::BufWriter;

pub(crate) fn run(arguments: &Generate) -> Outcome {
    match &arguments.what {
        GenerateWhat::Travels(arguments) => travels(arguments),
        GenerateWhat::StackoverflowUsers(arguments) => forum_users(arguments),
    }
}

fn travels(arguments: &GenerateTravels) -> Outcome {
    let counts = Counts { users: arguments.users, locations: arguments.locations, visits: arguments.visits };
    if counts.visits > 0 && (counts.users == 0 || counts.locations == 0) {
        return Err("visits need at least one user and one location: raise --users and --locations".to_owned());
    }
    let data = Travels { counts, only_visits: arguments.only_visits, seed: arguments.seed };
    let total = data.entities();
    let bar = progress::documents(total);
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", arguments.out.display());
    let file = BufWriter::new(File::create(&arguments.out).map_err(failed)?);
    let file = data.write_zip(file, |done| bar.set_position(done)).map_err(failed)?;
    file.into_inner().map_err(|error| failed(error.into_error()))?;
    bar.finish_and_clear();
    output::line(format_args!("wrote {total} documents to {}", arguments.out.display()))
}

fn forum_users(arguments: &GenerateForumUsers) -> Outcome {
    let data = ForumUsers { documents: arguments.docs, seed: arguments.seed };
    let Some(out) = &arguments.out else {
        // Whole blocks of lines are written: its buffer passes them on as they are.
        let written = data.write(std::io::stdout().lock(), |_| {});
        return output::ended(written);
    };
    let bar = progress::documents(arguments.docs);
    let failed = |error: std::io::Error| format!("cannot write {}: {error}", out.display());
    let file = File::create(out).map_err(failed)?;
    data.write(file, |done| bar.set_position(done)).map_err(failed)?;
    bar.finish_and_clear();
    output::line(format_args!("wrote {} documents to {}", arguments.docs, out.display()))
}
