//! The arguments that say which replies are right, without a file of answers.

use crate::answers::{BodyCheck, BodyExpectation};
use crate::statuses::StatusSet;
use clap::Args;

/// What each reply must be.
#[derive(Clone, Debug, Default, Args)]
pub struct ExpectArguments {
    /// Statuses that are right, such as 200,404 or 2xx or 200-299 (default: 200-399)
    #[arg(long, value_name = "STATUSES", conflicts_with = "answers")]
    pub expect_status: Option<StatusSet>,
    /// The body of each reply, as its text or @FILE: equal bytes, or JSON of equal value
    #[arg(long, value_name = "TEXT", conflicts_with = "answers")]
    pub expect_body: Option<String>,
    /// A text that the body of each reply contains; may be given several times
    #[arg(long, value_name = "TEXT", conflicts_with = "answers")]
    pub expect_body_part: Vec<String>,
}

impl ExpectArguments {
    /// The check of bodies, if there is one.
    pub(super) fn body_check(&self) -> Result<Option<BodyCheck>, String> {
        if self.expect_body.is_none() && self.expect_body_part.is_empty() {
            return Ok(None);
        }
        let whole = self.expect_body.as_deref().map(|text| super::text_or_file("--expect-body", text)).transpose()?;
        let parts = self.expect_body_part.iter().map(|part| part.as_bytes().to_vec()).collect();
        Ok(Some(BodyCheck::new(BodyExpectation { whole, parts })))
    }
}
