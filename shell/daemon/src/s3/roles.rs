//! `nacre s3 role ...`: roles, whose rights others may take for a time.

use super::admin::{Asked, Given, asked};
use clap::{Args, Subcommand};
use nacre_gateway::Verb;

/// Which role.
#[derive(Args)]
pub struct RoleName {
    #[arg(long, value_name = "NAME")]
    role_name: String,
    /// The role's tenant.
    #[arg(long)]
    tenant: Option<String>,
}

/// `nacre s3 role`
#[derive(Subcommand)]
pub enum Role {
    /// Make a role.
    Create {
        #[command(flatten)]
        name: RoleName,
        #[arg(long, value_name = "PATH")]
        path: Option<String>,
        /// The policy that says which principals may take the role, in JSON.
        #[arg(long, value_name = "JSON")]
        assume_role_policy_doc: String,
        /// How many seconds a session may be long, at most 43200.
        #[arg(long, value_name = "SECONDS")]
        max_session_duration: Option<u32>,
    },
    /// Show a role.
    Get {
        #[command(flatten)]
        name: RoleName,
    },
    /// List all roles.
    #[command(alias = "list")]
    Ls,
    /// Change which principals may take the role.
    Modify {
        #[command(flatten)]
        name: RoleName,
        #[arg(long, value_name = "JSON")]
        assume_role_policy_doc: String,
    },
    /// Remove a role.
    #[command(alias = "delete")]
    Rm {
        #[command(flatten)]
        name: RoleName,
    },
}

/// `nacre s3 role-policy`
#[derive(Subcommand)]
pub enum RolePolicy {
    /// Attach a policy, or replace it.
    Put {
        #[command(flatten)]
        name: RoleName,
        #[arg(long, value_name = "NAME")]
        policy_name: String,
        /// The document, in JSON.
        #[arg(long, value_name = "JSON")]
        policy_doc: String,
    },
    /// Show a policy.
    Get {
        #[command(flatten)]
        name: RoleName,
        #[arg(long, value_name = "NAME")]
        policy_name: String,
    },
    /// List the names of a role's policies.
    #[command(alias = "list")]
    Ls {
        #[command(flatten)]
        name: RoleName,
    },
    /// Detach a policy.
    #[command(alias = "delete")]
    Rm {
        #[command(flatten)]
        name: RoleName,
        #[arg(long, value_name = "NAME")]
        policy_name: String,
    },
}

fn of(name: &RoleName) -> Given {
    Given::default().with("role-name", &Some(&name.role_name)).with("tenant", &name.tenant)
}

impl Role {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        match self {
            Role::Create { name, path, assume_role_policy_doc, max_session_duration } => {
                let given = of(name).with("path", path);
                let given = given.with("assume-role-policy-doc", &Some(assume_role_policy_doc));
                asked(Verb::RoleCreate, given.with("max-session-duration", max_session_duration))
            }
            Role::Get { name } => asked(Verb::RoleGet, of(name)),
            Role::Ls => asked(Verb::RoleList, Given::default()),
            Role::Modify { name, assume_role_policy_doc } => {
                let given = of(name).with("assume-role-policy-doc", &Some(assume_role_policy_doc));
                asked(Verb::RoleModify, given)
            }
            Role::Rm { name } => asked(Verb::RoleRemove, of(name)),
        }
    }
}

impl RolePolicy {
    /// What it asks for.
    pub fn asked(&self) -> Asked {
        match self {
            RolePolicy::Put { name, policy_name, policy_doc } => {
                let given = of(name).with("policy-name", &Some(policy_name));
                asked(Verb::RolePolicyPut, given.with("policy-doc", &Some(policy_doc)))
            }
            RolePolicy::Get { name, policy_name } => {
                asked(Verb::RolePolicyGet, of(name).with("policy-name", &Some(policy_name)))
            }
            RolePolicy::Ls { name } => asked(Verb::RolePolicyList, of(name)),
            RolePolicy::Rm { name, policy_name } => {
                asked(Verb::RolePolicyRemove, of(name).with("policy-name", &Some(policy_name)))
            }
        }
    }
}
