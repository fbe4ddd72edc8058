//! Replies of both sides outside the load: a page's body, and the reports of banned addresses and locked users.

use crate::bench::setup::process::exchange;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Names of the report's two lists.
const LISTS: [&str; 2] = ["banned_ips", "locked_users"];

/// The body of a page that is answered with 200.
pub(super) fn body(address: SocketAddr, path: &str) -> Result<String, String> {
    // HTTP/1.0, so that the body is not chunked.
    let request = format!("GET {path} HTTP/1.0\r\nHost: bank\r\n\r\n");
    let reply = String::from_utf8_lossy(&exchange(address, request.as_bytes())?).into_owned();
    match reply.split_once("\r\n\r\n") {
        Some((head, body)) if head.split(' ').nth(1) == Some("200") => Ok(body.to_owned()),
        _ => Err(format!("GET {path} of {address} is answered with {reply}")),
    }
}

/// How the reports of both sides differ; nothing if they name the same addresses and users.
pub(super) fn reports_differ(ours: SocketAddr, theirs: SocketAddr) -> Result<Option<String>, String> {
    let [ours, theirs] = [ours, theirs].map(|address| body(address, "/report"));
    difference(&ours?, &theirs?)
}

fn difference(ours: &str, theirs: &str) -> Result<Option<String>, String> {
    for name in LISTS {
        let [ours, theirs] = [names(ours, name)?, names(theirs, name)?];
        if ours != theirs {
            let both = ours.intersection(&theirs).count();
            let (ours, theirs) = (ours.len(), theirs.len());
            return Ok(Some(format!("its report has {theirs} {name}, {both} of our {ours}")));
        }
    }
    Ok(None)
}

fn names(report: &str, list: &str) -> Result<BTreeSet<String>, String> {
    let json: serde_json::Value =
        serde_json::from_str(report).map_err(|error| format!("/report: {error}: {report}"))?;
    let names = json[list].as_array().ok_or_else(|| format!("/report has no `{list}`: {report}"))?;
    Ok(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"{"banned_ips":["10.0.0.1"],"locked_users":["a","b"]}"#;

    #[test]
    fn reports_of_the_same_names_in_another_order_do_not_differ() {
        let other = r#"{"locked_users": ["b", "a"], "banned_ips": ["10.0.0.1"]}"#;
        assert_eq!(difference(REPORT, other), Ok(None));
    }

    #[test]
    fn a_report_that_lacks_users_is_told_with_both_numbers() {
        let other = r#"{"banned_ips":["10.0.0.1"],"locked_users":["a"]}"#;
        assert_eq!(difference(REPORT, other), Ok(Some("its report has 1 locked_users, 1 of our 2".to_owned())));
        assert!(difference(REPORT, "{}").unwrap_err().contains("banned_ips"));
    }
}
