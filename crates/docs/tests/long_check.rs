//! The check of a long document by a general schema tests repeatedly whether the write is cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use docs::sql::{Budget, NoRows, QueryError};
use docs::statements::{Modification, ModifyError, StepText, Steps, StepsDid, StepsError};
use docs::{CancelCheck, Op, Precondition, RowsWanted, StepsCall, Submission, Write, WriteError};

use crate::service::{Service, config};

/// Documents for the general checker.
const TREES: &str = r##"
[collections.trees]
key = { field = "id", type = "u32" }
[collections.trees.schema]
"$ref" = "#/$defs/tree"
[collections.trees.schema."$defs".tree]
anyOf = [
    { type = "object", additionalProperties = { "$ref" = "#/$defs/tree" } },
    { type = "array", items = { "$ref" = "#/$defs/tree" } },
    { type = "integer" },
]
"##;

#[test]
fn a_long_write_asks_whether_anybody_wants_it_while_it_is_read_and_while_it_is_checked() {
    // Parsing checks for cancellation every 16 KiB, and a schema check every few thousand steps.
    check_asked(TREES, 80_000 / (16 << 10) + 10);
    check_asked("[collections.trees]\nkey = { field = \"id\", type = \"u32\" }\n", 80_000 / (16 << 10));
}

/// A write must check for cancellation at least so often, and must end whichever check reports the cancellation.
#[track_caller]
fn check_asked(collections: &str, least: u64) {
    let service = Service::new(&config(collections));
    let session = service.database.session().unwrap();
    let body = format!(r#"{{"id":1,"tree":[{}1]}}"#, "[1,2,3],".repeat(10_000)).into_bytes();
    // The result of a write that is cancelled after so many checks, and the number of checks.
    let written = |wanted: u64| {
        let (asked, (tell, told)) = (Arc::new(AtomicU64::new(0)), channel());
        let count = Arc::clone(&asked);
        let over: CancelCheck = Arc::new(move || count.fetch_add(1, Ordering::Relaxed) >= wanted);
        let (op, precondition) = (Op::Insert { body: body.clone() }, Precondition::None);
        let write = Write { collection: service.id("trees"), op, precondition };
        let done = Box::new(move |outcome| tell.send(outcome).unwrap());
        service.database.write_submission(
            &session,
            Submission { write, guard: None, required: None, over: Some(over), long: None, done },
        );
        (told.recv().unwrap().map(|written| written.created), asked.load(Ordering::Relaxed))
    };
    for wanted in 0..least {
        let (ended, asked) = written(wanted);
        assert_eq!(ended, Err(WriteError::Busy), "{wanted}");
        // A cancelled schema check asks once more, to report the reason.
        assert!((wanted + 1..=wanted + 2).contains(&asked), "{asked} of {wanted}");
        assert!(service.get("trees/1").is_none());
    }
    let (ended, asked) = written(u64::MAX);
    assert_eq!(ended, Ok(true));
    assert!(asked >= least, "asked {asked} times");
}

#[test]
fn a_long_check_inside_a_statement_ends_where_nobody_wants_it_and_nothing_is_written() {
    let service = Service::new(&config(TREES));
    let body = format!(r#"{{"id":1,"tree":[{}1]}}"#, "[1,2,3],".repeat(10_000)).into_bytes();
    let (op, precondition) = (Op::Insert { body: body.clone() }, Precondition::None);
    service.database.write_now(&Write { collection: service.id("trees"), op, precondition }).unwrap();
    let catalog = service.database.catalog();
    let statement = Modification::prepare("UPDATE trees SET n = COALESCE(n, 0) + 1", catalog).unwrap();
    let texts = [StepText { sql: "UPDATE trees SET n = COALESCE(n, 0) + 1", expect: None }];
    let steps = Arc::new(Steps::prepare(&texts, &[], catalog).unwrap());
    // The result of a statement or steps when cancelled after `wanted` checks, and the number of checks.
    let run = |wanted: u64, as_steps: bool| {
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let cancel_check: CancelCheck = Arc::new(move || count.fetch_add(1, Ordering::Relaxed) >= wanted);
        let is_over = || asked.load(Ordering::Relaxed) > wanted;
        let budget = Budget { deadline: Some(&is_over), ..Budget::default() };
        let outcome = docs::with_cancel_check(Some(&cancel_check), || match as_steps {
            false => service.database.modify(&statement, &[], &budget, &mut NoRows).map(|done| done.rows).err(),
            true => {
                let call = StepsCall {
                    steps: Arc::clone(&steps),
                    parameters: Vec::new(),
                    required: None,
                    rows: RowsWanted::None,
                    now_ms: 0,
                    rows_max: u64::MAX,
                    bytes_max: usize::MAX,
                    reply_bytes_max: usize::MAX,
                };
                match service.database.run_steps(&call, &budget, &mut StepsDid::default()) {
                    Err(StepsError::Failed { error, .. }) => Some(error),
                    outcome => outcome.map(|_| None).unwrap(),
                }
            }
        });
        (outcome, asked.load(Ordering::Relaxed))
    };
    for as_steps in [false, true] {
        let (ended, asked) = run(3, as_steps);
        assert!(matches!(ended, Some(ModifyError::Query(QueryError::Deadline))), "{ended:?}");
        assert_eq!(asked, 4);
        assert_eq!(service.get("trees/1").unwrap().1.as_bytes(), body);
    }
    for as_steps in [false, true] {
        let (ended, asked) = run(u64::MAX, as_steps);
        assert!(ended.is_none() && asked > 10, "asked {asked} times: {ended:?}");
    }
}
