//! `nacre s3 kms ...`: named keys with which objects are encrypted at rest.

use super::admin::{Asked, Given, asked};
use clap::Subcommand;
use nacre_gateway::Verb;

/// `nacre s3 kms`
#[derive(Subcommand)]
pub enum Kms {
    /// Make a random key of this name in the cluster's key ring.
    Create {
        #[arg(long, value_name = "NAME")]
        key_id: String,
    },
    /// List the names of all keys.
    #[command(alias = "list")]
    Ls,
    /// Remove a key. What was encrypted with it cannot be read any more.
    Rm {
        #[arg(long, value_name = "NAME")]
        key_id: String,
        #[arg(long)]
        yes_i_really_mean_it: bool,
    },
}

impl Kms {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        let given = Given::default();
        match self {
            Kms::Create { key_id } => asked(Verb::KmsCreate, given.with("key-id", &Some(key_id))),
            Kms::Ls => asked(Verb::KmsList, given),
            Kms::Rm { key_id, yes_i_really_mean_it } => {
                let given = given.with("key-id", &Some(key_id));
                let sure = yes_i_really_mean_it.then_some("true");
                asked(Verb::KmsRemove, given.with("yes-i-really-mean-it", &sure))
            }
        }
    }
}
