//! `nacre s3 placement ...`: storage classes and their pools.

use super::admin::{Asked, Given, asked};
use clap::Subcommand;
use nacre_gateway::Verb;

/// `nacre s3 placement`
#[derive(Subcommand)]
pub enum Placement {
    /// Let a pool stand for a storage class. The pool must exist; it may be erasure-coded.
    Add {
        #[arg(long, value_name = "ID", default_value = "default-placement")]
        placement_id: String,
        #[arg(long, value_name = "NAME")]
        storage_class: String,
        #[arg(long, value_name = "POOL")]
        data_pool: String,
    },
    /// List all storage classes with their pools.
    #[command(alias = "list")]
    Ls,
    /// Retire a storage class: no new object gets it. Those that have it can be read as before.
    Rm {
        #[arg(long, value_name = "ID", default_value = "default-placement")]
        placement_id: String,
        #[arg(long, value_name = "NAME")]
        storage_class: String,
    },
}

impl Placement {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        let of = |id: &String, class: &String| {
            Given::default().with("placement-id", &Some(id)).with("storage-class", &Some(class))
        };
        match self {
            Placement::Add { placement_id, storage_class, data_pool } => {
                let given = of(placement_id, storage_class);
                asked(Verb::PlacementAdd, given.with("data-pool", &Some(data_pool)))
            }
            Placement::Ls => asked(Verb::PlacementList, Given::default()),
            Placement::Rm { placement_id, storage_class } => {
                asked(Verb::PlacementRemove, of(placement_id, storage_class))
            }
        }
    }
}
