//! `nacre s3 account ...`: accounts of several users, with the words and the JSON of `radosgw-admin`.

use super::admin::{Asked, Given, asked};
use clap::{Args, Subcommand};
use nacre_gateway::Verb;

/// Which account.
#[derive(Args)]
pub struct AccountName {
    /// The account's id: RGW and 17 digits.
    #[arg(long, value_name = "ID")]
    account_id: Option<String>,
    #[arg(long, value_name = "NAME")]
    account_name: Option<String>,
}

/// What an account is like. Of each limit, 0 is any number, and less is none.
#[derive(Args)]
pub struct AccountFields {
    #[arg(long, value_name = "ADDRESS")]
    email: Option<String>,
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    max_users: Option<i32>,
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    max_roles: Option<i32>,
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    max_groups: Option<i32>,
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    max_buckets: Option<i32>,
    /// Of each user.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    max_access_keys: Option<i32>,
}

/// `nacre s3 account`
#[derive(Subcommand)]
pub enum Account {
    /// Make an account. Its first user is one of `nacre s3 user create --account-id ID --account-root`.
    Create {
        #[command(flatten)]
        name: AccountName,
        #[command(flatten)]
        fields: AccountFields,
    },
    /// Change an account.
    Modify {
        #[command(flatten)]
        name: AccountName,
        #[command(flatten)]
        fields: AccountFields,
    },
    /// Show an account.
    #[command(alias = "info")]
    Get {
        #[command(flatten)]
        name: AccountName,
    },
    /// List the ids of all accounts.
    #[command(alias = "ls")]
    List,
    /// Remove an account that has neither users, groups, roles nor buckets.
    Rm {
        #[command(flatten)]
        name: AccountName,
    },
    /// Show the number and size of an account's objects.
    Stats {
        #[command(flatten)]
        name: AccountName,
        /// Totals are always exact; for scripts written for radosgw-admin.
        #[arg(long)]
        sync_stats: bool,
    },
}

fn of(name: &AccountName) -> Given {
    Given::default().with("account-id", &name.account_id).with("account-name", &name.account_name)
}

fn with(name: &AccountName, fields: &AccountFields) -> Given {
    of(name)
        .with("email", &fields.email)
        .with("max-users", &fields.max_users)
        .with("max-roles", &fields.max_roles)
        .with("max-groups", &fields.max_groups)
        .with("max-buckets", &fields.max_buckets)
        .with("max-access-keys", &fields.max_access_keys)
}

impl Account {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        match self {
            Account::Create { name, fields } => asked(Verb::AccountCreate, with(name, fields)),
            Account::Modify { name, fields } => asked(Verb::AccountModify, with(name, fields)),
            Account::Get { name } => asked(Verb::AccountGet, of(name)),
            Account::List => asked(Verb::AccountList, Given::default()),
            Account::Rm { name } => asked(Verb::AccountRemove, of(name)),
            Account::Stats { name, .. } => asked(Verb::AccountStats, of(name)),
        }
    }
}
