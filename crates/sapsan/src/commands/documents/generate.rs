//! `sapsan generate travels OUT` and `sapsan generate stackoverflow-users`: seeded test data.

use crate::cli::{Generate, GenerateForumUsers, GenerateTravels, GenerateWhat};
use crate::console::process::UnfinishedFile;
use crate::console::{Outcome, output, process, progress};
use crate::export::{Destination, Stopped};
use crate::generate::{Counts, ForumUsers, Travels};

pub(crate) fn run(arguments: &Generate) -> Outcome {
    let unfinished = process::end_by_signal()?;
    match &arguments.what {
        GenerateWhat::Travels(arguments) => travels(arguments, &unfinished),
        GenerateWhat::StackoverflowUsers(arguments) => forum_users(arguments, &unfinished),
    }
}

fn travels(arguments: &GenerateTravels, unfinished: &UnfinishedFile) -> Outcome {
    let counts = Counts { users: arguments.users, locations: arguments.locations, visits: arguments.visits };
    if counts.visits > 0 && (counts.users == 0 || counts.locations == 0) {
        return Err("visits need at least one user and one location: raise --users and --locations".to_owned());
    }
    let data = Travels { counts, only_visits: arguments.only_visits, seed: arguments.seed };
    let total = data.entities();
    let mut file = Destination::open(Some(&arguments.out), unfinished)?;
    let bar = progress::documents(total);
    let written = data.write_zip(&mut file, |done| bar.set_position(done)).map(drop);
    bar.finish_and_clear();
    file.finish(written.map_err(Stopped::Unwritten))?;
    output::line(format_args!("wrote {total} documents to {}", arguments.out.display()))
}

fn forum_users(arguments: &GenerateForumUsers, unfinished: &UnfinishedFile) -> Outcome {
    let data = ForumUsers { documents: arguments.docs, seed: arguments.seed };
    let Some(out) = &arguments.out else {
        // Whole blocks of lines are written: its buffer passes them on as they are.
        let written = data.write(std::io::stdout().lock(), |_| {});
        return output::ended(written);
    };
    let mut file = Destination::open(Some(out), unfinished)?;
    let bar = progress::documents(arguments.docs);
    let written = data.write(&mut file, |done| bar.set_position(done));
    bar.finish_and_clear();
    file.finish(written.map_err(Stopped::Unwritten))?;
    output::line(format_args!("wrote {} documents to {}", arguments.docs, out.display()))
}
