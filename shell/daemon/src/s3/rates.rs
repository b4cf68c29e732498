//! `nacre s3 ratelimit ...` and `nacre s3 global ratelimit ...`: how much users, and all requests for a
//! bucket, may ask for in a minute.

use super::admin::{Asked, Given, UserId, asked};
use clap::{Args, Subcommand};
use nacre_gateway::Verb;

/// What a limit is of.
#[derive(Args)]
pub struct Scope {
    /// `user` or `bucket`; with `global` also `anonymous`.
    #[arg(long, value_name = "SCOPE")]
    ratelimit_scope: Option<String>,
    #[command(flatten)]
    id: UserId,
    #[arg(long, value_name = "NAME")]
    bucket: Option<String>,
}

/// `nacre s3 ratelimit`
#[derive(Subcommand)]
pub enum RateLimit {
    /// Set the limits, each of one gateway and one minute. 0: any number.
    Set {
        #[command(flatten)]
        scope: Scope,
        #[arg(long, value_name = "NUMBER")]
        max_read_ops: Option<u64>,
        #[arg(long, value_name = "NUMBER")]
        max_write_ops: Option<u64>,
        #[arg(long, value_name = "NUMBER")]
        max_read_bytes: Option<u64>,
        #[arg(long, value_name = "NUMBER")]
        max_write_bytes: Option<u64>,
    },
    /// Refuse what goes beyond the limits.
    Enable {
        #[command(flatten)]
        scope: Scope,
    },
    /// Do not apply the limits.
    Disable {
        #[command(flatten)]
        scope: Scope,
    },
    /// Show the limits.
    Get {
        #[command(flatten)]
        scope: Scope,
    },
}

/// `nacre s3 global`
#[derive(Subcommand)]
pub enum Global {
    /// The limits of users and buckets that have none of their own, and of anonymous requests.
    #[command(subcommand, name = "ratelimit")]
    RateLimit(RateLimit),
}

fn of(scope: &Scope) -> Given {
    let given = Given::default().with("ratelimit-scope", &scope.ratelimit_scope);
    given.id(&scope.id).with("bucket", &scope.bucket)
}

impl RateLimit {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        match self {
            RateLimit::Set { scope, max_read_ops, max_write_ops, max_read_bytes, max_write_bytes } => {
                let given = of(scope).with("max-read-ops", max_read_ops).with("max-write-ops", max_write_ops);
                let given = given.with("max-read-bytes", max_read_bytes);
                asked(Verb::RateLimitSet, given.with("max-write-bytes", max_write_bytes))
            }
            RateLimit::Enable { scope } => asked(Verb::RateLimitEnable, of(scope)),
            RateLimit::Disable { scope } => asked(Verb::RateLimitDisable, of(scope)),
            RateLimit::Get { scope } => asked(Verb::RateLimitGet, of(scope)),
        }
    }
}

impl Global {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        let Global::RateLimit(limit) = self;
        let (verb, mut params) = limit.asked();
        params.0.insert("global".to_owned(), "true".to_owned());
        (verb, params)
    }
}
