//! Options that contradict one another or have no effect: errors before the load, because the user expects an effect of each.
//!
//! Conflicts between the mere presence of options are in their declarations (`conflicts_with`, `requires`). This file has those
//! that depend on their values or on the ammo.

use super::LoadArguments;
use crate::ammo::{Ammo, Format, is_standard_input};
use crate::target::TargetUrl;

/// Checks the arguments by themselves.
pub(super) fn check(arguments: &LoadArguments) -> Result<(), String> {
    let (ammo, vs) = (&arguments.ammo, arguments.results.vs.as_deref());
    let read = [("--ammo", &ammo.ammo), ("--answers", &ammo.answers)];
    let mut from_standard_input =
        read.iter().filter(|(_, path)| path.as_deref().is_some_and(is_standard_input)).map(|(option, _)| *option);
    let (first, second) = (from_standard_input.next(), from_standard_input.next());
    match (first, second, vs) {
        (Some(first), Some(second), _) => {
            return Err(format!("{first} - and {second} - both take standard input: put one of them into a file"));
        }
        (Some(option), None, Some(_)) => {
            return Err(format!(
                "{option} -: standard input is read once, and each turn of --vs reads from the beginning: put it into a file"
            ));
        }
        _ => {}
    }
    let is_tls = |url: &str| TargetUrl::parse(url).is_ok_and(|target| target.is_tls);
    if arguments.tls_ca.is_some() && !arguments.url.as_deref().into_iter().chain(vs).any(is_tls) {
        return Err("--tls-ca: no address begins with https://, so no certificate is checked: leave it out".to_owned());
    }
    Ok(())
}

/// Checks the arguments against the ammo that they name.
pub(super) fn check_ammo(arguments: &LoadArguments, ammo: &Ammo) -> Result<(), String> {
    if arguments.seed.is_some() && !ammo.may_be_random() {
        return Err(
            "--seed: the ammo has no random placeholders, so the seed changes nothing: leave it out (--shuffle has a seed of its own)"
                .to_owned(),
        );
    }
    if arguments.ammo.shuffle.is_some() && ammo.is_constant() {
        return Err("--shuffle: the ammo is one request, which has no order: leave it out".to_owned());
    }
    if !arguments.header.is_empty() && ammo.format() == Format::Phantom {
        return Err("--header: phantom ammo is sent as it is: put the header field into its requests".to_owned());
    }
    Ok(())
}
