//! `nacre s3 usage ...`: what users did, by hour and bucket.

use super::admin::{Asked, Given, UserId, asked};
use clap::{Args, Subcommand};
use nacre_gateway::Verb;

/// Which records.
#[derive(Args)]
pub struct Range {
    #[command(flatten)]
    id: UserId,
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
    /// Only from this time on, such as `2026-01-02` or `2026-01-02 03:04:05` (UTC).
    #[arg(long, value_name = "DATE")]
    start_date: Option<String>,
    /// Only before this time.
    #[arg(long, value_name = "DATE")]
    end_date: Option<String>,
}

/// `nacre s3 usage`
#[derive(Subcommand)]
pub enum Usage {
    /// Show requests and bytes, by user, bucket, hour and kind of request.
    Show {
        #[command(flatten)]
        range: Range,
        /// Show each hour: true or false.
        #[arg(long, value_name = "BOOL")]
        show_log_entries: Option<bool>,
        /// Show the sum of each user: true or false.
        #[arg(long, value_name = "BOOL")]
        show_log_sum: Option<bool>,
        /// Only these kinds of requests, such as `get_obj,put_obj`.
        #[arg(long, value_name = "NAMES")]
        categories: Option<String>,
    },
    /// Remove records.
    Trim {
        #[command(flatten)]
        range: Range,
        /// Needed to remove all records of all users.
        #[arg(long)]
        yes_i_really_mean_it: bool,
    },
}

fn of(range: &Range) -> Given {
    let given = Given::default().id(&range.id).with("bucket", &range.bucket);
    given.with("start", &range.start_date).with("end", &range.end_date)
}

impl Usage {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        match self {
            Usage::Show { range, show_log_entries, show_log_sum, categories } => {
                let given = of(range).with("show-entries", show_log_entries);
                asked(
                    Verb::UsageShow,
                    given.with("show-summary", show_log_sum).with("categories", categories),
                )
            }
            Usage::Trim { range, yes_i_really_mean_it } => {
                let sure = yes_i_really_mean_it.then_some("true");
                asked(Verb::UsageTrim, of(range).with("remove-all", &sure))
            }
        }
    }
}
